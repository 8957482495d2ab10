"""Many runs with faults drawn from their seeds; one that fails is made small."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Final

from trimtab.sim.collecting import seldom_collecting
from trimtab.sim.faults import Fault, Mix, do, heal, mix_of
from trimtab.sim.patience import settle_ms_max
from trimtab.sim.report import SimReport, report_of
from trimtab.sim.watch import Violation
from trimtab.sim.world import World

SHRINK_RUNS_MAX: Final = 200


def run_seed(seed: int) -> SimReport:
    """The run of a seed."""
    return run_mix(mix_of(seed))


@seldom_collecting()
def run_mix(mix: Mix) -> SimReport:
    """Faults first; then everything heals, must settle, and every message must be handled."""
    world = World(mix.shape)
    try:
        world.join_all()
        world.run_for(3_000)
        for fault in mix.faults:
            world.run_for(fault.after_ms)
            do(world, fault)
        heal(world)
        world.finish(settle_ms_max(world))
    except Violation:
        pass  # it is in the report
    return report_of("swarm", world, mix.shape.members, world.network.requests)


def swarm(first_seed: int, count: int) -> Iterator[SimReport]:
    """One report after the other."""
    for seed in range(first_seed, first_seed + count):
        yield run_seed(seed)


def shrink(mix: Mix, runs: Callable[[Mix], SimReport] = run_mix, *, runs_max: int = SHRINK_RUNS_MAX) -> Mix:
    """A smaller mix that still fails: fewer faults, fewer members, fewer queues, better weather."""
    left = runs_max

    def fails(candidate: Mix) -> bool:
        nonlocal left
        left -= 1
        return not runs(candidate).is_fine

    has_changed = True
    while has_changed and left > 0:
        has_changed = False
        for candidate in _smaller(mix):
            if left > 0 and fails(candidate):
                mix, has_changed = candidate, True
                break
    return mix


def _smaller(mix: Mix) -> Iterator[Mix]:
    faults, shape = mix.faults, mix.shape
    for size in (len(faults) // 2, len(faults) // 4, 1):
        for at in range(0, len(faults), size) if size else ():
            yield Mix(shape, _without(faults, at, at + size))
    if shape.members > 2:
        yield Mix(replace(shape, members=shape.members - 1), faults)
    if shape.queues > max(2, shape.brokers):
        yield Mix(replace(shape, queues=max(shape.brokers, shape.queues // 2)), faults)


def _without(faults: tuple[Fault, ...], start: int, end: int) -> tuple[Fault, ...]:
    """The time of those left out passes all the same."""
    gone_ms = sum(fault.after_ms for fault in faults[start:end])
    rest = faults[end:]
    if rest:
        rest = (replace(rest[0], after_ms=rest[0].after_ms + gone_ms), *rest[1:])
    return (*faults[:start], *rest)
