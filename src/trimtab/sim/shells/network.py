"""The network between virtual processes: delay, partitions, cut connections, hosts that vanish. All chance comes from one seed.

It behaves as TCP does. Bytes of one connection arrive in order. In a partition they wait, and arrive when it is over if both ends still
have the connection by then. A process that dies has its connections reset; a host that vanishes says nothing.
"""

import asyncio
from collections.abc import Callable
from typing import Any, Final

from trimtab.io.chance import Chance
from trimtab.sim.shells.loop import VirtualLoop
from trimtab.sim.shells.process import PROCESS, State, VirtualProcess
from trimtab.sim.shells.transport import VirtualTransport

FIRST_PORT: Final = 10_000
FIRST_CLIENT_PORT: Final = 40_000
DELAY_S_MIN: Final = 0.0002
HANGS_S: Final = 600.0
"""Who dials a host that is not there any more hears nothing for so long."""


class VirtualSocket:
    """As much of a listening socket as servers ask for."""

    def __init__(self, host: str, port: int) -> None:
        self._name = host, port

    def getsockname(self) -> tuple[str, int]:
        """Where it listens."""
        return self._name


class Listening:
    """What `create_server` gives."""

    def __init__(self, network: "Network", factory: Callable[[], Any], host: str, port: int) -> None:
        self.factory = factory
        self.process = PROCESS.get()
        self.address = f"{host}:{port}"
        self.is_open = False
        self.sockets = [VirtualSocket(host, port)]
        self._network = network

    async def start_serving(self) -> None:
        self.is_open = True

    def close(self) -> None:
        self.is_open = False
        if self._network.listening.get(self.address) is self:
            del self._network.listening[self.address]

    async def wait_closed(self) -> None:
        await asyncio.sleep(0)


class Network:
    """See the module's own words."""

    def __init__(self, loop: VirtualLoop, chance: Chance, *, delay_s_max: float = 0.003) -> None:
        self.delay_s_max = delay_s_max
        self.listening: dict[str, Listening] = {}
        self.connections = 0
        self.bytes_sent = 0
        self._loop = loop
        self._chance = chance
        self._ports = FIRST_PORT
        self._transports: dict[VirtualTransport, None] = {}
        self._parted: dict[frozenset[str], float] = {}

    # --- faults -----------------------------------------------------------------------------------------------

    def part(self, one: VirtualProcess, other: VirtualProcess, s: float) -> None:
        """Nothing gets through between these two for so long."""
        self._parted[frozenset((one.name, other.name))] = self._loop.world_s + s

    def cut(self, one: VirtualProcess, other: VirtualProcess) -> int:
        """Breaks the connections between these two, noticed by each end at its own time; how many there were."""
        found = [end for end in list(self._transports) if end.process is one and end.peer.process is other]
        for end in found:
            for side in (end, end.peer):
                self._at(self._loop.world_s + self._delay_s(), side, side.reset)
        return len(found)

    def ended(self, process: VirtualProcess, *, is_silent: bool) -> None:
        """A process is dead; unless the host went with it, its machine resets its connections."""
        for listening in [found for found in self.listening.values() if found.process is process]:
            if not is_silent:
                listening.close()
        for end in [end for end in self._transports if end.process is process]:
            del self._transports[end]
            end.is_gone = True
            if not is_silent:
                self.reset(end)

    # --- what transports ask ----------------------------------------------------------------------------------

    def listen(self, factory: Callable[[], Any], host: str, port: int) -> Listening:
        """Takes an address."""
        if not port:
            self._ports += 1
            port = self._ports
        address = f"{host}:{port}"
        if address in self.listening:
            raise OSError(f"{address} is in use")
        listening = self.listening[address] = Listening(self, factory, host, port)
        return listening

    async def connect(self, factory: Callable[[], Any], address: str) -> tuple[VirtualTransport, Any]:
        """Opens a connection from the process that runs now."""
        process = PROCESS.get()
        listening = self.listening.get(address)
        if listening is not None:
            await self._until_not_parted(process, listening.process)
        await asyncio.sleep(2 * self._delay_s())
        listening = self.listening.get(address)
        if listening is None or not listening.is_open:
            raise ConnectionRefusedError(f"nobody listens at {address}")
        if listening.process.state is State.DEAD:
            await asyncio.sleep(HANGS_S)
            raise TimeoutError(f"{address} does not answer")
        here, there = self._pair(process, listening, address)
        protocol = factory()
        here.set_protocol(protocol)
        self.soon(there, _accept, there, listening)
        protocol.connection_made(here)
        return here, protocol

    def send(self, end: VirtualTransport, data: bytes | None) -> None:
        """Bytes, or the end of them, on their way to the other end."""
        self.bytes_sent += len(data or b"")
        at_s = max(self._loop.world_s, self._parted_until_s(end)) + self._delay_s()
        end.busy_until_s = max(at_s, end.busy_until_s + 1e-7)
        if not end.peer.is_gone:
            self._at(end.busy_until_s, end.peer, end.peer.arrive, data)

    def reset(self, end: VirtualTransport) -> None:
        """Tells the other end that there is nobody any more."""
        at_s = max(self._loop.world_s, self._parted_until_s(end)) + self._delay_s()
        if not end.peer.is_gone:
            self._at(at_s, end.peer, end.peer.reset)

    def taken(self, end: VirtualTransport, count: int) -> None:
        """The other end has read so much."""
        if not end.is_gone:
            self.soon(end, end.taken, count)

    def soon(self, end: VirtualTransport, call: Callable[..., Any], *args: Any) -> None:
        """In the process of that end."""
        self._loop.call_soon(call, *args, context=end.context)

    def forget(self, end: VirtualTransport) -> None:
        """It is gone. What still comes for it is answered with a reset."""
        self._transports.pop(end, None)

    # --- inside -----------------------------------------------------------------------------------------------

    def _pair(
        self, process: VirtualProcess, listening: Listening, address: str
    ) -> tuple[VirtualTransport, VirtualTransport]:
        self.connections += 1
        own = f"{process.host}:{FIRST_CLIENT_PORT + self.connections % 20_000}"
        here = VirtualTransport(self, process, process.context(), own, address)
        there = VirtualTransport(self, listening.process, listening.process.context(), address, own)
        here.peer, there.peer = there, here
        for end in (here, there):
            self._transports[end] = None
        return here, there

    def _at(self, at_s: float, end: VirtualTransport, call: Callable[..., Any], *args: Any) -> None:
        self._loop.call_at_world(at_s, call, *args, context=end.context)

    def _parted_until_s(self, end: VirtualTransport) -> float:
        pair = frozenset((end.process.name, end.peer.process.name))
        return self._parted.get(pair, 0.0)

    async def _until_not_parted(self, one: VirtualProcess, other: VirtualProcess) -> None:
        until_s = self._parted.get(frozenset((one.name, other.name)), 0.0)
        await asyncio.sleep(max(0.0, until_s - self._loop.world_s))

    def _delay_s(self) -> float:
        return DELAY_S_MIN + self._chance.random() * self.delay_s_max


def _accept(end: VirtualTransport, listening: Listening) -> None:
    protocol = listening.factory()
    end.set_protocol(protocol)
    protocol.connection_made(end)
