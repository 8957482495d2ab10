"""Questions that the broker passes on to consumers, and what comes back when they do not answer."""

from typing import Any

import pytest

from tests.unit.broker.driver import Client, Driver
from trimtab.model import MessageQueue
from trimtab.wire.bodies import (
    ConsumeMessageDirectlyResult,
    ConsumeResult,
    ConsumerRunningInfo,
    GetConsumerStatusBody,
    ResetOffsetBody,
    ResetOffsetBodyForC,
)
from trimtab.wire.codes import LanguageCode, RequestCode, ResponseCode, Version
from trimtab.wire.commands import Command
from trimtab.wire.fastjson import decode_body
from trimtab.wire.fastjson_writer import encode_body
from trimtab.wire.headers.admin import GetConsumerStatus, ResetOffset
from trimtab.wire.headers.base import decode_ext
from trimtab.wire.headers.callbacks import ConsumeMessageDirectly, GetConsumerRunningInfo, GetInfoOfOurs
from trimtab.wire.messages import decode_messages

RUNNING, DIRECTLY = RequestCode.GET_CONSUMER_RUNNING_INFO, RequestCode.CONSUME_MESSAGE_DIRECTLY
RESET, RESET_TOLD = RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, RequestCode.RESET_CONSUMER_CLIENT_OFFSET
STATUS, STATUS_ASKED = (
    RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS,
    RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT,
)
V4 = Version.V4_9_3
V5 = Version.V5_0_0


def queue(queue_id: int) -> MessageQueue:
    return MessageQueue("T", "broker-a", queue_id)


def consumer(broker: Driver, client_id: str, version: int = Version.V4_9_3) -> Client:
    client = broker.connect()
    client.heartbeat(client_id, consumes={"g": ["T"]}, version=version)
    client.received()
    return client


def running(client_id: str = "c1", group: str = "g") -> GetConsumerRunningInfo:
    return GetConsumerRunningInfo(consumer_group=group, client_id=client_id, jstack_enable=True)


# --- running info and direct consumption


def test_a_consumers_answer_reaches_the_tool_that_asked() -> None:
    broker = Driver()
    member, tool = consumer(broker, "c1"), broker.connect()
    opaque = tool.request(RUNNING, running())
    assert opaque not in tool.answers
    (asked,) = member.received(RUNNING)
    assert not asked.is_oneway
    assert decode_ext(GetConsumerRunningInfo, asked.ext) == running()
    body = encode_body(ConsumerRunningInfo(properties={"PROP_CONSUME_TYPE": "CONSUME_PASSIVELY"}))
    member.reply(asked, body=body)
    assert (tool.answers[opaque].code, tool.answers[opaque].body) == (ResponseCode.SUCCESS, body)


def test_a_consumers_refusal_reaches_the_tool_too() -> None:
    broker = Driver()
    member, tool = consumer(broker, "c1"), broker.connect()
    opaque = tool.request(RUNNING, running())
    (asked,) = member.received(RUNNING)
    member.reply(asked, code=1, remark="The Consumer Group <g> not exist in this consumer")
    assert tool.answers[opaque].code == ResponseCode.SYSTEM_ERROR
    assert "not exist in this consumer" in (tool.answers[opaque].remark or "")


@pytest.mark.parametrize(("client_id", "group"), [("c2", "g"), ("c1", "other"), ("", "g"), ("c1", "")])
def test_who_is_not_there_cannot_be_asked(client_id: str, group: str) -> None:
    broker = Driver()
    consumer(broker, "c1")
    answer = broker.connect().ask(RUNNING, running(client_id, group))
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert "not online" in (answer.remark or "")


def test_a_producer_is_asked_if_one_is_meant() -> None:
    broker = Driver()
    both, tool = broker.connect(), broker.connect()
    both.heartbeat("c1", consumes={"g": ["T"]}, produces=["p"])
    both.received()
    wish = GetInfoOfOurs(consumer_group="p", client_id="c1", of_producer=True)
    opaque = tool.request(RUNNING, wish)
    (asked,) = both.received(RUNNING)
    assert decode_ext(GetInfoOfOurs, asked.ext) == wish
    both.reply(asked, body=b"{}")
    assert tool.answers[opaque].body == b"{}"
    for missing in (
        GetInfoOfOurs(consumer_group="g", client_id="c1", of_producer=True),
        GetInfoOfOurs(consumer_group="p", client_id="c2", of_producer=True),
        running("c1", "p"),
    ):
        answer = tool.ask(RUNNING, missing)
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert "not online" in (answer.remark or "")


