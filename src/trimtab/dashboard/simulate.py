"""A simulation in a process of its own, so that pages go on meanwhile: `python -m trimtab.dashboard.simulate` reads a wish, writes reports."""

import asyncio
import sys

import msgspec

from trimtab.dashboard.answers import Simulated
from trimtab.dashboard.subject import BusyError
from trimtab.dashboard.wishes import SimulationWish
from trimtab.errors import SettingsError

RUN_S_MAX = 60.0
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


def reports(wish: SimulationWish) -> Simulated:
    """Runs it here and now."""
    from trimtab.sim import run  # noqa: PLC0415

    modes = ("leased", "classic") if wish.mode == "both" else (wish.mode,)
    options = {
        "members": wish.members,
        "queues": wish.queues,
        "brokers": wish.brokers,
        "broker_kind": wish.broker_kind,
        "seed": wish.seed,
    }
    found = [msgspec.to_builtins(run(wish.scenario, mode=mode, **options)) for mode in modes]
    return Simulated(scenario=wish.scenario, reports=tuple(found))


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
