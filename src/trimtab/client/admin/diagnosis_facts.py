"""What a diagnosis starts from, and what all of its parts ask of that. PURE."""

from collections import defaultdict
from collections.abc import Iterable
from functools import cached_property
from typing import Literal

from trimtab.client.admin.rows import (
    GroupMembers,
    GroupProgress,
    GroupSettings,
    HeldQueue,
    MemberStates,
    QueueProgress,
    RouteOfNameserver,
    Row,
    TopicRoute,
)
from trimtab.model import MessageQueue

Severity = Literal["broken", "warning", "note"]
Holders = dict[MessageQueue, list[tuple[str, HeldQueue]]]

NAMED_MAX = 5
"""Queues that one line names; the rest is counted."""


class Finding(Row, frozen=True):
    """One cause."""

    cause: str
    severity: Severity
    evidence: str
    advice: str


class Look(Row, frozen=True, dict=True):
    """What members and offsets were like at one time."""

    now_ms: int
    states: MemberStates
    progress: GroupProgress

    @cached_property
    def holders(self) -> Holders:
        """Each queue that somebody holds, and who. Many ask, and there may be thousands of queues: it is made once, as are those below."""
        held: Holders = defaultdict(list)
        for state in self.states.members:
            for row in state.queues:
                if not row.dropped:
                    held[row.queue].append((state.client_id, row))
        return dict(held)

    @cached_property
    def rows(self) -> dict[MessageQueue, QueueProgress]:
        """The progress by queue."""
        return {row.queue: row for row in self.progress.queues}

    @cached_property
    def places(self) -> dict[MessageQueue, int]:
        """How far each queue is: as its holder says, who knows it first, else as the broker says."""
        holders = self.holders
        return {
            queue: max(row.offset, *[one.committed for _, one in holders[queue]])
            if queue in holders
            else row.offset
            for queue, row in self.rows.items()
        }

    @cached_property
    def holder_ids(self) -> dict[MessageQueue, tuple[str, ...]]:
        """Who holds which queue, by client id."""
        return {
            queue: (held[0][0],) if len(held) == 1 else tuple(sorted(client_id for client_id, _ in held))
            for queue, held in self.holders.items()
        }


class Facts(Row, frozen=True, dict=True):
    """Everything that is known of a group."""

    group: str
    settings: GroupSettings
    members: GroupMembers
    routes: dict[str, tuple[RouteOfNameserver, ...]]
    """Topic to what each name server says of it."""
    before: Look
    after: Look

    @cached_property
    def readable(self) -> dict[str, set[MessageQueue]]:
        """Topic to the queues that its members should share."""
        found = {}
        for topic in self.routes:
            route = route_of(self, topic)
            if route is not None:
                found[topic] = {
                    MessageQueue(topic, one.broker, number)
                    for one in route.queues
                    if "r" in one.perm
                    for number in range(one.read_queues)
                }
        return found


def is_broadcast(facts: Facts) -> bool:
    """Whether every member gets everything."""
    return any(view.message_model == "BROADCASTING" for view in facts.members.views)


def route_of(facts: Facts, topic: str) -> TopicRoute | None:
    """What the first name server that knows the topic says of it."""
    return next((told.route for told in facts.routes.get(topic, ()) if told.route is not None), None)


def brokers_with_queues(facts: Facts) -> set[str]:
    """The brokers that members must reach."""
    return {queue.broker_name for queues in facts.readable.values() for queue in queues}


def some(names: Iterable[str]) -> str:
    """The first few, and how many more."""
    all_names = list(names)
    more = len(all_names) - NAMED_MAX
    return ", ".join(all_names[:NAMED_MAX]) + (f" and {more} more" if more > 0 else "")


def in_order(queues: Iterable[MessageQueue]) -> list[MessageQueue]:
    """Queues as people list them."""
    return sorted(queues, key=lambda queue: (queue.topic, queue.broker_name, queue.queue_id))