def test_a_consumer_that_is_too_old_is_not_asked() -> None:
    broker = Driver()
    member = consumer(broker, "c1", version=61)
    answer = broker.connect().ask(RUNNING, running())
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert "too low" in (answer.remark or "")
    assert member.received() == []


def test_a_consumer_that_does_not_answer_in_10_s_is_reported_and_its_late_answer_dropped() -> None:
    broker = Driver()
    member, tool = consumer(broker, "c1"), broker.connect()
    opaque = tool.request(RUNNING, running())
    (asked,) = member.received(RUNNING)
    broker.advance(9_900)
    assert opaque not in tool.answers
    broker.advance(200)
    assert tool.answers[opaque].code == ResponseCode.CONSUME_MSG_TIMEOUT
    member.reply(asked)
    assert len(tool.answers) == 1


def test_a_consumer_that_vanishes_is_reported_at_once() -> None:
    broker = Driver()
    member, tool = consumer(broker, "c1"), broker.connect()
    opaque = tool.request(RUNNING, running())
    member.close()
    assert tool.answers[opaque].code == ResponseCode.SYSTEM_ERROR
    assert "closed" in (tool.answers[opaque].remark or "")


def test_a_tool_that_vanishes_is_no_harm() -> None:
    broker = Driver()
    member, tool = consumer(broker, "c1"), broker.connect()
    tool.request(RUNNING, running())
    (asked,) = member.received(RUNNING)
    tool.close()
    member.reply(asked)
    broker.advance(11_000)


def test_an_answer_from_somebody_else_is_not_taken_for_the_consumers() -> None:
    broker = Driver()
    member, stranger, tool = consumer(broker, "c1"), broker.connect(), broker.connect()
    opaque = tool.request(RUNNING, running())
    (asked,) = member.received(RUNNING)
    stranger.reply(asked, body=b"forged")
    assert opaque not in tool.answers
    member.reply(asked, body=b"true")
    assert tool.answers[opaque].body == b"true"


def test_a_broker_that_stops_tells_those_who_wait_for_a_client() -> None:
    broker = Driver()
    member, tool = consumer(broker, "c1"), broker.connect()
    opaques = [
        tool.request(RUNNING, running()),
        tool.request(STATUS, GetConsumerStatus(topic="T", group="g")),
    ]
    assert len(member.received()) == 2
    broker.stop()
    assert [opaque in tool.answers for opaque in opaques] == [True, True]


def test_the_newest_connection_of_a_client_id_is_asked() -> None:
    broker = Driver()
    old = consumer(broker, "c1")
    broker.advance(1_000)
    new = consumer(broker, "c1")
    broker.connect().request(RUNNING, running())
    assert (len(old.received(RUNNING)), len(new.received(RUNNING))) == (0, 1)


def test_a_message_is_handed_to_the_consumer_as_it_is_stored() -> None:
    broker = Driver()
    member, tool = consumer(broker, "c1"), broker.connect()
    receipt = tool.send("T", b"try this", TAGS="eu")
    header = ConsumeMessageDirectly(consumer_group="g", client_id="c1", msg_id=receipt.msg_id)
    opaque = tool.request(DIRECTLY, header)
    (asked,) = member.received(DIRECTLY)
    assert decode_ext(ConsumeMessageDirectly, asked.ext).broker_name == "broker-a"
    (message,) = decode_messages(asked.body)
    assert (message.body, message.tag, message.offset_message_id) == (b"try this", "eu", receipt.msg_id)
    result = encode_body(ConsumeMessageDirectlyResult(consume_result=ConsumeResult.CR_SUCCESS))
    member.reply(asked, body=result)
    assert tool.answers[opaque].body == result


@pytest.mark.parametrize("msg_id", [None, "", "x" * 32, "0" * 32, "F" * 56, "\u00e9" * 32])
def test_a_message_that_is_not_there_cannot_be_consumed(msg_id: str | None) -> None:
    broker = Driver()
    member = consumer(broker, "c1")
    header = ConsumeMessageDirectly(consumer_group="g", client_id="c1", msg_id=msg_id)
    assert broker.connect().ask(DIRECTLY, header).code == ResponseCode.SYSTEM_ERROR
    assert member.received() == []


# --- resetting offsets


def reset(timestamp: int = -1, **changes: Any) -> ResetOffset:
    fields: dict[str, Any] = {"topic": "T", "group": "g", "timestamp": timestamp, "is_force": True}
    return ResetOffset(**(fields | changes))


def with_offsets(broker: Driver, committed: int = 5) -> None:
    """Ten messages, a second apart, in each of four queues, and a group in the middle."""
    client = broker.connect()
    for _ in range(10):
        for queue_id in range(4):
            client.send("T", queue_id=queue_id)
        broker.advance(1_000)
    for queue_id in range(4):
        broker.core.offsets.commit("g", "T", queue_id, committed)


