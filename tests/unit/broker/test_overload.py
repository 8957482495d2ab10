"""More than the disk takes: a bounded part waits, the rest hears at once that the broker is busy, and it passes."""

import asyncio
from pathlib import Path

import pytest

from tests.crash.harness import SteppedExecutor
from tests.peers import Peer, send_header
from tests.unit.broker.driver import Client, Driver
from tests.unit.broker.stalling_disk import StallingDisk
from trimtab.broker.server import BrokerPlan, BrokerServer
from trimtab.broker.settings import BrokerSettings
from trimtab.broker.store import StoreSettings
from trimtab.wire.codes import RequestCode, ResponseCode
from trimtab.wire.commands import Command, encode_command
from trimtab.wire.headers.base import encode_ext
from trimtab.wire.hot import encode_send_request

BUSY_REMARK = "[OVERLOAD]system busy, start flow control for a while"


def send_several(broker: Driver, client: Client, opaques: range, body: bytes = b"x") -> dict[int, Command]:
    """One read for each; the answers that came at once."""
    before = set(client.answers)
    for opaque in opaques:
        command = Command(
            code=RequestCode.SEND_MESSAGE_V2,
            opaque=opaque,
            ext=encode_ext(client.send_header("T")),
            body=body,
        )
        broker.feed(client, encode_command(command))
    return {opaque: answer for opaque, answer in client.answers.items() if opaque not in before}


def let_sync_end(broker: Driver, executor: SteppedExecutor) -> None:
    executor.close()
    broker.core.writes.settle(broker.now)
    broker.tick()


@pytest.mark.parametrize(
    ("settings", "store_settings", "body"),
    [
        (BrokerSettings(unsynced_sends_max=10), StoreSettings(), b"x"),
        (BrokerSettings(), StoreSettings(unsynced_bytes_max=10_000), b"x" * 1000),
    ],
    ids=["by count", "by bytes"],
)
def test_while_a_sync_hangs_a_bounded_number_of_sends_wait_and_the_others_are_refused_at_once(
    settings: BrokerSettings, store_settings: StoreSettings, body: bytes
) -> None:
    executor = SteppedExecutor()
    broker = Driver(settings, store_settings=store_settings, sync_executor=executor)
    client = broker.connect()
    refused = send_several(broker, client, range(100, 140), body)
    assert 25 <= len(refused) <= 32
    assert {answer.code for answer in refused.values()} == {ResponseCode.SYSTEM_BUSY}
    assert all((answer.remark or "").startswith(BUSY_REMARK) for answer in refused.values())
    let_sync_end(broker, executor)
    taken = [opaque for opaque in range(100, 140) if opaque not in refused]
    assert [client.answers[opaque].code for opaque in taken] == [ResponseCode.SUCCESS] * len(taken)
    assert send_several(broker, client, range(200, 205)) == {}, "there is room again"
    let_sync_end(broker, executor)
    assert [client.answers[opaque].code for opaque in range(200, 205)] == [ResponseCode.SUCCESS] * 5
    assert len(client.pull("T")) == len(taken) + 5, "what was refused is not stored"


def test_three_times_as_much_as_may_wait_is_answered_while_the_disk_hangs_and_after_it_all_is_well(
    tmp_path: Path,
) -> None:
    waiting_max, per_peer, peers_count = 1_000, 1_000, 3

    async def scenario() -> None:
        disk = StallingDisk(tmp_path)
        plan = BrokerPlan(
            disk=disk,
            settings=BrokerSettings(unsynced_sends_max=waiting_max),
            store=StoreSettings(disk_free_bytes_min=0),
        )
        broker = BrokerServer(plan)
        await broker.start()
        peers = [await Peer.open(broker.address) for _ in range(peers_count)]
        await peers[0].send("orders", 0, b"first")
        disk.gate.clear()
        answers = [ask_to_send(peer) for peer in peers for _ in range(per_peer)]
        await peers[0].pull("orders", 0, 0)
        # One read may bring many sends; all of them are taken if the first one is. So a few more may wait than the bound.
        while sum(answer.done() for answer in answers) < per_peer:  # noqa: ASYNC110 - the far end sets no event
            await asyncio.sleep(0.001)
        refused = {answer.result().code for answer in answers if answer.done()}
        assert refused == {ResponseCode.SYSTEM_BUSY}
        disk.gate.set()
        codes = [(await answer).code for answer in answers]
        taken = codes.count(ResponseCode.SUCCESS)
        assert taken >= waiting_max
        assert taken + codes.count(ResponseCode.SYSTEM_BUSY) == len(answers)
        await peers[0].send("orders", 0, b"last")
        stored = broker.core.store.max_offset("orders", 0)
        assert stored == taken + 2, "acknowledged and stored are the same"
        for peer in peers:
            peer.connection.close()
        await broker.stop()

    asyncio.run(asyncio.wait_for(scenario(), 60))


def ask_to_send(peer: Peer) -> asyncio.Future[Command]:
    opaque = peer.connection.next_opaque()
    frame = encode_send_request(
        RequestCode.SEND_MESSAGE_V2, send_header("orders", 0), opaque=opaque, body=b"x" * 16
    )
    return peer.connection.ask_soon(opaque, frame)
