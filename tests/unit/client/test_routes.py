"""A route as a client reads it."""

from trimtab.client.routes import Route, as_new_topic
from trimtab.model import MessageQueue
from trimtab.wire.bodies import BrokerData, QueueData, TopicRouteData


def data(*queues: QueueData, slaves_only: str = "", order: str | None = None) -> TopicRouteData:
    brokers = tuple(
        BrokerData(
            broker_name=name,
            broker_addrs={1: f"{name}:1"} if name == slaves_only else {0: f"{name}:0", 1: f"{name}:1"},
        )
        for name in ("a", "b")
    )
    return TopicRouteData(queue_datas=queues, broker_datas=brokers, order_topic_conf=order)


def queue_data(name: str, reads: int, writes: int, perm: int = 6) -> QueueData:
    return QueueData(broker_name=name, read_queue_nums=reads, write_queue_nums=writes, perm=perm)


def test_producers_see_write_queues_and_consumers_read_queues() -> None:
    route = Route("T", data(queue_data("b", 1, 2), queue_data("a", 2, 1)))
    assert route.writable.queues == (
        MessageQueue("T", "a", 0),
        MessageQueue("T", "b", 0),
        MessageQueue("T", "b", 1),
    )
    assert route.readable == (MessageQueue("T", "a", 0), MessageQueue("T", "a", 1), MessageQueue("T", "b", 0))
    assert route.master_of("a") == "a:0"
    assert route.master_of("c") is None


def test_read_only_queues_and_brokers_without_a_master_are_not_written_to() -> None:
    route = Route("T", data(queue_data("a", 4, 4, perm=4), queue_data("b", 4, 4), slaves_only="b"))
    assert route.writable.queues == ()
    assert len(route.readable) == 8


def test_write_only_queues_are_not_read() -> None:
    assert Route("T", data(queue_data("a", 4, 4, perm=2))).readable == ()


def test_an_order_configuration_overrides_the_queues() -> None:
    route = Route("T", data(queue_data("a", 8, 8), order="a:1;b:2;nonsense"))
    assert route.writable.queues == (
        MessageQueue("T", "a", 0),
        MessageQueue("T", "b", 0),
        MessageQueue("T", "b", 1),
    )


def test_a_topic_that_sending_creates_has_no_more_queues_than_asked_for() -> None:
    clamped = as_new_topic(data(queue_data("a", 8, 8), queue_data("b", 2, 2)), 4)
    assert [(queues.read_queue_nums, queues.write_queue_nums) for queues in clamped.queue_datas] == [
        (4, 4),
        (2, 2),
    ]


def test_another_broker_is_one_that_can_be_written_to() -> None:
    assert Route("T", data(queue_data("a", 1, 1), queue_data("b", 1, 1))).has_several_brokers
    assert not Route("T", data(queue_data("a", 1, 1), queue_data("b", 1, 1, perm=4))).has_several_brokers
    assert not Route(
        "T", data(queue_data("a", 1, 1), queue_data("b", 1, 1), slaves_only="b")
    ).has_several_brokers
