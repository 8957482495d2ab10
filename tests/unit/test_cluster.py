"""The cluster that users test with: real servers in this process, and what can be done to them."""

import asyncio
import gc
import os
import re
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.peers import Peer, pull_header
from trimtab.broker.settings import BrokerSettings
from trimtab.errors import ConnectionLostError, ServerUnreachableError
from trimtab.io.clock import SystemClock
from trimtab.io.connection import PeerConnection
from trimtab.io.disk import DiskLockedError
from trimtab.io.loops import new_event_loop
from trimtab.io.nameservers import NameserverTextError, resolve_nameserver
from trimtab.io.serving import Connection, FrameServer
from trimtab.testing import BROKERS_MAX, DROP, AsyncCluster, Cluster, ClusterError
from trimtab.wire.bodies.route import ClusterInfo
from trimtab.wire.codes import ONEWAY_FLAG, RequestCode, ResponseCode
from trimtab.wire.commands import Command, encode_command
from trimtab.wire.fastjson import decode_body
from trimtab.wire.frames import Frame, encode_frame
from trimtab.wire.headers.base import encode_ext
from trimtab.wire.headers.consume import GetMaxOffset, QueryConsumerOffset, UpdateConsumerOffset

Scenario = Callable[[], Coroutine[Any, Any, None]]
Run = Callable[[Scenario], None]


def open_sockets() -> list[str]:
    found = []
    for number in os.listdir("/proc/self/fd"):  # noqa: PTH208 - the listing's own number is gone when it is looked at
        try:
            found.append(os.readlink(f"/proc/self/fd/{number}"))  # noqa: PTH115
        except FileNotFoundError:
            continue
    return sorted(name for name in found if name.startswith(("socket:", "/", "anon_inode:", "pipe:")))


@pytest.fixture(autouse=True)
def nothing_is_left() -> Iterator[None]:
    """Threads, sockets and files of before and after are the same."""
    new_event_loop().close()  # libuv keeps one pipe for the whole process, from its first loop on
    gc.collect()
    threads, sockets = set(threading.enumerate()), open_sockets()
    yield
    gc.collect()
    assert set(threading.enumerate()) == threads
    assert open_sockets() == sockets


@pytest.fixture(params=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Run:
    """Runs a scenario in a fresh loop, and fails it on anything that the loop had to report or that is left over."""
    factory = pytest.importorskip("uvloop").new_event_loop if request.param == "uvloop" else None

    def run_one(scenario: Scenario) -> None:
        complaints: list[dict[str, Any]] = []

        async def watched() -> None:
            asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))
            await asyncio.wait_for(scenario(), 60)
            assert asyncio.all_tasks() == {asyncio.current_task()}
            await asyncio.sleep(0)  # what was closed last is gone one turn later

        with asyncio.Runner(loop_factory=factory) as runner:
            runner.run(watched())
        gc.collect()
        assert complaints == []

    return run_one


async def until(condition: Callable[[], Coroutine[Any, Any, bool]]) -> None:
    async with asyncio.timeout(30):
        while not await condition():  # noqa: ASYNC110 - the far end of a socket sets no event here
            await asyncio.sleep(0.005)


async def registered(cluster: AsyncCluster) -> dict[str, str]:
    """The brokers as the name server knows them."""
    async with await Peer.open(cluster.nameserver) as peer:
        answer = await peer.ask(RequestCode.GET_BROKER_CLUSTER_INFO)
    table = decode_body(ClusterInfo, answer.body).broker_addr_table
    return {name: data.broker_addrs[0] for name, data in table.items()}


async def turns(address: str, count: int = 20) -> None:
    """Some round trips: whoever has something to say in this loop has said it by then."""
    async with await Peer.open(address) as peer:
        for _ in range(count):
            await peer.ask(RequestCode.GET_BROKER_CLUSTER_INFO)


# --- a cluster comes and goes


