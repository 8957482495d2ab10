"""Things that go wrong, as values: drawn from a seed, done to a world, left out one by one when a failure is made small."""

from bisect import bisect
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha512
from itertools import accumulate
from typing import Final, TypeVar

from trimtab.io.chance import Chance, seeded_chance
from trimtab.sim.member import SimMember
from trimtab.sim.network import Connection, Weather
from trimtab.sim.reading import Handling
from trimtab.sim.world import Shape, World

T = TypeVar("T")

MEMBERS_MAX: Final = 10
QUEUES_MAX: Final = 40
BROKERS_MAX: Final = 4
BROKER_PAUSE_MS_MAX: Final = 900
"""Longer would break the assumption that a request arrives within about a second or not at all."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One of them; what `place`, `broker` and `ms` mean depends on the kind."""

    after_ms: int
    """Since the fault before."""
    kind: str
    place: int = 0
    broker: int = 0
    ms: int = 0

    def __str__(self) -> str:
        return (
            f"{self.after_ms} ms later {self.kind} member {self.place} broker {self.broker} for {self.ms} ms"
        )


@dataclass(frozen=True, slots=True)
class Mix:
    """A world and what happens in it."""

    shape: Shape
    faults: tuple[Fault, ...]


KINDS: Final = (
    ("join", 3), ("stop", 3), ("crash", 3), ("restart", 3), ("kill-restart", 3), ("pause", 4), ("broker-restart", 2),
    ("broker-pause", 1), ("cut", 3), ("cut-there", 2), ("cut-here", 1), ("part", 3), ("queues", 1), ("broker-added", 1),
    ("forget-route", 1), ("know-route", 1), ("lose", 3), ("freeze", 2),
)  # fmt: skip


def _own_seed(text: str) -> int:
    """The mix has chance of its own: the world's is not used up by it."""
    return int.from_bytes(text.encode() + sha512(text.encode()).digest())


def _one_of(chance: Chance, some: Sequence[T]) -> T:
    return some[chance.randrange(len(some))]


def _weighted(chance: Chance, some: Sequence[T], weights: Sequence[int]) -> T:
    sums = list(accumulate(weights))
    return some[bisect(sums, chance.random() * sums[-1], 0, len(some) - 1)]


def mix_of(seed: int) -> Mix:
    """World and faults of a seed. A quarter of the kinds is left out, so that runs differ more."""
    chance = seeded_chance(_own_seed(f"mix {seed}"))
    brokers = _one_of(chance, (1, 2, 2, 3))
    members, queues = 2 + chance.randrange(7), max(brokers, 2 + chance.randrange(23))
    handling = Handling(
        handler_ms=_one_of(chance, (1, 20, 300, 2_000)), concurrency=_one_of(chance, (1, 4, 16))
    )
    one_per_s = handling.concurrency * 1000 / handling.handler_ms
    shape = Shape(
        members=members,
        queues=queues,
        brokers=brokers,
        strategy=_one_of(chance, ("sticky", "sticky", "sticky", "AVG", "rendezvous", "lag")),
        broker_kind=_one_of(chance, ("apache", "apache", "ours")),
        seed=seed,
        name_servers=_one_of(chance, (1, 1, 2)),
        per_s=min(_one_of(chance, (0.5, 1.0, 3.0)), one_per_s / 2 / queues),
        drift=_one_of(chance, (0.0, 0.01, 0.04)),
        weather=Weather(
            delay_ms_max=_one_of(chance, (2, 20, 100, 300)),
            loss=_one_of(chance, (0.0, 0.0, 0.02, 0.1)),
            reorder=_one_of(chance, (0.0, 0.0, 0.1)),
            notice_loss=_one_of(chance, (0.0, 0.0, 0.2, 1.0)),
        ),
        handling=handling,
        has_stable_ids=chance.random() < 0.3,
    )
    kinds = [kind for kind in KINDS if chance.random() < 0.75] or [KINDS[0]]
    names, weights = [name for name, _ in kinds], [weight for _, weight in kinds]
    gap_ms = _one_of(chance, (500, 3_000, 10_000))
    faults = tuple(
        Fault(
            chance.randrange(gap_ms), _weighted(chance, names, weights), chance.randrange(MEMBERS_MAX), chance.randrange(BROKERS_MAX),
            _one_of(chance, (50, 500, 2_000, 5_000, 9_000, 20_000, 70_000)) + chance.randrange(1_000),
        )
        for _ in range(5 + chance.randrange(20))
    )  # fmt: skip
    return Mix(shape, faults)


