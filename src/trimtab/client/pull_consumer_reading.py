"""The queues that a pull consumer reads: taken, pulled into the shelf, given up, committed."""

import asyncio
import logging
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime

from trimtab.balance.start import NOT_STORED, At, AtTime, NotNow, StartRule, stored_for_pull, where_to_start
from trimtab.client.pull_consumer_offsets import QueueOffsets, Where
from trimtab.client.pull_consumer_shelf import Shelf, Shelved
from trimtab.client.pulls import OffsetMoved, Pulled, QueuePulls, Riding, Room, Wanted
from trimtab.client.pulls_values import nothing_between
from trimtab.client.session import Session
from trimtab.client.subscriptions import Subscriptions
from trimtab.errors import TrimtabError
from trimtab.model import MessageQueue
from trimtab.settings import Pulling

_log = logging.getLogger(__name__)

QUEUE_SHARE = 4
"""One queue may keep this part of all that waits to be handed out."""
REMEMBERED_QUEUES_MAX = 20_000


class Reading:
    """Owner of the pulls, and who takes and gives up queues for the group. Names are those on the wire."""

    def __init__(
        self,
        session: Session,
        group: str,
        subscriptions: Subscriptions,
        start_rule: StartRule,
        pulling: Pulling,
        *,
        commits: bool,
    ) -> None:
        self._session = session
        self._group = group
        self._subscriptions = subscriptions
        self._start_rule = start_rule
        self._pulling = pulling
        self._commits = commits
        self.offsets = QueueOffsets(session, group)
        self.shelf = Shelf(pulling.held_bytes_max // QUEUE_SHARE)
        self.room = Room(pulling.held_bytes_max)
        self.news = asyncio.Event()
        """Set when there is something to look at: messages, a failure, the end."""
        self.failure: TrimtabError | None = None
        self._is_open = True
        self._remembered: dict[MessageQueue, int] = {}
        """How far queues had come that were laid aside."""

    async def close(self, *, all_is_done: bool) -> None:
        """Reads nothing any more; commits what is done."""
        self._is_open = False
        self.news.set()
        shelved = list(self.shelf.queues.values())
        for one in shelved:
            self._drop(one)
        if self._commits:
            await self.commit_quietly({one: one.handed if all_is_done else one.done for one in shelved})

    # --- as `Taker` of the membership -------------------------------------------------------------------------

    def topics(self) -> Iterable[str]:
        """What is subscribed, as it is on the wire."""
        return self._subscriptions.topics

    async def start_of(self, queue: MessageQueue) -> int:
        """Where a queue is read from: where we left it ourselves, or where the group stands, else as `start` says. Negative: nowhere now."""
        remembered = self._remembered.get(queue)
        committed = await self.offsets.committed(queue) if remembered is None else None
        stored = stored_for_pull(remembered, NOT_STORED if committed is None else committed)
        start = where_to_start(self._start_rule, queue.topic, stored)
        if isinstance(start, At):
            return start.offset
        if isinstance(start, NotNow):
            _log.warning(
                "%s has offset %d in %s, where nobody can start: set another", self._group, stored, queue
            )
            return -1
        where: Where = "end"
        if isinstance(start, AtTime):
            where = datetime.fromtimestamp(start.at_ms / 1000, UTC)
        return await self.offsets.of(queue, where)

    def take(self, queue: MessageQueue, offset: int) -> bool:
        """Reads a queue from now on; whether it does: not a queue of a topic that was given up while it was being taken."""
        if not self._is_open or queue.topic not in self._subscriptions:
            return False
        self._remembered.pop(queue, None)
        shelved = self.shelf.queues[queue] = Shelved(queue, offset, self._session.clock.wall_ms())
        shelved.pulls = QueuePulls(
            self._session, self, self._group, queue, offset, self.wanted(queue.topic),
            pulling=self._pulling, room=self.room,
        )  # fmt: skip
        shelved.pulls.start()
        return True

    async def lay_aside(self, queue: MessageQueue) -> None:
        """Reads a queue no longer, because the user says so. Nobody else gets it by that: what was done is remembered, as in Java."""
        shelved = self.shelf.queues.get(queue)
        if shelved is not None:
            await self.give_up(queue)
            done = shelved.done if self._commits else shelved.committed
            if done is not None:
                self._remembered[queue] = done
                if len(self._remembered) > REMEMBERED_QUEUES_MAX:
                    del self._remembered[next(iter(self._remembered))]

    async def give_up(self, queue: MessageQueue) -> None:
        """Reads a queue no longer, and leaves its offset to whoever does."""
        shelved = self.shelf.queues.pop(queue, None)
        if shelved is not None:
            self._drop(shelved)
            if self._commits:
                await self.commit_quietly({shelved: shelved.done})

    def go_to(self, shelved: Shelved, offset: int) -> None:
        """Reads from here on; what was pulled and not handed out is let go."""
        shelved.handed = shelved.done = offset
        if shelved.pulls is not None:
            shelved.pulls.seek(offset)
        self.shelf.forget(shelved)

    def want(self, topic: str) -> None:
        """The filter of a topic changed; what was pulled by the old one and not handed out is asked for anew."""
        for queue, shelved in self.shelf.queues.items():
            if queue.topic == topic and shelved.pulls is not None:
                shelved.pulls.want(self.wanted(topic), shelved.handed)
                self.shelf.forget(shelved)

    def changed(self, topic: str) -> None:
        """The share of a topic changed."""
        self._subscriptions.bump(topic, self._session.clock.wall_ms())

    def _drop(self, shelved: Shelved) -> None:
        if shelved.pulls is not None:
            shelved.pulls.drop()
        self.shelf.forget(shelved)

    def wanted(self, topic: str) -> Wanted:
        """What is wanted of a topic; each pull says it."""
        data = self._subscriptions.get(topic)
        assert data is not None, "a queue that is read belongs to a topic that is wanted"
        return Wanted(data.sub_string or "*", data.expression_type)

    # --- as owner of the pulls --------------------------------------------------------------------------------

    def on_pulled(self, pulled: Pulled) -> None:
        """An answer came."""
        shelved = self.shelf.queues.get(pulled.queue)
        if shelved is None:
            pulled.release()
            return
        self.shelf.put(shelved, pulled)
        self.news.set()

    def on_moved(self, moved: OffsetMoved) -> int | None:
        """The broker says where to go on. What was pulled before is handed out all the same, and committed in its turn."""
        shelved = self.shelf.queues.get(moved.queue)
        if shelved is None:
            return None
        if moved.offset >= moved.asked:
            _log.warning(
                "%s: offsets %d to %d of %s were deleted before they were read, %d message(s) at most",
                self._group, moved.asked, moved.offset - 1, moved.queue, moved.offset - moved.asked,
            )  # fmt: skip
            self.shelf.put(shelved, nothing_between(moved))
            self.news.set()
            return moved.offset
        # The queue lost its end: what waits may be of that end, so all that was not handed out yet is read again.
        self.shelf.forget(shelved)
        shelved.handed = min(shelved.handed, moved.offset)
        shelved.done = min(shelved.done, moved.offset)
        return shelved.handed

    def on_trouble(self, queue: MessageQueue, error: TrimtabError) -> None:
        """What may pass is tried again and told in the log; what will not is told to whoever asks for messages."""
        if error.retriable:
            _log.info("%s of group %s: %s", queue, self._group, error)
        else:
            self.failure = error
            self.news.set()

    def riding(self, _queue: MessageQueue) -> Riding | None:
        """Commits go by themselves."""
        return None

    # --- commits ----------------------------------------------------------------------------------------------

    async def commit(self, shelved: Shelved, offset: int) -> None:
        """Stores an offset, if it is not the one that is stored."""
        if offset != shelved.committed:
            await self.offsets.commit(shelved.queue, offset)
            shelved.committed = offset

    async def commit_quietly(self, offsets: Mapping[Shelved, int]) -> None:
        """Stores offsets; what fails is told in the log and tried again with the next."""

        async def one(shelved: Shelved, offset: int) -> None:
            try:
                await self.commit(shelved, offset)
            except TrimtabError as error:
                _log.warning("offset %d of %s was not committed: %s", offset, shelved.queue, error)

        await asyncio.gather(*(one(shelved, offset) for shelved, offset in offsets.items()))

    async def commit_done(self) -> None:
        """Stores what is done."""
        await self.commit_quietly({one: one.done for one in self.shelf.queues.values()})
