"""Leased groups on real brokers, Apache's among them: nothing twice on planned changes, and crashes without a queue held twice."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections import Counter, defaultdict
from itertools import pairwise
from typing import TYPE_CHECKING, Self

import pytest

from tests.interop.ours import Loop, Ours
from tests.interop.servers import eventually, unique
from tests.leased_member import MemberProcess, monotonic_ms
from trimtab.balance.metrics import double_held_s
from trimtab.broker.settings import BrokerSettings
from trimtab.client.producer import Producer
from trimtab.client.rebalance_load import RebalanceLoad, run_rebalance_load
from trimtab.model import Message
from trimtab.testing import Cluster

if TYPE_CHECKING:
    from types import TracebackType

    from tests.interop.servers import ServerUnderTest
    from trimtab.model import MessageQueue

QUEUES = 4
STORED_WITHIN_MS = 500
SLEEP_S = 90.0
NAP_S = SLEEP_S if os.environ.get("TRIMTAB_FULL") == "1" else 10.0
"""Longer than a lease is trusted; brokers list a member that says nothing for two minutes."""


def test_planned_changes_deliver_nothing_twice(server: ServerUnderTest) -> None:
    name = unique("planned")
    load = RebalanceLoad(
        nameserver=server.nameserver, topic=name, group=name, members=4, changes=8, per_second=400, handler_ms=20,
        queues=8, pause_s=1.0,
    )  # fmt: skip
    report = asyncio.run(run_rebalance_load(load))
    assert report.sent > 0
    assert (report.delivered_twice, report.lost, report.double_held_s) == (0, 0, 0.0)
    assert report.moved > 0


def test_a_rolling_restart_with_stable_ids_moves_nothing(server: ServerUnderTest) -> None:
    """Of a group that has been there for a moment: on brokers of ours members learn within a second who holds what."""
    name = unique("rolling")
    load = RebalanceLoad(
        nameserver=server.nameserver, topic=name, group=name, members=8, changes=8, per_second=200, handler_ms=10,
        queues=8, pause_s=1.5, has_stable_ids=True,
    )  # fmt: skip
    report = asyncio.run(run_rebalance_load(load))
    assert (report.delivered_twice, report.lost, report.moved) == (0, 0, 0)


class Sending:
    """Messages with numbers at a steady rate, from a thread of their own, until the end of the block."""

    def __init__(self, nameserver: str, topic: str, per_second: int = 100) -> None:
        self.sent = 0
        self._nameserver, self._topic, self._per_second = nameserver, topic, per_second
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._send()), daemon=True)

    async def _send(self) -> None:
        async with Producer("pg", nameserver=self._nameserver) as producer:
            while not self._is_over.is_set():
                numbers = range(self.sent, self.sent + self._per_second // 10)
                await producer.send_many([Message(self._topic, str(number).encode()) for number in numbers])
                self.sent = numbers.stop
                await asyncio.sleep(0.1)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def stop(self) -> None:
        self._is_over.set()
        self._thread.join(60)


@pytest.mark.parametrize("ordered", [False, True])
def test_a_killed_member_is_taken_over_and_only_what_was_in_hand_comes_again(
    server: ServerUnderTest, *, ordered: bool
) -> None:
    topic, group = server.make_topic(queues=QUEUES), unique("killed")
    with (
        MemberProcess(server.nameserver, group, topic, ordered=ordered) as doomed,
        MemberProcess(server.nameserver, group, topic, ordered=ordered) as survivor,
        Sending(server.nameserver, topic) as sending,
    ):
        eventually(lambda: doomed.queues() and survivor.queues(), "both hold queues")
        done = len(doomed.bodies("done"))
        eventually(lambda: len(doomed.bodies("done")) > done + 100, "the one is at work")
        theirs = doomed.queues()
        killed_ms = monotonic_ms()
        doomed.kill()
        eventually(lambda: theirs <= survivor.queues(), "the other one holds its queues")
        taken_ms = max(
            event["at_ms"] for event in survivor.all("took") if theirs.intersection(event["queues"])
        )
        sending.stop()
        all_sent = {str(number) for number in range(sending.sent)}
        eventually(lambda: {*doomed.bodies("done"), *survivor.bodies("done")} >= all_sent, "all are handled")
        assert taken_ms - killed_ms <= (5_000 if server.is_own else 15_000)
        assert double_held_s(doomed.times(killed_ms) + survivor.times(monotonic_ms())) == 0
        finished_late = {
            (event["queue"], event["offset"])
            for event in doomed.all("done")
            if event["at_ms"] >= killed_ms - STORED_WITHIN_MS
        }
        in_hand = set(doomed.places("got")) - set(doomed.places("done"))
        again = set(doomed.places("got")) & set(survivor.places("got"))
        assert again <= in_hand | finished_late, "nothing else comes again"
        assert_each_once(survivor)
        assert_handed_out_by_the_holder(doomed, survivor)
        if ordered:
            assert_in_order([doomed, survivor])


def assert_each_once(member: MemberProcess) -> None:
    """Nothing comes to the same member again."""
    assert len(member.places("got")) == len(set(member.places("got")))


def assert_handed_out_by_the_holder(*members: MemberProcess) -> None:
    """Whoever starts a handler was the last one to take the queue. All write the same clock; what was taken in that very millisecond counts."""
    taken = sorted(
        (event["at_ms"], queue, member.pid)
        for member in members
        for event in member.all("took")
        for queue in event["queues"]
    )
    for member in members:
        for event in member.all("got"):
            before = [
                who for at_ms, queue, who in taken if queue == event["queue"] and at_ms < event["at_ms"]
            ]
            at_once = [
                who for at_ms, queue, who in taken if queue == event["queue"] and at_ms == event["at_ms"]
            ]
            assert member.pid in {*before[-1:], *at_once}, f"{event} was handed out by a former holder"


def assert_in_order(members: list[MemberProcess]) -> None:
    """Nothing of a queue is skipped by anybody, whoever reads it."""
    seen: defaultdict[str, list[int]] = defaultdict(list)
    for event in sorted((event for one in members for event in one.all("got")), key=lambda one: one["at_ms"]):
        seen[event["queue"]].append(event["offset"])
    for offsets in seen.values():
        assert all(after - before <= 1 for before, after in pairwise(offsets)), offsets


def test_a_second_process_with_the_same_id_is_refused(server: ServerUnderTest) -> None:
    topic, group = server.make_topic(queues=QUEUES), unique("twins")
    with (
        MemberProcess(server.nameserver, group, topic, client_id="10.0.0.1@twin") as first,
        Sending(server.nameserver, topic) as sending,
    ):
        eventually(lambda: first.bodies("done"), "the first is at work")
        with MemberProcess(server.nameserver, group, topic, client_id="10.0.0.1@twin") as second:
            eventually(lambda: second.all("refused"), "the second is refused")
            assert second.bodies("got") == []
        sending.stop()
        all_sent = {str(number) for number in range(sending.sent)}
        eventually(lambda: set(first.bodies("done")) >= all_sent, "the first goes on")
        assert_each_once(first)


def test_a_process_that_was_replaced_while_it_slept_stops_when_it_wakes_up(server: ServerUnderTest) -> None:
    topic, group = server.make_topic(queues=QUEUES), unique("replaced")
    twin = {"client_id": "10.0.0.1@twin"}
    with (
        MemberProcess(server.nameserver, group, topic, **twin) as sleeper,
        Sending(server.nameserver, topic) as sending,
    ):
        eventually(lambda: sleeper.bodies("done"), "the first is at work")
        sleeper.sleep()
        with MemberProcess(server.nameserver, group, topic, **twin) as successor:
            eventually(lambda: successor.bodies("done"), "the second is at work")
            in_hand = set(sleeper.bodies("got")) - set(sleeper.bodies("done"))
            woken_ms = monotonic_ms()
            sleeper.wake()
            eventually(lambda: sleeper.all("refused"), "the first has stopped")
            sending.stop()
            all_sent = {str(number) for number in range(sending.sent)}
            eventually(
                lambda: {*sleeper.bodies("done"), *successor.bodies("done")} >= all_sent, "all are handled"
            )
            assert [one for one in sleeper.all("got") if one["at_ms"] >= woken_ms] == []
            late = {one["body"] for one in sleeper.all("done") if one["at_ms"] >= woken_ms}
            assert late <= in_hand, "only what was in hand is finished late"
            assert successor.all("refused") == []


def test_a_killed_member_that_comes_back_under_its_id_keeps_its_queues(server: ServerUnderTest) -> None:
    topic, group = server.make_topic(queues=QUEUES), unique("back")
    names = ("10.0.0.1@one", "10.0.0.1@two")
    with (
        MemberProcess(server.nameserver, group, topic, client_id=names[0]) as doomed,
        MemberProcess(server.nameserver, group, topic, client_id=names[1]) as other,
    ):
        eventually(lambda: len(doomed.queues() | other.queues()) == QUEUES * len(server.brokers), "all held")
        before = doomed.queues(), other.queues()
        doomed.kill()
        with MemberProcess(server.nameserver, group, topic, client_id=names[0]) as again:
            eventually(lambda: again.queues() == before[0], "it has its queues again")
            assert other.queues() == before[1]
            assert [event for event in again.events if event["what"] == "refused"] == []


def test_a_member_that_sleeps_for_long_finishes_what_it_had_in_hand_and_nothing_else() -> None:
    """Its broker gives it up after a while, as Apache's does after two minutes, and another one takes over."""
    topic, group = "orders", unique("asleep")
    with (
        Cluster(settings=BrokerSettings(consumer_silence_ms_max=15_000)) as cluster,
        MemberProcess(cluster.nameserver, group, topic, heartbeat_s=2.0) as sleeper,
        MemberProcess(cluster.nameserver, group, topic, heartbeat_s=2.0) as other,
        Sending(cluster.nameserver, topic, per_second=50) as sending,
    ):
        eventually(lambda: sleeper.bodies("done") and other.bodies("done"), "both are at work")
        sleeper.sleep()
        slept_ms = monotonic_ms()
        theirs = sleeper.queues()
        eventually(lambda: theirs <= other.queues(), "another one took its queues over")
        time.sleep(max(0.0, SLEEP_S - (monotonic_ms() - slept_ms) / 1000))
        in_hand = set(sleeper.places("got")) - set(sleeper.places("done"))
        woken_ms = monotonic_ms()
        sleeper.wake()
        eventually(lambda: sleeper.all("lost"), "it noticed that its queues are another's")
        eventually(
            lambda: [one for one in sleeper.all("took") if one["at_ms"] >= woken_ms], "it has a part again"
        )
        sending.stop()
        all_sent = {str(number) for number in range(sending.sent)}
        eventually(lambda: {*sleeper.bodies("done"), *other.bodies("done")} >= all_sent, "all are handled")
        late = [event for event in sleeper.events if event["at_ms"] >= woken_ms]
        taken: set[str] = set()
        for event in late:
            if event["what"] == "took":
                taken.update(event["queues"])
            elif event["what"] == "got":
                assert event["queue"] in taken, "what it hands out is of queues that it was granted anew"
            elif event["what"] == "done" and event["queue"] not in taken:
                assert (event["queue"], event["offset"]) in in_hand, "only what was in hand is finished late"
        finished_late = {
            (event["queue"], event["offset"])
            for event in sleeper.all("done")
            if slept_ms - STORED_WITHIN_MS <= event["at_ms"] < woken_ms
        }
        again = set(sleeper.places("got")) & set(other.places("got"))
        assert again <= in_hand | finished_late, "nothing else comes again"
        assert_handed_out_by_the_holder(sleeper, other)


