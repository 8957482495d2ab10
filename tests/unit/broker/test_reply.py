"""Request and reply: the broker hands a reply to the client that asked, and keeps it."""

from typing import Any

import pytest

from tests.unit.broker.driver import Client, Driver, HeldExecutor
from trimtab.broker.store.errors import StoreFullError
from trimtab.wire.codes import RequestCode, ResponseCode
from trimtab.wire.commands import Command
from trimtab.wire.headers.base import decode_ext
from trimtab.wire.headers.callbacks import PushReplyMessage
from trimtab.wire.headers.send import SendMessage, SendMessageResponse
from trimtab.wire.properties import decode_properties

REPLY, REPLY_V2, PUSH = (
    RequestCode.SEND_REPLY_MESSAGE,
    RequestCode.SEND_REPLY_MESSAGE_V2,
    RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT,
)
TOPIC = "DefaultCluster_REPLY_TOPIC"


def requester(broker: Driver) -> Client:
    client = broker.connect()
    client.heartbeat("asker@1", produces=["CLIENT_INNER_PRODUCER"])
    return client


def reply(client: Client, **properties: Any) -> int:
    given: dict[str, Any] = {
        "REPLY_TO_CLIENT": "asker@1",
        "CORRELATION_ID": "c-1",
        "MSG_TYPE": "reply",
        "TTL": "3000",
        **properties,
    }
    return client.request(REPLY_V2, client.send_header(TOPIC, **given), b"42")


def pushed(client: Client) -> tuple[Command, PushReplyMessage]:
    (command,) = client.received(PUSH)
    assert not command.is_oneway
    return command, decode_ext(PushReplyMessage, command.ext)


def test_a_reply_reaches_the_client_that_asked_and_is_stored() -> None:
    broker = Driver()
    asker, replier = requester(broker), broker.connect()
    opaque = reply(replier)
    command, header = pushed(asker)
    assert command.body == b"42"
    assert (header.topic, header.flag, header.store_host) == (TOPIC, 7, "127.0.0.1:10911")
    assert header.born_host.startswith("10.0.0.")
    properties = decode_properties((header.properties or "").encode())
    assert properties["CORRELATION_ID"] == "c-1"
    assert properties["PUSH_REPLY_TIME"] == str(broker.now.wall_ms)
    assert opaque not in replier.answers
    asker.reply(command)
    answer = replier.answers[opaque]
    assert answer.code == ResponseCode.SUCCESS
    (stored,) = replier.pull(TOPIC)
    assert decode_ext(SendMessageResponse, answer.ext).msg_id == stored.offset_message_id
    assert (stored.body, stored.properties["CORRELATION_ID"]) == (b"42", "c-1")
    assert "PUSH_REPLY_TIME" not in stored.properties


def test_the_long_names_do_as_well() -> None:
    broker = Driver()
    asker, replier = requester(broker), broker.connect()
    header = SendMessage(
        producer_group="g", topic=TOPIC, default_topic="TBW102", default_topic_queue_nums=4, queue_id=0, sys_flag=1,
        born_timestamp=1, flag=0, properties="REPLY_TO_CLIENT\x01asker@1\x02CORRELATION_ID\x01c-1",
    )  # fmt: skip
    opaque = replier.request(REPLY, header, b"42")
    command, told = pushed(asker)
    assert (told.sys_flag, told.producer_group) == (1, "g")
    asker.reply(command)
    assert replier.answers[opaque].code == ResponseCode.SUCCESS


def test_the_reply_is_not_held_up_by_the_disk_but_its_answer_is() -> None:
    disk = HeldExecutor()
    broker = Driver(sync_executor=disk)
    asker, replier = requester(broker), broker.connect()
    opaque = reply(replier)
    command, _ = pushed(asker)
    asker.reply(command)
    assert opaque not in replier.answers
    disk.run()
    assert replier.answers[opaque].code == ResponseCode.SUCCESS


@pytest.mark.parametrize("properties", [{"REPLY_TO_CLIENT": "nobody"}, {"REPLY_TO_CLIENT": "asker@1 "}])
def test_without_somebody_who_asked_the_replier_hears_so_and_the_reply_is_kept(
    properties: dict[str, str],
) -> None:
    broker = Driver()
    requester(broker)
    replier = broker.connect()
    opaque = reply(replier, **properties)
    answer = replier.answers[opaque]
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert "not found" in (answer.remark or "")
    assert decode_ext(SendMessageResponse, answer.ext).queue_offset == 0
    assert len(replier.pull(TOPIC)) == 1


def test_a_reply_that_does_not_say_to_whom_is_refused() -> None:
    broker = Driver()
    replier = broker.connect()
    opaque = replier.request(REPLY_V2, replier.send_header(TOPIC, CORRELATION_ID="c-1"), b"42")
    assert replier.answers[opaque].code == ResponseCode.SYSTEM_ERROR
    assert "REPLY_TO_CLIENT" in (replier.answers[opaque].remark or "")


@pytest.mark.parametrize("trouble", ["refusal", "silence", "gone", "stop"])
def test_a_requester_in_trouble_is_reported(trouble: str) -> None:
    broker = Driver()
    asker, replier = requester(broker), broker.connect()
    opaque = reply(replier)
    command, _ = pushed(asker)
    if trouble == "refusal":
        asker.reply(command, code=1, remark="process reply message fail")
    elif trouble == "silence":
        broker.advance(9_900)
        assert opaque not in replier.answers
        broker.advance(200)
    elif trouble == "gone":
        asker.close()
    else:
        broker.stop()
    assert replier.answers[opaque].code == ResponseCode.SYSTEM_ERROR


def test_a_reply_that_cannot_be_stored_is_handed_over_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = Driver()
    asker, replier = requester(broker), broker.connect()

    def full(*_: object, **__: object) -> None:
        raise StoreFullError("no room")

    monkeypatch.setattr(broker.core.store, "append", full)
    opaque = reply(replier)
    asker.reply(pushed(asker)[0])
    answer = replier.answers[opaque]
    assert answer.code == ResponseCode.SUCCESS
    assert decode_ext(SendMessageResponse, answer.ext).msg_id == "0"


def test_a_one_way_reply_is_handed_over_and_not_answered() -> None:
    broker = Driver()
    asker, replier = requester(broker), broker.connect()
    header = replier.send_header(TOPIC, REPLY_TO_CLIENT="asker@1")
    opaque = replier.request(REPLY_V2, header, b"42", is_oneway=True)
    asker.reply(pushed(asker)[0])
    assert opaque not in replier.answers


def test_a_reply_to_a_topic_that_nobody_may_send_to_is_refused() -> None:
    client = Driver().connect()
    for topic in ("SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRANS_HALF_TOPIC"):
        answer = client.ask(REPLY_V2, client.send_header(topic, REPLY_TO_CLIENT="x"), b"42")
        assert answer.code == ResponseCode.NO_PERMISSION
