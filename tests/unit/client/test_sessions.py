"""Clients of one loop share a session where they can, and what is shared ends with its last user."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from tests.unit.client.liar import Liar, Talk
from tests.unit.client.warped import warped
from trimtab.balance.identity import client_id_of, is_ours
from trimtab.client.identity import new_client_id
from trimtab.client.producer import Producer
from trimtab.client.session import Session
from trimtab.client.session_links import PAUSE_MAX_S, pause_s
from trimtab.client.sessions import acquire_session, connection_options, release_session
from trimtab.errors import NoRouteError, SettingsError, TrimtabError
from trimtab.io.chance import seeded_chance
from trimtab.io.connection import PeerConnection
from trimtab.model import Message
from trimtab.settings import ConnectionOptions, Intervals, Timeouts
from trimtab.testing import DROP, AsyncCluster, Cluster, Drop
from trimtab.wire.codes import ONEWAY_FLAG, RequestCode, ResponseCode
from trimtab.wire.commands import Command, encode_command
from trimtab.wire.signing import Credentials

OPTIONS = ConnectionOptions(nameserver="127.0.0.1:1")


def play(scenario: Callable[[], Awaitable[None]]) -> None:
    async def run() -> None:
        async with asyncio.timeout(60):
            await scenario()

    asyncio.run(run())


def with_cluster(scenario: Callable[[AsyncCluster], Awaitable[None]], brokers: int = 1) -> None:
    async def run() -> None:
        async with Cluster(brokers=brokers) as cluster:
            await scenario(cluster)

    play(run)


async def until(condition: Callable[[], bool]) -> None:
    while not condition():  # noqa: ASYNC110 - what is waited for happens in a server
        await asyncio.sleep(0.005)


# --- sharing --------------------------------------------------------------------------------------------------------


def test_what_is_equal_is_shared_and_what_differs_is_not() -> None:
    async def scenario() -> None:
        first = acquire_session(OPTIONS)
        same = acquire_session(OPTIONS, timeouts=Timeouts(send_s=9))
        others = [
            acquire_session(ConnectionOptions(nameserver="127.0.0.1:2")),
            acquire_session(ConnectionOptions(nameserver="127.0.0.1:1", credentials=Credentials("a", "b"))),
            acquire_session(ConnectionOptions(nameserver="127.0.0.1:1", tls=True)),
            acquire_session(OPTIONS, "my-own-id"),
            acquire_session(OPTIONS, timeouts=Timeouts(request_s=9)),
        ]
        assert same is first
        assert len({id(session) for session in (first, *others)}) == 6
        for session in (first, same, *others):
            await release_session(session)
        again = acquire_session(OPTIONS)
        assert again is not first
        await release_session(again)

    play(scenario)


def test_a_second_consumer_of_a_group_gets_an_id_of_its_own() -> None:
    async def scenario() -> None:
        first = acquire_session(OPTIONS, consumer_group="g")
        second = acquire_session(OPTIONS, consumer_group="g")
        other_group = acquire_session(OPTIONS, consumer_group="h")
        assert first.client_id != second.client_id
        assert other_group is first
        given = acquire_session(OPTIONS, "stable", consumer_group="g")
        assert given.client_id == "stable"
        with pytest.raises(SettingsError, match="give each its own id"):
            acquire_session(OPTIONS, "stable", consumer_group="g")
        for session, group in ((first, "g"), (second, "g"), (other_group, "h"), (given, "g")):
            await release_session(session, consumer_group=group)

    play(scenario)


def test_every_loop_has_its_own_sessions() -> None:
    async def session_of_this_loop() -> Session:
        return acquire_session(OPTIONS)  # and never given back: its loop ends

    first = asyncio.run(session_of_this_loop())
    second = asyncio.run(session_of_this_loop())
    assert first is not second


def test_producers_share_a_connection_and_the_last_one_takes_the_group_back() -> None:
    async def scenario(cluster: AsyncCluster) -> None:
        goodbyes: list[str] = []

        def heard(command: Command) -> None:
            goodbyes.append(command.ext["producerGroup"])

        cluster.intercept(RequestCode.UNREGISTER_CLIENT, heard)
        async with Producer("one", nameserver=cluster.nameserver) as first:
            await first.send(Message("orders", b"x"))
            async with Producer("one", nameserver=cluster.nameserver) as second:
                assert second.client_id == first.client_id
            assert goodbyes == []
            async with Producer("two", nameserver=cluster.nameserver):
                pass
            assert goodbyes == ["two"]
        assert goodbyes == ["two", "one"]

    with_cluster(scenario)


def test_ids_are_unique_marked_and_readable_for_tools() -> None:
    chance = seeded_chance(1)
    ids = {new_client_id(chance, "unit-1") for _ in range(100)}
    assert len(ids) == 100
    for client_id in ids:
        address, instance, unit = client_id.split("@")
        assert address.count(".") == 3
        assert instance.split("#")[0].isdecimal()
        assert unit == "unit-1"
        assert is_ours(client_id)
    assert is_ours(client_id_of("10.0.0.1", "billing-1"))
    assert not is_ours("10.0.0.1@4242#123456789")
    assert not is_ours("my-own-id")


@pytest.mark.parametrize("wrong", [{"namespace": "a%b"}, {"namespace": ""}, {"unit_name": "a@b"}])
def test_options_that_make_no_sense_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(SettingsError):
        ConnectionOptions(nameserver="127.0.0.1:1", **wrong)


@pytest.mark.parametrize("wrong", [{"send_s": 0}, {"request_s": -1.0}, {"close_s": float("inf")}])
def test_times_that_are_none_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(SettingsError, match="above 0"):
        Timeouts(**wrong)


# --- connections ----------------------------------------------------------------------------------------------------


def test_pauses_grow_to_a_limit_and_half_of_each_is_left_to_chance() -> None:
    assert pause_s(0, 0.5) == 0
    assert [pause_s(n, 1.0) for n in (1, 2, 3)] == [0.1, 0.2, 0.4]
    assert pause_s(3, 0.0) == 0.2
    assert pause_s(10_000, 1.0) == PAUSE_MAX_S


def test_a_dead_address_is_not_dialled_at_every_request() -> None:
    async def scenario(cluster: AsyncCluster) -> None:
        address = cluster.brokers["broker-a"]
        async with Producer("pg", nameserver=cluster.nameserver, timeouts=Timeouts(send_s=0.2)) as producer:
            await producer.send(Message("orders", b"x"))
            session = acquire_session(connection_options(cluster.nameserver), timeouts=Timeouts(send_s=0.2))
            await cluster.kill("broker-a")
            waits = []
            for _ in range(5):
                with pytest.raises(TrimtabError):
                    await producer.send(Message("orders", b"x"))
                waits.append(session.waits_s(address))
            assert any(waits)
            await cluster.restart("broker-a")
            async with asyncio.timeout(30):
                await session.connection(address)
            assert session.waits_s(address) == 0
            await release_session(session)

    with_cluster(scenario)


def test_everybody_who_needs_an_address_waits_for_one_attempt() -> None:
    async def scenario(cluster: AsyncCluster) -> None:
        session = acquire_session(connection_options(cluster.nameserver))
        connections = await asyncio.gather(*(session.connection(cluster.nameserver) for _ in range(20)))
        assert len(set(connections)) == 1
        assert session.connection_now(cluster.nameserver) is connections[0]
        await release_session(session)

    with_cluster(scenario)


def test_the_next_name_server_is_asked_when_one_is_gone_or_silent() -> None:
    async def scenario(cluster: AsyncCluster) -> None:
        async with Liar(listens=False) as silent:
            text = f"127.0.0.1:1;{silent.address};{cluster.nameserver}"
            session = acquire_session(connection_options(text), timeouts=Timeouts(request_s=3))
            route = await session.route("TBW102")
            assert route.addresses["broker-a"]
            await session.refresh_route("TBW102")
            await release_session(session)

    with_cluster(scenario)


def test_a_name_server_that_says_no_is_asked_first_the_next_time() -> None:
    class Ignorant(Liar):
        def asked(self, talk: Talk, command: Command) -> None:
            talk.answer(command, ResponseCode.TOPIC_NOT_EXIST)

    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        async with Liar(listens=False) as silent, Ignorant() as ignorant:
            session = acquire_session(connection_options(f"{silent.address};{ignorant.address}"))
            took_s = []
            for topic in ("one", "two"):
                began = loop.time()
                with pytest.raises(NoRouteError, match="do not know it"):
                    await session.route(topic)
                took_s.append(loop.time() - began)
            await release_session(session)
        assert took_s[0] >= 1.5 > took_s[1]

    warped(scenario())


def test_without_any_name_server_the_error_names_them_within_the_time() -> None:
    async def scenario() -> None:
        session = acquire_session(
            connection_options("127.0.0.1:1;127.0.0.1:2"), timeouts=Timeouts(request_s=0.4)
        )
        began = asyncio.get_running_loop().time()
        with pytest.raises(NoRouteError, match=r"no name server answered.*127\.0\.0\.1:1"):
            await session.route("T")
        assert asyncio.get_running_loop().time() - began < 20
        await release_session(session)

    play(scenario)


# --- heartbeats and requests of brokers -----------------------------------------------------------------------------


def test_a_broker_reached_anew_hears_who_we_are_at_once() -> None:
    async def scenario(cluster: AsyncCluster) -> None:
        beats: list[int] = []
        cluster.intercept(RequestCode.HEART_BEAT, lambda command: beats.append(command.opaque))
        async with Producer("pg", nameserver=cluster.nameserver) as producer:
            await producer.send(Message("orders", b"x"))
            await until(lambda: len(beats) == 1)
            await cluster.restart("broker-a")
            await producer.send(Message("orders", b"x"))
            await until(lambda: len(beats) == 2)

    with_cluster(scenario)


def test_heartbeats_go_out_by_themselves_to_all_brokers_at_once() -> None:
    async def scenario(cluster: AsyncCluster) -> None:
        servers: set[str] = set()

        def deaf(name: str) -> Callable[[Command], Drop]:
            def hear(_command: Command) -> Drop:
                servers.add(name)
                return DROP

            return hear

        for name in cluster.brokers:
            cluster.intercept(RequestCode.HEART_BEAT, deaf(name), server=name)
        options = connection_options(cluster.nameserver)
        session = acquire_session(
            options, timeouts=Timeouts(request_s=100), intervals=Intervals(heartbeat_s=0.01)
        )
        session.roles.add_producer("pg")
        await session.route("TBW102")
        await session.start()
        await session.start()
        # None of them answers: if one waited for the other, the second would hear nothing before this test is over.
        await until(lambda: len(servers) == 2)
        session.roles.remove_producer("pg")
        await release_session(session)

    with_cluster(scenario, brokers=2)


def test_requests_of_brokers_go_to_those_who_listen_and_others_are_refused() -> None:
    async def scenario() -> None:
        seen: list[str] = []

        def listener(name: str, *, takes: bool) -> Callable[[PeerConnection, Command], bool]:
            def listen(connection: PeerConnection, request: Command) -> bool:
                seen.append(name)
                if takes:
                    session.answer(connection, request, remark=name)
                return takes

            return listen

        code = RequestCode.GET_CONSUMER_RUNNING_INFO
        async with Liar() as liar:
            session = acquire_session(connection_options(liar.address))
            await session.connection(liar.address)
            await until(lambda: bool(liar.talks))
            stop = session.listen(code, listener("first", takes=False))
            session.listen(code, listener("second", takes=True))
            session.listen(code, listener("third", takes=True))
            liar.talks[0].say(encode_command(Command(code=code, opaque=1)))
            await until(lambda: len(liar.answers) == 1)
            assert seen == ["first", "second"]
            stop()
            liar.talks[0].say(encode_command(Command(code=code, opaque=2, flag=ONEWAY_FLAG)))
            liar.talks[0].say(encode_command(Command(code=9_999, opaque=3)))
            await until(lambda: len(liar.answers) == 2)
            assert seen == ["first", "second", "second", "third"]
            assert [(answer.opaque, answer.code) for answer in liar.answers] == [
                (1, ResponseCode.SUCCESS),
                (3, ResponseCode.REQUEST_CODE_NOT_SUPPORTED),
            ]
            await release_session(session)

    play(scenario)


def test_closing_is_bounded_when_a_broker_does_not_answer_and_leaves_no_task() -> None:
    async def scenario(cluster: AsyncCluster) -> None:
        before = asyncio.all_tasks()
        producer = Producer("pg", nameserver=cluster.nameserver, timeouts=Timeouts(close_s=0.2))
        await producer.start()
        await producer.send(Message("orders", b"x"))
        cluster.pause("broker-a")
        await producer.close()
        await producer.close()
        assert asyncio.all_tasks() <= before
        cluster.resume("broker-a")

    with_cluster(scenario)