def test_messages_go_through_a_cluster_of_another_thread() -> None:
    async def talk(nameserver: str, brokers: dict[str, str]) -> None:
        async with await Peer.open(brokers["broker-b"]) as broker:
            assert (await broker.send("orders", 3, b"hello")).queue_offset == 0
            assert [message.body for message in await broker.read_all("orders", 3)] == [b"hello"]

        async def is_known() -> bool:
            async with await Peer.open(nameserver) as names:
                return (await names.route("orders")).code == ResponseCode.SUCCESS

        await until(is_known)

    with Cluster(brokers=2) as cluster:
        assert list(cluster.brokers) == ["broker-a", "broker-b"]
        assert cluster.nameserver in repr(cluster)
        asyncio.run(talk(cluster.nameserver, cluster.brokers))


def test_a_cluster_runs_in_the_callers_loop(run: Run) -> None:
    async def scenario() -> None:
        async with Cluster(brokers=2) as cluster:
            assert await registered(cluster) == cluster.brokers
            async with await Peer.open(cluster.brokers["broker-a"]) as broker:
                await broker.send("orders", 0, b"x")

    run(scenario)


def test_clusters_do_not_know_each_other(run: Run) -> None:
    async def scenario() -> None:
        async with Cluster() as one, Cluster() as other:
            async with await Peer.open(one.brokers["broker-a"]) as broker:
                await broker.send("orders", 0, b"x")
            async with await Peer.open(other.brokers["broker-a"]) as broker:
                assert (await broker.ask(RequestCode.PULL_MESSAGE, pull_header("orders", 0, 0))).code == (
                    ResponseCode.TOPIC_NOT_EXIST
                )
            assert await registered(one) == one.brokers
            assert await registered(other) == other.brokers

    run(scenario)


def test_a_cluster_can_be_made_again() -> None:
    plan = Cluster()
    with plan as first:
        address = first.nameserver
    with pytest.raises(ServerUnreachableError):
        asyncio.run(Peer.open(address))
    with plan as second:
        asyncio.run(turns(second.nameserver, 1))


@pytest.mark.parametrize("in_directory", [False, True])
def test_nothing_is_left_whatever_state_it_ends_in(run: Run, tmp_path: Path, in_directory: bool) -> None:
    async def scenario() -> None:
        async with Cluster(brokers=3, directory=tmp_path / "data" if in_directory else None) as cluster:
            peers = [await Peer.open(address) for address in (cluster.nameserver, *cluster.brokers.values())]
            for peer in peers[1:]:
                await peer.send("orders", 0, b"x")
            held = asyncio.create_task(peers[1].pull("orders", 0, 1, waits_ms=60_000))
            await turns(cluster.nameserver)
            cluster.pause("broker-b")
            await cluster.kill("broker-c")
            cluster.pause("nameserver")
        assert (await held).code == ResponseCode.PULL_NOT_FOUND
        for peer in peers:
            peer.connection.close()

    run(scenario)


def test_a_failing_block_ends_the_cluster_and_says_why() -> None:
    with pytest.raises(ZeroDivisionError), Cluster():
        _ = 1 // 0


def test_what_cannot_be_is_refused() -> None:
    for brokers in (-1, BROKERS_MAX + 1):
        with pytest.raises(ClusterError, match="say 0 to"):
            Cluster(brokers)


def test_settings_are_the_brokers() -> None:
    async def refused(address: str) -> str:
        async with await Peer.open(address) as broker:
            with pytest.raises(AssertionError) as failure:
                await broker.send("orders", 0, b"x")
            return str(failure.value)

    with Cluster(settings=BrokerSettings(auto_create_topics=False, cluster_name="mine")) as cluster:
        assert str(int(ResponseCode.TOPIC_NOT_EXIST)) in asyncio.run(refused(cluster.brokers["broker-a"]))


def test_a_directory_keeps_messages_for_the_next_cluster(
    run: Run, tmp_path_factory: pytest.TempPathFactory
) -> None:
    async def scenario() -> None:
        for number, flush in enumerate(("sync", "async", "sync")):
            plan = Cluster(directory=directory, flush=flush)  # type: ignore[arg-type]
            async with plan as cluster, await Peer.open(cluster.brokers["broker-a"]) as broker:
                assert (await broker.send("orders", 0, b"x")).queue_offset == number

    directory = tmp_path_factory.mktemp("data")
    run(scenario)


