"""The name server and the serving machinery over real sockets on loopback, on asyncio's loop and on uvloop's."""

import asyncio
import contextlib
import gc
import shutil
import ssl
import subprocess
import sys
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from trimtab.io.clock import SystemClock
from trimtab.io.serving import Connection, FrameServer, ServingLimits
from trimtab.names.handlers import Names
from trimtab.names.kv import KvFileError
from trimtab.names.server import NameServer
from trimtab.wire.codes import RequestCode, ResponseCode
from trimtab.wire.commands import Command, decode_command, encode_command
from trimtab.wire.frames import Frame, FrameDecoder, encode_frame

Scenario = Callable[[], Coroutine[Any, Any, None]]
Run = Callable[[Scenario], None]


@pytest.fixture(params=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Run:
    """Runs a scenario in a fresh loop, and fails it on anything that the loop had to report or that is left over."""
    factory = None
    if request.param == "uvloop":
        factory = pytest.importorskip("uvloop").new_event_loop if sys.platform != "win32" else None

    def run_one(scenario: Scenario) -> None:
        complaints: list[dict[str, Any]] = []

        async def watched() -> None:
            asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))
            await asyncio.wait_for(scenario(), 30)
            assert asyncio.all_tasks() == {asyncio.current_task()}

        with asyncio.Runner(loop_factory=factory) as runner:
            runner.run(watched())
        gc.collect()
        assert complaints == []

    return run_one


class FakeClock(SystemClock):
    """Stands still until it is moved."""

    def __init__(self) -> None:
        super().__init__()
        self.now_ms = 1_000_000

    def monotonic_ms(self) -> int:
        return self.now_ms


class Echo:
    """Sends every body back."""

    def __init__(self) -> None:
        self.batches: list[int] = []
        self.closed: list[int] = []

    def on_frames(self, connection: Connection, frames: list[Frame]) -> int:
        self.batches.append(len(frames))
        for frame in frames:
            connection.send(encode_frame(b"", frame.body))
        return len(frames)

    def on_closed(self, connection: Connection) -> None:
        self.closed.append(connection.id)


