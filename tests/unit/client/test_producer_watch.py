"""One timer wakes everybody who is on the way, at the right time."""

import asyncio

from tests.unit.client.warped import warped
from trimtab.client.producer_watch import LOOKS_APART_S_MIN, Watch


class Sleeper:
    """Notes when it was woken, and is woken no more."""

    def __init__(self, watch: Watch, wakes_at: float, *, again_s: float | None = None) -> None:
        self.wakes_at = wakes_at
        self.woken_at: list[float] = []
        self._watch = watch
        self._again_s = again_s
        watch.add(self)

    def wake(self, now: float) -> None:
        self.woken_at.append(now)
        if self._again_s is None:
            self._watch.forget(self)
        else:
            self.wakes_at, self._again_s = now + self._again_s, None
            self._watch.look_at(self.wakes_at)


def test_each_is_woken_at_its_time_whatever_the_order_of_leaving() -> None:
    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        began, watch = loop.time(), Watch(loop)
        sleepers = [Sleeper(watch, began + delay_s) for delay_s in (3.0, 1.0, 2.0)]
        await asyncio.sleep(5)
        for sleeper, delay_s in zip(sleepers, (3.0, 1.0, 2.0), strict=True):
            (woken_at,) = sleeper.woken_at
            assert abs(woken_at - began - delay_s) <= LOOKS_APART_S_MIN

    warped(scenario())


def test_who_is_done_is_not_woken_and_the_others_are() -> None:
    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        began, watch = loop.time(), Watch(loop)
        done, late = Sleeper(watch, began + 1), Sleeper(watch, began + 2)
        watch.forget(done)
        await asyncio.sleep(3)
        assert not done.woken_at
        assert len(late.woken_at) == 1

    warped(scenario())


def test_a_second_look_comes_as_soon_as_it_is_asked_for() -> None:
    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        watch = Watch(loop)
        sleeper = Sleeper(watch, loop.time() + 1, again_s=LOOKS_APART_S_MIN / 2)
        await asyncio.sleep(2)
        first, second = sleeper.woken_at
        assert LOOKS_APART_S_MIN / 4 <= second - first < LOOKS_APART_S_MIN

    warped(scenario())
