"""Streams through schedules of faults drawn by chance: whatever lies in the queues at the end was read exactly once."""

import os
import random
from collections import Counter
from typing import Any

import pytest

from tests.unit.spark.engine import Stream, read_batch
from tests.unit.spark.test_source import create, fill
from trimtab.errors import TrimtabError
from trimtab.model import MessageQueue
from trimtab.testing import BlockingCluster, Cluster

SCHEDULES = 50 if os.environ.get("TRIMTAB_FULL") else 5
STEPS = 14
SEED = int(os.environ.get("TRIMTAB_SEED", "0")) or random.SystemRandom().randrange(1, 1 << 31)


class Schedule:
    """One cluster, one query, and what chance does to them."""

    def __init__(self, cluster: BlockingCluster, chance: random.Random) -> None:
        self._cluster = cluster
        self._chance = chance
        self._queues = 2
        self._sent = 0
        self._down: str | None = None
        for broker in cluster.brokers:
            create(cluster, broker, "t", self._queues)
        options = {
            "nameserver": cluster.nameserver, "topic": "t", "startingOffsets": "earliest", "routeRefreshMs": "1",
            "offsetRefreshMs": "1", "requestTimeoutMs": "1000", "numRetries": "0", "outageTimeoutMs": "1", "columns": "brokerName,queueId,queueOffset,body",
            "maxOffsetsPerTrigger": str(chance.randrange(5, 60)), "minPartitions": str(chance.randrange(1, 5)),
        }  # fmt: skip
        self.stream = Stream(**options)

    def run(self) -> None:
        acts = [
            self._send,
            self._send,
            self._read,
            self._read,
            self._die,
            self._restart_query,
            self._grow,
            self._kill,
            self._restart,
        ]
        for _ in range(STEPS):
            self._chance.choice(acts)()
        self._restart()
        self._send()
        self.stream.start()
        self.stream.run_until_idle()

    def _send(self) -> None:
        brokers = [name for name in self._cluster.brokers if name != self._down]
        queue = MessageQueue("t", self._chance.choice(brokers), self._chance.randrange(self._queues))
        bodies = [b"%d" % number for number in range(self._sent, self._sent + self._chance.randrange(1, 80))]
        self._sent += len(bodies)
        fill(self._cluster, bodies, "t", queue)

    def _read(self) -> None:
        try:
            self.stream.trigger()
        except TrimtabError:
            assert self._down is not None, "only a broker that is away may be complained of"
            self.stream.start()

    def _die(self) -> None:
        try:
            self.stream.trigger(dies=True)
        except TrimtabError:
            assert self._down is not None
            self.stream.start()

    def _restart_query(self) -> None:
        self.stream.start()

    def _grow(self) -> None:
        if self._down is None:
            self._queues += 1
            for broker in self._cluster.brokers:
                create(self._cluster, broker, "t", self._queues)

    def _kill(self) -> None:
        if self._down is None:
            self._down = self._chance.choice(list(self._cluster.brokers))
            self._cluster.kill(self._down)

    def _restart(self) -> None:
        if self._down is not None:
            self._cluster.restart(self._down)
            self._down = None


def place(row: dict[str, Any]) -> tuple[str, int, int, bytes]:
    return row["brokerName"], row["queueId"], row["queueOffset"], row["body"]


@pytest.mark.parametrize("number", range(SCHEDULES))
def test_a_schedule_of_faults(number: int) -> None:
    seed = SEED + number
    with Cluster(brokers=2) as cluster:
        schedule = Schedule(cluster, random.Random(seed))
        schedule.run()
        there = Counter(place(row) for row in read_batch(nameserver=cluster.nameserver, topic="t"))
        assert Counter(map(place, schedule.stream.rows)) == there, f"TRIMTAB_SEED={seed} shows it again"
        assert set(there.values()) == {1}
