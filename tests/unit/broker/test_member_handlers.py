"""Mission B at the broker: heartbeats, notices, goodbyes, and the list of members."""

from tests.unit.broker.driver import Client, Driver
from trimtab.wire.bodies import ConsumerIdList
from trimtab.wire.codes import RequestCode, ResponseCode
from trimtab.wire.fastjson import decode_body
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
    assert broker.core.routes_changed


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