def told_offsets(told: Command) -> dict[MessageQueue, int]:
    assert told.is_oneway
    return decode_body(ResetOffsetBody, told.body).offset_table


def test_4_9_tells_every_member_and_changes_nothing_itself() -> None:
    broker = Driver()
    with_offsets(broker)
    members = [consumer(broker, name) for name in ("c1", "c2")]
    answer = broker.connect().ask(RESET, reset())
    table = {queue(queue_id): 10 for queue_id in range(4)}
    assert (answer.code, decode_body(ResetOffsetBody, answer.body).offset_table) == (0, table)
    for member in members:
        (told,) = member.received(RESET_TOLD)
        assert told_offsets(told) == table
        header = decode_ext(ResetOffset, told.ext)
        assert (header.topic, header.group, header.timestamp, header.is_force) == ("T", "g", -1, False)
    assert broker.core.offsets.of("g", "T") == dict.fromkeys(range(4), 5)


@pytest.mark.parametrize(("is_force", "expected"), [(True, 8), (False, 5)])
def test_without_force_nobody_is_moved_forward(is_force: bool, expected: int) -> None:
    broker = Driver()
    start_ms = broker.now.wall_ms
    with_offsets(broker)
    member = consumer(broker, "c1")
    broker.connect().ask(RESET, reset(start_ms + 8_000, is_force=is_force))
    (told,) = member.received(RESET_TOLD)
    assert set(told_offsets(told).values()) == {expected}


def test_without_force_everybody_is_moved_back() -> None:
    broker = Driver()
    start_ms = broker.now.wall_ms
    with_offsets(broker)
    member = consumer(broker, "c1")
    broker.connect().ask(RESET, reset(start_ms + 2_000, is_force=False))
    assert set(told_offsets(member.received(RESET_TOLD)[0]).values()) == {2}


def test_a_tool_in_cpp_makes_the_broker_write_standard_json() -> None:
    broker = Driver()
    with_offsets(broker)
    member = consumer(broker, "c1")
    answer = broker.connect().ask(RESET, reset(), language=LanguageCode.CPP)
    assert decode_body(ResetOffsetBody, answer.body).offset_table[queue(0)] == 10
    (told,) = member.received(RESET_TOLD)
    entries = decode_body(ResetOffsetBodyForC, told.body).offset_table
    assert [(entry.topic, entry.broker_name, entry.queue_id, entry.offset) for entry in entries] == [
        ("T", "broker-a", queue_id, 10) for queue_id in range(4)
    ]


def test_4_9_needs_a_member_an_offset_and_a_topic() -> None:
    broker = Driver()
    tool = broker.connect()
    assert tool.ask(RESET, reset()).code == ResponseCode.SYSTEM_ERROR
    tool.send("T")
    assert tool.ask(RESET, reset()).code == ResponseCode.SYSTEM_ERROR
    with_offsets(broker)
    assert tool.ask(RESET, reset()).code == ResponseCode.CONSUMER_NOT_ONLINE
    consumer(broker, "c1", version=27)
    assert tool.ask(RESET, reset()).code == ResponseCode.SYSTEM_ERROR


def test_5_x_moves_the_group_itself_with_and_without_members() -> None:
    broker = Driver()
    with_offsets(broker)
    broker.core.find_or_create_group("g", broker.now)
    tool = broker.connect()
    answer = tool.ask(RESET, reset(), version=V5)
    assert answer.code == ResponseCode.SUCCESS
    assert broker.core.offsets.of("g", "T") == dict.fromkeys(range(4), 10)
    member = consumer(broker, "c1")
    tool.ask(RESET, reset(0), version=V5)
    assert broker.core.offsets.of("g", "T") == dict.fromkeys(range(4), 0)
    assert set(told_offsets(member.received(RESET_TOLD)[0]).values()) == {0}


@pytest.mark.parametrize(
    ("version", "after_ms", "expected"),
    [(V5, 2_400, 3), (V5, 3_000, 3), (V5, 60_000, 10), (V4, 2_400, 2), (V4, 3_000, 3), (V4, 60_000, 9)],
)
def test_a_time_between_messages_means_the_nearest_one_to_4_9_and_the_next_one_to_5_x(
    version: int, after_ms: int, expected: int
) -> None:
    broker = Driver()
    start_ms = broker.now.wall_ms
    with_offsets(broker)
    broker.core.find_or_create_group("g", broker.now)
    consumer(broker, "c1")
    answer = broker.connect().ask(RESET, reset(start_ms + after_ms), version=version)
    assert decode_body(ResetOffsetBody, answer.body).offset_table == {
        queue(queue_id): expected for queue_id in range(4)
    }


