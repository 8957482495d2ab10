"""`rendezvous`: highest random weight with a quota for each member; stateless, for groups in classic mode.

Every pair of a queue and a member has a score that nobody else influences. Queues and members both like the higher score, so there is
exactly one stable matching; a member that comes or goes shifts little besides its own queues, and shares differ by at most one.
"""

from collections.abc import Sequence
from heapq import heappush, heappushpop, nlargest

from trimtab.balance.strategies.base import is_member
from trimtab.balance.strategies.places import member_place, queue_place
from trimtab.balance.strategies.quotas import even_quotas
from trimtab.model import MessageQueue

_PRIME = 2**61 - 1
_FIRST_CHOICES = 8


class Rendezvous:
    """Even shares like AVG with far fewer moves. It scores every queue with every member: made for hundreds, not for thousands."""

    name = "rendezvous"

    def allocate(
        self, group: str, me: str, queues: Sequence[MessageQueue], members: Sequence[str]
    ) -> tuple[MessageQueue, ...]:
        if not is_member(me, queues, members):
            return ()
        distinct = tuple(dict.fromkeys(members))
        share = _matched(group, queues, distinct)[distinct.index(me)]
        return tuple(queues[at] for at in sorted(share))


def _matched(group: str, queues: Sequence[MessageQueue], members: tuple[str, ...]) -> list[list[int]]:
    """Which queues each member gets, as indexes. Queues propose; a member over its quota lets its worst one go on."""
    quota_of = even_quotas(group, members, len(queues))
    quotas = [quota_of[member] for member in members]
    points = [member_place(group, member) % _PRIME for member in members]
    places = [queue_place(queue) % _PRIME for queue in queues]
    choices = [_best(place, points, _FIRST_CHOICES) for place in places]
    proposed = [0] * len(queues)
    held: list[list[tuple[int, int]]] = [[] for _ in members]
    free = list(range(len(queues)))
    while free:
        queue = free.pop()
        if proposed[queue] == len(choices[queue]):
            choices[queue] = _best(places[queue], points, 4 * proposed[queue])
        score, member = choices[queue][proposed[queue]]
        proposed[queue] += 1
        if len(held[member]) < quotas[member]:
            heappush(held[member], (score, queue))
        else:
            free.append(heappushpop(held[member], (score, queue))[1])
    return [[queue for _, queue in mine] for mine in held]


def _best(place: int, points: list[int], count: int) -> list[tuple[int, int]]:
    """The members a queue likes most, with their scores."""
    scores = [place * point % _PRIME for point in points]
    return nlargest(count, zip(scores, range(len(points)), strict=True))
