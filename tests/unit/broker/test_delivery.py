"""Delay levels: in time, in order, exactly once, whatever happens in between."""

import random
from typing import Any

import pytest

from tests.unit.broker.driver import Driver, HeldExecutor
from trimtab.broker import delivery
from trimtab.broker.settings import BrokerSettings
from trimtab.broker.store import StoreSettings
from trimtab.io.disk import MemoryDisk
from trimtab.model import Now
from trimtab.sim.disk import SimDisk
from trimtab.wire.codes import RequestCode, ResponseCode
from trimtab.wire.headers.admin import TopicOnly
from trimtab.wire.ids import decode_offset_message_id

DELAYS_S = (1, 5, 10, 30, 60, 120, 180, 240, 300, 360, 420, 480, 540, 600, 1_200, 1_800, 3_600, 7_200)


@pytest.mark.parametrize(("level", "delay_s"), list(enumerate(DELAYS_S, 1)))
def test_each_level_waits_its_time_and_no_longer(level: int, delay_s: int) -> None:
    broker = Driver()
    client = broker.connect()
    client.send("T", DELAY=str(level))
    broker.advance(delay_s * 1_000 - 1, step_ms=60_000)
    assert client.pull("T") == []
    broker.advance(100)
    assert len(client.pull("T")) == 1


def test_a_delivered_message_is_the_one_that_was_sent() -> None:
    broker = Driver()
    client = broker.connect()
    receipt = client.send("T", b"body", queue_id=2, DELAY="1", TAGS="eu", KEYS="k1 k2", UNIQ_KEY="U1")
    assert receipt.queue_id == 2
    sent_ms = broker.now.wall_ms
    broker.advance(1_000)
    (message,) = client.pull("T", 2)
    assert (message.topic, message.queue_id, message.queue_offset) == ("T", 2, 0)
    assert (message.body, message.flag, message.tag, message.keys, message.unique_id) == (
        b"body", 7, "eu", ("k1", "k2"), "U1",
    )  # fmt: skip
    assert (message.born_timestamp, message.store_timestamp) == (sent_ms, sent_ms + 1_000)
    assert message.offset_message_id != receipt.msg_id
    properties = message.properties
    assert (properties["DELAY"], properties["REAL_TOPIC"], properties["REAL_QID"]) == ("1", "T", "2")


def test_a_delivered_message_is_found_by_key_and_by_tag() -> None:
    broker = Driver()
    client = broker.connect()
    client.send("T", DELAY="1", TAGS="eu", KEYS="k1")
    broker.advance(1_000)
    assert [message.topic for message in broker.core.store.query_by_key("T", "k1", 10)] == ["T"]
    for tag, count in (("eu", ResponseCode.SUCCESS), ("us", ResponseCode.PULL_RETRY_IMMEDIATELY)):
        assert client.ask(RequestCode.PULL_MESSAGE, client.pull_header("T", subscription=tag)).code == count


def test_a_held_pull_is_answered_by_a_delivery() -> None:
    broker = Driver()
    client = broker.connect()
    client.send("T", b"first")
    client.send("T", b"late", DELAY="1")
    header = client.pull_header("T", offset=1, sys_flag=6, suspend_timeout_millis=15_000)
    opaque = client.request(RequestCode.PULL_MESSAGE, header)
    broker.advance(900)
    assert opaque not in client.answers
    broker.advance(100)
    assert client.answers[opaque].code == ResponseCode.SUCCESS


def test_messages_of_a_level_keep_their_order_and_a_tick_has_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delivery, "TICK_MESSAGES_MAX", 10)
    monkeypatch.setattr(delivery, "READ_MESSAGES_MAX", 4)
    broker = Driver()
    client = broker.connect()
    for number in range(35):
        client.send("T", b"%d" % number, DELAY="1")
    broker.advance(1_000)
    assert 0 < len(client.pull("T")) <= 10
    broker.advance(2_000)
    assert client.bodies("T") == [b"%d" % number for number in range(35)]


def test_a_long_backlog_of_one_level_does_not_starve_another(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delivery, "TICK_MESSAGES_MAX", 4)
    broker = Driver()
    client = broker.connect()
    for _ in range(200):
        client.send("T", b"many", DELAY="1")
    client.send("U", b"one", DELAY="2")
    broker.advance(8_000)
    assert client.bodies("U") == [b"one"]


def test_cursors_are_the_next_offset_of_each_level() -> None:
    broker = Driver()
    client = broker.connect()
    assert broker.core.delays.offsets() == {}
    for _ in range(3):
        client.send("T", DELAY="1")
    client.send("T", DELAY="2")
    broker.advance(1_000)
    assert broker.core.delays.offsets() == {1: 3}
    broker.advance(4_000)
    assert broker.core.delays.offsets() == {1: 3, 2: 1}


