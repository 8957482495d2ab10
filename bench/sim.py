"""The simulator at a large scale: 1,000 members, 10,000 queues, 100 membership changes in waves; processor time and wall time."""

import argparse
import time

from bench.report import Row, print_rows
from trimtab.sim.collecting import seldom_collecting
from trimtab.sim.world import Shape, World

LIMIT_S = 60


@seldom_collecting()
def rows(members: int = 1_000, queues: int = 10_000, changes: int = 100, wave: int = 5) -> list[Row]:
    """Joins and leaves in turn, a wave at a time; each wave settles before the next."""
    began_s, began_wall_s = time.process_time(), time.perf_counter()
    world = World(Shape(members=members, queues=queues, brokers=4, per_s=0.0, seed=1))
    for place in range(members):
        world.join(place)
    assert world.settle(), world.described()
    settled_s, settled_wall_s = time.process_time(), time.perf_counter()
    world.begin_counting()
    for turn in range(changes // wave):
        world.mark()
        for at in range(wave):
            if turn % 2 == 0:
                world.join(members + turn * wave + at)
            else:
                world.members[members + (turn - 1) * wave + at].stop()
        assert world.settle(), world.described()
    spent_s, spent_wall_s = time.process_time() - settled_s, time.perf_counter() - settled_wall_s
    what = f"{members:,} members x {queues:,} queues"
    return [
        Row(
            f"{what}, events in a second of processor time",
            world.timeline.events / (spent_s + settled_s - began_s),
            note=f"{settled_s - began_s:.1f} s of processor time ({settled_wall_s - began_wall_s:.1f} s on the wall) until all had joined,"
            f" {spent_s:.1f} s ({spent_wall_s:.1f} s on the wall) for {changes} changes in waves of {wave};"
            f" goal at most {LIMIT_S} s on the wall: {'met' if spent_wall_s <= LIMIT_S else 'missed'};"
            f" moved {world.watch.moved}, fewest possible {world.moved_min};"
            f" slowest wave {max(world.converged_ms) / 1000:.2f} virtual s",
        )
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    for name, value in (("members", 1_000), ("queues", 10_000), ("changes", 100), ("wave", 5)):
        parser.add_argument(f"--{name}", type=int, default=value)
    given = vars(parser.parse_args())
    print_rows(rows(**given))


if __name__ == "__main__":
    main()
