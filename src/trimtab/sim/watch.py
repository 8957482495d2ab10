"""Who holds what at every moment, what was delivered, what was committed; and whether a promise was broken.

In leased mode a broken promise ends the run with a `Violation` that says what happened before. In classic mode it is counted.
"""

from collections import defaultdict
from typing import TYPE_CHECKING, Final

from trimtab.errors import TrimtabError
from trimtab.model import MessageQueue
from trimtab.sim.ranges import Ranges
from trimtab.sim.timeline import Timeline

if TYPE_CHECKING:
    from trimtab.sim.member import SimMember

LAST_EVENTS: Final = 30


class Violation(TrimtabError):  # noqa: N818 - it is what it is
    """A promise was broken."""


class Watch:
    """See the module's own words."""

    def __init__(self, timeline: Timeline, *, is_strict: bool) -> None:
        self.is_strict = is_strict
        self.holders: defaultdict[MessageQueue, dict[str, SimMember]] = defaultdict(dict)
        """Who may hand out messages of a queue now."""
        self.last_holder: dict[MessageQueue, str] = {}
        """By client id: a member that came back with the same id is the same holder."""
        self.queues: tuple[MessageQueue, ...] = ()
        self.moved = 0
        self.moved_ms: list[int] = []
        self.is_counting_moves = True
        """Not while the last messages are handled: no more come in, so strategies that follow load think anew."""
        self.double_held_ms = 0
        self.unheld_ms = 0
        self.delivered = 0
        self.delivered_twice = 0
        self.broken: list[str] = []
        self.changed_ms = timeline.now_ms
        """When a holding changed last."""
        self.answered_ms: int | None = None
        """When the others first answered to the change that was made last: took a queue or let one go."""
        self.first_messages_ms: dict[str, int] = {}
        """From a member's start to its first message, by member."""
        self._timeline = timeline
        self._since_ms: dict[MessageQueue, int] = {}
        self._begun: defaultdict[MessageQueue, Ranges] = defaultdict(Ranges)
        self._handled: defaultdict[MessageQueue, Ranges] = defaultdict(Ranges)
        self._stored: dict[MessageQueue, int] = {}
        """Where the group stands, as its broker knows it."""
        self._begun_up_to: dict[tuple[MessageQueue, str], int] = {}
        """How far a member has handed out a queue since it took it."""

    # --- holdings ---------------------------------------------------------------------------------------------

    def began(self, member: "SimMember", queue: MessageQueue) -> None:
        """From now on this member may hand out messages of the queue."""
        holders = self.holders[queue]
        if member.name in holders:
            return
        self._count(queue)
        holders[member.name] = member
        self._timeline.note(member.name, f"begins {queue}")
        before = self.last_holder.get(queue)
        if before is not None and before != member.client_id and self.is_counting_moves:
            self.moved += 1
            self.moved_ms.append(self._timeline.now_ms)
        self.last_holder[queue] = member.client_id
        self.changed_ms = self._timeline.now_ms
        self._answered()
        self._only(member, queue)

    def ended(self, member: "SimMember", queue: MessageQueue) -> None:
        """It does so no more."""
        holders = self.holders[queue]
        if member.name not in holders:
            return
        self._count(queue)
        del holders[member.name]
        self._timeline.note(member.name, f"ends {queue}")
        self.changed_ms = self._timeline.now_ms
        if member.is_awake and not member.is_leaving:
            self._answered()

    def _answered(self) -> None:
        if self.answered_ms is None:
            self.answered_ms = self._timeline.now_ms

    def all_ended(self, member: "SimMember") -> list[MessageQueue]:
        """Its process stands still or is gone; gives what it had."""
        had = [queue for queue, holders in self.holders.items() if member.name in holders]
        for queue in had:
            self.ended(member, queue)
        return had

    def watch(self, queues: tuple[MessageQueue, ...]) -> None:
        """These are the group's queues from now on."""
        self.queues = queues
        for queue in queues:
            self._since_ms.setdefault(queue, self._timeline.now_ms)

    def begin_counting(self) -> None:
        """What happened so far was the beginning and counts no more."""
        self.count_all()
        self.moved = self.double_held_ms = self.unheld_ms = self.delivered_twice = 0
        self.moved_ms.clear()

    def moves_within(self, ms: int) -> int:
        """The most moves in any stretch of so long."""
        times, first, most = self.moved_ms, 0, 0
        for at, now_ms in enumerate(times):
            while now_ms - times[first] >= ms:
                first += 1
            most = max(most, at - first + 1)
        return most

    def count_all(self) -> None:
        """Brings the sums up to now."""
        for queue in self.queues:
            self._count(queue)

    def _count(self, queue: MessageQueue) -> None:
        now_ms = self._timeline.now_ms
        passed_ms = now_ms - self._since_ms.get(queue, now_ms)
        self._since_ms[queue] = now_ms
        count = len(self.holders[queue])
        if count > 1:
            self.double_held_ms += (count - 1) * passed_ms
        elif not count:
            self.unheld_ms += passed_ms

    def _only(self, member: "SimMember", queue: MessageQueue) -> None:
        """Nobody else may hand out messages of the queue."""
        if not self.is_strict:
            return
        for other in self.holders[queue].values():
            if other is not member and other.is_awake and other.may_start(queue):
                self._break(
                    f"{queue} is held twice: by {member.name} and by {other.name}",
                    member.name,
                    other.name,
                    str(queue),
                )

    # --- messages ---------------------------------------------------------------------------------------------

    def starting(self, member: "SimMember", queue: MessageQueue, first: int, end: int) -> None:
        """A handler starts with these messages."""
        if not member.may_start(queue):
            self._break(
                f"{member.name} hands out messages of {queue} that it may not", member.name, str(queue)
            )
        self.began(member, queue)
        if len(self.holders[queue]) > 1:
            self._only(member, queue)
        if member.name not in self.first_messages_ms:
            self.first_messages_ms[member.name] = self._timeline.now_ms - member.started_ms
        self._begun_up_to[queue, member.name] = end
        self.delivered += end - first
        self.delivered_twice += end - first - self._begun[queue].add(first, end)

    def took(self, member: "SimMember", queue: MessageQueue, offset: int, *, may_start: bool) -> None:
        """The member reads the queue from this offset on, and may hand out what it reads."""
        self._begun_up_to.pop((queue, member.name), None)
        stored = self._stored.get(queue, 0)
        if may_start and offset < stored:
            self._break(
                f"{member.name} begins {queue} at {offset}, though the group has come to {stored}",
                member.name, str(queue),
            )  # fmt: skip

    def gave_up(self, member: "SimMember", queue: MessageQueue) -> None:
        """The member frees a queue that was not taken from it: whoever is next finds all that it began behind the offset."""
        begun_up_to = self._begun_up_to.pop((queue, member.name), 0)
        stored = self._stored.get(queue, 0)
        if begun_up_to > stored:
            self._break(
                f"{member.name} gives {queue} up at {stored}, though it handed out up to {begun_up_to}: the rest comes twice",
                member.name, str(queue),
            )  # fmt: skip

    def handled(self, queue: MessageQueue, first: int, end: int) -> None:
        """A handler has ended, whatever became of its member's right to the queue meanwhile."""
        self._handled[queue].add(first, end)

    def handled_up_to(self, queue: MessageQueue) -> int:
        """The first message that no handler has finished."""
        return self._handled[queue].first_missing()

    def committed(self, who: str, queue: MessageQueue, before: int, offset: int) -> None:
        """A broker stores an offset."""
        self._stored[queue] = offset
        if offset > before or self.is_strict:
            self._timeline.note(who, f"commits {offset} of {queue}")
        if offset > self._handled[queue].first_missing():
            self._break(
                f"{who} committed {offset} of {queue}, but message {self.handled_up_to(queue)} was never handled",
                who, str(queue), is_always=True,
            )  # fmt: skip
        if offset < before and self.is_strict:
            self._break(f"{who} took the group back in {queue}: from {before} to {offset}", who, str(queue))

    # --- breaking ---------------------------------------------------------------------------------------------

    def fail(self, what: str, *words: str) -> None:
        """A promise was not kept in the end."""
        self._break(what, *words, is_always=True)

    def _break(self, what: str, *words: str, is_always: bool = False) -> None:
        if not self.is_strict and not is_always:
            return
        lines = "\n".join(f"  {line}" for line in self._timeline.last_of(words, LAST_EVENTS))
        text = f"after {self._timeline.passed_ms / 1000:.3f} s: {what}\n{lines}"
        self.broken.append(text)
        raise Violation(text)