def test_a_directory_serves_one_cluster_at_a_time(tmp_path: Path) -> None:
    with (
        Cluster(directory=tmp_path),
        pytest.raises(DiskLockedError, match="in use"),
        Cluster(directory=tmp_path),
    ):
        pass


# --- pausing


def test_a_paused_broker_answers_when_it_is_resumed(run: Run) -> None:
    async def scenario() -> None:
        async with Cluster(brokers=2) as cluster:
            old = await Peer.open(cluster.brokers["broker-a"])
            await old.send("orders", 0, b"before")
            held = asyncio.create_task(old.pull("orders", 0, 1, waits_ms=60_000))
            await turns(cluster.nameserver)
            cluster.pause("broker-a")
            assert "paused" in repr(cluster)
            new = await Peer.open(cluster.brokers["broker-a"])
            asked = [asyncio.create_task(peer.send("orders", 0, b"meanwhile")) for peer in (old, new)]
            await turns(cluster.nameserver)
            assert not any(task.done() for task in (held, *asked))
            assert old.connection.is_open
            assert new.connection.is_open
            async with await Peer.open(cluster.brokers["broker-b"]) as other:
                await other.send("orders", 0, b"the other one goes on")
            cluster.resume("broker-a")
            assert sorted([(await task).queue_offset for task in asked]) == [1, 2]
            assert [message.body for message in (await held).messages][:1] == [b"meanwhile"]
            old.connection.close()
            new.connection.close()

    run(scenario)


def test_pausing_and_resuming_twice_is_once(run: Run) -> None:
    async def scenario() -> None:
        async with Cluster() as cluster:
            for _ in range(2):
                cluster.pause("broker-a")
            for _ in range(2):
                cluster.resume("broker-a")
            cluster.resume("nameserver")
            async with await Peer.open(cluster.brokers["broker-a"]) as broker:
                await broker.send("orders", 0, b"x")

    run(scenario)


def test_a_paused_name_server_answers_when_it_is_resumed(run: Run) -> None:
    async def scenario() -> None:
        async with Cluster() as cluster, await Peer.open(cluster.nameserver) as names:
            cluster.pause("nameserver")
            asked = asyncio.create_task(names.ask(RequestCode.GET_BROKER_CLUSTER_INFO))
            async with await Peer.open(cluster.brokers["broker-a"]) as broker:
                await broker.send("orders", 0, b"x")
            assert not asked.done()
            cluster.resume("nameserver")
            assert (await asked).code == ResponseCode.SUCCESS

    run(scenario)


class Silent:
    """Takes every frame, remembers it and answers more than the system takes off our hands."""

    ANSWER = encode_frame(b"", bytes(32 << 20))

    def __init__(self) -> None:
        self.bodies: list[bytes] = []

    def on_frames(self, connection: Connection, frames: list[Frame]) -> int:
        self.bodies += [frame.body for frame in frames]
        connection.send(self.ANSWER)
        return len(frames)

    def on_closed(self, connection: Connection) -> None:
        pass


class StandingClock(SystemClock):
    now_ms = 1_000_000

    def monotonic_ms(self) -> int:
        return self.now_ms


def test_a_pause_is_not_held_against_peers(run: Run) -> None:
    async def scenario() -> None:
        clock = StandingClock()
        server = FrameServer(Silent(), clock=clock)
        await server.start()
        connection = await PeerConnection.open(server.address)
        await until(_eventually(lambda: bool(server.connections)))
        server.pause()
        clock.now_ms += 10_000_000
        server.sweep()
        server.resume()
        server.sweep()
        assert server.connections
        clock.now_ms += 10_000_000
        server.sweep()
        await until(_eventually(lambda: not server.connections))
        connection.close()
        await server.stop()

    run(scenario)