# --- restarts


@pytest.mark.parametrize("crash", [False, True])
@pytest.mark.parametrize("ran_ms", [0, 500, 1_000, 1_100, 3_000, 4_100, 8_000])
def test_a_restart_at_any_time_delivers_everything_once(crash: bool, ran_ms: int) -> None:
    broker = Driver()
    client = broker.connect()
    for number in range(20):
        client.send("T", b"%d" % number, queue_id=number % 4, DELAY=str(number % 2 + 1))
    broker.advance(ran_ms)
    for _ in range(3):
        broker.restart(crash=crash, after_ms=700)
        broker.advance(300)
    broker.advance(6_000)
    found = [body for queue_id in range(4) for body in broker.connect().bodies("T", queue_id)]
    assert sorted(found, key=int) == [b"%d" % number for number in range(20)]


def test_what_became_due_while_the_broker_was_down_is_delivered_at_the_start() -> None:
    broker = Driver()
    broker.connect().send("T", DELAY="3")
    broker.restart(after_ms=3_600_000)
    broker.advance(100)
    assert len(broker.connect().pull("T")) == 1


def test_a_crash_after_the_state_was_saved_looks_only_behind_it() -> None:
    broker = Driver()
    client = broker.connect()
    client.send("T", b"early", DELAY="1")
    broker.advance(5_000)
    client.send("T", b"late", DELAY="1")
    broker.advance(1_100)
    broker.restart(crash=True)
    broker.advance(5_000)
    assert broker.connect().bodies("T") == [b"early", b"late"]


def test_other_messages_in_the_same_queue_do_not_confuse_the_search_after_a_crash() -> None:
    broker = Driver()
    client = broker.connect()
    for number in range(10):
        client.send("T", b"now", KEYS=str(number))
        client.send("T", b"late", DELAY="1")
        broker.advance(200)
    broker.advance(2_000)
    assert client.bodies("T").count(b"late") == 10
    broker.restart(crash=True)
    broker.advance(2_000)
    assert sorted(broker.connect().bodies("T")) == [b"late"] * 10 + [b"now"] * 10


def test_a_power_cut_at_any_moment_loses_and_doubles_nothing() -> None:
    """Sends and deliveries with cuts of power: what was acknowledged is delivered, and once."""
    for seed in range(12):
        rng = random.Random(seed)
        disk = SimDisk(rng)
        broker = Driver(disk=disk)
        sent = []
        for life in range(5):
            client = broker.connect()
            for number in range(rng.randrange(8)):
                body = b"%d-%d" % (life, number)
                client.send("T", body, DELAY=str(rng.choice((1, 2))))
                sent.append(body)
                broker.advance(rng.randrange(1_500))
            broker.core.writes.when_settled = lambda: None
            disk.cut_power()
            broker.core = broker._open()
            broker.clients.clear()
        broker.advance(6_000)
        assert sorted(broker.connect().bodies("T")) == sorted(sent), f"seed {seed}"


def test_with_async_flush_a_power_cut_never_takes_a_message_that_was_safe() -> None:
    """The cursor must not be on disk before the deliveries it speaks of."""
    for seed in range(12):
        disk = SimDisk(random.Random(seed))
        broker = Driver(disk=disk, store_settings=StoreSettings(flush="async", flush_interval_ms=10_000_000))
        broker.connect().send("T", b"safe", DELAY="1")
        broker.core.store._flusher.request()
        broker.advance(9_000)
        disk.cut_power()
        broker.core = broker._open()
        broker.clients.clear()
        broker.advance(6_000)
        assert broker.connect().bodies("T") == [b"safe"], f"seed {seed}"


# --- the clock


def test_a_clock_set_back_delivers_at_once_instead_of_hours_late() -> None:
    broker = Driver()
    client = broker.connect()
    client.send("T", DELAY="1")
    broker.set_wall(broker.now.wall_ms - 3_600_000)
    broker.advance(100)
    assert len(client.pull("T")) == 1


def test_a_clock_set_forward_delivers_at_once() -> None:
    broker = Driver()
    client = broker.connect()
    client.send("T", DELAY="18")
    broker.set_wall(broker.now.wall_ms + 7_200_000)
    broker.advance(100)
    assert len(client.pull("T")) == 1


# --- a store that does not do as told


def test_while_a_delivery_is_not_durable_it_is_not_made_again() -> None:
    disk = HeldExecutor()
    disk.is_holding = False
    broker = Driver(sync_executor=disk)
    client = broker.connect()
    client.send("T", DELAY="1")
    disk.is_holding = True
    broker.advance(5_000)
    assert client.pull("T") == []
    disk.is_holding = False
    disk.run()
    broker.advance(1_000)
    assert len(client.pull("T")) == 1


