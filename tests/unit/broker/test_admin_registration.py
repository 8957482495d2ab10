"""Who was told that a topic exists finds its route: over real sockets, with a store on a real disk."""

import asyncio
import itertools
from pathlib import Path

import pytest

from tests.unit.broker.admin_core import topic_header
from trimtab.broker import registration
from trimtab.broker.server import BrokerPlan, BrokerServer
from trimtab.broker.settings import BrokerSettings
from trimtab.io.clock import SystemClock
from trimtab.io.connection import PeerConnection
from trimtab.io.disk import RealDisk
from trimtab.names.server import NameServer
from trimtab.wire.bodies import TopicRouteData
from trimtab.wire.codes import RequestCode, ResponseCode
from trimtab.wire.commands import Command
from trimtab.wire.fastjson import decode_body
from trimtab.wire.headers.admin import TopicOnly
from trimtab.wire.headers.base import Header, encode_ext
from trimtab.wire.headers.names import BrokerNameOnly, GetRouteInfo

TOPICS = 10
BROKER = BrokerSettings().broker_name

_opaques = itertools.count(1)


async def ask(connection: PeerConnection, code: RequestCode, header: Header) -> int:
    command = Command(code=code, opaque=next(_opaques), ext=encode_ext(header))
    return (await connection.ask(command, timeout_s=30)).code


def test_a_new_topic_has_a_route_when_it_is_answered(tmp_path: Path) -> None:
    async def scenario() -> None:
        names = NameServer(clock=SystemClock())
        await names.start()
        broker = BrokerServer(BrokerPlan(disk=RealDisk(tmp_path), nameservers=(names.address,)))
        await broker.start()
        to_names = await PeerConnection.open(names.address)
        to_broker = await PeerConnection.open(broker.address)
        for number in range(TOPICS):
            topic = f"t{number}"
            made = await ask(to_broker, RequestCode.UPDATE_AND_CREATE_TOPIC, topic_header(topic))
            assert made == ResponseCode.SUCCESS
            assert await ask(to_names, RequestCode.GET_ROUTEINFO_BY_TOPIC, GetRouteInfo(topic=topic)) == 0
            deleted = await ask(to_broker, RequestCode.DELETE_TOPIC_IN_BROKER, TopicOnly(topic=topic))
            assert deleted == ResponseCode.SUCCESS
        to_broker.close()
        to_names.close()
        await broker.stop()
        await names.stop()

    asyncio.run(asyncio.wait_for(scenario(), 60))


def test_a_topic_is_made_even_when_no_name_server_can_be_told(tmp_path: Path) -> None:
    async def scenario() -> None:
        nobody = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0)
        port = nobody.sockets[0].getsockname()[1]
        nobody.close()
        await nobody.wait_closed()
        broker = BrokerServer(BrokerPlan(disk=RealDisk(tmp_path), nameservers=(f"127.0.0.1:{port}",)))
        await broker.start()
        to_broker = await PeerConnection.open(broker.address)
        assert await ask(to_broker, RequestCode.UPDATE_AND_CREATE_TOPIC, topic_header("t")) == 0
        to_broker.close()
        await broker.stop()

    asyncio.run(asyncio.wait_for(scenario(), 60))


def test_a_silent_name_server_holds_nobody_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registration, "ANSWER_S_MAX", 0.1)
    monkeypatch.setattr(registration, "TOLD_S_MAX", 0.05)

    async def scenario() -> None:
        writers: list[asyncio.StreamWriter] = []
        silent = await asyncio.start_server(lambda _, writer: writers.append(writer), "127.0.0.1", 0)
        address = f"127.0.0.1:{silent.sockets[0].getsockname()[1]}"
        broker = BrokerServer(BrokerPlan(disk=RealDisk(tmp_path), nameservers=(address,)))
        await broker.start()
        monkeypatch.setattr(registration, "ANSWER_S_MAX", 3_600.0)
        to_broker = await PeerConnection.open(broker.address)
        assert await ask(to_broker, RequestCode.UPDATE_AND_CREATE_TOPIC, topic_header("t")) == 0
        to_broker.close()
        monkeypatch.setattr(registration, "ANSWER_S_MAX", 0.1)
        await broker.stop()
        for writer in writers:
            writer.close()
            await writer.wait_closed()
        silent.close()
        await silent.wait_closed()

    asyncio.run(asyncio.wait_for(scenario(), 60))


def test_a_changed_topic_leaves_alone_what_name_servers_say_of_others(tmp_path: Path) -> None:
    """Taking the right to write from a broker is how operators drain it; a new topic must not give it back."""

    async def scenario() -> None:
        names = NameServer(clock=SystemClock())
        await names.start()
        broker = BrokerServer(BrokerPlan(disk=RealDisk(tmp_path), nameservers=(names.address,)))
        await broker.start()
        to_names = await PeerConnection.open(names.address)
        to_broker = await PeerConnection.open(broker.address)
        assert await ask(to_broker, RequestCode.UPDATE_AND_CREATE_TOPIC, topic_header("drained")) == 0
        wipe = BrokerNameOnly(broker_name=BROKER)
        assert await ask(to_names, RequestCode.WIPE_WRITE_PERM_OF_BROKER, wipe) == 0
        assert await ask(to_broker, RequestCode.UPDATE_AND_CREATE_TOPIC, topic_header("other")) == 0
        deleted = await ask(to_broker, RequestCode.DELETE_TOPIC_IN_BROKER, TopicOnly(topic="other"))
        assert deleted == ResponseCode.SUCCESS
        assert await perm_of("drained", to_names) == 4
        await broker.register()
        assert await perm_of("drained", to_names) == 6  # all topics, anew
        to_broker.close()
        to_names.close()
        await broker.stop()
        await names.stop()

    async def perm_of(topic: str, to_names: PeerConnection) -> int:
        command = Command(
            code=RequestCode.GET_ROUTEINFO_BY_TOPIC,
            opaque=next(_opaques),
            ext=encode_ext(GetRouteInfo(topic=topic)),
        )
        answer = await to_names.ask(command, timeout_s=30)
        (queues,) = decode_body(TopicRouteData, answer.body).queue_datas
        return queues.perm

    asyncio.run(asyncio.wait_for(scenario(), 60))


def test_a_name_server_that_missed_a_change_is_told_of_all_topics(tmp_path: Path) -> None:
    async def scenario() -> None:
        names = NameServer(clock=SystemClock())
        await names.start()
        port = int(names.address.rpartition(":")[2])
        broker = BrokerServer(BrokerPlan(disk=RealDisk(tmp_path), nameservers=(names.address,)))
        await broker.start()
        to_broker = await PeerConnection.open(broker.address)
        await names.stop()
        assert await ask(to_broker, RequestCode.UPDATE_AND_CREATE_TOPIC, topic_header("missed")) == 0
        names = NameServer(clock=SystemClock(), port=port)
        await names.start()
        assert await ask(to_broker, RequestCode.UPDATE_AND_CREATE_TOPIC, topic_header("heard")) == 0
        to_names = await PeerConnection.open(names.address)
        for topic in ("missed", "heard"):
            assert await ask(to_names, RequestCode.GET_ROUTEINFO_BY_TOPIC, GetRouteInfo(topic=topic)) == 0
        to_broker.close()
        to_names.close()
        await broker.stop()
        await names.stop()

    asyncio.run(asyncio.wait_for(scenario(), 60))