def test_a_peer_that_does_not_read_is_not_read_from_after_a_pause_either(run: Run) -> None:
    async def scenario() -> None:
        silent = Silent()
        server = FrameServer(silent, clock=SystemClock())
        await server.start()
        with await plain_socket(server.address) as slow, await plain_socket(server.address) as probe:
            loop = asyncio.get_running_loop()
            await loop.sock_sendall(slow, encode_frame(b"", b"first"))
            await until(_eventually(lambda: bool(silent.bodies)))
            server.pause()
            server.resume()
            await loop.sock_sendall(slow, encode_frame(b"", b"second"))
            await loop.sock_sendall(probe, encode_frame(b"", b"probe"))
            assert await loop.sock_recv(probe, 1)
            assert silent.bodies == [b"first", b"probe"]
            server.pause()
            left = len(Silent.ANSWER)
            while left:  # the last that it owes is written, but it is paused by now
                left -= len(await loop.sock_recv(slow, min(left, 1 << 20)))
            for _ in range(50):
                await asyncio.sleep(0)
            assert silent.bodies == [b"first", b"probe"]
            server.resume()
            await until(_eventually(lambda: silent.bodies == [b"first", b"probe", b"second"]))
            await server.stop(grace_s=0.01)

    run(scenario)


async def plain_socket(address: str) -> socket.socket:
    host, _, port = address.rpartition(":")
    plain = socket.socket()
    plain.setblocking(False)
    await asyncio.get_running_loop().sock_connect(plain, (host, int(port)))
    return plain


def test_a_server_listens_at_more_than_one_port(run: Run) -> None:
    async def scenario() -> None:
        async with Cluster(brokers=0) as cluster:
            taken = int(cluster.nameserver.rpartition(":")[2])
            server = FrameServer(Silent(), clock=SystemClock(), more_ports=(0,))
            await server.start()
            assert len(set(server.addresses)) == 2
            for address in server.addresses:
                (await PeerConnection.open(address)).close()
            await server.stop()
            clash = FrameServer(Silent(), clock=SystemClock(), more_ports=(taken,))
            with pytest.raises(OSError, match="in use"):
                await clash.start()
            assert clash.addresses == []

    run(scenario)


def _eventually(condition: Callable[[], bool]) -> Callable[[], Coroutine[Any, Any, bool]]:
    async def asked() -> bool:
        return condition()

    return asked


# --- killing and restarting


@pytest.mark.parametrize("in_directory", [False, True])
@pytest.mark.parametrize("flush", ["sync", "async"])
def test_a_killed_broker_is_gone_and_comes_back_with_what_it_acknowledged(
    run: Run, tmp_path_factory: pytest.TempPathFactory, in_directory: bool, flush: Any
) -> None:
    async def scenario() -> None:
        directory = tmp_path_factory.mktemp("data") if in_directory else None
        async with Cluster(brokers=2, directory=directory, flush=flush) as cluster:
            address = cluster.brokers["broker-a"]
            async with await Peer.open(address) as broker:
                for number in range(100):
                    await broker.send("orders", 0, b"%d" % number)
                waiting = asyncio.create_task(broker.pull("orders", 0, 100, waits_ms=60_000))
                await turns(cluster.nameserver)
                await cluster.kill("broker-a")
                with pytest.raises(ConnectionLostError):
                    await waiting
            with pytest.raises(ServerUnreachableError):
                await Peer.open(address)

            async def is_forgotten() -> bool:
                return list(await registered(cluster)) == ["broker-b"]

            await until(is_forgotten)
            assert cluster.brokers["broker-a"] == address
            await cluster.restart("broker-a")
            assert await registered(cluster) == cluster.brokers
            assert cluster.brokers["broker-a"] == address
            async with await Peer.open(address) as broker:
                found = await broker.read_all("orders", 0)
                assert [message.body for message in found] == [b"%d" % number for number in range(100)]
                assert (await broker.send("orders", 0, b"next")).queue_offset == 100

    run(scenario)


def test_a_kill_under_load_loses_nothing_acknowledged(
    run: Run, tmp_path_factory: pytest.TempPathFactory
) -> None:
    async def scenario() -> None:
        async with Cluster(directory=tmp_path_factory.mktemp("data")) as cluster:
            acked: dict[int, bytes] = {}

            async def produce(name: bytes) -> None:
                async with await Peer.open(cluster.brokers["broker-a"]) as broker:
                    for number in range(1_000_000):
                        body = b"%b-%d" % (name, number)
                        acked[(await broker.send("orders", 0, body)).queue_offset] = body

            producers = [asyncio.create_task(produce(name)) for name in (b"p", b"q", b"r")]
            await until(_eventually(lambda: len(acked) > 50))
            await cluster.kill("broker-a")
            assert all(
                isinstance(outcome, ConnectionLostError)
                for outcome in await asyncio.gather(*producers, return_exceptions=True)
            )
            await cluster.restart("broker-a")
            async with await Peer.open(cluster.brokers["broker-a"]) as broker:
                found = {message.queue_offset: message.body for message in await broker.read_all("orders", 0)}
            assert {offset: found.get(offset) for offset in acked} == acked

    run(scenario)


