"""A lone request leaves by the call that makes it, whole and in order, on every kind of loop."""

import asyncio
import socket
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager

import pytest

from trimtab.errors import ConnectionLostError
from trimtab.io.connection import PeerConnection
from trimtab.io.loops import new_event_loop
from trimtab.wire.frames import encode_frame

LOOPS = [asyncio.new_event_loop, new_event_loop]
PATIENCE_S = 30.0

on_every_loop = pytest.mark.parametrize("new_loop", LOOPS, ids=["asyncio", "ours"])


@contextmanager
def listener() -> Iterator[tuple[socket.socket, str]]:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.settimeout(PATIENCE_S)
        yield listening, "{}:{}".format(*listening.getsockname())


def run(
    scenario: Callable[[PeerConnection, socket.socket], Coroutine[None, None, None]],
    new_loop: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    """Plays with a connection and its far end, a plain socket that waits for bytes without a loop."""

    async def play() -> None:
        with listener() as (listening, address):
            connection = await PeerConnection.open(address)
            far, _ = listening.accept()
            with far:
                far.settimeout(PATIENCE_S)
                await scenario(connection, far)
            connection.close()
            await connection.ended(PATIENCE_S)

    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(play())


def taken(*_: object) -> None:
    return None


def read(far: socket.socket, count: int) -> bytes:
    data = bytearray()
    while len(data) < count:
        piece = far.recv(count - len(data))
        assert piece, "the connection ended early"
        data += piece
    return bytes(data)


@on_every_loop
def test_the_far_end_has_a_lone_request_before_the_loop_turns(
    new_loop: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    async def scenario(connection: PeerConnection, far: socket.socket) -> None:
        frame = encode_frame(b"{}", b"body")
        connection.request_now(connection.next_opaque(), frame, taken)
        assert read(far, len(frame)) == frame

    run(scenario, new_loop)


@on_every_loop
def test_it_leaves_behind_what_was_sent_before_it(new_loop: Callable[[], asyncio.AbstractEventLoop]) -> None:
    async def scenario(connection: PeerConnection, far: socket.socket) -> None:
        first, second = encode_frame(b"{}", b"first"), encode_frame(b"{}", b"second")
        connection.send(first)
        connection.request_now(connection.next_opaque(), second, taken)
        loop = asyncio.get_running_loop()
        assert await loop.run_in_executor(None, read, far, len(first + second)) == first + second

    run(scenario, new_loop)


@on_every_loop
def test_what_the_system_does_not_take_at_once_follows_in_order(
    new_loop: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    async def scenario(connection: PeerConnection, far: socket.socket) -> None:
        frames = [encode_frame(b"{}", bytes([number]) * (4 << 20)) for number in range(4)]
        for frame in frames:
            connection.request_now(connection.next_opaque(), frame, taken)
        expected = b"".join(frames)
        loop = asyncio.get_running_loop()
        assert await loop.run_in_executor(None, read, far, len(expected)) == expected

    run(scenario, new_loop)


@on_every_loop
def test_on_a_connection_that_was_lost_nothing_is_written(
    new_loop: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    async def scenario(connection: PeerConnection, far: socket.socket) -> None:
        far.close()
        await connection.ended(PATIENCE_S)
        with pytest.raises(ConnectionLostError, match="closed"):
            connection.request_now(1, encode_frame(b"{}"), taken)
        assert connection.unanswered == 0

    run(scenario, new_loop)


@on_every_loop
def test_a_write_that_fails_tells_those_who_wait(new_loop: Callable[[], asyncio.AbstractEventLoop]) -> None:
    async def scenario(connection: PeerConnection, far: socket.socket) -> None:
        heard: list[Exception | None] = []
        # The far end is gone, and the near one has not heard of it: its loop did not turn.
        far.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\x00\x00\x00\x00\x00\x00\x00")
        far.close()
        connection.request_now(7, encode_frame(b"{}"), lambda _, failure: heard.append(failure))
        await connection.ended(PATIENCE_S)
        (failure,) = heard
        assert isinstance(failure, ConnectionLostError)

    run(scenario, new_loop)
