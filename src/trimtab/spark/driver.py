"""The driver's side of reading: asks the cluster, lets `decisions` decide, and remembers what may be remembered.

Everything that must survive lies in the offsets that Spark stores. What is kept here saves questions: the layout for some seconds, the
ends of queues for a fraction of one while nothing happens.

A stream outlives its servers' restarts: the last layout is kept while no name server answers, a queue whose broker is away stays where it
is, and a question that gets no answer is asked again until `outageTimeoutMs` is over. Only a query that never got an answer, in this
process or in one before it, fails at once: see `patience`.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass, replace
from typing import TypeVar

from trimtab.errors import NoRouteError, TrimtabError
from trimtab.io.clock import Clock
from trimtab.model import MessageQueue
from trimtab.spark.background import background, patience_s
from trimtab.spark.cluster import ClusterView, Layout, only
from trimtab.spark.decisions import (
    Seen,
    Step,
    Wishes,
    away_and_gone,
    batch_ranges,
    next_step,
    placed,
    refuse_confusion,
    resolved,
    special,
    times_wanted,
    unwanted,
)
from trimtab.spark.limits import TriggerLimits, split_into_tasks
from trimtab.spark.losses import Kept, judge
from trimtab.spark.offsets import Offsets, Progress, QueueRange, ranges_between
from trimtab.spark.options import SourceOptions
from trimtab.spark.patience import Patience
from trimtab.spark.positions import EARLIEST, LATEST, Position
from trimtab.spark.problems import OptionError, OutageError
from trimtab.spark.reminders import Reminders
from trimtab.spark.samples import SAMPLE_MESSAGES, TOOLS_GROUP, Sampler

_log = logging.getLogger(__name__)

T = TypeVar("T")

LOOKED_FOR_TIMES = 2


@dataclass(frozen=True, slots=True)
class Found:
    """The queues there are, and which of the wanted ones are not: those of brokers that are away, and those that are gone for good."""

    layout: Layout
    away: frozenset[MessageQueue] = frozenset()
    gone: frozenset[MessageQueue] = frozenset()


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
        self._timed: set[MessageQueue] = set()
        """Queues with a message of the ending time or later, or whose end was `latest`: their bound stays."""
        self._is_available_now = False
        self._committed: Offsets = {}
        self._is_introduced = False
        self._mean_bytes: dict[MessageQueue, float] = {}
        self._waiting_since: Offsets = {}
        self._gone: frozenset[MessageQueue] = frozenset()
        self._is_acquainted = False
        self._reminders = Reminders(_log)

    # --- batches ----------------------------------------------------------------------------------------------

    def batch_tasks(self) -> list[tuple[QueueRange, ...]]:
        """What the tasks of a batch query read."""
        return self._run(self._batch_tasks, "planning a batch")

    async def _batch_tasks(self) -> list[tuple[QueueRange, ...]]:
        options = self._options
        view = await self._view()
        layout = await self._fresh_layout(view)
        self._refuse_missing(layout)
        kept = await view.kept(layout)
        assert options.end is not None, "a batch has an end"
        start = await self._resolved(view, layout, kept, "startingOffsets", options.start)
        end = await self._resolved(view, layout, kept, "endingOffsets", options.end)
        return split_into_tasks(self._judged_up_to(end, batch_ranges(start, end, kept), kept), options.tasks)

    # --- streams ----------------------------------------------------------------------------------------------

    def initial(self) -> Progress:
        """Where the stream begins; the same answer however often Spark asks."""
        if self._initial is None:
            self._initial = self._run(self._find_initial, "finding where to begin")
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
        self._is_acquainted |= (
            not start.is_initial
        )  # a checkpoint is what an earlier process got from the cluster
        return self._run(lambda: self._latest(start, limited=limited), "looking for new messages")

    async def _latest(self, start: Progress, *, limited: bool) -> Progress:
        options = self._options
        view = await self._view()
        await self._look(view, start)
        if not start.is_initial:
            await self._commit(view, start.offsets)
        if self._is_available_now and self._bounds is None:
            self._refuse_to_end_unseen(start)
        bounds = await self._find_bounds(view, {*self._layout.addresses, *start.offsets})
        limits = options.trigger if limited else TriggerLimits()
        now_ms = self._clock.monotonic_ms()
        waited_ms = 1 << 62 if self._last_batch_ms is None else now_ms - self._last_batch_ms
        wishes = Wishes(limits, options.loss, bounds, waits=not self._is_available_now)
        step = await self._step(start, wishes, waited_ms)
        for warning in step.warnings:
            self._reminders.say(warning, warning, now_ms)
        if step.progress is not start:
            self._last_batch_ms = now_ms
            self._seen_ms = None
            self._waiting_since = await self._left_behind(step.progress)
        return step.progress

    async def _step(self, start: Progress, wishes: Wishes, waited_ms: int) -> Step:
        """Where bytes are limited, messages are looked at where the batch begins, and where it would end: the larger ones count."""
        step = next_step(start, self._seen, wishes, waited_ms)
        if wishes.limits.bytes_max is None or step.progress is start:
            return step
        known = {**start.offsets, **step.progress.begins}
        self._mean_bytes |= await self._sizes(known)
        seen = replace(self._seen, mean_bytes=self._mean_bytes)
        step = next_step(start, seen, wishes, waited_ms)
        ends = {
            queue: max(known[queue], end - SAMPLE_MESSAGES) for queue, end in step.progress.offsets.items()
        }
        larger = {
            queue: size
            for queue, size in (await self._sizes(ends)).items()
            if size > seen.mean_bytes.get(queue, 0)
        }
        if not larger:
            return step
        return next_step(start, replace(seen, mean_bytes={**seen.mean_bytes, **larger}), wishes, waited_ms)

    def _refuse_to_end_unseen(self, start: Progress) -> None:
        """A run that ends where queues end has to see one; else name servers that know nothing yet would make it end at once."""
        unseen = start.offsets.keys() - self._seen.gone
        if unseen and not self._seen.nexts:
            names = ", ".join(sorted({queue.broker_name for queue in unseen}))
            raise NoRouteError(f"none of the {len(unseen)} queues of the stream can be reached: {names}")

    async def _left_behind(self, end: Progress) -> Offsets:
        """Since when messages wait that a limited batch does not read."""
        behind = {
            queue: end.offsets[queue]
            for queue, following in self._seen.nexts.items()
            if following > end.offsets.get(queue, following)
        }
        if not behind:
            return {}
        places = only(self._layout, behind).addresses
        return await (await self._sampler()).store_times(places, behind)

    def newest(self) -> Progress | None:
        """The ends of the queues as `latest` saw them, and since when messages wait."""
        return Progress(self._seen.nexts, waiting_since=self._waiting_since) if self._seen.nexts else None

    def tasks(self, start: Progress, end: Progress) -> list[tuple[QueueRange, ...]]:
        """What the tasks of one batch of a stream read."""
        ranges = ranges_between(start, end)
        if not ranges:
            return []
        self._is_acquainted = True
        return self._run(lambda: self._tasks(ranges), "planning a batch")

    async def _tasks(self, ranges: list[QueueRange]) -> list[tuple[QueueRange, ...]]:
        view = await self._view()
        queues = {part.queue for part in ranges}
        if self._layout_ms is None or not queues <= self._layout.addresses.keys():
            await self._renew_layout(view, queues)
        kept: dict[MessageQueue, Kept | None] = dict(await view.kept(only(self._layout, queues)))
        away = queues - kept.keys() - self._gone
        if away:
            names = ", ".join(sorted({queue.broker_name for queue in away}))
            waiting = sum(part.size for part in ranges if part.queue in away)
            raise NoRouteError(
                f"{names} is not there, and {waiting} messages on it are to be read; start the query again when it is back:"
                " nothing is lost"
            )
        kept |= dict.fromkeys(queues & self._gone)
        return split_into_tasks(self._judged(ranges, kept), self._options.tasks)

    def commit(self, end: Progress) -> None:
        """Tells the brokers how far the group has come, so that tools show it."""
        if self._options.commits:
            self._is_acquainted = True
            self._run(lambda: self._commit_anew(end.offsets), "committing")

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
            if not self._is_introduced and self._layout.addresses:
                await view.introduce(self._layout, group)
                self._is_introduced = True
            self._committed = {**self._committed, **await view.commit(self._layout, group, changed)}

    # --- looking ----------------------------------------------------------------------------------------------

    async def _look(self, view: ClusterView, start: Progress) -> None:
        """Asks the brokers, unless that was just done and nothing had come."""
        now_ms = self._clock.monotonic_ms()
        if self._seen_ms is not None and now_ms - self._seen_ms < self._options.offset_refresh_ms:
            return
        if self._layout_ms is None or now_ms - self._layout_ms >= self._options.route_refresh_ms:
            await self._renew_layout(view, start.offsets)
        nexts = await view.nexts(self._layout)
        for queue, error in nexts.failed.items():
            self._reminders.say(queue.broker_name, f"{queue} stays where it is: {error}", now_ms)
        asked_firsts = self._queues_to_ask_firsts(start, nexts.found, now_ms)
        firsts = await view.firsts(only(self._layout, asked_firsts))
        # Zero is what a broker says of a queue that it has nothing of yet, and -1 what some versions say.
        found = {queue: max(following, 0) for queue, following in nexts.found.items()}
        gone = self._gone & start.offsets.keys()
        self._seen = Seen(found, firsts.found, gone, unwanted(self._options.choice, gone))
        self._seen_ms = now_ms

    def _queues_to_ask_firsts(self, start: Progress, nexts: Offsets, now_ms: int) -> list[MessageQueue]:
        if self._firsts_ms is None or now_ms - self._firsts_ms >= self._options.route_refresh_ms:
            self._firsts_ms = now_ms
            return list(nexts)
        return [queue for queue, following in nexts.items() if following < start.offsets.get(queue, 1 << 62)]

    async def _renew_layout(self, view: ClusterView, wanted: Collection[MessageQueue]) -> None:
        """The queues as they are now. What is no longer there is told apart from what is away, which keeps its place."""
        known, now_ms = self._layout.addresses, self._clock.monotonic_ms()
        try:
            found = await self._find(view, {*known, *wanted})
        except TrimtabError as error:
            if not error.retriable or not known:
                raise
            self._layout_ms = now_ms
            self._reminders.say("names", f"the stream goes on with the queues it knows: {error}", now_ms)
            return
        for name in sorted({queue.broker_name for queue in found.away}):
            text = f"{name} is not there; its queues stay where they are until it is back"
            self._reminders.say(name, text, now_ms)
        away = {queue: known[queue] for queue in found.away if queue in known}
        self._layout = Layout({**away, **found.layout.addresses}, found.layout.missing_topics)
        self._gone = found.gone
        self._layout_ms = now_ms

    async def _find(self, view: ClusterView, wanted: Collection[MessageQueue]) -> Found:
        """Where queues are, and of those that are nowhere whether they are away or gone.

        A name server that was started anew knows nothing until brokers register again, which takes Apache's up to half a minute. So
        what looks gone is looked for once more: a broker must have been there before and after its queue was not.
        """
        found = Found(await view.layout(self._options.choice))
        lacking = frozenset(wanted) - found.layout.addresses.keys()
        there: frozenset[str] | None = None
        for _ in range(LOOKED_FOR_TIMES):
            if not lacking:
                break
            live = await view.live_brokers()
            there = live if there is None else there & live
            layout = await view.layout(self._options.choice)
            lacking -= layout.addresses.keys()
            found = Found(layout, *away_and_gone(lacking, there))
        return found

    async def _find_bounds(
        self, view: ClusterView, known: Collection[MessageQueue]
    ) -> dict[MessageQueue, int] | None:
        """Where the stream ends, if it does. A time that is still to come is looked for until a message has reached it."""
        end = self._options.end
        if end is None and not self._is_available_now:
            return None
        bounds = {} if self._bounds is None else self._bounds
        nexts = self._seen.nexts
        if self._is_available_now and self._bounds is not None:
            return bounds
        if end is not None:
            ends = nexts if self._bounds is None else self._unbounded(end, bounds)
            bounds = bounds | await self._ends(view, only(self._layout, ends), end, known)
        if self._is_available_now:
            bounds = {
                queue: min(following, bounds.get(queue, following)) for queue, following in nexts.items()
            }
        self._bounds = bounds
        return bounds

    def _unbounded(self, end: Position, bounds: Offsets) -> list[MessageQueue]:
        """Queues that have messages beyond what was their end when a time was looked for, and queues that are new."""
        if end.kind not in ("time", "times"):
            return []
        return [
            queue
            for queue, following in self._seen.nexts.items()
            if queue not in bounds or (queue not in self._timed and following > bounds[queue])
        ]

    async def _ends(
        self, view: ClusterView, layout: Layout, end: Position, known: Collection[MessageQueue]
    ) -> dict[MessageQueue, int]:
        """`known` are also queues that are away or gone, which may be named all the same."""
        if not layout.addresses:
            return {}
        kept = await view.kept(layout)
        ends = await self._resolved(view, layout, kept, "endingOffsets", end, known)
        self._timed |= {queue for queue, offset in ends.items() if offset < kept[queue].next}
        if end.kind == "times":
            wanted = times_wanted("endingOffsetsByTimestamp", end, ends, known)
            self._timed |= {queue for queue, number in wanted.items() if number == LATEST}
        return ends

    async def _sizes(self, places: Offsets) -> dict[MessageQueue, float]:
        """How large messages are at these places, where there are any."""
        waiting = {
            queue: offset for queue, offset in places.items() if self._seen.nexts.get(queue, offset) > offset
        }
        if not waiting:
            return {}
        return await (await self._sampler()).mean_bytes(only(self._layout, waiting).addresses, waiting)

    # --- positions --------------------------------------------------------------------------------------------

    async def _resolved(
        self,
        view: ClusterView,
        layout: Layout,
        kept: Mapping[MessageQueue, Kept],
        option: str,
        position: Position,
        known: Collection[MessageQueue] | None = None,
    ) -> dict[MessageQueue, int]:
        committed = None
        if position.kind == "group":
            committed = await view.committed(layout, self._options.group or "")
        at_time = None
        if position.kind in ("time", "times"):
            at_time = await self._at_time(view, layout, kept, option, position, known)
        return resolved(option, position, kept, committed, at_time)

    async def _at_time(
        self,
        view: ClusterView,
        layout: Layout,
        kept: Mapping[MessageQueue, Kept],
        option: str,
        position: Position,
        known: Collection[MessageQueue] | None,
    ) -> dict[MessageQueue, int]:
        there = layout.queues if known is None else known
        wanted = times_wanted(f"{option}ByTimestamp", position, layout.queues, there)
        times = {queue: at_ms for queue, at_ms in wanted.items() if at_ms not in (EARLIEST, LATEST)}
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
        return {queue: special(number, kept[queue]) for queue, number in wanted.items()} | offsets

    def _tell_of_times_after_the_end(
        self, offsets: Offsets, times: Mapping[MessageQueue, int], kept: Mapping[MessageQueue, Kept]
    ) -> None:
        for queue, offset in offsets.items():
            if offset < kept[queue].next:
                continue
            if self._options.time_after_end == "error":
                raise OptionError(
                    "startingOffsetsByTimestampStrategy", "error",
                    f"latest, which begins at the end, or an earlier time: {queue} has no message of {times[queue]} ms or later",
                )  # fmt: skip
            _log.info("%s has no message of %d or later; it is read from its end on", queue, times[queue])

    def _judged_up_to(
        self, end: Offsets, ranges: list[QueueRange], kept: Mapping[MessageQueue, Kept]
    ) -> tuple[QueueRange, ...]:
        """A queue that is read anew because it was made anew ends where the batch wants it to."""
        judged = self._judged(ranges, kept)
        cut = (QueueRange.of(part.queue, part.start, min(part.end, end[part.queue])) for part in judged)
        return tuple(part for part in cut if part.start < part.end)

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
        for queue in placed("assign", dict.fromkeys(choice.queues or ()), layout.queues + layout.others):
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

    def _run(self, work: Callable[[], Awaitable[T]], asked: str) -> T:
        access, outage_s = self._options.access, self._options.outage_ms / 1000
        return background().run(
            self._patiently(work, asked), asked=asked, seconds_max=patience_s(access) * 2 + outage_s
        )

    async def _patiently(self, work: Callable[[], Awaitable[T]], asked: str) -> T:
        """Once there was an answer, no answer is taken for a restart until it has lasted too long."""
        patience = Patience(self._options.outage_ms, self._options.access.retry_ms)
        began_ms = self._clock.monotonic_ms()
        tries = 0
        while True:
            try:
                found = await work()
            except TrimtabError as error:
                now_ms = self._clock.monotonic_ms()
                waited_ms = now_ms - began_ms
                verdict = patience.verdict(
                    is_retriable=error.retriable, is_acquainted=self._is_acquainted, waited_ms=waited_ms
                )
                if verdict == "refused":
                    raise
                if verdict == "outage":
                    raise OutageError(asked, self._options.outage_ms, error) from error
                self._reminders.say(asked, f"{asked} is tried again: {error}", now_ms)
                self._layout_ms = self._seen_ms = None  # what comes back may be elsewhere
                await asyncio.sleep(patience.pause_ms(tries, waited_ms) / 1000)
                tries += 1
            else:
                self._is_acquainted = True
                return found