def test_a_restart_in_good_order_keeps_offsets(run: Run) -> None:
    async def scenario() -> None:
        async with Cluster() as cluster:
            async with await Peer.open(cluster.brokers["broker-a"]) as broker:
                await broker.send("orders", 0, b"x")
                commit = UpdateConsumerOffset(consumer_group="g", topic="orders", queue_id=0, commit_offset=1)
                await broker.ask(RequestCode.UPDATE_CONSUMER_OFFSET, commit)
            await cluster.restart("broker-a")
            async with await Peer.open(cluster.brokers["broker-a"]) as broker:
                asked = QueryConsumerOffset(consumer_group="g", topic="orders", queue_id=0)
                assert (await broker.ask(RequestCode.QUERY_CONSUMER_OFFSET, asked)).ext["offset"] == "1"

    run(scenario)


def test_a_restarted_name_server_knows_the_brokers(run: Run) -> None:
    async def scenario() -> None:
        async with Cluster(brokers=2) as cluster:
            address = cluster.nameserver
            await cluster.kill("nameserver")
            with pytest.raises(ServerUnreachableError):
                await Peer.open(address)
            await cluster.restart("nameserver")
            assert cluster.nameserver == address
            assert await registered(cluster) == cluster.brokers

    run(scenario)


def test_what_is_down_cannot_be_paused_or_killed_again(run: Run) -> None:
    async def scenario() -> None:
        async with Cluster() as cluster:
            await cluster.kill("broker-a")
            assert "down" in repr(cluster)
            with pytest.raises(ClusterError, match="broker-a is down"):
                cluster.pause("broker-a")
            with pytest.raises(ClusterError, match="broker-a is down"):
                await cluster.kill("broker-a")

    run(scenario)


def test_a_wrong_name_is_answered_with_the_right_ones() -> None:
    with Cluster(brokers=2) as cluster, pytest.raises(ClusterError, match="nameserver, broker-a, broker-b"):
        cluster.kill("broker-x")


def test_brokers_can_be_added(run: Run) -> None:
    async def scenario() -> None:
        async with Cluster(brokers=0) as cluster:
            assert cluster.brokers == {}
            assert await cluster.add_broker() == "broker-a"
            assert await cluster.add_broker("broker-c") == "broker-c"
            assert await cluster.add_broker() == "broker-b"
            assert await registered(cluster) == cluster.brokers
            with pytest.raises(ClusterError, match="there already"):
                await cluster.add_broker("broker-c")

    run(scenario)


def test_everything_can_be_done_from_another_thread(tmp_path: Path) -> None:
    with Cluster(directory=tmp_path) as cluster:
        assert cluster.add_broker() == "broker-b"
        cluster.pause("broker-b")
        cluster.resume("broker-b")
        cluster.kill("broker-b")
        cluster.restart("broker-b")
        stop = cluster.intercept(RequestCode.GET_BROKER_CLUSTER_INFO, lambda _: Command(code=77, opaque=0))

        async def code() -> int:
            async with await Peer.open(cluster.nameserver) as names:
                return (await names.ask(RequestCode.GET_BROKER_CLUSTER_INFO)).code

        assert asyncio.run(code()) == 77
        stop()
        assert asyncio.run(code()) == ResponseCode.SUCCESS


def test_a_broker_is_ended_and_started_by_one_at_a_time(run: Run) -> None:
    async def scenario() -> None:
        async with Cluster() as cluster:
            await asyncio.gather(*(cluster.restart("broker-a") for _ in range(3)))
            first, second = await asyncio.gather(
                cluster.kill("broker-a"), cluster.kill("broker-a"), return_exceptions=True
            )
            assert first is None
            assert isinstance(second, ClusterError)
            await asyncio.gather(cluster.restart("broker-a"), cluster.restart("broker-a"))
            assert await registered(cluster) == cluster.brokers

    run(scenario)


