"""Timer messages: a moment of their own, kept to the second, never early, once, and taken back when asked."""

import base64
import random

import pytest

from tests.unit.broker.driver import WALL_MS, Client, Driver
from trimtab.broker import timers
from trimtab.broker.recalls import RecallHandle
from trimtab.broker.timers import Wheel
from trimtab.sim.disk import SimDisk
from trimtab.wire.codes import RequestCode, ResponseCode
from trimtab.wire.headers.base import decode_ext
from trimtab.wire.headers.send import RecallMessage, RecallMessageResponse

HOUR_MS = 3_600_000


def recall(client: Client, handle: str | None, topic: str = "T") -> int:
    header = RecallMessage(topic=topic, recall_handle=handle or "", producer_group="pg")
    return client.ask(RequestCode.RECALL_MESSAGE, header).code


@pytest.mark.parametrize(
    ("properties", "due_ms"),
    [
        ({"TIMER_DELAY_SEC": "3"}, 3_000),
        ({"TIMER_DELAY_MS": "2500"}, 2_500),
        ({"TIMER_DELIVER_MS": str(WALL_MS + 2_001)}, 2_001),
        ({"TIMER_DELIVER_MS": str(WALL_MS + 2_000)}, 2_000),
        ({"TIMER_DELAY_MS": "1"}, 1),
    ],
)
@pytest.mark.parametrize("late_ms", [0, 1, 400, 999])
def test_a_message_comes_within_the_second_after_its_time_and_never_before(
    properties: dict[str, str], due_ms: int, late_ms: int
) -> None:
    broker = Driver()
    broker.set_wall(WALL_MS + late_ms)
    if "TIMER_DELIVER_MS" in properties:
        due_ms -= late_ms
    client = broker.connect()
    client.send("T", b"body", queue_id=3, TAGS="eu", **properties)
    broker.advance(due_ms - 1, step_ms=10)
    assert client.pull("T", 3) == []
    broker.advance(1_000, step_ms=10)
    (message,) = client.pull("T", 3)
    assert (message.body, message.tag, message.topic, message.queue_id) == (b"body", "eu", "T", 3)


def test_a_time_that_is_over_means_at_once() -> None:
    broker = Driver()
    client = broker.connect()
    client.send("T", TIMER_DELIVER_MS=str(WALL_MS - 1))
    client.send("T", TIMER_DELIVER_MS=str(WALL_MS))
    assert len(client.pull("T")) == 2


@pytest.mark.parametrize("value", ["-1", "x", "9" * 30, str(4 * 24 * 3_600)])
def test_a_time_that_cannot_be_or_lies_too_far_ahead_is_refused(value: str) -> None:
    broker = Driver()
    client = broker.connect()
    answer = client.ask(RequestCode.SEND_MESSAGE_V2, client.send_header("T", TIMER_DELAY_SEC=value))
    assert answer.code == ResponseCode.MESSAGE_ILLEGAL
    assert len(broker.core.timers) == 0


def test_a_delay_level_counts_more_than_a_time() -> None:
    broker = Driver()
    client = broker.connect()
    client.send("T", DELAY="1", TIMER_DELAY_SEC="3600")
    broker.advance(1_000)
    (message,) = client.pull("T")
    assert "TIMER_DELAY_SEC" not in message.properties


def test_messages_come_in_the_order_of_their_times_not_of_their_arrival() -> None:
    broker = Driver()
    client = broker.connect()
    for seconds in (9, 3, 6, 1, 3):
        client.send("T", b"%d" % seconds, TIMER_DELAY_SEC=str(seconds))
    broker.advance(100)
    assert len(broker.core.timers) == 5
    broker.advance(11_000)
    assert client.bodies("T") == [b"1", b"3", b"3", b"6", b"9"]
    assert len(broker.core.timers) == 0


def test_a_second_with_more_than_a_tick_can_deliver_comes_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timers, "TICK_MESSAGES_MAX", 7)
    monkeypatch.setattr(timers, "READ_MESSAGES_MAX", 3)
    broker = Driver()
    client = broker.connect()
    for number in range(40):
        client.send("T", b"%d" % number, TIMER_DELIVER_MS=str(WALL_MS + 2_000 + 1_000 * (number % 5 == 0)))
    broker.advance(2_000)
    assert len(client.pull("T")) == 7
    broker.advance(5_000)
    assert sorted(client.bodies("T"), key=int) == [b"%d" % number for number in range(40)]


