"""Who held which queue when, as far as deliveries show it, and what follows from that. PURE."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from trimtab.balance.metrics import Held, double_held_s, gini, max_mean
from trimtab.model import MessageQueue

ROUND_MS = 1_000
"""Queues that move within so long of each other move in one rebalance."""


@dataclass(frozen=True, slots=True)
class Span:
    """A member handled messages of a queue, from its first delivery to the end of its last."""

    group: str
    queue: MessageQueue
    member: str
    from_ms: int
    until_ms: int
    messages: int
    first_stored_ms: int
    """When the first message of the span had been stored: before that nothing waited."""


@dataclass(frozen=True, slots=True)
class Move:
    """A queue went from one member to another."""

    group: str
    queue: MessageQueue
    at_ms: int
    before: str
    after: str
    unheld_ms: int
    """How long the new member's first message waited while nobody handled the queue."""
    overlap_ms: int
    """How long the old member went on after the new one had begun."""


@dataclass(frozen=True, slots=True)
class GroupFacts:
    """What deliveries say about the balance of a group."""

    group: str
    members: int
    queues: int
    deliveries: int
    moves: int
    rebalances: int
    twice: int
    double_held_s: float
    unheld_s: float
    max_mean: float
    gini: float


def moves_of(spans: Iterable[Span]) -> list[Move]:
    """Every change of holder, in the order of time."""
    queues: dict[tuple[str, MessageQueue], list[Span]] = defaultdict(list)
    for span in spans:
        queues[span.group, span.queue].append(span)
    found = []
    for held in queues.values():
        held.sort(key=lambda span: (span.from_ms, span.until_ms))
        found += _moves_of_queue(held)
    return sorted(found, key=lambda move: (move.at_ms, str(move.queue)))


def _moves_of_queue(held: Sequence[Span]) -> list[Move]:
    found = []
    last, covered_ms = held[0], held[0].until_ms
    for span in held[1:]:
        if span.member != last.member:
            waits_since_ms = max(covered_ms, span.first_stored_ms)
            found.append(
                Move(
                    group=span.group,
                    queue=span.queue,
                    at_ms=span.from_ms,
                    before=last.member,
                    after=span.member,
                    unheld_ms=max(0, span.from_ms - waits_since_ms),
                    overlap_ms=max(0, min(covered_ms, span.until_ms) - span.from_ms),
                )
            )
        last, covered_ms = span, max(covered_ms, span.until_ms)
    return found


def rebalances_of(moves: Sequence[Move], round_ms: int = ROUND_MS) -> int:
    """How many rebalances the moves of one group make up, in the order of time."""
    count, last_ms = 0, None
    for move in moves:
        if last_ms is None or move.at_ms - last_ms > round_ms:
            count += 1
        last_ms = move.at_ms
    return count


def facts_of(
    spans: Sequence[Span],
    moves: Sequence[Move],
    deliveries: Mapping[tuple[str, str], int],
    twice: Mapping[str, int],
) -> list[GroupFacts]:
    """One line a group; `deliveries` by group and member, `twice` by group."""
    found = []
    for group in sorted({group for group, _ in deliveries}):
        own = [span for span in spans if span.group == group]
        own_moves = [move for move in moves if move.group == group]
        loads = [count for (of, _), count in deliveries.items() if of == group]
        times = [Held(span.queue, span.member, span.from_ms, span.until_ms) for span in own]
        found.append(
            GroupFacts(
                group=group,
                members=len(loads),
                queues=len({span.queue for span in own}),
                deliveries=sum(loads),
                moves=len(own_moves),
                rebalances=rebalances_of(own_moves),
                twice=twice.get(group, 0),
                double_held_s=double_held_s(times),
                unheld_s=sum(move.unheld_ms for move in own_moves) / 1_000,
                max_mean=max_mean(loads),
                gini=gini(loads),
            )
        )
    return found