def test_brokers_that_are_added_at_once_have_names_of_their_own(run: Run) -> None:
    async def scenario() -> None:
        async with Cluster() as cluster:
            names = await asyncio.gather(*(cluster.add_broker() for _ in range(3)))
            assert sorted(names) == ["broker-b", "broker-c", "broker-d"]
            assert await registered(cluster) == cluster.brokers

    run(scenario)


def test_what_is_under_way_when_the_block_ends_leaves_nothing(run: Run) -> None:
    async def scenario() -> None:
        async with Cluster() as cluster:
            late = [
                asyncio.create_task(cluster.restart("broker-a")),
                asyncio.create_task(cluster.restart("broker-a")),
                asyncio.create_task(cluster.add_broker()),
                asyncio.create_task(cluster.add_broker()),
            ]
            await asyncio.sleep(0)
        outcomes = await asyncio.gather(*late, return_exceptions=True)
        assert all(isinstance(each, ClusterError) for each in (outcomes[1], outcomes[3]))

    run(scenario)


@pytest.mark.parametrize("name", ["", "../outside", "a b", "x" * 256])
def test_a_brokers_name_is_a_name(tmp_path: Path, name: str) -> None:
    with (
        Cluster(directory=tmp_path / "data") as cluster,
        pytest.raises(ClusterError, match="cannot be called"),
    ):
        cluster.add_broker(name)
    assert os.listdir(tmp_path) == ["data"]  # noqa: PTH208


def test_a_cluster_that_has_ended_does_nothing_more(run: Run) -> None:
    with Cluster() as blocking:
        pass
    with pytest.raises(ClusterError, match="has ended"):
        blocking.kill("broker-a")
    with pytest.raises(ClusterError, match="has ended"):
        blocking.pause("broker-a")

    async def scenario() -> None:
        async with Cluster() as cluster:
            pass
        for use in (cluster.kill("broker-a"), cluster.restart("broker-a"), cluster.add_broker()):
            with pytest.raises(ClusterError, match="has ended"):
                await use

    run(scenario)


def test_a_cluster_that_runs_is_not_entered_again(run: Run) -> None:
    plan = Cluster()
    with plan as cluster:
        with pytest.raises(ClusterError, match="runs already"), plan:
            pass
        asyncio.run(turns(cluster.nameserver, 1))

    async def scenario() -> None:
        async with plan as cluster:
            with pytest.raises(ClusterError, match="runs already"):
                async with plan:
                    pass
            await turns(cluster.nameserver, 1)

    run(scenario)


# --- interceptors


def test_an_interceptor_answers_drops_or_lets_pass(run: Run) -> None:
    async def scenario() -> None:
        async with Cluster(brokers=2) as cluster:
            seen: list[Command] = []

            def busy_once(command: Command) -> Command | None:
                seen.append(command)
                return (
                    Command(code=ResponseCode.SYSTEM_BUSY, opaque=0, remark="later")
                    if len(seen) == 1
                    else None
                )

            stop = cluster.intercept(RequestCode.GET_MAX_OFFSET, busy_once, server="broker-a")
            asked = (RequestCode.GET_MAX_OFFSET, GetMaxOffset(topic="orders", queue_id=0))
            async with (
                await Peer.open(cluster.brokers["broker-a"]) as a,
                await Peer.open(cluster.brokers["broker-b"]) as b,
            ):
                await a.send("orders", 0, b"x")
                await b.send("orders", 0, b"x")
                assert (await b.ask(*asked)).ext == {"offset": "1"}
                busy = await a.ask(*asked)
                assert (busy.code, busy.remark) == (ResponseCode.SYSTEM_BUSY, "later")
                assert (await a.ask(*asked)).ext == {"offset": "1"}
                assert [command.ext["topic"] for command in seen] == ["orders", "orders"]
                stop()
                stop()
                assert (await a.ask(*asked)).ext == {"offset": "1"}
                assert len(seen) == 2

                cluster.intercept(RequestCode.GET_MAX_OFFSET, lambda _: DROP)
                dropped = asyncio.create_task(a.ask(*asked))
                await a.send("orders", 0, b"y")
                assert not dropped.done()
                dropped.cancel()
                await asyncio.gather(dropped, return_exceptions=True)

    run(scenario)


