"""In which order a member likes queues: free ones first, topics in turn, and within a topic in an order of its own.

The order differs from member to member, so that they do not all run after the same free queue. Topics take turns so that a member's queues
are of all topics, as far as that costs no move.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator

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
    turns = Counter[str]()
    return [*_free_first(view, untried, turns), *_free_first(view, tried, turns)]


def others_in_order(
    view: View, ours: Collection[MessageQueue], beside: Collection[MessageQueue] = ()
) -> list[MessageQueue]:
    """All queues of the view but `ours`, as this member likes them; what it has `beside` counts when topics take turns."""
    return [queue for part in _others(view, ours, beside) for queue in part]


def untried_in_order(
    view: View, ours: Collection[MessageQueue], beside: Collection[MessageQueue] = ()
) -> Iterable[MessageQueue]:
    """The first of these, those that were not refused; few are looked at where few are taken."""
    return next(_others(view, ours, beside))


def _others(
    view: View, ours: Collection[MessageQueue], beside: Collection[MessageQueue]
) -> Iterator[Iterable[MessageQueue]]:
    """Those that were not refused, then those that were."""
    queues, all_ = view.queues, known(view.queues)
    order = all_.ordered(member_place(view.group, view.me), queue_place)
    tried = view.refused
    tried = tried.as_now() if isinstance(tried, Marks) and tried.queues is queues else Marks(queues, tried)
    passed = tried.as_now()
    passed.add(ours)
    tried.discard(ours)
    turns = Counter(queue.topic for queue in beside)
    are_passed, were_refused = passed.by_place, tried.by_place
    for part in (
        (queues[at] for at in order if not are_passed[at]),
        (queues[at] for at in order if were_refused[at]),
    ):
        yield part if all_.has_one_topic and not view.holders else _free_first(view, list(part), turns)


def _free_first(view: View, liked: list[MessageQueue], turns: Counter[str]) -> list[MessageQueue]:
    """Those first that nobody else holds."""
    holders, me = view.holders or {}, view.me
    parts = [
        [queue for queue in liked if (holders.get(queue, me) != me) is is_held] for is_held in (False, True)
    ]
    return [queue for part in parts for queue in _topics_in_turn(part, turns)]


def _topics_in_turn(liked: list[MessageQueue], turns: Counter[str]) -> list[MessageQueue]:
    """Counts on from the turns that topics had before."""
    numbers = []
    for queue in liked:
        numbers.append(turns[queue.topic])
        turns[queue.topic] += 1
    return [liked[at] for at in sorted(range(len(liked)), key=numbers.__getitem__)]
