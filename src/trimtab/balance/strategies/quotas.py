"""How many queues each member should have."""

from collections import deque
from collections.abc import Mapping
from functools import lru_cache

from trimtab.balance.strategies.places import in_turn

_PARTS = 1_000_000
_REMEMBERED_GROUPS_MAX = 64


_last: deque[tuple[tuple[str, ...], str, int, Mapping[str, int]]] = deque(maxlen=8)


def even_quotas(group: str, members: tuple[str, ...], queues: int) -> Mapping[str, int]:
    """Equal shares, agreed upon without knowing who holds what.

    The odd queues go to the first in turn. With no more queues than members everybody may have one: shares are even whoever has it, so
    nobody must give it up to somebody with a better right; then the quotas add up to more than the queues.
    """
    # The same tuple comes again and again: it is known by identity, since hashing a thousand names takes long.
    for known, of_group, count, quotas in _last:
        if known is members and count == queues and of_group == group:
            return quotas
    quotas = _even_quotas(group, members, queues)
    _last.append((members, group, queues, quotas))
    return quotas


@lru_cache(_REMEMBERED_GROUPS_MAX)
def _even_quotas(group: str, members: tuple[str, ...], queues: int) -> Mapping[str, int]:
    if queues <= len(members):
        return dict.fromkeys(members, min(queues, 1))
    base, odd = divmod(queues, len(members))
    if not odd:
        return dict.fromkeys(members, base)
    return {member: base + (rank < odd) for rank, member in enumerate(in_turn(group, members))}


def fewest_moves_quotas(
    group: str, members: tuple[str, ...], queues: int, held: Mapping[str, int]
) -> Mapping[str, int]:
    """Equal shares where it is known how many each holds: the odd queues stay with those who have more."""
    if queues <= len(members):
        return even_quotas(group, members, queues)
    base, odd = divmod(queues, len(members))
    turn = sorted(in_turn(group, members), key=lambda member: held[member] <= base)
    return {member: base + (rank < odd) for rank, member in enumerate(turn)}


def weighted_quotas(
    group: str, members: tuple[str, ...], queues: int, weights: Mapping[str, float]
) -> dict[str, int]:
    """Shares in proportion to the weights, by largest remainder. At least one weight is above zero."""
    # Whole parts of the largest weight, so that every member comes to the same remainders.
    largest = max(weights[member] for member in members)
    parts = {member: round(weights[member] / largest * _PARTS) for member in members}
    total = sum(parts.values())
    quotas = {member: parts[member] * queues // total for member in members}
    odd = queues - sum(quotas.values())
    remainders = {member: parts[member] * queues % total for member in members}
    turn = sorted(in_turn(group, members), key=lambda member: -remainders[member])
    for member in turn[:odd]:
        quotas[member] += 1
    return quotas
