"""The broker's clockwork goes on whatever goes wrong in a tick."""

import asyncio

from trimtab.broker.server import BrokerPlan, BrokerServer
from trimtab.io.disk import MemoryDisk


class ShyDisk(MemoryDisk):
    """Does not always say how much room it has."""

    def __init__(self) -> None:
        super().__init__()
        self.is_shy = False
        self.asked = 0

    def free_bytes(self) -> int:
        self.asked += 1
        if self.is_shy:
            raise FileNotFoundError(2, "gone")
        return super().free_bytes()


def test_a_tick_that_fails_is_not_the_last() -> None:
    async def run() -> None:
        complaints: list[object] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))
        disk = ShyDisk()
        server = BrokerServer(BrokerPlan(disk=disk))
        await server.start()
        disk.is_shy = True
        async with asyncio.timeout(60):
            while not complaints:  # noqa: ASYNC110 - it is the server's own loop that is waited for
                await asyncio.sleep(0.01)
            disk.is_shy = False
            asked = disk.asked
            while disk.asked < asked + 2:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        await server.stop()

    asyncio.run(run())