class Client:
    """A peer with a plain socket."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self._decoder = FrameDecoder()

    @classmethod
    async def connect(cls, address: str, tls: ssl.SSLContext | None = None) -> "Client":
        host, _, port = address.rpartition(":")
        return cls(*await asyncio.open_connection(host, int(port), ssl=tls))

    async def frames(self, count: int) -> list[Frame]:
        found: list[Frame] = []
        while len(found) < count:
            data = await self.reader.read(1 << 16)
            assert data, f"closed after {len(found)} of {count} frames"
            found += self._decoder.feed(data)
        assert len(found) == count
        return found

    async def ask(self, code: int, **ext: str) -> Command:
        self.writer.write(encode_command(Command(code=code, opaque=1, ext=ext)))
        (frame,) = await self.frames(1)
        return decode_command(frame)

    async def frames_eventually(self, count: int) -> list[Frame]:
        found: list[Frame] = []
        while len(found) < count:
            data = await self.reader.read(1 << 20)
            assert data
            found += self._decoder.feed(data)
        return found

    async def is_closed_by_the_server(self) -> bool:
        try:
            return await self.reader.read() == b""
        except ConnectionError:
            return True

    async def close(self) -> None:
        self.writer.close()
        with contextlib.suppress(ConnectionError):
            await self.writer.wait_closed()


def body(data: bytes) -> bytes:
    return encode_frame(b"", data)


async def until(condition: Callable[[], bool]) -> None:
    while not condition():  # noqa: ASYNC110 - the far end of a socket sets no event here
        await asyncio.sleep(0.001)


async def serving(
    scenario: Callable[[FrameServer, Echo], Awaitable[None]], *, clock: FakeClock | None = None, **limits: int
) -> Echo:
    echo = Echo()
    server = FrameServer(echo, clock=clock or FakeClock(), limits=ServingLimits(**limits))
    await server.start()
    try:
        await scenario(server, echo)
    finally:
        await server.stop()
    assert server.connections == {}
    assert server.addresses == []
    return echo


# --- batches


def test_frames_of_one_read_are_one_batch_and_one_write(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    writes: list[int] = []

    async def scenario(server: FrameServer, echo: Echo) -> None:
        client = await Client.connect(server.address)
        flush = Connection.flush

        def counted(connection: Connection) -> None:
            if connection._out:
                writes.append(len(connection._out))
            flush(connection)

        monkeypatch.setattr(Connection, "flush", counted)
        client.writer.write(b"".join(body(b"%d" % number) for number in range(50)))
        frames = await client.frames(50)
        assert [frame.body for frame in frames] == [b"%d" % number for number in range(50)]
        await client.close()

    run(lambda: _ignored(serving(scenario)))
    assert sum(writes) == 50
    assert len(writes) <= 2  # the kernel may cut the stream, we do not


async def _ignored(awaitable: Awaitable[object]) -> None:
    await awaitable


def test_a_frame_may_come_in_pieces(run: Run) -> None:
    async def scenario(server: FrameServer, echo: Echo) -> None:
        client = await Client.connect(server.address)
        for byte in body(b"in pieces"):
            client.writer.write(bytes([byte]))
            await asyncio.sleep(0)
        (frame,) = await client.frames(1)
        assert frame.body == b"in pieces"
        await client.close()

    run(lambda: _ignored(serving(scenario)))


def test_what_is_sent_outside_a_batch_leaves_too(run: Run) -> None:
    async def scenario(server: FrameServer, echo: Echo) -> None:
        client = await Client.connect(server.address)
        client.writer.write(body(b"hello"))
        await client.frames(1)
        (connection,) = server.connections.values()
        for number in range(3):
            connection.send(body(b"%d" % number))
        assert [frame.body for frame in await client.frames(3)] == [b"0", b"1", b"2"]
        await client.close()

    run(lambda: _ignored(serving(scenario)))


def test_connections_have_numbers_of_their_own_and_close_once(run: Run) -> None:
    async def scenario(server: FrameServer, echo: Echo) -> None:
        clients = [await Client.connect(server.address) for _ in range(3)]
        for client in clients:
            client.writer.write(body(b""))
            await client.frames(1)
        numbers = sorted(server.connections)
        assert len(numbers) == 3
        assert {connection.host for connection in server.connections.values()} == {"127.0.0.1"}
        for client in clients:
            await client.close()
        await until(lambda: not server.connections)
        assert sorted(echo.closed) == numbers

    run(lambda: _ignored(serving(scenario)))


def test_a_connection_without_a_frame_never_reaches_the_application(run: Run) -> None:
    async def scenario(server: FrameServer, echo: Echo) -> None:
        client = await Client.connect(server.address)
        await until(lambda: bool(server.connections))
        await client.close()
        await until(lambda: not server.connections)
        assert (echo.batches, echo.closed) == ([], [])

    run(lambda: _ignored(serving(scenario)))


# --- limits


def test_a_peer_that_asks_nothing_is_cut_off(run: Run) -> None:
    clock = FakeClock()

    async def scenario(server: FrameServer, echo: Echo) -> None:
        client = await Client.connect(server.address)
        await until(lambda: bool(server.connections))
        clock.now_ms += 10_000
        server.sweep()
        assert server.connections
        clock.now_ms += 1
        server.sweep()
        assert await client.is_closed_by_the_server()
        await client.close()

    run(lambda: _ignored(serving(scenario, clock=clock)))


def test_a_frame_that_trickles_is_cut_off_and_others_are_not(run: Run) -> None:
    clock = FakeClock()

    async def scenario(server: FrameServer, echo: Echo) -> None:
        good, slow = await Client.connect(server.address), await Client.connect(server.address)
        for client in (good, slow):
            client.writer.write(body(b"x"))
            await client.frames(1)
        frame = body(b"slow" * 10)
        slow.writer.write(frame[:5])
        await until(lambda: any(each._frame_since_ms for each in server._protocols.values()))
        clock.now_ms += 29_000
        slow.writer.write(frame[5:9])
        good.writer.write(body(b"x"))
        await good.frames(1)
        await until(lambda: any(each._decoder.pending_bytes == 9 for each in server._protocols.values()))
        clock.now_ms += 1_001
        server.sweep()
        assert await slow.is_closed_by_the_server()
        good.writer.write(body(b"y"))
        await good.frames(1)
        await good.close()
        await slow.close()

    run(lambda: _ignored(serving(scenario, clock=clock)))


def test_an_idle_peer_is_cut_off_and_one_that_is_sent_something_is_not(run: Run) -> None:
    clock = FakeClock()

    async def scenario(server: FrameServer, echo: Echo) -> None:
        idle, served = await Client.connect(server.address), await Client.connect(server.address)
        for client in (idle, served):
            client.writer.write(body(b"x"))
            await client.frames(1)
        clock.now_ms += 100_000
        list(server.connections.values())[1].send(body(b"news"))
        await served.frames(1)
        clock.now_ms += 20_001
        server.sweep()
        assert await idle.is_closed_by_the_server()
        assert len(server.connections) == 1
        await idle.close()
        await served.close()

    run(lambda: _ignored(serving(scenario, clock=clock)))


def test_the_sweep_runs_by_itself(run: Run) -> None:
    clock = FakeClock()

    async def scenario(server: FrameServer, echo: Echo) -> None:
        client = await Client.connect(server.address)
        await until(lambda: bool(server.connections))
        clock.now_ms += 100
        assert await client.is_closed_by_the_server()
        await client.close()

    run(lambda: _ignored(serving(scenario, clock=clock, first_frame_ms_max=20)))


def test_connections_beyond_the_limit_are_refused(run: Run) -> None:
    async def scenario(server: FrameServer, echo: Echo) -> None:
        first = await Client.connect(server.address)
        first.writer.write(body(b"x"))
        await first.frames(1)
        second = await Client.connect(server.address)
        assert await second.is_closed_by_the_server()
        first.writer.write(body(b"x"))
        await first.frames(1)
        await second.close()
        await first.close()
        await until(lambda: not server.connections)
        third = await Client.connect(server.address)
        third.writer.write(body(b"x"))
        await third.frames(1)
        await third.close()

    run(lambda: _ignored(serving(scenario, connections_max=1)))
    run(lambda: _ignored(serving(scenario, connections_per_host_max=1)))


def test_a_peer_that_does_not_read_is_not_read_from(run: Run) -> None:
    async def scenario(server: FrameServer, echo: Echo) -> None:
        client = await Client.connect(server.address)
        client.reader._transport.pause_reading()  # type: ignore[attr-defined]
        client.reader._transport.set_write_buffer_limits(high=1 << 30)  # type: ignore[attr-defined]
        count, size = 2_000, 32 << 10
        for _ in range(count):
            client.writer.write(body(bytes(size)))
        previous = -1
        while sum(echo.batches) != previous:
            previous = sum(echo.batches)
            await asyncio.sleep(0.05)
        (connection,) = server.connections.values()
        unread = connection._transport.get_write_buffer_size()
        assert sum(echo.batches) < count
        assert unread < 4 << 20
        client.reader._transport.resume_reading()  # type: ignore[attr-defined]
        assert len(await client.frames_eventually(count)) == count
        await client.close()

    run(lambda: _ignored(serving(scenario)))


def test_a_peer_that_leaves_too_much_unread_is_cut_off(run: Run) -> None:
    async def scenario(server: FrameServer, echo: Echo) -> None:
        client = await Client.connect(server.address)
        client.writer.write(body(b"x"))
        await client.frames(1)
        client.reader._transport.pause_reading()  # type: ignore[attr-defined]
        (connection,) = server.connections.values()
        for _ in range(1_000):
            connection.send(body(bytes(64 << 10)))
            await asyncio.sleep(0)
            if connection.is_closing:
                break
        assert connection.is_closing
        await until(lambda: not server.connections)
        await client.close()

    run(lambda: _ignored(serving(scenario, unread_bytes_high=64 << 10, unread_bytes_max=1 << 20)))


def test_a_closing_peer_that_does_not_take_its_answers_is_cut_off(run: Run) -> None:
    clock = FakeClock()

    async def scenario(server: FrameServer, echo: Echo) -> None:
        client = await Client.connect(server.address)
        client.writer.write(body(b"x"))
        await client.frames(1)
        client.reader._transport.pause_reading()  # type: ignore[attr-defined]
        (connection,) = server.connections.values()
        connection.send(body(bytes(8 << 20)))
        connection.close()
        connection.send(body(b"too late"))
        await asyncio.sleep(0.01)
        assert server.connections
        clock.now_ms += 5_001
        server.sweep()
        await until(lambda: not server.connections)
        await client.close()

    run(lambda: _ignored(serving(scenario, clock=clock)))


@pytest.mark.parametrize(
    "garbage",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"\x00\x00\x00\x03abc",
        b"\xff\xff\xff\xff\x00\x00\x00\x00",
        b"\x00\x00\x00\x08\x00\xff\xff\xff1234",
    ],
)
def test_hostile_bytes_close_after_the_answers_before_them(run: Run, garbage: bytes) -> None:
    async def scenario(server: FrameServer, echo: Echo) -> None:
        client = await Client.connect(server.address)
        client.writer.write(body(b"first") + garbage)
        (frame,) = await client.frames(1)
        assert frame.body == b"first"
        assert await client.is_closed_by_the_server()
        await client.close()
        await until(lambda: not server.connections)
        assert len(echo.closed) == 1

    run(lambda: _ignored(serving(scenario)))


def test_limits_that_contradict_each_other_are_refused() -> None:
    with pytest.raises(ValueError, match="unread_bytes_high"):
        ServingLimits(unread_bytes_high=10, unread_bytes_max=5)


# --- stopping


def test_stop_gives_the_last_answers_and_leaves_nothing(run: Run) -> None:
    async def scenario() -> None:
        echo = Echo()
        server = FrameServer(echo, clock=FakeClock())
        await server.start()
        clients = [await Client.connect(server.address) for _ in range(5)]
        for client in clients:
            client.writer.write(body(b"x"))
        await until(lambda: sum(echo.batches) == 5)
        for connection in server.connections.values():
            connection.send(body(b"farewell"))
        await server.stop()
        for client in clients:
            assert [frame.body for frame in await client.frames(2)] == [b"x", b"farewell"]
            assert await client.is_closed_by_the_server()
            await client.close()
        assert len(echo.closed) == 5
        await server.stop()

    run(scenario)


def test_stop_does_not_wait_for_a_peer_that_does_not_read(run: Run) -> None:
    async def scenario() -> None:
        server = FrameServer(Echo(), clock=FakeClock())
        await server.start()
        client = await Client.connect(server.address)
        client.writer.write(body(b"x"))
        await client.frames(1)
        client.reader._transport.pause_reading()  # type: ignore[attr-defined]
        (connection,) = server.connections.values()
        connection.send(body(bytes(8 << 20)))
        await server.stop(grace_s=0.05)
        assert server.connections == {}
        await client.close()

    run(scenario)


def test_a_server_can_be_started_again(run: Run) -> None:
    async def scenario() -> None:
        server = FrameServer(Echo(), clock=FakeClock())
        for _ in range(2):
            await server.start()
            client = await Client.connect(server.address)
            client.writer.write(body(b"x"))
            await client.frames(1)
            await client.close()
            await server.stop()

    run(scenario)


# --- TLS


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if shutil.which("openssl") is None:
        pytest.skip("openssl makes the certificate for this test and is not installed")
    file = tmp_path_factory.mktemp("tls") / "server.pem"
    command = [
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:prime256v1",
        "-nodes",
    ]
    command += ["-keyout", str(file), "-out", f"{file}.crt", "-days", "2", "-subj", "/CN=localhost"]
    subprocess.run(command, check=True, capture_output=True)
    file.write_text(file.read_text() + Path(f"{file}.crt").read_text())
    return file


def test_frames_travel_in_tls(run: Run, certificate: Path) -> None:
    async def scenario() -> None:
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        tls.load_cert_chain(certificate)
        async with NameServer(clock=FakeClock(), tls=tls) as server:
            trust = ssl.create_default_context(cafile=f"{certificate}.crt")
            trust.check_hostname = False
            client = await Client.connect(server.address, tls=trust)
            assert (await client.ask(RequestCode.GET_BROKER_CLUSTER_INFO)).code == ResponseCode.SUCCESS
            (connection,) = server.connections.values()
            assert connection.is_secure
            await client.close()

    run(scenario)


# --- the name server


def register(connection_fields: dict[str, str] | None = None) -> dict[str, str]:
    fields = {"brokerName": "a", "brokerAddr": "a:1", "clusterName": "C", "haServerAddr": "", "brokerId": "0"}
    return {**fields, **(connection_fields or {})}


def test_requests_of_one_read_are_answered_in_order(run: Run) -> None:
    async def scenario() -> None:
        async with NameServer(clock=FakeClock()) as server:
            client = await Client.connect(server.address)
            requests = [Command(code=105, opaque=opaque, ext={"topic": "T"}) for opaque in range(100)]
            client.writer.write(b"".join(map(encode_command, requests)))
            replies = [decode_command(frame) for frame in await client.frames(100)]
            assert [reply.opaque for reply in replies] == list(range(100))
            await client.close()

    run(scenario)


def test_a_greedy_peer_gets_no_more_answers_than_it_reads(run: Run) -> None:
    answered = []

    async def scenario() -> None:
        names = Names()
        names.kv.put("n", "k", "x" * (16 << 10))
        answer = names.handle

        def counted(command: Command, connection: int, now_ms: int) -> Command | None:
            answered.append(command.opaque)
            return answer(command, connection, now_ms)

        names.handle = counted  # type: ignore[method-assign]
        limits = ServingLimits(unread_bytes_high=1 << 10, unread_bytes_max=1 << 10)
        async with NameServer(clock=FakeClock(), names=names, limits=limits) as server:
            client = await Client.connect(server.address)
            client.reader._transport.pause_reading()  # type: ignore[attr-defined]
            request = encode_command(Command(code=219, opaque=1, ext={"namespace": "n"}))
            client.writer.write(request * 20_000)
            await until(lambda: bool(answered))
            await asyncio.sleep(0.1)
            assert len(answered) < 20_000
            assert server.connections, "it may take its time"
            client.writer.transport.abort()
            await until(lambda: not server.connections)

    run(scenario)


def test_a_broker_goes_with_its_connection(run: Run) -> None:
    async def scenario() -> None:
        async with NameServer(clock=FakeClock()) as server:
            broker, client = await Client.connect(server.address), await Client.connect(server.address)
            await broker.ask(RequestCode.REGISTER_BROKER, **register())
            assert b'"a:1"' in (await client.ask(RequestCode.GET_BROKER_CLUSTER_INFO)).body
            await broker.close()
            await until(lambda: len(server.connections) == 1)
            assert b'"a:1"' not in (await client.ask(RequestCode.GET_BROKER_CLUSTER_INFO)).body
            await client.close()

    run(scenario)


def test_a_silent_broker_is_let_go_and_its_connection_closed(run: Run) -> None:
    clock = FakeClock()

    async def scenario() -> None:
        async with NameServer(clock=clock) as server:
            broker = await Client.connect(server.address)
            await broker.ask(RequestCode.REGISTER_BROKER, **register({"heartbeatTimeoutMillis": "1000"}))
            clock.now_ms += 1_001
            server.scan()
            assert await broker.is_closed_by_the_server()
            assert "brokers=0" in repr(server)
            await broker.close()

    run(scenario)


def test_a_header_that_is_no_header_closes_the_connection(run: Run) -> None:
    async def scenario() -> None:
        async with NameServer(clock=FakeClock()) as server:
            for header, serializer in ((b"{", 0), (b"[]", 0), (b"\x00" * 5, 1), (b"{}", 9)):
                client = await Client.connect(server.address)
                client.writer.write(encode_frame(header, serializer=serializer))
                assert await client.is_closed_by_the_server()
                await client.close()

    run(scenario)


def test_settings_survive_a_restart(run: Run, tmp_path: Path) -> None:
    async def scenario() -> None:
        path = tmp_path / "kvConfig.json"
        path.unlink(missing_ok=True)
        async with NameServer(clock=FakeClock(), kv_path=path) as server:
            client = await Client.connect(server.address)
            await client.ask(RequestCode.PUT_KV_CONFIG, namespace="n", key="k", value="v")
            assert path.read_bytes() == b'{"configTable":{"n":{"k":"v"}}}'
            await client.close()
        async with NameServer(clock=FakeClock(), kv_path=path) as server:
            client = await Client.connect(server.address)
            assert (await client.ask(RequestCode.GET_KV_CONFIG, namespace="n", key="k")).ext == {"value": "v"}
            await client.ask(RequestCode.DELETE_KV_CONFIG, namespace="n", key="k")
            await client.close()
        assert path.read_bytes() == b'{"configTable":{"n":{}}}'

    run(scenario)
    assert [file.name for file in tmp_path.iterdir()] == ["kvConfig.json"]


def test_a_setting_that_cannot_be_saved_is_answered_with_an_error(run: Run, tmp_path: Path) -> None:
    async def scenario() -> None:
        folder = tmp_path / "settings"
        async with NameServer(clock=FakeClock(), kv_path=folder / "kvConfig.json") as server:
            shutil.rmtree(folder)
            folder.write_text("now a file")
            client = await Client.connect(server.address)
            reply = await client.ask(RequestCode.PUT_KV_CONFIG, namespace="n", key="k", value="v")
            assert reply.code == ResponseCode.SYSTEM_ERROR
            assert "not saved" in (reply.remark or "")
            await client.close()
        folder.unlink()

    run(scenario)


def test_a_broken_settings_file_stops_the_start(run: Run, tmp_path: Path) -> None:
    async def scenario() -> None:
        path = tmp_path / "kvConfig.json"
        path.write_text("{broken")
        with pytest.raises(KvFileError):
            await NameServer(clock=FakeClock(), kv_path=path).start()

    run(scenario)
