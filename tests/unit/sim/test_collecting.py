"""Memory while time is virtual."""

import gc
import weakref

from trimtab.sim.collecting import NEW_OBJECTS_MAX, seldom_collecting
from trimtab.sim.world import Shape, World


def test_cycles_are_looked_for_seldom_within_and_as_before_afterwards() -> None:
    before = gc.get_threshold()
    with seldom_collecting():
        assert gc.get_threshold() == (NEW_OBJECTS_MAX, *before[1:])
    assert gc.get_threshold() == before


def test_a_request_that_was_answered_leaves_nothing_behind() -> None:
    class Answered:
        def __call__(self, _: object) -> None:
            """Takes the answer."""

    world = World(Shape(members=2, queues=2, brokers=1))
    world.join_all()
    link = world.members[0].links["broker-0"]
    answered = Answered()
    gone = weakref.ref(answered)
    gc.disable()
    try:
        world.network.ask(link, lambda broker: broker.up_ms, answered, lambda: None, 1_000)
        del answered
        world.run_for(1_000)
        assert gone() is None
    finally:
        gc.enable()