class Noting:
    """An interceptor that remembers what it saw."""

    def __init__(self, answer: Command | None) -> None:
        self.seen: list[int] = []
        self._answer = answer

    def __call__(self, command: Command) -> Command | None:
        self.seen.append(command.opaque)
        return self._answer


def test_the_first_interceptor_with_an_answer_is_the_last_to_see_a_request(run: Run) -> None:
    async def scenario() -> None:
        async with Cluster() as cluster, await Peer.open(cluster.nameserver) as names:
            code = RequestCode.GET_BROKER_CLUSTER_INFO
            chain = [Noting(None), Noting(Command(code=5, opaque=0)), Noting(Command(code=6, opaque=0))]
            for interceptor in chain:
                cluster.intercept(code, interceptor)
            assert (await names.ask(code)).code == 5
            assert [len(interceptor.seen) for interceptor in chain] == [1, 1, 0]

    run(scenario)


def test_a_oneway_request_is_seen_and_not_answered(run: Run) -> None:
    async def scenario() -> None:
        async with Cluster() as cluster, await Peer.open(cluster.brokers["broker-a"]) as broker:
            noting = Noting(Command(code=0, opaque=0))
            cluster.intercept(RequestCode.GET_MAX_OFFSET, noting)
            ext = encode_ext(GetMaxOffset(topic="orders", queue_id=0))
            command = Command(code=RequestCode.GET_MAX_OFFSET, opaque=7, flag=ONEWAY_FLAG, ext=ext)
            answer = broker.connection.ask_soon(7, encode_command(command))
            await broker.send("orders", 0, b"x")
            assert noting.seen == [7]
            assert not answer.done()
            answer.cancel()

    run(scenario)


def test_an_interceptor_that_fails_fails_the_block(run: Run) -> None:
    def wrong(_: Command) -> None:
        raise KeyError("no such key")

    async def block() -> None:
        async with Cluster() as cluster, await Peer.open(cluster.nameserver) as names:
            cluster.intercept(RequestCode.GET_BROKER_CLUSTER_INFO, wrong)
            answer = await names.ask(RequestCode.GET_BROKER_CLUSTER_INFO)
            assert answer.code == ResponseCode.SYSTEM_ERROR
            assert "no such key" in (answer.remark or "")

    async def scenario() -> None:
        with pytest.raises(ClusterError, match="interceptor failed") as failure:
            await block()
        assert isinstance(failure.value.__cause__, KeyError)

    run(scenario)


async def answers_later(_: Command) -> None:
    """What an interceptor may not be."""


@pytest.mark.parametrize(
    ("interceptor", "gave"),
    [(answers_later, "coroutine.* plain function"), (lambda _: True, "bool"), (lambda _: "dropped", "str")],
    ids=["async def", "True", "a string"],
)
def test_an_interceptor_that_gives_back_what_is_no_answer_fails_the_block(
    run: Run, interceptor: Any, gave: str
) -> None:
    async def block() -> None:
        async with Cluster() as cluster, await Peer.open(cluster.nameserver) as names:
            cluster.intercept(RequestCode.GET_BROKER_CLUSTER_INFO, interceptor)
            answer = await names.ask(RequestCode.GET_BROKER_CLUSTER_INFO)
            assert answer.code == ResponseCode.SYSTEM_ERROR
            assert re.search(gave, answer.remark or "")

    async def scenario() -> None:
        with pytest.raises(ClusterError, match="interceptor failed") as failure:
            await block()
        assert isinstance(failure.value.__cause__, TypeError)

    run(scenario)


def test_an_interceptor_that_would_wait_for_its_own_thread_is_told() -> None:
    async def ask(address: str) -> str | None:
        async with await Peer.open(address) as names:
            return (await names.ask(RequestCode.GET_BROKER_CLUSTER_INFO)).remark

    def block() -> None:
        with Cluster() as cluster:

            def kill(_: Command) -> None:
                cluster.kill("broker-a")

            cluster.intercept(RequestCode.GET_BROKER_CLUSTER_INFO, kill)
            assert "wait for itself" in (asyncio.run(ask(cluster.nameserver)) or "")

    with pytest.raises(ClusterError, match="interceptor failed"):
        block()


