"""The figures by which ways of sharing are compared, under the same names in every table and report.

`before` and `after` say who holds which queue in two settled states; `times` say who held a queue from when to when.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from trimtab.model import MessageQueue

Holders = Mapping[MessageQueue, str]


@dataclass(frozen=True, slots=True)
class Held:
    """Somebody held a queue from then until then; nobody knew an end: until the end of the run."""

    queue: MessageQueue
    member: str
    from_ms: int
    until_ms: int


def moved(before: Holders, after: Holders) -> int:
    """Queues that have another holder than before. One that had none, or is gone, did not move."""
    return sum(queue in before and before[queue] != member for queue, member in after.items())


def moved_min(before: Holders, queues: Sequence[MessageQueue], members: Sequence[str]) -> int:
    """The fewest moves to shares that differ by at most one, however cleverly they are made."""
    base, odd = divmod(len(queues), len(members))
    had = Counter(before[queue] for queue in queues if queue in before)
    kept = sum(min(had[member], base) for member in members)
    kept += min(odd, sum(had[member] > base for member in members))
    return sum(queue in before for queue in queues) - kept


def moved_per_min(before: Holders, after: Holders, members: Sequence[str]) -> float:
    """`moved/min`: 1 is perfect, also where nothing had to move and nothing did; infinite where moves were for nothing."""
    least = moved_min(before, tuple(after), members)
    made = moved(before, after)
    if least:
        return made / least
    return 1.0 if made == 0 else float("inf")


def loads(
    holders: Holders, members: Iterable[str], weights: Mapping[MessageQueue, float] | None = None
) -> dict[str, float]:
    """Each member's number of queues, or the sum of their weights."""
    found = dict.fromkeys(members, 0.0)
    for queue, member in holders.items():
        found[member] += 1.0 if weights is None else weights[queue]
    return found


def max_mean(values: Iterable[float]) -> float:
    """`max/mean` of the members' loads; 1 is perfect."""
    found = tuple(values)
    total = sum(found)
    return max(found) * len(found) / total if total else 1.0


def gini(values: Iterable[float]) -> float:
    """How uneven: 0 when all have the same, towards 1 when one has everything."""
    found = sorted(values)
    total = sum(found)
    if not total:
        return 0.0
    ranked = sum(rank * value for rank, value in enumerate(found, start=1))
    return (2 * ranked / total - (len(found) + 1)) / len(found)


def idle(values: Iterable[float]) -> int:
    """Members that have nothing to do."""
    return sum(value == 0 for value in values)


def r_score(
    before: Holders, after: Holders, arriving_per_s: Mapping[MessageQueue, float], capacity_per_s: float
) -> float:
    """What moved, as the part of one member's capacity that arrives in the moved queues."""
    changed = (queue for queue, member in after.items() if queue in before and before[queue] != member)
    return sum(arriving_per_s.get(queue, 0.0) for queue in changed) / capacity_per_s


def double_held_s(times: Iterable[Held]) -> float:
    """Queue-seconds with two holders or more; three at once count twice."""
    return sum(max(0, count - 1) * length for count, length in _counts(times)) / 1_000


def unheld_s(times: Iterable[Held], queues: Iterable[MessageQueue], from_ms: int, until_ms: int) -> float:
    """Queue-seconds without a holder, of all these queues in that time."""
    wanted = dict.fromkeys(queues)
    inside = [
        Held(at.queue, at.member, max(from_ms, at.from_ms), min(until_ms, at.until_ms))
        for at in times
        if at.queue in wanted and at.from_ms < until_ms and at.until_ms > from_ms
    ]
    covered = sum(length for count, length in _counts(inside) if count > 0)
    return (len(wanted) * (until_ms - from_ms) - covered) / 1_000


def _counts(times: Iterable[Held]) -> list[tuple[int, int]]:
    """For each queue and each stretch in which its number of holders is the same: that number, and milliseconds."""
    changes: dict[MessageQueue, Counter[int]] = {}
    for at in times:
        steps = changes.setdefault(at.queue, Counter())
        steps[at.from_ms] += 1
        steps[at.until_ms] -= 1
    found = []
    for steps in changes.values():
        count = 0
        for (start, step), (end, _) in pairwise(sorted(steps.items())):
            count += step
            found.append((count, end - start))
    return found
