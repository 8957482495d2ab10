"""How long a group may take to settle after faults are over, and why longer than the usual.

A group of our clients has every queue held once within 25 s. Where that cannot be, something must first be noticed or end by itself, and each
such wait has a name here. They pass side by side, so the longest counts.
"""

from collections.abc import Callable
from typing import Final, NamedTuple

from trimtab.sim.leased_shell import LeasedShell
from trimtab.sim.member import HEARTBEAT_EVERY_MS, ROUTES_EVERY_MS
from trimtab.sim.world import SETTLED_FOR_MS, World

USUAL_MS_MAX: Final = 25_000


class Wait(NamedTuple):
    """Something that takes its time."""

    why: str
    ms: int
    applies: Callable[[World], bool]


def _is_haunted(world: World) -> bool:
    return any(
        not link.process.is_alive or not link.is_open_here
        for broker in world.brokers.values()
        for link in broker.connections.values()
    )


def _may_have_orphans(world: World) -> bool:
    """A lease whose holder does not read the queue, or may lose it because it cannot tell its broker so."""
    if world.shape.broker_kind != "apache":
        return False
    links = [member.links.get(name) for member in world.alive for name in world.brokers]
    if any(link is None or not link.is_open_here or not link.is_open_there for link in links):
        return True
    holders = world.holders()
    leases = (lease for broker in world.brokers.values() for lease in broker.holders().items())
    return any(holders.get(queue) != client_id for queue, client_id in leases)


def _routes_are_new(world: World) -> bool:
    return any(member.queues != world.names[0].routes() for member in world.alive)


def _is_somebody_leaving(world: World) -> bool:
    return any(member.is_alive and member.is_leaving for member in world.members.values())


def _is_somebody_unheard(world: World) -> bool:
    """Renewals of one that no heartbeat was taken from for a minute count for nothing until the next one is."""
    return any(
        isinstance(member.shell, LeasedShell)
        and member.shell.machine.trust.needs_heartbeat(name, member.now_ms)
        for member in world.alive
        for name in member.links
    )


def _may_have_seen_a_passing_holder(world: World) -> bool:
    return world.shape.broker_kind == "ours"


WAITS: Final = (
    Wait("a broker misses one that went without a word after 120 s, and looks every 10 s", 130_000, _is_haunted),
    Wait("an Apache broker ends the lease of one whose absence nobody can prove after 60 s", 60_000, _may_have_orphans),
    Wait("members learn of new routes every 30 s", ROUTES_EVERY_MS, _routes_are_new),
    Wait("one that leaves waits 30 s for its handlers", 33_000, _is_somebody_leaving),
    Wait("a heartbeat that got lost is followed by the next one after 30 s", HEARTBEAT_EVERY_MS, _is_somebody_unheard),
    Wait("who was seen to hold a queue counts as its holder until the next look, and for 4 s more", 5_000, _may_have_seen_a_passing_holder),
    Wait("lag moves a few queues at a time while loads differ", 192_000, lambda world: world.shape.strategy_name == "lag"),
)  # fmt: skip


def settle_ms_max(world: World) -> int:
    """How long from now on, faults being over, until nothing moves any more."""
    return USUAL_MS_MAX + SETTLED_FOR_MS + max((wait.ms for wait in WAITS if wait.applies(world)), default=0)