def do(world: World, fault: Fault) -> None:
    """Lets it happen, if it can."""
    world.timeline.note("fault", str(fault))
    places = sorted(
        place for place, member in world.members.items() if member.is_alive and not member.is_leaving
    )
    if fault.kind == "join":
        if len(places) < MEMBERS_MAX:
            world.join(max(world.members) + 1)
        return
    if not places:
        return
    member = world.members[places[fault.place % len(places)]]
    if fault.kind in MEMBER_FAULTS:
        MEMBER_FAULTS[fault.kind](world, member, places, fault)
        return
    name = sorted(world.brokers)[fault.broker % len(world.brokers)]
    link = member.links.get(name)
    if fault.kind in ("cut", "cut-there", "cut-here"):
        if link is not None:
            _cut(world, link, fault)
    elif fault.kind in ("part", "lose"):
        if fault.kind == "lose" and link is not None and world.shape.broker_kind == "apache":
            world.network.close_there(link, None)
        world.network.part(member.name, name, world.timeline.now_ms + min(fault.ms, 30_000))
    else:
        _to_broker(world, name, fault)


def _stop(_: World, member: SimMember, places: list[int], __: Fault) -> None:
    if len(places) > 1:
        member.stop()


def _crash(_: World, member: SimMember, places: list[int], __: Fault) -> None:
    if len(places) > 1:
        member.crash()


def _pause(_: World, member: SimMember, __: list[int], fault: Fault) -> None:
    member.pause(fault.ms)


def _freeze(world: World, member: SimMember, _: list[int], fault: Fault) -> None:
    """Stands still, and the brokers lose it meanwhile."""
    member.pause(fault.ms)
    for link in list(member.links.values()):
        world.network.close_there(link, 1)


def _restart(world: World, member: SimMember, _: list[int], fault: Fault) -> None:
    """Leaves in order and comes back in the same place."""
    place = _place_of(world, member)
    member.stop()
    _come_back(world, member, place, min(fault.ms, 5_000))


def _kill_restart(world: World, member: SimMember, _: list[int], fault: Fault) -> None:
    place = _place_of(world, member)
    member.crash()
    _come_back(world, member, place, min(fault.ms, 20_000))


def _come_back(world: World, member: SimMember, place: int, ms: int) -> None:
    def back() -> None:
        if member.is_alive:
            world.timeline.after(500, back)
        elif world.members[place] is member:
            world.join(place)

    world.timeline.after(ms, back)


def _place_of(world: World, member: SimMember) -> int:
    return next(place for place, other in world.members.items() if other is member)


MEMBER_FAULTS: Final = {
    "stop": _stop, "crash": _crash, "pause": _pause, "freeze": _freeze, "restart": _restart, "kill-restart": _kill_restart,
}  # fmt: skip


def _cut(world: World, link: Connection, fault: Fault) -> None:
    """Both ends notice, or the broker's end and the member at its next word, or the member's end alone.

    Our own broker ends the leases of a closed connection after three seconds: it takes for granted that both ends see it close.
    """
    if fault.kind == "cut-here":
        link.is_open_here = False
        link.process.run_first(lambda: link.process.on_lost(link))
    else:
        is_unseen = fault.kind == "cut-there" and world.shape.broker_kind == "apache"
        world.network.close_there(link, None if is_unseen else 1 + fault.ms % 300)


def _to_broker(world: World, name: str, fault: Fault) -> None:
    broker = world.brokers[name]
    if fault.kind == "broker-restart":
        if broker.is_up and not _somebody_is_unaware(world, name):
            broker.stop()
            world.timeline.after(min(fault.ms, 6_000), broker.start)
    elif fault.kind == "broker-pause":
        broker.paused_until_ms = world.timeline.now_ms + min(fault.ms, BROKER_PAUSE_MS_MAX)
    elif fault.kind == "queues":
        if len(world.queues) < QUEUES_MAX:
            world.set_queues(name, len(broker.logs) + 1 + fault.place % 3)
    elif fault.kind == "broker-added":
        if len(world.brokers) < BROKERS_MAX:
            world.add_broker(1 + fault.place % 4)
    elif fault.kind == "forget-route":
        if len(world.brokers) > 1 and len(world.names) > 1:
            world.names[-1].register("orders", name, 0)
    else:
        know_all(world)


def _somebody_is_unaware(world: World, name: str) -> bool:
    """Whether a member does not know that the broker lost it: docs/leases.md promises nothing if the broker restarts just then."""
    links = [member.links.get(name) for member in world.members.values() if member.is_alive]
    return any(link is not None and link.is_open_here and not link.is_open_there for link in links)


def know_all(world: World) -> None:
    """All name servers know everything."""
    for name, broker in world.brokers.items():
        world.set_queues(name, len(broker.logs))


def heal(world: World) -> None:
    """Faults are over: everything gets through, everybody is awake and up, and knows all routes."""
    world.timeline.note("fault", "no more")
    world.network.heal()
    world.network.weather = Weather(delay_ms_max=world.network.weather.delay_ms_max)
    for broker in world.brokers.values():
        broker.start()
    for member in world.members.values():
        member.wake()
    know_all(world)
