"""Our push consumer at real brokers: kinds of handlers, callbacks, traces, and what goes wrong on the way."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

from tests.interop.ours import Loop, Ours
from tests.interop.servers import eventually, unique
from trimtab import blocking
from trimtab.client.push_settings import Consuming
from trimtab.model import Message, MessageQueue
from trimtab.settings import Timeouts

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.interop.servers import ServerUnderTest
    from trimtab.client.received import Received

QUEUES = 8
"""Of a topic: four at each of two brokers."""
MODES = ("classic", "leased")
OFTEN = Consuming(offsets_every_s=0.2)
PATIENT = Timeouts(request_s=30.0, send_s=60.0)


@pytest.fixture(scope="module")
def loop() -> Iterator[Loop]:
    with Loop() as running:
        yield running


@pytest.fixture
def producer(server: ServerUnderTest) -> Iterator[blocking.Producer]:
    with blocking.Producer(unique("pg"), nameserver=server.nameserver, timeouts=PATIENT) as running:
        yield running


@pytest.fixture
def admin(server: ServerUnderTest) -> Iterator[blocking.Admin]:
    with blocking.Admin(nameserver=server.nameserver, timeouts=PATIENT) as running:
        yield running


def numbers(first: int, count: int) -> list[bytes]:
    return [b"%d" % number for number in range(first, first + count)]


def committed(admin: blocking.Admin, group: str, topic: str) -> int:
    return sum(row.offset or 0 for row in admin.group_offsets(group, topic))


@pytest.mark.parametrize("mode", MODES)
def test_lists_of_several_topics_go_to_a_plain_function_in_threads(
    loop: Loop, server: ServerUnderTest, producer: blocking.Producer, admin: blocking.Admin, mode: str
) -> None:
    topics, group = [server.make_topic(queues=1), server.make_topic(queues=1)], unique("g")
    for topic in topics:
        queue = MessageQueue(topic, server.brokers[0].name, 0)
        for body in numbers(0, 20):
            producer.send(Message(topic, body), queue=queue)
    lists: list[list[Received]] = []
    threads: set[str] = set()

    def take(messages: list[Received]) -> None:
        threads.add(threading.current_thread().name)
        lists.append([message.detach() for message in messages])

    with Ours(
        loop, server, group, handler=take, subscribe=dict.fromkeys(topics, "*"), batch_messages_max=8, mode=mode
    ):  # fmt: skip
        eventually(lambda: sum(map(len, lists)) >= 40, "all came")
    assert all(name.startswith(f"trimtab-{group}") for name in threads)
    assert all(len(some) <= 8 and len({message.queue for message in some}) == 1 for some in lists)
    assert max(map(len, lists)) > 1
    for topic in topics:
        came = [message.body for some in lists for message in some if message.topic == topic]
        assert sorted(came, key=int) == numbers(0, 20)
        assert committed(admin, group, topic) == 20


def test_c10_a_new_group_begins_at_a_time_or_at_the_end(
    loop: Loop, server: ServerUnderTest, producer: blocking.Producer
) -> None:
    if not server.can_call_logs_old:
        pytest.skip(
            "a 5.x broker cannot be told to call its logs old, and lets a new group begin at 0 in young ones"
        )
    topic, queue = server.make_topic(queues=1), MessageQueue("", server.brokers[0].name, 0)
    place = MessageQueue(topic, queue.broker_name, 0)
    for body in numbers(0, 4):
        producer.send(Message(topic, body), queue=place)
    time.sleep(1.0)  # brokers of 4.x take the message whose time is nearest
    since = datetime.fromtimestamp(time.time() - 0.1, UTC)
    for body in numbers(4, 4):
        producer.send(Message(topic, body), queue=place)
    with (
        server.old_logs(),
        Ours(loop, server, unique("time"), subscribe={topic: "*"}, start=since) as at_time,
        Ours(loop, server, unique("last"), subscribe={topic: "*"}, start="last") as at_end,
    ):
        eventually(lambda: len(at_end.holds(topic)) == 2, "both queues are held")
        producer.send(Message(topic, b"8"), queue=place)
        eventually(lambda: len(at_time.received) >= 5 and at_end.received, "what came since")
    assert at_time.bodies == numbers(4, 5)
    assert at_end.bodies == [b"8"]


@pytest.mark.parametrize("mode", MODES)
def test_a_paused_consumer_gets_nothing_until_it_is_resumed(
    loop: Loop, server: ServerUnderTest, producer: blocking.Producer, mode: str
) -> None:
    topic = server.make_topic()
    with Ours(loop, server, unique("g"), subscribe={topic: "*"}, mode=mode) as ours:
        eventually(lambda: len(ours.holds(topic)) == QUEUES, "all queues are held")
        queues = ours.holds(topic)

        def send_to_each(count: int) -> None:
            for queue in queues:
                producer.send(Message(topic, b"%d" % count), queue=queue)
            eventually(lambda: len(ours.received) == count * QUEUES, f"{count} of each queue")

        send_to_each(1)
        loop.run(_call(ours.consumer.pause))
        send_to_each(2)  # each has one pull that waits at its broker; nothing is asked after it
        for number in range(3 * QUEUES):
            producer.send(Message(topic, b"3"), queue=queues[number % QUEUES])
        time.sleep(0.5)
        assert len(ours.received) == 2 * QUEUES
        loop.run(_call(ours.consumer.resume))
        eventually(lambda: len(ours.received) >= 5 * QUEUES, "all came")
    assert ours.bodies[2 * QUEUES :] == [b"3"] * 3 * QUEUES


async def _call(what: Any) -> None:
    what()


def test_g8_a_handler_that_hangs_is_cancelled_and_its_message_comes_again(
    loop: Loop, server: ServerUnderTest, producer: blocking.Producer, admin: blocking.Admin, caplog: pytest.LogCaptureFixture
) -> None:  # fmt: skip
    topic, group, tries = server.make_topic(queues=1), unique("g"), list[int]()

    async def take(message: Received) -> None:
        tries.append(message.reconsume_times)
        if len(tries) == 1:
            await asyncio.Event().wait()

    producer.send(Message(topic, b"hangs"))
    consuming = Consuming(handler_s_max=1.0, offsets_every_s=0.2)
    with (
        caplog.at_level(logging.WARNING),
        Ours(loop, server, group, handler=take, subscribe={topic: "*"}, consuming=consuming),
    ):
        eventually(lambda: len(tries) == 2, "it came again, after ten seconds")
        eventually(lambda: committed(admin, group, topic) == 1, "the offset moved on")
    assert tries == [0, 1]
    assert "took more than 1 s: its 1 message(s) come again, and it is cancelled" in caplog.text


@pytest.mark.parametrize("mode", MODES)
def test_handlers_at_work_end_before_the_end_and_their_messages_count(
    loop: Loop, server: ServerUnderTest, producer: blocking.Producer, admin: blocking.Admin, mode: str
) -> None:
    topic, group = server.make_topic(queues=1), unique("g")
    began, ended = list[bytes](), list[bytes]()

    async def take(message: Received) -> None:
        began.append(message.body)
        await asyncio.sleep(1.0)
        ended.append(message.body)

    for body in numbers(0, 4):
        producer.send(Message(topic, body))
    with Ours(loop, server, group, handler=take, subscribe={topic: "*"}, mode=mode):
        eventually(lambda: len(began) == 4, "all are at work")
    assert sorted(ended) == numbers(0, 4)
    assert committed(admin, group, topic) == 4


@pytest.mark.parametrize("mode", MODES)
def test_callbacks_hear_of_queues_that_come_and_go(loop: Loop, server: ServerUnderTest, mode: str) -> None:
    topic, group = server.make_topic(), unique("g")
    assigned, revoked = set[MessageQueue](), set[MessageQueue]()

    async def give(queues: tuple[MessageQueue, ...]) -> None:
        await asyncio.sleep(0.05)
        revoked.update(queue for queue in queues if queue.topic == topic)

    def take(queues: tuple[MessageQueue, ...]) -> None:
        assigned.update(queue for queue in queues if queue.topic == topic)

    options: dict[str, Any] = {"subscribe": {topic: "*"}, "mode": mode}
    with Ours(loop, server, group, on_assigned=take, on_revoked=give, **options) as one:
        eventually(lambda: len(assigned) == QUEUES, "all queues are held")
        with Ours(loop, server, group, **options) as two:
            # Leased members share the retry topic's queues with the others, so half may be one more or less.
            eventually(
                lambda: two.holds(topic) and len(one.holds(topic)) + len(two.holds(topic)) == QUEUES,
                "each has some",
            )
            # Without leases nobody waits for the callback of another member.
            eventually(lambda: revoked == assigned - set(one.holds(topic)), "the callback is through")
            assert revoked == set(two.holds(topic))
    assert revoked == assigned


def test_what_a_handler_does_is_told_in_the_trace_topic(
    loop: Loop, server: ServerUnderTest, producer: blocking.Producer, admin: blocking.Admin
) -> None:
    topic, group = server.make_topic(queues=1), unique("g")
    receipt = producer.send(Message(topic, b"traced", keys=["k"]))
    consuming = Consuming(trace=True, offsets_every_s=0.2)
    with Ours(loop, server, group, subscribe={topic: "*"}, consuming=consuming) as ours:
        eventually(lambda: ours.received, "it came")
    kinds = eventually(
        lambda: (
            len(steps := admin.message_trace(receipt.message_id).steps) >= 2 and {step.what for step in steps}
        ),
        "the trace can be found",
    )
    assert kinds == {"received", "handled"}


def test_g8_a_stored_offset_that_no_queue_has_is_mended_and_a_line_says_so(
    loop: Loop, server: ServerUnderTest, producer: blocking.Producer, admin: blocking.Admin, caplog: pytest.LogCaptureFixture
) -> None:  # fmt: skip
    topic, group = server.make_topic(queues=1), unique("g")
    queue = MessageQueue(topic, server.brokers[0].name, 0)
    producer.send(Message(topic, b"0"), queue=queue)
    admin.create_group(group)
    admin.set_offset(group, queue, 500)
    with caplog.at_level(logging.WARNING), Ours(loop, server, group, subscribe={topic: "*"}) as ours:
        eventually(lambda: "offset 500" in caplog.text, "the broker says where to go on")
        producer.send(Message(topic, b"1"), queue=queue)
        eventually(lambda: b"1" in ours.bodies, "what is sent from then on")
        eventually(lambda: committed(admin, group, topic) == 2, "the offset is one of the queue's again")
    assert f"offset 500 of {queue} is not there, the broker has 0 to 1; reading goes on at" in caplog.text


def test_g8_brokers_that_crash_and_groups_that_are_deleted_lose_nothing(
    loop: Loop, server: ServerUnderTest, producer: blocking.Producer, admin: blocking.Admin
) -> None:
    topic, groups = server.make_topic(), {mode: unique(mode) for mode in MODES}
    for group in groups.values():
        admin.create_group(group)

    def send(first: int) -> None:
        for body in numbers(first, 16):
            producer.send(Message(topic, body))

    options: dict[str, Any] = {
        "subscribe": {topic: "*"},
        "consuming": Consuming(offsets_every_s=0.2, rebalance_every_s=2.0),
    }
    with (
        Ours(loop, server, groups["classic"], mode="classic", **options) as classic,
        Ours(loop, server, groups["leased"], mode="leased", **options) as leased,
    ):

        def came(count: int) -> bool:
            return all(len(set(ours.bodies)) >= count for ours in (classic, leased))

        send(0)
        eventually(lambda: came(16), "all came")
        server.crash()
        send(16)
        eventually(lambda: came(32), "all came after the crash", 120.0)
        for group in groups.values():
            admin.delete_group(group)
        send(32)
        eventually(lambda: came(48), "all came after the groups were deleted", 120.0)
        eventually(
            lambda: all(committed(admin, group, topic) == 48 for group in groups.values()),
            "offsets are stored",
            120.0,
        )