def test_the_wheel_gives_seconds_in_order_and_offsets_as_they_came() -> None:
    wheel = Wheel()
    for second, offset in ((5, 0), (3, 1), (5, 2), (4, 7)):
        wheel.add(second, offset)
    assert (len(wheel), wheel.first_second(), wheel.first_offset()) == (4, 3, 0)
    assert [(second, list(offsets)) for second, offsets in (wheel.take(), wheel.take(), wheel.take())] == [
        (3, [1]), (4, [7]), (5, [0, 2]),
    ]  # fmt: skip
    assert (len(wheel), wheel.first_second(), wheel.first_offset()) == (0, None, None)


# --- taking back


def test_a_message_taken_back_never_comes() -> None:
    broker = Driver()
    client = broker.connect()
    handle = client.send("T", b"no", UNIQ_KEY="U1", TIMER_DELAY_SEC="5").recall_handle
    client.send("T", b"yes", UNIQ_KEY="U2", TIMER_DELAY_SEC="5")
    answer = client.ask(
        RequestCode.RECALL_MESSAGE, RecallMessage(topic="T", recall_handle=handle or "", producer_group="pg")
    )
    assert answer.code == ResponseCode.SUCCESS
    assert decode_ext(RecallMessageResponse, answer.ext).msg_id == "U1"
    broker.advance(8_000)
    assert client.bodies("T") == [b"yes"]


def test_taking_back_works_when_the_recall_is_far_behind_the_message_and_over_a_restart() -> None:
    broker = Driver()
    client = broker.connect()
    handle = client.send("T", b"no", UNIQ_KEY="U1", TIMER_DELAY_SEC="5").recall_handle
    for number in range(50):
        client.send("T", UNIQ_KEY=f"X{number}", TIMER_DELAY_SEC="5")
    recall(client, handle)
    broker.advance(4_000)
    broker.restart(crash=True)
    broker.advance(4_000)
    assert len(broker.connect().pull("T")) == 50


def test_a_handle_says_what_java_reads() -> None:
    broker = Driver()
    client = broker.connect()
    handle = client.send("T", UNIQ_KEY="U1", TIMER_DELIVER_MS=str(WALL_MS + 5_500)).recall_handle
    assert base64.urlsafe_b64decode(handle or "").decode() == f"v1 T broker-a {WALL_MS + 5_001} U1"


def test_only_timer_messages_have_a_handle() -> None:
    client = Driver().connect()
    assert client.send("T", UNIQ_KEY="U1").recall_handle is None
    assert client.send("T", UNIQ_KEY="U1", DELAY="3").recall_handle is None


@pytest.mark.parametrize(
    "handle",
    [
        "", "x", "====", "\u00e9", base64.urlsafe_b64encode(b"v1 T broker-a").decode(), base64.urlsafe_b64encode(b"\xff\xfe").decode(),
        RecallHandle("U", "broker-a", WALL_MS + 5_001, "U1").encode(), RecallHandle("T", "broker-b", WALL_MS + 5_001, "U1").encode(),
        RecallHandle("T", "broker-a", WALL_MS - 1, "U1").encode(), RecallHandle("T", "broker-a", WALL_MS + 10 * 24 * HOUR_MS, "U1").encode(),
        base64.urlsafe_b64encode(b"v1 T broker-a " + b"9" * 40 + b" U1").decode(),
        base64.urlsafe_b64encode("v1 T broker-a ٣٣٣ U1".encode()).decode(),
    ],
)  # fmt: skip
def test_a_handle_that_is_wrong_is_refused(handle: str) -> None:
    client = Driver().connect()
    client.send("T")
    assert recall(client, handle) == ResponseCode.ILLEGAL_OPERATION


def test_taking_back_from_a_topic_that_is_not_there_is_refused() -> None:
    client = Driver().connect()
    handle = RecallHandle("T", "broker-a", WALL_MS + 5_001, "U1").encode()
    assert recall(client, handle) == ResponseCode.TOPIC_NOT_EXIST


def test_a_message_of_another_topic_cannot_be_taken_back() -> None:
    broker = Driver()
    client = broker.connect()
    client.send("T", b"stays", UNIQ_KEY="U1", TIMER_DELAY_SEC="5")
    client.send("V", UNIQ_KEY="U9", TIMER_DELAY_SEC="5", TIMER_DEL_UNIQKEY="T+U1")
    client.send("V", UNIQ_KEY="U9", TIMER_DELAY_SEC="5", TIMER_DEL_UNIQKEY="U1")
    broker.advance(8_000)
    assert client.bodies("T") == [b"stays"]
    assert client.bodies("V") == []


