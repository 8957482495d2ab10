"""The driver's side of reading: asks the cluster, lets `decisions` decide, and remembers what may be remembered.

Everything that must survive lies in the offsets that Spark stores. What is kept here saves questions: the layout for some seconds, the
ends of queues for a fraction of one while nothing happens.
"""

import asyncio
import logging
from collections.abc import Coroutine, Mapping
from dataclasses import replace
from typing import Any, TypeVar

from trimtab.errors import NoRouteError
from trimtab.io.clock import Clock
from trimtab.model import MessageQueue
from trimtab.spark.background import background, patience_s
from trimtab.spark.cluster import ClusterView, Layout, only
from trimtab.spark.decisions import Seen, Wishes, next_step, refuse_confusion, resolved
from trimtab.spark.limits import TriggerLimits, split_into_tasks
from trimtab.spark.losses import Kept, judge
from trimtab.spark.offsets import Offsets, Progress, QueueRange, ranges_between
from trimtab.spark.options import SourceOptions
from trimtab.spark.positions import Position
from trimtab.spark.problems import OptionError
from trimtab.spark.samples import TOOLS_GROUP, Sampler

_log = logging.getLogger(__name__)

T = TypeVar("T")

LOOKED_AT_MAX = 64
"""Queues whose first waiting message is looked at after a batch."""


