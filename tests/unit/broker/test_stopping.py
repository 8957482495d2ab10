"""Stopping in good order: what was taken is on disk and answered before the connections close."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.peers import Peer, send_header
from tests.unit.broker.stalling_disk import StallingDisk
from trimtab.broker import server as broker_server
from trimtab.broker.server import BrokerPlan, BrokerServer
from trimtab.broker.store import StoreSettings
from trimtab.io.disk import RealDisk
from trimtab.wire.codes import RequestCode, ResponseCode
from trimtab.wire.commands import Command
from trimtab.wire.hot import encode_send_request

STORE = StoreSettings(disk_free_bytes_min=0)


async def until(condition: Callable[[], bool]) -> None:
    while not condition():  # noqa: ASYNC110 - it is the server's own loop that is waited for
        await asyncio.sleep(0.001)


def written(broker: BrokerServer) -> int:
    """How many messages the log holds, durable or not."""
    queue = broker.core.store._queue("orders", 0)
    return 0 if queue is None else queue.end


def send_soon(peer: Peer, body: bytes) -> asyncio.Future[Command]:
    opaque = peer.connection.next_opaque()
    frame = encode_send_request(
        RequestCode.SEND_MESSAGE_V2, send_header("orders", 0), opaque=opaque, body=body
    )
    return peer.connection.ask_soon(opaque, frame)


def test_a_send_whose_sync_is_on_its_way_is_answered_before_the_broker_stops(tmp_path: Path) -> None:
    async def scenario() -> None:
        disk = StallingDisk(tmp_path)
        broker = BrokerServer(BrokerPlan(disk=disk, store=STORE))
        await broker.start()
        peer = await Peer.open(broker.address)
        await peer.send("orders", 0, b"first")
        disk.gate.clear()
        second = send_soon(peer, b"second")
        await until(lambda: written(broker) == 2)
        stopping = asyncio.ensure_future(broker.stop())
        await until(lambda: broker._server.is_deaf)
        late = send_soon(peer, b"after the stop began")
        disk.gate.set()
        await stopping
        assert (await second).code == ResponseCode.SUCCESS
        with pytest.raises(Exception, match="connection"):
            await late
        peer.connection.close()
        broker = BrokerServer(BrokerPlan(disk=RealDisk(tmp_path), store=STORE))
        await broker.start()
        assert broker.core.store.max_offset("orders", 0) == 2
        await broker.stop()

    asyncio.run(asyncio.wait_for(scenario(), 60))


def test_a_disk_that_hangs_does_not_keep_the_connections_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(broker_server, "DRAIN_S_MAX", 0.05)

    async def scenario() -> None:
        disk = StallingDisk(tmp_path)
        broker = BrokerServer(BrokerPlan(disk=disk, store=STORE))
        await broker.start()
        peer = await Peer.open(broker.address)
        await peer.send("orders", 0, b"first")
        disk.gate.clear()
        second = send_soon(peer, b"second")
        await until(lambda: written(broker) == 2)
        second.add_done_callback(lambda _: disk.gate.set())  # the store itself waits for the disk
        await broker.stop()
        with pytest.raises(Exception, match="connection"):
            await second
        peer.connection.close()

    asyncio.run(asyncio.wait_for(scenario(), 60))
