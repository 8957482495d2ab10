"""Mission B at the broker: heartbeats, notices, goodbyes, and the list of members."""

from tests.unit.broker.driver import Client, Driver
from trimtab.model import MessageQueue
from trimtab.wire.bodies import ConsumerIdList, LockBatchResponseBody, SubscriptionGroupConfig
from trimtab.wire.codes import LEASED_VERSION, LanguageCode, RequestCode, ResponseCode, Version
from trimtab.wire.fastjson import decode_body
from trimtab.wire.fastjson_writer import encode_body
from trimtab.wire.headers.consume import GroupOnly, UnregisterClient

NOTICE = RequestCode.NOTIFY_CONSUMER_IDS_CHANGED


def members(client: Client, group: str = "g") -> list[str]:
    answer = client.ask(RequestCode.GET_CONSUMER_LIST_BY_GROUP, GroupOnly(consumer_group=group))
    return list(decode_body(ConsumerIdList, answer.body).consumer_id_list) if answer.code == 0 else []


def test_b4_a_new_member_is_told_to_every_member_one_way() -> None:
    broker = Driver()
    first, second = broker.connect(), broker.connect()
    first.heartbeat("a", consumes={"g": ["T"]})
    first.received()
    second.heartbeat("b", consumes={"g": ["T"]})
    for client in (first, second):
        (notice,) = client.received(NOTICE)
        assert notice.is_oneway
        assert dict(notice.ext) == {"consumerGroup": "g"}


def test_b4_a_heartbeat_without_change_tells_nobody() -> None:
    broker = Driver()
    client = broker.connect()
    client.heartbeat("a", consumes={"g": ["T"]})
    client.received()
    client.heartbeat("a", consumes={"g": ["T"]})
    assert client.received(NOTICE) == []


def test_b4_the_groups_retry_topic_is_made() -> None:
    broker = Driver()
    broker.connect().heartbeat("a", consumes={"g": ["T"]})
    topic = broker.core.topics.get("%RETRY%g")
    assert topic is not None
    assert (topic.read_queue_nums, topic.perm) == (1, 6)
    assert broker.core.changed_routes is None


def test_b5_a_goodbye_tells_the_others_and_an_empty_group_is_gone() -> None:
    broker = Driver()
    first, second = broker.connect(), broker.connect()
    first.heartbeat("a", consumes={"g": ["T"]})
    second.heartbeat("b", consumes={"g": ["T"]})
    first.received()
    second.ask(RequestCode.UNREGISTER_CLIENT, UnregisterClient(client_id="b", consumer_group="g"))
    assert len(first.received(NOTICE)) == 1
    assert members(first) == ["a"]
    first.ask(RequestCode.UNREGISTER_CLIENT, UnregisterClient(client_id="a", consumer_group="g"))
    answer = first.ask(RequestCode.GET_CONSUMER_LIST_BY_GROUP, GroupOnly(consumer_group="g"))
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert "no consumer for this group" in (answer.remark or "")


def test_b5_a_connection_that_closes_is_a_member_that_left() -> None:
    broker = Driver()
    first, second = broker.connect(), broker.connect()
    first.heartbeat("a", consumes={"g": ["T"]})
    second.heartbeat("b", consumes={"g": ["T"]})
    first.received()
    second.close()
    assert len(first.received(NOTICE)) == 1
    assert members(first) == ["a"]


def test_b5_a_member_silent_for_120_s_is_closed_and_the_others_are_told() -> None:
    broker = Driver()
    first, second = broker.connect(), broker.connect()
    first.heartbeat("a", consumes={"g": ["T"]})
    second.heartbeat("b", consumes={"g": ["T"]})
    broker.advance(100_000)
    first.heartbeat("a", consumes={"g": ["T"]})
    first.received()
    broker.advance(21_000)
    assert second.is_closed
    assert not first.is_closed
    assert len(first.received(NOTICE)) == 1


def test_b6_the_list_names_every_member() -> None:
    broker = Driver()
    clients = [broker.connect() for _ in range(3)]
    for number, client in enumerate(clients):
        client.heartbeat(f"c{number}", consumes={"g": ["T"]})
    assert members(clients[0]) == ["c0", "c1", "c2"]
    assert members(clients[0], "other") == []


def test_an_unknown_request_is_answered_that_it_is_not_supported() -> None:
    client = Driver().connect()
    answer = client.ask(RequestCode.REGISTER_TOPIC_IN_NAMESRV)
    assert answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
    assert answer.remark == " request type 217 not supported"


def test_a_group_that_is_set_to_be_quiet_hears_of_no_goodbye_either() -> None:
    broker = Driver()
    first, second = broker.connect(), broker.connect()
    quiet = SubscriptionGroupConfig(group_name="g", notify_consumer_ids_changed_enable=False)
    first.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=encode_body(quiet))
    first.heartbeat("a", consumes={"g": ["T"]})
    second.heartbeat("b", consumes={"g": ["T"]})
    second.ask(RequestCode.UNREGISTER_CLIENT, UnregisterClient(client_id="b", consumer_group="g"))
    assert first.received(NOTICE) == []
    assert members(first) == ["a"]


def test_a_subscription_to_a_topic_that_cannot_be_leaves_the_rest_of_a_heartbeat_as_it_is() -> None:
    broker = Driver()
    client = broker.connect()
    client.heartbeat("a", consumes={"g": ["my.topic", "T"], "h": ["a b"]}, produces=["p"])
    assert members(client, "g") == members(client, "h") == ["a"]
    assert len(broker.core.producers.members("p")) == 1
    group = broker.core.consumers.get("g")
    assert group is not None
    assert list(group.subscriptions) == ["T"]


def lock_after_close(version: int, heard_ms: int) -> bool:
    """Whether another member gets a queue so long after the holder's connection closed, which had just renewed."""
    broker = Driver()
    holder, other = broker.connect(), broker.connect()
    queue = MessageQueue("T", "broker-a", 0)
    for client, client_id in ((holder, "a"), (other, "b")):
        client.heartbeat(client_id, consumes={"g": ["T"]}, version=version, language=LanguageCode.PYTHON)
    holder.lock("g", "a", queue)
    holder.close()
    broker.advance(heard_ms)
    return bool(decode_body(LockBatchResponseBody, other.lock("g", "b", queue).body).lock_ok_mq_set)


def test_a_closed_connection_frees_the_leases_of_a_member_that_stops_with_it() -> None:
    assert not lock_after_close(LEASED_VERSION, 2_900)
    assert lock_after_close(LEASED_VERSION, 3_100)


def test_a_closed_connection_frees_the_locks_of_a_member_like_javas_when_it_trusts_them_no_more() -> None:
    assert not lock_after_close(Version.V4_9_3, 29_900)
    assert lock_after_close(Version.V4_9_3, 30_100)
