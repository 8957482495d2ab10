"""Leased groups on real brokers, Apache's among them: nothing twice on planned changes, and crashes without a queue held twice."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from tests.interop.servers import eventually, unique
from tests.leased_member import MemberProcess
from trimtab.client.producer import Producer
from trimtab.client.rebalance_load import RebalanceLoad, run_rebalance_load
from trimtab.model import Message

if TYPE_CHECKING:
    from tests.interop.servers import ServerUnderTest

QUEUES = 4


def test_planned_changes_deliver_nothing_twice(server: ServerUnderTest) -> None:
    name = unique("planned")
    load = RebalanceLoad(
        nameserver=server.nameserver, topic=name, group=name, members=3, changes=4, per_second=400, handler_ms=20,
        queues=4, pause_s=1.0,
    )  # fmt: skip
    report = asyncio.run(run_rebalance_load(load))
    assert report.sent > 0
    assert (report.delivered_twice, report.lost, report.double_held_s) == (0, 0, 0.0)
    assert report.moved > 0


def test_a_rolling_restart_with_stable_ids_moves_nothing(server: ServerUnderTest) -> None:
    name = unique("rolling")
    load = RebalanceLoad(
        nameserver=server.nameserver, topic=name, group=name, members=2, changes=2, per_second=200, handler_ms=10,
        queues=4, pause_s=0.5, has_stable_ids=True,
    )  # fmt: skip
    report = asyncio.run(run_rebalance_load(load))
    assert (report.delivered_twice, report.lost, report.moved) == (0, 0, 0)


def test_a_killed_member_is_taken_over_and_only_what_was_in_hand_comes_again(server: ServerUnderTest) -> None:
    topic, group = server.make_topic(queues=QUEUES), unique("killed")
    with (
        MemberProcess(server.nameserver, group, topic) as doomed,
        MemberProcess(server.nameserver, group, topic) as survivor,
    ):
        eventually(lambda: doomed.queues() and survivor.queues(), "both hold queues")
        asyncio.run(_send(server, topic, 200))
        eventually(lambda: len(doomed.bodies("done")) > 20, "the one is at work")
        theirs = doomed.queues()
        doomed.kill()
        killed_ms = time.monotonic_ns() // 1_000_000
        eventually(lambda: theirs <= survivor.queues(), "the other one holds its queues")
        eventually(lambda: len({*doomed.bodies("done"), *survivor.bodies("done")}) == 200, "all are handled")
        again = set(doomed.bodies("done")) & set(survivor.bodies("got"))
        late = {
            event["body"]
            for event in doomed.events
            if event["what"] == "done" and event["at_ms"] < killed_ms - 5_000
        }
        assert not again & late, "what was finished long before the kill does not come again"


async def _send(server: ServerUnderTest, topic: str, count: int) -> None:
    async with Producer("pg", nameserver=server.nameserver) as producer:
        await producer.send_many([Message(topic, str(number).encode()) for number in range(count)])