def test_bytes_that_are_no_request_are_the_servers_business(run: Run) -> None:
    async def scenario() -> None:
        async with Cluster() as cluster:
            cluster.intercept(RequestCode.GET_BROKER_CLUSTER_INFO, lambda _: DROP)
            host, _, port = cluster.nameserver.rpartition(":")
            reader, writer = await asyncio.open_connection(host, int(port))
            writer.write(encode_frame(b"{"))
            assert await reader.read() == b""
            writer.close()

    run(scenario)


# --- embedded


def python(program: str, *options: str, **environment: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-W", "error", *options, "-c", program],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        env={**os.environ, **environment},
    )


def test_embedded_starts_one_cluster_that_ends_with_the_process() -> None:
    done = python(
        "import asyncio, trimtab\n"
        "from trimtab.io.connection import PeerConnection\n"
        "from trimtab.io.nameservers import resolve_nameserver\n"
        "address = resolve_nameserver('embedded:')\n"
        "assert address == resolve_nameserver(' embedded: ')\n"
        "async def main():\n"
        "    (await PeerConnection.open(address)).close()\n"
        "asyncio.run(main())\n"
        "print(address)"
    )
    assert (done.returncode, done.stderr) == (0, "")
    with pytest.raises(ServerUnreachableError):
        asyncio.run(Peer.open(done.stdout.strip()))


def test_a_forked_child_uses_its_parents_cluster_and_leaves_it_alone() -> None:
    done = python(
        "import asyncio, os, sys\n"
        "from trimtab.io.connection import PeerConnection\n"
        "from trimtab.testing import embedded_nameserver\n"
        "address = embedded_nameserver()\n"
        "async def main():\n"
        "    (await PeerConnection.open(address)).close()\n"
        "if os.fork() == 0:\n"
        "    assert embedded_nameserver() == address\n"
        "    os._exit(0)\n"  # as multiprocessing does; uvloop does not survive a child that takes everything down
        "assert os.wait()[1] == 0\n"
        "asyncio.run(main())\n",
        "-W",
        "ignore::DeprecationWarning",
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_the_package_loads_no_broker_until_one_is_wanted() -> None:
    done = python(
        "import sys, trimtab, trimtab.io.nameservers; print([m for m in sys.modules if 'broker' in m])"
    )
    assert (done.returncode, done.stdout.strip()) == (0, "[]")


@pytest.mark.parametrize(
    ("text", "meaning"),
    [
        ("127.0.0.1:9876", "127.0.0.1:9876"),
        (" a:1 ; b:2; ", "a:1;b:2"),
        ("[::1]:9876", "[::1]:9876"),
        ("embedded:9876", "embedded:9876"),
    ],
)
def test_an_address_stands_for_itself(text: str, meaning: str) -> None:
    assert resolve_nameserver(text) == meaning


@pytest.mark.parametrize(
    "text", ["", ";", "localhost", "host:", "host:0", "host:65536", ":9876", "a:1;b", "unknown:"]
)
def test_a_text_that_names_nothing_is_refused(text: str) -> None:
    with pytest.raises(NameserverTextError, match="embedded:"):
        resolve_nameserver(text)


# --- the fixture


def test_the_fixture_is_there_for_pytest(tmp_path: Path) -> None:
    (tmp_path / "test_user.py").write_text(
        "import pytest\n"
        "def test_one(rocketmq_cluster):\n"
        "    assert list(rocketmq_cluster.brokers) == ['broker-a']\n"
        "@pytest.mark.rocketmq_cluster(brokers=3)\n"
        "def test_three(rocketmq_cluster):\n"
        "    assert len(rocketmq_cluster.brokers) == 3\n"
    )
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "--strict-markers",
            "-W",
            "error",
            "-p",
            "trimtab.testing_pytest",
            tmp_path,
        ],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        cwd=tmp_path,
        env={**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
    )
    assert done.returncode == 0, done.stdout
    assert "2 passed" in done.stdout
