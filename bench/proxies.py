"""Slow links for experiments: a proxy before each broker, and one before the name server that tells clients of them.

Run as a process of its own, so that it does not share a core's turn with what is measured: it reads one line of JSON
(`{"nameserver": "host:port", "brokers": {"host:port": delay_ms}}`) and answers with the name server's address to use. Clients of it
see the brokers at the proxies' addresses. It ends when its standard input does.
"""

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import cast

HOST = "127.0.0.1"


class _Half(asyncio.Protocol):
    """One side of a connection: what it reads goes to the other side, changed and late."""

    def __init__(self, renamed: Mapping[bytes, bytes], delay_s: float) -> None:
        self._renamed = renamed
        self._delay_s = delay_s
        self._waiting: list[bytes] = []
        self._transport: asyncio.Transport | None = None
        self.other: _Half | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        for data in self._waiting:
            self._transport.write(data)

    def data_received(self, data: bytes) -> None:
        for name, other_name in self._renamed.items():
            data = data.replace(name, other_name)
        if self.other is not None:
            asyncio.get_running_loop().call_later(self._delay_s, self.other.write, data)

    def write(self, data: bytes) -> None:
        if self._transport is None:
            self._waiting.append(data)
        else:
            self._transport.write(data)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio's
        if self.other is not None:
            self.other.close()

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()


async def proxy(address: str, delay_ms: float, renamed: Mapping[bytes, bytes], port: int = 0) -> str:
    """Listens before an address; answers come late and with names changed."""
    loop = asyncio.get_running_loop()
    host, _, far_port = address.rpartition(":")

    def accept() -> _Half:
        near, far = _Half({}, 0.0), _Half(renamed, delay_ms / 1_000)
        near.other, far.other = far, near
        connecting = loop.create_task(loop.create_connection(lambda: far, host, int(far_port)))
        connecting.add_done_callback(lambda done: near.close() if done.exception() else None)
        return near

    server = await loop.create_server(accept, HOST, port)
    return f"{HOST}:{server.sockets[0].getsockname()[1]}"


async def _same_length(address: str, delay_ms: float) -> str:
    """A proxy whose address is as long as the one it hides, so that lengths in frames stay true."""
    while True:
        found = await proxy(address, delay_ms, {})
        if len(found) == len(address):
            return found


async def main() -> None:
    loop = asyncio.get_running_loop()
    plan = json.loads(await loop.run_in_executor(None, sys.stdin.readline))
    renamed = {
        address.encode(): (await _same_length(address, delay_ms)).encode()
        for address, delay_ms in plan["brokers"].items()
    }
    print(await proxy(plan["nameserver"], 0.0, renamed), flush=True)
    await loop.run_in_executor(None, sys.stdin.read)


@contextmanager
def slow_links(nameserver: str, delays_ms: Mapping[str, float]) -> Iterator[str]:
    """The name server to give to clients so that they see these brokers late."""
    command = [sys.executable, "-m", "bench.proxies"]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        process.stdin.write(json.dumps({"nameserver": nameserver, "brokers": dict(delays_ms)}) + "\n")
        process.stdin.flush()
        yield process.stdout.readline().strip()
    finally:
        process.stdin.close()
        process.wait(20)


if __name__ == "__main__":
    asyncio.run(main())
