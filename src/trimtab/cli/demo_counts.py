"""What the demo's consumers reported, and the figures made of it."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.table import Table

    from trimtab.balance.metrics import Held
    from trimtab.model import MessageQueue


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupCounts:
    """What membership changes cost, in one mode. Seconds are queue-seconds."""

    mode: str
    topic: str
    sent: int
    send_errors: int
    delivered: int
    twice_planned: int
    twice_crash: int
    lost: int
    double_held_s: float
    unheld_s: float
    moved: int
    moved_min: int
    settle_ms_max: int


@dataclass(slots=True)
class Ledger:
    """Deliveries and holdings of a group, by its members' own words."""

    topic: str
    deliveries: dict[int, list[tuple[int, str]]] = field(default_factory=dict)
    """For every message number when it was delivered, and to whom."""
    got: Counter[str] = field(default_factory=Counter)
    holding: dict[tuple[str, "MessageQueue"], int] = field(default_factory=dict)
    held: list["Held"] = field(default_factory=list)
    dead: dict[str, int] = field(default_factory=dict)
    """Who was killed, and when."""

    def hear(self, member: str, event: dict[str, Any]) -> None:
        """One line of a member."""
        from trimtab.model import MessageQueue

        if event["what"] == "got":
            self.got[member] += 1
            self.deliveries.setdefault(event["number"], []).append((event["at_ms"], member))
            return
        for broker, queue_id in event["queues"]:
            queue = MessageQueue(self.topic, broker, queue_id)
            if event["what"] == "took":
                self.holding.setdefault((member, queue), event["at_ms"])
            else:
                self._end(member, queue, event["at_ms"])

    def gone(self, member: str, at_ms: int) -> None:
        """The process has ended: it holds nothing more."""
        for name, queue in list(self.holding):
            if name == member:
                self._end(name, queue, at_ms)

    def holders(self) -> "dict[MessageQueue, list[str]]":
        """Who holds what now."""
        found: dict[MessageQueue, list[str]] = {}
        for member, queue in self.holding:
            found.setdefault(queue, []).append(member)
        return found

    def queues_of(self, member: str) -> int:
        """How many it holds now."""
        return sum(name == member for name, _ in self.holding)

    def is_settled(self, queues: int, members: Collection[str]) -> bool:
        """Whether every queue has exactly one holder, and every member something to do."""
        holders = self.holders()
        names = [name for names in holders.values() for name in names]
        return len(holders) == len(names) == queues and set(names) == set(members)

    def crashed(self, member: str, at_ms: int) -> None:
        """It was killed: from then on what it had comes again because of that."""
        self.dead[member] = at_ms

    def twice(self) -> tuple[int, int]:
        """Deliveries that were not the first of their message: after planned changes, and because a member that had it crashed."""
        planned = crash = 0
        for deliveries in self.deliveries.values():
            if len(deliveries) == 1:
                continue
            inherited_ms = min(
                (self.dead[member] for _, member in deliveries if member in self.dead), default=None
            )
            for at_ms, _ in sorted(deliveries)[1:]:
                if inherited_ms is not None and at_ms >= inherited_ms:
                    crash += 1
                else:
                    planned += 1
        return planned, crash

    def total(self) -> int:
        """All deliveries."""
        return self.got.total()

    def _end(self, member: str, queue: "MessageQueue", at_ms: int) -> None:
        from trimtab.balance.metrics import Held

        since_ms = self.holding.pop((member, queue), None)
        if since_ms is not None:
            self.held.append(Held(queue, member, since_ms, max(since_ms, at_ms)))


def fewest_moves(before: Mapping["MessageQueue", str], after: Mapping["MessageQueue", str]) -> int:
    """How many queues had to move at least, for everybody to have as many as they have now."""
    had, has = Counter(before.values()), Counter(after.values())
    return sum((has - had).values())


def counts_table(counts: Sequence[GroupCounts]) -> "Table":
    """The modes side by side."""
    from rich.table import Table

    table = Table("", *(count.mode for count in counts), box=None, padding=(0, 2))
    for column in table.columns[1:]:
        column.justify = "right"
    rows = (
        ("messages sent", [f"{count.sent:,}" for count in counts]),
        (
            "delivered twice: a member joined, another left",
            [_judged(count.twice_planned) for count in counts],
        ),
        ("delivered twice: a member crashed", [f"{count.twice_crash:,}" for count in counts]),
        ("lost", [_judged(count.lost) for count in counts]),
        ("queue-seconds with two holders", [f"{count.double_held_s:.2f}" for count in counts]),
        ("queue-seconds with none", [f"{count.unheld_s:.2f}" for count in counts]),
        (
            "queues that moved (fewest possible)",
            [f"{count.moved} ({count.moved_min})" for count in counts],
        ),
        ("longest until settled", [f"{count.settle_ms_max / 1000:.1f} s" for count in counts]),
    )
    for name, cells in rows:
        table.add_row(name, *cells)
    return table


def _judged(count: int) -> str:
    return f"[{'yellow' if count else 'green'}]{count:,}[/]"
