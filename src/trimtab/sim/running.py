"""One run: a scenario by name, a seed, and what came of it."""

from dataclasses import replace
from typing import Any

from trimtab.errors import SettingsError
from trimtab.sim.collecting import seldom_collecting
from trimtab.sim.report import SimReport, report_of
from trimtab.sim.scenarios import Scenario, scenario_by_name
from trimtab.sim.watch import Violation
from trimtab.sim.world import Shape, World

BROKER_KINDS = ("apache", "ours")
COUNTS_MAX = {"members": 5_000, "queues": 100_000, "brokers": 64}


def run(scenario: str, **options: Any) -> SimReport:
    """Plays a scenario. Options: members, queues, brokers, mode, strategy, broker_kind, seed, hours, per_s, handler_ms, drift, stable_ids."""
    return play(scenario_by_name(scenario), shape_of(scenario_by_name(scenario), options))


def shape_of(scenario: Scenario, options: dict[str, Any]) -> Shape:
    """The scenario's world with what was asked for; refuses what makes no sense."""
    given = {name: value for name, value in options.items() if value is not None}
    handler_ms = given.pop("handler_ms", None)
    if "stable_ids" in given:
        given["has_stable_ids"] = given.pop("stable_ids")
    unknown = sorted(set(given).difference(Shape.__dataclass_fields__))
    if unknown:
        raise SettingsError(f"unknown option {unknown[0]!r} of a simulation")
    shape = Shape(**{**scenario.shape, **given})
    if handler_ms is not None:
        shape = replace(shape, handling=replace(shape.handling, handler_ms=handler_ms))
    _check(shape)
    return shape


def _check(shape: Shape) -> None:
    for name, most in COUNTS_MAX.items():
        count = getattr(shape, name)
        if not 1 <= count <= most:
            raise SettingsError(f"{name} is {count}; it lies between 1 and {most}")
    if shape.brokers > shape.queues:
        raise SettingsError(
            f"{shape.queues} queues cannot be on {shape.brokers} brokers; give every broker one"
        )
    if shape.members < 2:
        raise SettingsError("a group needs at least 2 members for anything to happen to it")
    if shape.broker_kind not in BROKER_KINDS:
        raise SettingsError(f"broker kind {shape.broker_kind!r} is none of {', '.join(BROKER_KINDS)}")
    if not 0 <= shape.drift <= 0.5 or shape.per_s < 0 or shape.hours <= 0 or shape.handling.handler_ms < 0:
        raise SettingsError(
            "drift lies between 0 and 0.5; rates, hours and times of handlers are not negative"
        )


@seldom_collecting()
def play(scenario: Scenario, shape: Shape) -> SimReport:
    """Plays it in that world."""
    world = World(shape)
    requests = 0
    try:
        world.join_all(slowness=scenario.slowness)
        if not world.settle():
            world.watch.fail(f"the first members did not settle: {world.described()}", *world.unsettled())
        world.begin_counting()
        requests = world.network.requests
        scenario.play(world)
        requests = world.network.requests - requests
        world.finish()
    except Violation:
        requests = world.network.requests - requests
    return report_of(scenario.name, world, shape.members, requests)
