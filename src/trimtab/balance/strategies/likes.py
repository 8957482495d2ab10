"""In which order a member likes queues: free ones first, topics in turn, and within a topic in an order of its own.

The order differs from member to member, so that they do not all run after the same free queue. Topics take turns so that a member's queues
are of all topics, as far as that costs no move.
"""

from collections import Counter
from collections.abc import Iterable

from trimtab.balance.known_queues import known
from trimtab.balance.marks import Marks
from trimtab.balance.strategies.places import member_place, queue_place
from trimtab.balance.strategies.plans import View
from trimtab.model import MessageQueue


def in_order(view: View, queues: Iterable[MessageQueue]) -> list[MessageQueue]:
    """These queues as this member likes them."""
    mine = member_place(view.group, view.me)
    liked = sorted(dict.fromkeys(queues), key=lambda queue: queue_place(queue) ^ mine)
    untried = [queue for queue in liked if queue not in view.refused]
    tried = [queue for queue in liked if queue in view.refused]
    return _free_first(view, [untried, tried], Counter(), has_one_topic=False)


def others_in_order(
    view: View, ours: Iterable[MessageQueue], beside: Iterable[MessageQueue] = ()
) -> list[MessageQueue]:
    """All queues of the view but `ours`, as this member likes them; what it has `beside` counts when topics take turns."""
    all_ = known(view.queues)
    order = all_.ordered(member_place(view.group, view.me), queue_place)
    refused = view.refused
    if not isinstance(refused, Marks) or refused.queues is not view.queues:
        refused = Marks(view.queues, refused)
    passed = refused.as_now()
    passed.add(ours)
    untried = [view.queues[at] for at in order if not passed.by_place[at]]
    refused = refused.as_now()
    refused.discard(ours)
    tried = [view.queues[at] for at in order if refused.by_place[at]] if refused else []
    turns = Counter(queue.topic for queue in beside)
    return _free_first(view, [untried, tried], turns, has_one_topic=all_.has_one_topic)


def _free_first(
    view: View, parts: list[list[MessageQueue]], turns: Counter[str], *, has_one_topic: bool
) -> list[MessageQueue]:
    """Of each part those first that nobody else holds."""
    found: list[MessageQueue] = []
    for part in parts if not view.holders else _by_holders(view, parts):
        found += part if has_one_topic else _topics_in_turn(part, turns)
    return found


def _by_holders(view: View, parts: list[list[MessageQueue]]) -> list[list[MessageQueue]]:
    holders, me = view.holders or {}, view.me
    return [
        [queue for queue in part if (holders.get(queue, me) != me) is is_held]
        for part in parts
        for is_held in (False, True)
    ]


def _topics_in_turn(liked: list[MessageQueue], turns: Counter[str]) -> list[MessageQueue]:
    """Counts on from the turns that topics had before."""
    numbers = []
    for queue in liked:
        numbers.append(turns[queue.topic])
        turns[queue.topic] += 1
    return [liked[at] for at in sorted(range(len(liked)), key=numbers.__getitem__)]
