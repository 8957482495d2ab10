"""What one broker is told of who is here it is told in order, whoever loses patience."""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial

import pytest

from trimtab.client.session_turns import Turns


class Teller:
    """Notes what begins and what ends; nothing ends before it may."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self.may_end = asyncio.Event()
        self.turns = Turns(partial(self.tell, "beat"))

    async def tell(self, what: str, address: str) -> None:
        self.said.append(f"{what} {address}")
        await self.may_end.wait()
        self.said.append(f"{what} {address} answered")

    def goodbye(self, address: str) -> "asyncio.Task[None]":
        return asyncio.create_task(self.turns.take(address, partial(self.tell, "goodbye", address)))

    def beat(self, address: str) -> "asyncio.Task[None]":
        return asyncio.create_task(self.turns.beat(address))


def play(scenario: Callable[[Teller], Awaitable[None]]) -> None:
    async def run() -> None:
        async with asyncio.timeout(30):
            teller = Teller()
            await scenario(teller)
            await teller.turns.close()

    asyncio.run(run())


async def some_turns_of_the_loop() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


def test_a_goodbye_waits_for_the_answer_to_the_heartbeat_before_it() -> None:
    async def scenario(teller: Teller) -> None:
        asked = [teller.beat("a")]
        await some_turns_of_the_loop()
        asked.append(teller.goodbye("a"))
        await some_turns_of_the_loop()
        assert teller.said == ["beat a"]
        teller.may_end.set()
        await asyncio.gather(*asked)
        assert teller.said == ["beat a", "beat a answered", "goodbye a", "goodbye a answered"]

    play(scenario)


def test_who_no_longer_waits_takes_nothing_back() -> None:
    async def scenario(teller: Teller) -> None:
        impatient = teller.beat("a")
        await some_turns_of_the_loop()
        impatient.cancel()
        goodbye = teller.goodbye("a")
        await some_turns_of_the_loop()
        assert impatient.cancelled()
        assert teller.said == ["beat a"], "the heartbeat is still on its way"
        teller.may_end.set()
        await goodbye
        assert teller.said == ["beat a", "beat a answered", "goodbye a", "goodbye a answered"]

    play(scenario)


def test_heartbeats_that_wait_are_one() -> None:
    async def scenario(teller: Teller) -> None:
        asked = [teller.beat("a")]
        await some_turns_of_the_loop()
        asked += [teller.beat("a") for _ in range(5)]
        await some_turns_of_the_loop()
        teller.may_end.set()
        await asyncio.gather(*asked)
        assert teller.said == ["beat a", "beat a answered"] * 2

    play(scenario)


def test_a_heartbeat_asked_for_after_a_goodbye_comes_after_it() -> None:
    async def scenario(teller: Teller) -> None:
        asked = []
        for ask in (teller.beat, teller.beat, teller.goodbye, teller.beat):
            asked.append(ask("a"))
            await some_turns_of_the_loop()
        teller.may_end.set()
        await asyncio.gather(*asked)
        begun = [said for said in teller.said if not said.endswith("answered")]
        assert begun == ["beat a", "beat a", "goodbye a", "beat a"]

    play(scenario)


def test_brokers_do_not_wait_for_each_other() -> None:
    async def scenario(teller: Teller) -> None:
        asked = [teller.beat("a"), teller.goodbye("b")]
        await some_turns_of_the_loop()
        assert sorted(teller.said) == ["beat a", "goodbye b"]
        teller.may_end.set()
        await asyncio.gather(*asked)

    play(scenario)


@pytest.mark.parametrize("begun", [False, True])
def test_closing_ends_what_is_under_way_and_what_waits(*, begun: bool) -> None:
    async def scenario(teller: Teller) -> None:
        asked = [teller.beat("a"), teller.goodbye("a"), teller.beat("a")]
        if begun:
            await some_turns_of_the_loop()
        else:
            await asyncio.sleep(0)
        await teller.turns.close()
        await asyncio.gather(*asked)
        assert "goodbye a" not in teller.said

    play(scenario)
