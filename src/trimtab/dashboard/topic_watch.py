"""Looking at one topic again and again: what came into each queue between two looks."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from trimtab.client.admin.rows import QueueRange, Rate
from trimtab.dashboard.answers import BrokerShare, QueueSize, Topic
from trimtab.dashboard.overview_view import failure_texts
from trimtab.io.clock import Clock

if TYPE_CHECKING:
    from trimtab.client.admin import Admin

HOT_BY_MEAN = 2.0
HOT_MESSAGES_MIN = 100
HOT_PER_S_MIN = 1.0
Ends = Mapping[tuple[str, int], int]
"""Where each queue ended."""


class TopicWatch:
    """Where a topic is, what lies in it, what comes in, who reads it, what each broker got of it."""

    def __init__(self, admin: "Admin", topic: str, clock: Clock) -> None:
        self._admin = admin
        self._topic = topic
        self._clock = clock
        self._before: tuple[int, Ends] | None = None

    async def look(self) -> Topic:
        """Everything about the topic, now."""
        admin, name = self._admin, self._topic
        route, queues, groups, rates = await asyncio.gather(
            admin.topic_route(name),
            admin.topic_queues(name),
            admin.topic_groups(name),
            admin.broker_rates("TOPIC_PUT_NUMS", name),
        )
        now_ms = self._clock.monotonic_ms()
        before, self._before = self._before, (now_ms, _ends(queues.queues))
        sizes = queue_sizes(queues.queues, before, now_ms)
        known = [one.per_s for one in sizes if one.per_s is not None]
        return Topic(
            topic=name,
            at_ms=self._clock.wall_ms(),
            route=route,
            queues=sizes,
            messages=queues.messages,
            put_per_s=sum(known) if known else None,
            groups=groups.names,
            brokers=shares(rates.rates),
            failures=failure_texts((*queues.failures, *groups.failures, *rates.failures)),
        )


def _ends(rows: Sequence[QueueRange]) -> Ends:
    return {(row.broker, row.queue_id): row.max_offset for row in rows}


def queue_sizes(
    rows: Sequence[QueueRange], before: tuple[int, Ends] | None, now_ms: int
) -> tuple[QueueSize, ...]:
    """What lies in each queue and what came in since the look before. PURE."""
    rates = [_rate(row, before, now_ms) for row in rows]
    sizes = [row.max_offset - row.min_offset for row in rows]
    known = [rate for rate in rates if rate is not None]
    mean_rate = sum(known) / len(known) if known else 0.0
    mean_size = sum(sizes) / len(sizes) if sizes else 0.0
    found = []
    for row, rate, size in zip(rows, rates, sizes, strict=True):
        if mean_rate > 0:
            is_hot = rate is not None and rate >= HOT_PER_S_MIN and rate > HOT_BY_MEAN * mean_rate
        else:
            is_hot = size >= HOT_MESSAGES_MIN and size > HOT_BY_MEAN * mean_size
        found.append(
            QueueSize(
                broker=row.broker,
                queue_id=row.queue_id,
                min_offset=row.min_offset,
                max_offset=row.max_offset,
                newest_ms=row.newest_ms,
                per_s=rate,
                hot=is_hot,
            )
        )
    return tuple(found)


def _rate(row: QueueRange, before: tuple[int, Ends] | None, now_ms: int) -> float | None:
    if before is None or now_ms <= before[0] or (row.broker, row.queue_id) not in before[1]:
        return None
    came = row.max_offset - before[1][row.broker, row.queue_id]
    return max(0, came) * 1000 / (now_ms - before[0])


def shares(rates: Sequence[Rate]) -> tuple[BrokerShare, ...]:
    """What each broker got in the last minute, by its own count. PURE."""
    total = sum(rate.per_s_minute for rate in rates)
    return tuple(
        BrokerShare(
            broker=rate.broker,
            per_s=rate.per_s_minute,
            share=rate.per_s_minute / total if total else None,
        )
        for rate in rates
    )
