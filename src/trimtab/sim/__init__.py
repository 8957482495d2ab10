"""The cluster on virtual time: real balance machines, simulated network, brokers and handlers. One seed is one run.

`run("join", members=8, mode="leased", seed=7)` gives a `SimReport`; `trimtab sim` is the same for the command line. See docs/simulator.md.
"""

from trimtab.sim.report import SimReport
from trimtab.sim.running import run

__all__ = ["SimReport", "run"]
