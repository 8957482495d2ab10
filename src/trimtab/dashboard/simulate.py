"""A simulation in a process of its own, so that pages go on meanwhile: `python -m trimtab.dashboard.simulate` reads a wish, writes reports."""

import asyncio
import sys
from dataclasses import replace
from typing import TYPE_CHECKING

import msgspec

from trimtab.dashboard.answers import HeldSpan, Simulated
from trimtab.dashboard.subject import BusyError
from trimtab.dashboard.wishes import SimulationWish
from trimtab.errors import SettingsError

if TYPE_CHECKING:
    from trimtab.sim.scenarios import Scenario
    from trimtab.sim.world import World

RUN_S_MAX = 60.0
LOOK_EVERY_MS = 100
LOOKS_MAX = 20_000
SPANS_MAX = 5_000
QUEUES_DRAWN_MAX = 48
AT_ONCE_MAX = 1


def scenario_names() -> dict[str, str]:
    """Each with what happens in it."""
    from trimtab.sim.scenarios import SCENARIOS  # noqa: PLC0415 - the simulator is loaded when it is asked for

    return {name: scenario.what for name, scenario in SCENARIOS.items()}


class Simulations:
    """One at a time, each with a deadline."""

    def __init__(self) -> None:
        self._running = 0

    async def run(self, wish: SimulationWish) -> Simulated:
        """Plays a scenario in one mode or in both."""
        if wish.scenario not in scenario_names():
            raise SettingsError(f"scenario {wish.scenario!r} is none of {', '.join(scenario_names())}")
        if self._running >= AT_ONCE_MAX:
            raise BusyError("a simulation is running already; come again when it has ended")
        self._running += 1
        try:
            return await _in_process(wish)
        finally:
            self._running -= 1


async def _in_process(wish: SimulationWish) -> Simulated:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "trimtab.dashboard.simulate",
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(RUN_S_MAX):
            out, complaint = await process.communicate(msgspec.json.encode(wish))
    except TimeoutError:
        raise SettingsError(
            f"the simulation took more than {RUN_S_MAX:.0f} s; ask for a smaller one"
        ) from None
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode == 0:
        return msgspec.json.decode(out, type=Simulated)
    last = (complaint.decode(errors="replace").strip().splitlines() or ["it ended without a word"])[-1]
    raise SettingsError(f"the simulation cannot be run: {last}")


class HoldingRecorder:
    """Looks at a simulated group every so many virtual milliseconds. It draws no chance, so the run is the same as without it."""

    def __init__(self) -> None:
        self._open: dict[tuple[str, str], float] = {}
        self._looks = 0
        self.spans: list[HeldSpan] = []

    def watching(self, scenario: "Scenario") -> "Scenario":
        """The scenario, looked at."""

        def play(world: "World") -> None:
            began_ms = world.timeline.now_ms

            def look() -> None:
                self._looks += 1
                self._look(world, (world.timeline.now_ms - began_ms) / 1000)
                if self._looks < LOOKS_MAX and len(self.spans) < SPANS_MAX:
                    world.timeline.after(LOOK_EVERY_MS, look)

            look()
            scenario.play(world)
            self._look(world, (world.timeline.now_ms - began_ms) / 1000, is_last=True)

        return replace(scenario, play=play)

    def _look(self, world: "World", at_s: float, *, is_last: bool = False) -> None:
        queues = sorted(world.watch.holders, key=str)[:QUEUES_DRAWN_MAX]
        now = {(str(queue), member) for queue in queues for member in world.watch.holders[queue]}
        for key in [key for key in self._open if is_last or key not in now]:
            self.spans.append(HeldSpan(queue=key[0], member=key[1], from_s=self._open.pop(key), until_s=at_s))
        if not is_last:
            for key in sorted(now - self._open.keys()):
                self._open[key] = at_s


def reports(wish: SimulationWish) -> Simulated:
    """Runs it here and now."""
    from trimtab.sim.running import play, shape_of  # noqa: PLC0415
    from trimtab.sim.scenarios import scenario_by_name  # noqa: PLC0415

    scenario = scenario_by_name(wish.scenario)
    modes = ("leased", "classic") if wish.mode == "both" else (wish.mode,)
    options = {
        "members": wish.members,
        "queues": wish.queues,
        "brokers": wish.brokers,
        "broker_kind": wish.broker_kind,
        "seed": wish.seed,
    }
    recorders = [HoldingRecorder() for _ in modes]
    found = [
        msgspec.to_builtins(play(recorder.watching(scenario), shape_of(scenario, {**options, "mode": mode})))
        for mode, recorder in zip(modes, recorders, strict=True)
    ]
    return Simulated(
        scenario=wish.scenario,
        reports=tuple(found),
        holdings=tuple(tuple(recorder.spans) for recorder in recorders),
    )


def main() -> int:
    """From stdin to stdout."""
    wish = msgspec.json.decode(sys.stdin.buffer.read(), type=SimulationWish)
    try:
        answer = reports(wish)
    except SettingsError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    sys.stdout.buffer.write(msgspec.json.encode(answer))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