class Driver:
    """See the module's own words. One for each query, in the process that Spark plans it in."""

    def __init__(self, options: SourceOptions, clock: Clock) -> None:
        self._options = options
        self._clock = clock
        self._layout = Layout({})
        self._layout_ms: int | None = None
        self._seen = Seen({})
        self._seen_ms: int | None = None
        self._firsts_ms: int | None = None
        self._last_batch_ms: int | None = None
        self._initial: Progress | None = None
        self._bounds: dict[MessageQueue, int] | None = None
        self._is_available_now = False
        self._committed: Offsets = {}
        self._is_introduced = False
        self._mean_bytes: dict[MessageQueue, float] = {}
        self._waiting_since: Offsets = {}

    # --- batches ----------------------------------------------------------------------------------------------

    def batch_tasks(self) -> list[tuple[QueueRange, ...]]:
        """What the tasks of a batch query read."""
        return self._run(self._batch_tasks(), "planning a batch")

    async def _batch_tasks(self) -> list[tuple[QueueRange, ...]]:
        options = self._options
        view = await self._view()
        layout = await self._fresh_layout(view)
        self._refuse_missing(layout)
        kept = await view.kept(layout)
        assert options.end is not None, "a batch has an end"
        start = await self._resolved(view, layout, kept, "startingOffsets", options.start)
        end = await self._resolved(view, layout, kept, "endingOffsets", options.end)
        ranges = [
            QueueRange.of(queue, begin, end[queue]) for queue, begin in start.items() if begin < end[queue]
        ]
        return split_into_tasks(self._judged(ranges, kept), options.tasks)

    # --- streams ----------------------------------------------------------------------------------------------

    def initial(self) -> Progress:
        """Where the stream begins; the same answer however often Spark asks."""
        if self._initial is None:
            self._initial = self._run(self._find_initial(), "finding where to begin")
        return self._initial

    async def _find_initial(self) -> Progress:
        view = await self._view()
        layout = await self._fresh_layout(view)
        self._refuse_missing(layout)
        kept = await view.kept(layout)
        offsets = await self._resolved(view, layout, kept, "startingOffsets", self._options.start)
        judge(
            [QueueRange.of(queue, offset, offset) for queue, offset in offsets.items()],
            kept,
            self._options.loss,
        )
        return Progress(offsets, is_initial=True)

    def prepare_available_now(self) -> None:
        """The stream ends where the queues end when it first looks."""
        self._is_available_now = True
        self._bounds = None

    def latest(self, start: Progress, *, limited: bool) -> Progress:
        """The end of the next batch; `start` if there is none."""
        return self._run(self._latest(start, limited=limited), "looking for new messages")

    async def _latest(self, start: Progress, *, limited: bool) -> Progress:
        options = self._options
        view = await self._view()
        if not start.is_initial:
            await self._commit(view, start.offsets)
        await self._look(view, start)
        bounds = await self._find_bounds(view)
        limits = options.trigger if limited else TriggerLimits()
        seen = self._seen
        if limits.bytes_max is not None:
            seen = replace(seen, mean_bytes=await self._sizes(start))
        now_ms = self._clock.monotonic_ms()
        waited_ms = 1 << 62 if self._last_batch_ms is None else now_ms - self._last_batch_ms
        wishes = Wishes(limits, options.loss, bounds, waits=not self._is_available_now)
        step = next_step(start, seen, wishes, waited_ms)
        for warning in step.warnings:
            _log.warning("%s", warning)
        if step.progress is not start:
            self._last_batch_ms = now_ms
            self._seen_ms = None
            self._waiting_since = await self._left_behind(step.progress)
        return step.progress

    async def _left_behind(self, end: Progress) -> Offsets:
        """Since when messages wait that a limited batch does not read."""
        behind = {
            queue: end.offsets[queue]
            for queue, following in self._seen.nexts.items()
            if following > end.offsets.get(queue, following)
        }
        if not behind:
            return {}
        places = dict(list(only(self._layout, behind).addresses.items())[:LOOKED_AT_MAX])
        return await (await self._sampler()).store_times(places, behind)

    def newest(self) -> Progress | None:
        """The ends of the queues as `latest` saw them, and since when messages wait."""
        return Progress(self._seen.nexts, waiting_since=self._waiting_since) if self._seen.nexts else None

    def tasks(self, start: Progress, end: Progress) -> list[tuple[QueueRange, ...]]:
        """What the tasks of one batch of a stream read."""
        ranges = ranges_between(start, end)
        if not ranges:
            return []
        return self._run(self._tasks(ranges), "planning a batch")

    async def _tasks(self, ranges: list[QueueRange]) -> list[tuple[QueueRange, ...]]:
        view = await self._view()
        queues = {part.queue for part in ranges}
        if not queues <= self._layout.addresses.keys():
            await self._fresh_layout(view)
        kept: dict[MessageQueue, Kept | None] = dict(await view.kept(only(self._layout, queues)))
        lacking = queues - kept.keys()
        if lacking:
            live = await view.live_brokers()
            away = sorted({queue.broker_name for queue in lacking} - live)
            if away:
                raise NoRouteError(
                    f"{', '.join(away)} is not there, and {sum(part.size for part in ranges if part.queue in lacking)} messages on it"
                    " are to be read; start the query again when it is back: nothing is lost"
                )
            kept |= dict.fromkeys(lacking)
        return split_into_tasks(self._judged(ranges, kept), self._options.tasks)

    def commit(self, end: Progress) -> None:
        """Tells the brokers how far the group has come, so that tools show it."""
        if self._options.commits:
            self._run(self._commit_anew(end.offsets), "committing")

    async def _commit_anew(self, offsets: Offsets) -> None:
        await self._commit(await self._view(), offsets)

    async def _commit(self, view: ClusterView, offsets: Offsets) -> None:
        group = self._options.group
        if not self._options.commits or group is None:
            return
        changed = {queue: offset for queue, offset in offsets.items() if self._committed.get(queue) != offset}
        if changed:
            if not self._layout.addresses:
                await self._fresh_layout(view)
            if not self._is_introduced:
                await view.introduce(self._layout, group)
                self._is_introduced = True
            await view.commit(self._layout, group, changed)
            self._committed = dict(offsets)

    # --- looking ----------------------------------------------------------------------------------------------

    async def _look(self, view: ClusterView, start: Progress) -> None:
        """Asks the brokers, unless that was just done and nothing had come."""
        now_ms = self._clock.monotonic_ms()
        if self._seen_ms is not None and now_ms - self._seen_ms < self._options.offset_refresh_ms:
            return
        if self._layout_ms is None or now_ms - self._layout_ms >= self._options.route_refresh_ms:
            await self._fresh_layout(view)
        nexts = await view.nexts(self._layout)
        for queue, error in nexts.failed.items():
            _log.warning("%s stays where it is: %s", queue, error)
        asked_firsts = self._queues_to_ask_firsts(start, nexts.found, now_ms)
        firsts = await view.firsts(only(self._layout, asked_firsts))
        # Zero is what a broker says of a queue that it has nothing of yet, and -1 what some versions say.
        found = {queue: max(following, 0) for queue, following in nexts.found.items()}
        self._seen = Seen(found, firsts.found, await self._gone(view, start))
        self._seen_ms = now_ms

    def _queues_to_ask_firsts(self, start: Progress, nexts: Offsets, now_ms: int) -> list[MessageQueue]:
        if self._firsts_ms is None or now_ms - self._firsts_ms >= self._options.route_refresh_ms:
            self._firsts_ms = now_ms
            return list(nexts)
        return [queue for queue, following in nexts.items() if following < start.offsets.get(queue, 1 << 62)]

    async def _gone(self, view: ClusterView, start: Progress) -> frozenset[MessageQueue]:
        """Queues that brokers no longer have although they are there; a broker that is away is waited for."""
        lacking = [queue for queue in start.offsets if queue not in self._layout.addresses]
        if not lacking:
            return frozenset()
        live = await view.live_brokers()
        for name in sorted({queue.broker_name for queue in lacking} - live):
            _log.warning("%s is not there; its queues stay where they are until it is back", name)
        return frozenset(queue for queue in lacking if queue.broker_name in live)

    async def _find_bounds(self, view: ClusterView) -> dict[MessageQueue, int] | None:
        """Where the stream ends, if it does: found once, at the first look and not before."""
        if self._bounds is not None:
            return self._bounds
        end = self._options.end
        if end is None and not self._is_available_now:
            return None
        bounds = dict(self._seen.nexts)
        if end is not None:
            layout = only(self._layout, bounds)
            kept = await view.kept(layout)
            ends = await self._resolved(view, layout, kept, "endingOffsets", end)
            named = {**bounds, **ends}
            bounds = (
                {queue: min(bounds[queue], named[queue]) for queue in bounds}
                if self._is_available_now
                else named
            )
        self._bounds = bounds
        return bounds

    async def _sizes(self, start: Progress) -> Mapping[MessageQueue, float]:
        """Sampled once for each queue; sizes of messages in a queue rarely change their order of magnitude."""
        unknown = {
            queue: start.offsets[queue]
            for queue, following in self._seen.nexts.items()
            if queue not in self._mean_bytes and following > start.offsets.get(queue, following)
        }
        if unknown:
            places = only(self._layout, unknown).addresses
            self._mean_bytes |= await (await self._sampler()).mean_bytes(places, unknown)
        return self._mean_bytes

    # --- positions --------------------------------------------------------------------------------------------

    async def _resolved(
        self,
        view: ClusterView,
        layout: Layout,
        kept: Mapping[MessageQueue, Kept],
        option: str,
        position: Position,
    ) -> dict[MessageQueue, int]:
        committed = None
        if position.kind == "group":
            committed = await view.committed(layout, self._options.group or "")
        at_time = None
        if position.kind in ("time", "times"):
            at_time = await self._at_time(view, layout, kept, option, position)
        return resolved(option, position, kept, committed, at_time)

    async def _at_time(
        self,
        view: ClusterView,
        layout: Layout,
        kept: Mapping[MessageQueue, Kept],
        option: str,
        position: Position,
    ) -> dict[MessageQueue, int]:
        if position.kind == "time":
            times = dict.fromkeys(layout.queues, position.at_ms)
        else:
            times = {
                queue: at_ms for queue, at_ms in (position.queues or {}).items() if queue in layout.addresses
            }
        hints = await view.hints(layout, times)
        sampler = await self._sampler()
        found = await asyncio.gather(
            *(
                sampler.offset_at(queue, layout.addresses[queue], at_ms, kept[queue], hints[queue])
                for queue, at_ms in times.items()
            )
        )
        offsets = dict(zip(times, found, strict=True))
        if option == "startingOffsets":
            self._tell_of_times_after_the_end(offsets, times, kept)
        return offsets

    def _tell_of_times_after_the_end(
        self, offsets: Offsets, times: Mapping[MessageQueue, int], kept: Mapping[MessageQueue, Kept]
    ) -> None:
        for queue, offset in offsets.items():
            if offset < kept[queue].next:
                continue
            if self._options.time_after_end == "error":
                raise OptionError(
                    "startingTimestamp", str(times[queue]),
                    f"a time that {queue} has messages of; set startingOffsetsByTimestampStrategy to latest to begin at its end",
                )  # fmt: skip
            _log.info("%s has no message of %d or later; it is read from its end on", queue, times[queue])

    # --- the small things -------------------------------------------------------------------------------------

    def _judged(
        self, ranges: list[QueueRange], kept: Mapping[MessageQueue, Kept | None]
    ) -> tuple[QueueRange, ...]:
        judgement = judge(ranges, kept, self._options.loss)
        for warning in judgement.warnings:
            _log.warning("%s", warning)
        return judgement.ranges

    def _refuse_missing(self, layout: Layout) -> None:
        choice = self._options.choice
        for topic in layout.missing_topics:
            raise OptionError("topic", topic, "a topic that exists; create it, or mend the name")
        for queue in sorted(choice.queues or (), key=str):
            if queue not in layout.addresses:
                raise OptionError("queues", str(queue), "queues that the topic has")
        if self._options.schema_mode == "kafka":
            refuse_confusion(layout.queues)

    async def _fresh_layout(self, view: ClusterView) -> Layout:
        self._layout = await view.layout(self._options.choice)
        self._layout_ms = self._clock.monotonic_ms()
        return self._layout

    async def _view(self) -> ClusterView:
        session = await background().session(self._options.access)
        return ClusterView(session, self._options.access)

    async def _sampler(self) -> Sampler:
        session = await background().session(self._options.access)
        return Sampler(session, self._options.group or TOOLS_GROUP, self._options.access.request_ms / 1000)

    def _run(self, coroutine: Coroutine[Any, Any, T], asked: str) -> T:
        return background().run(coroutine, asked=asked, seconds_max=patience_s(self._options.access) * 2)