def test_the_older_way_to_take_back_names_the_key_alone() -> None:
    broker = Driver()
    client = broker.connect()
    client.send("T", b"no", UNIQ_KEY="U1", TIMER_DELAY_SEC="5")
    client.send("T", UNIQ_KEY="U9", TIMER_DELAY_SEC="5", TIMER_DEL_UNIQKEY="U1")
    broker.advance(8_000)
    assert client.bodies("T") == []


def test_taking_back_what_is_over_is_refused() -> None:
    client = Driver().connect()
    client.send("T")
    header = client.send_header("T", TIMER_DELIVER_MS=str(WALL_MS - 1), TIMER_DEL_UNIQKEY="T+U1")
    assert client.ask(RequestCode.SEND_MESSAGE_V2, header).code == ResponseCode.MESSAGE_ILLEGAL


# --- restarts


@pytest.mark.parametrize("crash", [False, True])
def test_a_restart_at_any_time_delivers_everything_once(crash: bool) -> None:
    for seed in range(10):
        rng = random.Random(seed)
        broker = Driver()
        sent = []
        for life in range(4):
            client = broker.connect()
            for number in range(rng.randrange(1, 15)):
                body = b"%d-%d" % (life, number)
                client.send(
                    "T", body, queue_id=rng.randrange(4), TIMER_DELAY_MS=str(rng.randrange(1, 12_000))
                )
                sent.append(body)
                broker.advance(rng.randrange(800))
            broker.restart(crash=crash, after_ms=rng.randrange(2_000))
        broker.advance(14_000)
        client = broker.connect()
        assert sorted(body for queue_id in range(4) for body in client.bodies("T", queue_id)) == sorted(
            sent
        ), seed


def test_a_crash_in_the_middle_of_a_second_goes_on_where_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timers, "TICK_MESSAGES_MAX", 5)
    broker = Driver()
    client = broker.connect()
    for number in range(60):
        client.send("T", b"%d" % number, TIMER_DELIVER_MS=str(WALL_MS + 4_000))
    broker.advance(4_300)
    assert 0 < len(client.pull("T")) < 60
    broker.restart(crash=True)
    broker.advance(6_000)
    assert broker.connect().bodies("T") == [b"%d" % number for number in range(60)]


def test_a_power_cut_at_any_moment_loses_and_doubles_nothing() -> None:
    for seed in range(10):
        rng = random.Random(seed)
        disk = SimDisk(rng)
        broker = Driver(disk=disk)
        sent = []
        for life in range(4):
            client = broker.connect()
            for number in range(rng.randrange(10)):
                body = b"%d-%d" % (life, number)
                client.send("T", body, TIMER_DELAY_MS=str(rng.randrange(1, 9_000)))
                sent.append(body)
                broker.advance(rng.randrange(900))
            broker.core.writes.when_settled = lambda: None
            disk.cut_power()
            broker.core = broker._open()
            broker.clients.clear()
        broker.advance(11_000)
        assert sorted(broker.connect().bodies("T")) == sorted(sent), f"seed {seed}"


def test_a_long_wait_holds_nobody_up_and_is_not_forgotten() -> None:
    broker = Driver()
    client = broker.connect()
    client.send("T", b"far", TIMER_DELAY_SEC="7200")
    for number in range(30):
        client.send("T", b"%d" % number, TIMER_DELAY_SEC="2")
        broker.advance(500)
    broker.advance(10_000)
    broker.restart(crash=True)
    broker.advance(2_000)
    assert len(broker.core.timers) == 1
    assert len(broker.connect().pull("T")) == 30
    broker.advance(7_200_000, step_ms=10_000)
    assert broker.connect().bodies("T")[-1] == b"far"


def test_a_clock_set_back_holds_back_but_loses_nothing_over_a_restart() -> None:
    broker = Driver()
    client = broker.connect()
    client.send("T", b"a", TIMER_DELAY_SEC="2")
    broker.advance(6_000)
    broker.set_wall(WALL_MS)
    client.send("T", b"b", TIMER_DELAY_SEC="3")
    broker.advance(1_000)
    broker.restart()
    broker.advance(6_000)
    assert broker.connect().bodies("T") == [b"a", b"b"]


def test_many_wait_in_little_memory() -> None:
    wheel = Wheel()
    for offset in range(100_000):
        wheel.add(offset % 1_000, offset)
    assert sum(len(offsets) * offsets.itemsize for offsets in wheel._offsets.values()) == 800_000
