"""`sticky`: keep what you hold up to your quota, give up only the surplus, take free queues until the quota is full.

With leases alone nobody knows the others' holdings. All agree on the quotas, since these follow from the view. Moves: the fewest
possible, plus at most one for each member whose right to an odd queue changed. Where it is known who holds what, the odd queues stay where they
are, and moves are exactly the fewest. Which free queues a member gets the leases decide in either case, so nobody waits for one that another one
should have taken.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import partial

from trimtab.balance.known_queues import known
from trimtab.balance.order import sorted_queues
from trimtab.balance.strategies.likes import in_order, others_in_order, untried_in_order
from trimtab.balance.strategies.places import in_turn, queue_place
from trimtab.balance.strategies.plans import Plan, QueuesLater, View, outsider, towards
from trimtab.balance.strategies.quotas import even_quotas, fewest_moves_quotas
from trimtab.model import MessageQueue


class Sticky:
    """Even shares with as few moves as what is known allows. The default with leases."""

    name = "sticky"

    def plan(self, view: View) -> Plan:
        if not view.members or not view.queues:
            return outsider(view)
        if view.holders is None:
            quota = even_quotas(view.group, view.members, len(view.queues)).get(view.me)
            return outsider(view) if quota is None else up_to(view, quota)
        if view.me not in view.members:
            return outsider(view)
        holdings = known_holdings(view)
        counts = {member: len(queues) for member, queues in holdings.items()}
        quotas = fewest_moves_quotas(view.group, view.members, len(view.queues), counts)
        base = len(view.queues) // len(view.members)
        # Who sees the others late may leave the odd queue to somebody who leaves it to another one.
        is_needed = bool(view.waiting) and len(view.held) == quotas[view.me] == base
        return nearly(view, settled(view, holdings, quotas)[view.me], more=int(is_needed))


def nearly(view: View, share: Iterable[MessageQueue], *, more: int = 0) -> Plan:
    """Towards this share; where it cannot be had, other queues will do: members may be mistaken about who holds what.

    They are asked for only then: a member that for a moment has more than it needs would mislead those who look at that moment.
    """
    plan = towards(view, share)
    wanted = plan.acquire_max + more
    if not more and view.refused.isdisjoint(plan.acquire):
        return plan
    acquire = (*plan.acquire, *others_in_order(view, {*plan.acquire, *view.held}))
    return replace(plan, acquire=acquire, acquire_max=min(wanted, len(acquire)))


def up_to(view: View, quota: int) -> Plan:
    """What to do with leases alone to come to the quota."""
    places = known(view.queues).places
    mine = sorted((queue for queue in view.held if queue in places), key=places.__getitem__)
    others = len(view.queues) - len(mine)
    if len(mine) > quota:
        mine = in_order(view, mine)
    keep, surplus = mine[:quota], mine[quota:]
    missing, given = quota - len(keep), (view, view.held, keep)
    return Plan(
        keep=tuple(keep),
        give_up=(*sorted_queues(queue for queue in view.held if queue not in places), *surplus),
        # Most plans are looked at for their numbers alone.
        acquire=QueuesLater(others, partial(others_in_order, *given), partial(untried_in_order, *given))
        if missing
        else (),
        acquire_max=min(missing, others),
    )


def known_holdings(view: View) -> dict[str, list[MessageQueue]]:
    """What each member holds, or has a lease on from before its restart. Of what I hold I know best."""
    holders: Mapping[MessageQueue, str] = view.holders or {}
    holdings: dict[str, list[MessageQueue]] = {member: [] for member in view.members}
    for queue in view.queues:
        holder = view.me if queue in view.held else holders.get(queue)
        if holder in holdings:
            holdings[holder].append(queue)
    return holdings


def settled(
    view: View, holdings: Mapping[str, list[MessageQueue]], quotas: Mapping[str, int]
) -> dict[str, list[MessageQueue]]:
    """Everybody's share: the quotas reached from the holdings with the fewest moves. Quotas add up to the queues."""
    shares = {member: _stays(queues, quotas[member]) for member, queues in holdings.items()}
    kept = {queue for queues in shares.values() for queue in queues}
    loose = [queue for queue in view.queues if queue not in kept]
    loose.sort(key=lambda queue: (queue.topic, queue_place(queue)))
    # Dealt in rounds along the topics, so that the queues of one topic do not all go to one member.
    wanting = in_turn(view.group, tuple(view.members))
    at = 0
    while at < len(loose):
        wanting = [member for member in wanting if len(shares[member]) < quotas[member]]
        assert wanting, "the quotas are smaller than the queues"
        for member, queue in zip(wanting, loose[at:], strict=False):
            shares[member].append(queue)
        at += len(wanting)
    return shares


def _stays(queues: list[MessageQueue], quota: int) -> list[MessageQueue]:
    """Which ones a member with too many keeps: as even over the topics as can be."""
    if len(queues) <= quota:
        return list(queues)
    by_topic: defaultdict[str, list[MessageQueue]] = defaultdict(list)
    for queue in sorted(queues, key=queue_place):
        by_topic[queue.topic].append(queue)
    ranked = [(rank, topic, queue) for topic, found in by_topic.items() for rank, queue in enumerate(found)]
    ranked.sort(key=lambda item: item[:2])
    return [queue for _, _, queue in ranked[:quota]]