def test_a_full_disk_delays_deliveries_until_there_is_room(monkeypatch: pytest.MonkeyPatch) -> None:
    disk = MemoryDisk()
    broker = Driver(disk=disk, store_settings=StoreSettings(disk_free_bytes_min=1 << 20))
    client = broker.connect()
    client.send("T", DELAY="1")
    monkeypatch.setattr(disk, "free_bytes", lambda: 0)
    broker.advance(5_000)
    assert client.pull("T") == []
    monkeypatch.undo()
    broker.advance(2_000)
    assert len(client.pull("T")) == 1


def test_a_write_that_fails_is_tried_again() -> None:
    disk = SimDisk(random.Random(1))
    broker = Driver(disk=disk)
    client = broker.connect()
    for number in range(3):
        client.send("T", b"%d" % number, DELAY="1")

    def refuse(call: str, name: str) -> None:
        if call == "pwrite" and name.startswith("log"):
            raise OSError("the disk says no")

    disk.before = refuse
    broker.advance(2_000)
    assert client.pull("T") == []
    disk.before = None
    broker.advance(1_000)
    assert client.bodies("T") == [b"0", b"1", b"2"]


def test_more_levels_than_queues_were_asked_for_is_no_harm() -> None:
    broker = Driver(BrokerSettings(delay_levels="1s 2s"))
    client = broker.connect()
    client.send("T", DELAY="18")
    broker.advance(2_000)
    assert [message.properties["DELAY"] for message in client.pull("T")] == ["2"]


@pytest.mark.parametrize("level", ["-1", "0", "-0"])
def test_a_level_below_the_first_means_no_delay(level: str) -> None:
    broker = Driver()
    client = broker.connect()
    client.send("T", DELAY=level)
    assert len(client.pull("T")) == 1


@pytest.mark.parametrize("level", ["x", "٣", "99999999999999999999", "1.5"])
def test_a_level_that_is_no_number_is_refused_instead_of_delivered_too_early(level: str) -> None:
    broker = Driver()
    client = broker.connect()
    answer = client.ask(RequestCode.SEND_MESSAGE_V2, client.send_header("T", DELAY=level), b"x")
    assert answer.code == ResponseCode.MESSAGE_ILLEGAL


@pytest.mark.parametrize("properties", [{"DELAY": "1"}, {"TIMER_DELAY_MS": "1"}])
def test_a_message_that_rotted_while_it_waited_is_reported_and_the_others_come(
    properties: dict[str, Any],
) -> None:
    disk = SimDisk(random.Random(1))
    broker = Driver(disk=disk)
    client = broker.connect()
    receipts = [client.send("T", b"%d" % number, **properties) for number in range(3)]
    (log,) = disk.names("log")
    disk.flip(log, (decode_offset_message_id(receipts[1].msg_id).physical_offset + 60) * 8)
    reported = 0
    for _ in range(30):
        broker.now = Now(broker.now.monotonic_ms + 100, broker.now.wall_ms + 100)
        broker.core.tick(broker.now)
        reported += len(broker.core.incidents)
        broker.core.incidents.clear()
    assert client.bodies("T") == [b"0", b"2"]
    assert reported == 1


def test_a_message_that_waits_goes_with_its_topic() -> None:
    broker = Driver()
    client = broker.connect()
    client.send("T", DELAY="2")
    client.send("T", TIMER_DELAY_SEC="5")
    client.ask(RequestCode.DELETE_TOPIC_IN_BROKER, TopicOnly(topic="T"))
    broker.restart()
    broker.advance(10_000)
    broker.restart()
    assert "T" not in broker.core.topics
    assert "T" not in broker.core.store.topics()


def test_a_message_that_waits_comes_where_its_topic_was_made_again() -> None:
    broker = Driver()
    client = broker.connect()
    client.send("T", b"before", DELAY="2")
    client.ask(RequestCode.DELETE_TOPIC_IN_BROKER, TopicOnly(topic="T"))
    client.send("T", b"after", DELAY="2")
    broker.advance(10_000)
    assert client.bodies("T") == [b"before", b"after"]


def test_a_message_sent_after_its_topic_was_deleted_comes_though_a_crash_forgot_the_new_topic() -> None:
    broker = Driver()
    client = broker.connect()
    client.send("T", DELAY="2")
    client.ask(RequestCode.DELETE_TOPIC_IN_BROKER, TopicOnly(topic="T"))
    saved = broker.core.topics.saved()
    client.send("T", b"after", DELAY="2")
    broker.core.states.save_topics(saved)  # as if the crash had come before the new topic was saved
    broker.restart(crash=True)
    broker.advance(10_000)
    broker.restart()
    assert broker.connect().bodies("T") == [b"after"]