def test_a_member_that_sleeps_though_its_broker_still_lists_it_keeps_its_queues_and_nothing_comes_twice(
    server: ServerUnderTest,
) -> None:
    """The others cannot know that it does not only stand still, so its queues wait for it: what it had in hand it finishes late."""
    topic, group = server.make_topic(queues=QUEUES), unique("napping")
    with (
        MemberProcess(server.nameserver, group, topic) as sleeper,
        MemberProcess(server.nameserver, group, topic) as other,
        Sending(server.nameserver, topic) as sending,
    ):
        everything = QUEUES * len(server.brokers)
        eventually(lambda: sleeper.bodies("done") and other.bodies("done"), "both are at work")
        eventually(lambda: len(sleeper.queues() | other.queues()) == everything, "all are held")
        sleeper.sleep()
        time.sleep(NAP_S)
        slept = len(sleeper.events)
        in_hand = set(sleeper.places("got")) - set(sleeper.places("done"))
        sleeper.wake()
        sending.stop()
        all_sent = {str(number) for number in range(sending.sent)}
        eventually(lambda: {*sleeper.bodies("done"), *other.bodies("done")} >= all_sent, "all are handled")
        late = sleeper.events[slept:]
        finished_late = {(event["queue"], event["offset"]) for event in late if event["what"] == "done"}
        assert in_hand <= finished_late | set(other.places("done")), "it is finished, late or by another"
        assert double_held_s(sleeper.times(monotonic_ms()) + other.times(monotonic_ms())) == 0
        assert_handed_out_by_the_holder(sleeper, other)
        came = Counter([*sleeper.places("got"), *other.places("got")])
        twice = {place for place, times in came.items() if times > 1}
        assert twice <= in_hand, "nothing comes twice but what was in hand, if another took over"


def test_ordered_members_hand_over_in_order(server: ServerUnderTest) -> None:
    topic, group = server.make_topic(queues=QUEUES), unique("in-order")
    seen: defaultdict[MessageQueue, list[int]] = defaultdict(list)
    with Loop() as loop, Sending(server.nameserver, topic, per_second=200) as sending:

        def member() -> Ours:
            return Ours(
                loop, server, group, subscribe={topic: "*"}, mode="leased", ordered=True,
                judge=lambda message: seen[message.queue].append(message.queue_offset),
            )  # fmt: skip

        def is_at_work(*members: Ours) -> bool:
            return all(len(one.received) >= 50 and one.holds(topic) for one in members)

        with member() as first, member() as second:
            eventually(lambda: is_at_work(first, second), "both have a part and read")
            with member() as third:
                eventually(lambda: is_at_work(third), "the newcomer has a part and reads")
            sending.stop()
            eventually(lambda: sum(map(len, seen.values())) >= sending.sent, "all were handled")
    for offsets in seen.values():
        assert offsets == list(range(len(offsets))), "each once, and in order, whoever handled it"
