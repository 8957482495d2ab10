"""The real servers and clients on virtual time: one process, one loop, a network in memory. One seed is one run.

The rest of the simulator runs the machines of `balance/` in shells of its own. Here everything is what users run: name server, broker, `Producer`,
`PushConsumer`, every byte on the wire; only the loop, the clocks and the network are not. `Stage` is where they play.

    async def play(stage: Stage) -> None:
        members = [await stage.join() for _ in range(3)]
        await stage.settle()
        stage.crash(members[0])
        await stage.sleep(20)

    report = run_on_stage(play, seed=7)
"""

from trimtab.sim.shells.stage import Stage, StageReport, run_on_stage

__all__ = ["Stage", "StageReport", "run_on_stage"]