def test_5_x_can_move_one_queue_to_an_offset() -> None:
    broker = Driver()
    with_offsets(broker)
    broker.core.find_or_create_group("g", broker.now)
    tool = broker.connect()
    answer = tool.ask(RESET, reset(queue_id=2, offset=7), version=V5)
    assert decode_body(ResetOffsetBody, answer.body).offset_table == {queue(2): 7}
    assert broker.core.offsets.of("g", "T") == {0: 5, 1: 5, 2: 7, 3: 5}
    tool.ask(RESET, reset(queue_id=2, offset=-1), version=V5)
    assert broker.core.offsets.get("g", "T", 2) == 10


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"queue_id": 9, "offset": 1}, ResponseCode.SYSTEM_ERROR),
        ({"queue_id": 0, "offset": 11}, ResponseCode.SYSTEM_ERROR),
        ({"queue_id": 0, "offset": -7}, ResponseCode.SYSTEM_ERROR),
        ({"topic": "none"}, ResponseCode.TOPIC_NOT_EXIST),
        ({"group": "none"}, ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST),
    ],
)
def test_5_x_refuses_what_is_not_there(changes: dict[str, Any], code: ResponseCode) -> None:
    broker = Driver()
    with_offsets(broker)
    broker.core.find_or_create_group("g", broker.now)
    assert broker.connect().ask(RESET, reset(**changes), version=V5).code == code
    assert broker.core.offsets.of("g", "T") == dict.fromkeys(range(4), 5)


# --- collecting offsets


def test_the_offsets_of_all_members_are_collected() -> None:
    broker = Driver()
    members = {name: consumer(broker, name) for name in ("c1", "c2")}
    tool = broker.connect()
    opaque = tool.request(STATUS, GetConsumerStatus(topic="T", group="g"))
    for number, member in enumerate(members.values()):
        (asked,) = member.received(STATUS_ASKED)
        assert opaque not in tool.answers
        member.reply(asked, body=encode_body(GetConsumerStatusBody(message_queue_table={queue(number): 7})))
    found = decode_body(GetConsumerStatusBody, tool.answers[opaque].body)
    assert found.consumer_table == {"c1": {queue(0): 7}, "c2": {queue(1): 7}}


def test_one_member_can_be_chosen() -> None:
    broker = Driver()
    first, second = consumer(broker, "c1"), consumer(broker, "c2")
    tool = broker.connect()
    opaque = tool.request(STATUS, GetConsumerStatus(topic="T", group="g", client_addr="c2"))
    assert first.received(STATUS_ASKED) == []
    second.reply(second.received(STATUS_ASKED)[0], body=encode_body(GetConsumerStatusBody()))
    assert decode_body(GetConsumerStatusBody, tool.answers[opaque].body).consumer_table == {"c2": {}}


@pytest.mark.parametrize("trouble", ["silence", "nonsense", "refusal", "gone", "empty"])
def test_a_member_in_trouble_does_not_keep_the_others_answers_back(trouble: str) -> None:
    broker = Driver()
    good, bad = consumer(broker, "c1"), consumer(broker, "c2")
    tool = broker.connect()
    opaque = tool.request(STATUS, GetConsumerStatus(topic="T", group="g"))
    good.reply(
        good.received(STATUS_ASKED)[0],
        body=encode_body(GetConsumerStatusBody(message_queue_table={queue(0): 7})),
    )
    (asked,) = bad.received(STATUS_ASKED)
    if trouble == "silence":
        broker.advance(5_100)
    elif trouble == "gone":
        bad.close()
    else:
        bodies = {"nonsense": b"[" * 2_000, "refusal": b"", "empty": b""}
        bad.reply(asked, code=int(trouble == "refusal"), body=bodies[trouble])
    assert decode_body(GetConsumerStatusBody, tool.answers[opaque].body).consumer_table == {
        "c1": {queue(0): 7}
    }


def test_a_group_without_members_is_refused_and_an_unknown_member_is_an_empty_answer() -> None:
    broker = Driver()
    tool = broker.connect()
    assert tool.ask(STATUS, GetConsumerStatus(topic="T", group="g")).code == ResponseCode.SYSTEM_ERROR
    consumer(broker, "c1")
    answer = tool.ask(STATUS, GetConsumerStatus(topic="T", group="g", client_addr="c9"))
    assert decode_body(GetConsumerStatusBody, answer.body).consumer_table == {}
