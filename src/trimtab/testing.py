"""A real name server and real brokers in this process, for tests.

    with Cluster(brokers=2) as cluster:         # has a thread of its own: every method comes back when it is done
        cluster.kill("broker-a")

    async with Cluster(brokers=2) as cluster:   # runs in your loop: what takes time is awaited
        await cluster.kill("broker-a")

They are the servers that `trimtab up` runs, at sockets on loopback, so that clients in any language can be tested with them. A
server is called by its name: `broker-a`, `broker-b` and so on, or `nameserver`. Nothing is left when the block ends: no task, no
thread, no port and, without a `directory`, no file.
"""

import asyncio
import atexit
import enum
import inspect
import os
import socket
import ssl
import threading
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, Generic, Literal, TypeVar

import msgspec

from trimtab.broker.acl import Acl
from trimtab.broker.names import BROKER_NAME_LENGTH_MAX
from trimtab.broker.server import BrokerPlan, BrokerServer
from trimtab.broker.settings import BrokerSettings
from trimtab.broker.store import StoreSettings
from trimtab.errors import ProtocolError, TrimtabError
from trimtab.io.clock import SystemClock
from trimtab.io.disk import MemoryDisk, RealDisk
from trimtab.io.loops import loop_in_a_thread
from trimtab.io.serving import Connection
from trimtab.io.tls import own_client_context, server_context
from trimtab.names.server import NameServer
from trimtab.wire.codes import RESPONSE_FLAG, ResponseCode
from trimtab.wire.commands import Command, decode_command, encode_command
from trimtab.wire.frames import Frame
from trimtab.wire.resources import NAME

NAMESERVER: Final = "nameserver"
BROKERS_MAX: Final = 26

_HOST = "127.0.0.1"

T = TypeVar("T")
S = TypeVar("S", "_Broker", "_Names")
Flush = Literal["sync", "async"]


class ClusterError(TrimtabError):
    """The cluster was asked for something that it cannot do, or an interceptor failed."""


class Drop(enum.Enum):
    """What an interceptor gives back when nobody shall answer."""

    DROP = "drop"


DROP: Final = Drop.DROP

Interceptor = Callable[[Command], Command | Drop | None]
"""Gets a request; gives the answer, or `DROP` for none at all, or None to let the server answer."""


class Cluster:
    """What a cluster shall be. `with` and `async with` make one: see the module's own words."""

    def __init__(
        self,
        brokers: int = 1,
        *,
        directory: str | Path | None = None,
        flush: Flush = "sync",
        settings: BrokerSettings | None = None,
        store: StoreSettings | None = None,
        tls: tuple[str | Path, str | Path] | None = None,
        acl: str | Path | None = None,
    ) -> None:
        """Everything is in memory, unless a `directory` is named; what is there already is found again.

        `store` says how much brokers keep and for how long; how they flush is said by `flush` alone.
        `tls` is a certificate and its key, PEM files both: then all servers speak TLS and nothing else. `acl` is a file of accounts
        and permissions like Apache's plain_acl.yml, with one admin account at least: then all requests must be signed.
        """
        if not 0 <= brokers <= BROKERS_MAX:
            raise ClusterError(f"a cluster of {brokers} brokers cannot be made; say 0 to {BROKERS_MAX}")
        self.broker_count = brokers
        self.directory = None if directory is None else Path(directory)
        self.flush = flush
        self.settings = settings or BrokerSettings()
        self.store = store or StoreSettings()
        self.tls = None if tls is None else (Path(tls[0]), Path(tls[1]))
        self.acl = None if acl is None else Path(acl)
        self._running: AsyncCluster | None = None
        self._thread: _LoopThread | None = None

    async def __aenter__(self) -> "AsyncCluster":
        self._refuse_second_run()
        self._running = running = AsyncCluster(self)
        try:
            await running.start()
        except BaseException:
            self._running = None
            raise
        return running

    async def __aexit__(self, failure: type[BaseException] | None, *_: object) -> None:
        running, self._running = self._running, None
        assert running is not None, "it was entered"
        await running.stop()
        if failure is None:
            running.complain()

    def __enter__(self) -> "BlockingCluster":
        self._refuse_second_run()
        self._thread = _LoopThread()
        try:
            running = self._thread.run(self.__aenter__())
        except BaseException:
            self._thread.close()
            raise
        return BlockingCluster(running, self._thread)

    def __exit__(self, failure: type[BaseException] | None, *_: object) -> None:
        assert self._thread is not None, "it was entered"
        try:
            self._thread.run(self.__aexit__(failure))
        finally:
            self._thread.close()

    def _refuse_second_run(self) -> None:
        if self._running is not None:
            raise ClusterError("this cluster runs already; write Cluster(...) once more for a second one")


@dataclass(slots=True, repr=False)
class _Node(Generic[S]):
    """One server and how to make it anew, at a port."""

    make: Callable[[int], S]
    server: S
    address: str = ""
    is_paused: bool = False
    held_port: socket.socket | None = None
    """While it is down: who connects is refused, and nobody else gets the port."""
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Of those who end and start it: one after the other, or a server is lost that still runs."""

    def __repr__(self) -> str:
        return f"{self.address}{' down' if self.is_down else ' paused' if self.is_paused else ''}"

    @property
    def is_down(self) -> bool:
        return self.held_port is not None

    async def start(self) -> None:
        await self.server.start()
        self.address = self.server.address
        self._release_port()

    def pause(self) -> None:
        if not self.is_paused:
            self.is_paused = True
            self.server.pause()

    def resume(self) -> None:
        if self.is_paused:
            self.is_paused = False
            self.server.resume()

    async def stop(self) -> None:
        self.resume()
        if not self.is_down:
            await self.server.stop()
        self._release_port()

    async def kill(self) -> None:
        self.is_paused = False
        await self.server.kill()
        self.hold_port()

    def hold_port(self) -> None:
        self._release_port()
        held = socket.socket()
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.bind((_HOST, self._port))
        self.held_port = held

    async def restart(self) -> None:
        if not self.is_down:
            await self.stop()
            self.hold_port()
        self.server = self.make(self._port)
        await self.start()

    @property
    def _port(self) -> int:
        return int(self.address.rpartition(":")[2])

    def _release_port(self) -> None:
        if self.held_port is not None:
            self.held_port.close()
            self.held_port = None


def _load_acl(file: Path) -> Acl:
    from trimtab.broker.acl_file import load_acl  # noqa: PLC0415 - not before: reading YAML takes long to load

    acl = load_acl(file)
    acl.require_admin()
    return acl


_AnyNode = _Node["_Broker"] | _Node["_Names"]


async def _stop(node: _AnyNode) -> None:
    async with node.turn:
        await node.stop()


def _node_of(make: Callable[[int], S]) -> _Node[S]:
    return _Node(make, make(0))


class AsyncCluster:
    """A running cluster, to be used from its own loop."""

    def __init__(self, cluster: Cluster) -> None:
        self._wanted = cluster
        self._tls = None if cluster.tls is None else server_context(*cluster.tls)
        self._acl = None if cluster.acl is None else _load_acl(cluster.acl)
        self._interceptions = _Interceptions()
        self._nameserver = _node_of(self._new_nameserver)
        self._brokers: dict[str, _Node[_Broker]] = {}
        self._adding = asyncio.Lock()
        self._has_ended = False

    def __repr__(self) -> str:
        brokers = [f"{name} {node!r}" for name, node in self._brokers.items()]
        return f"<Cluster nameserver {self._nameserver!r}, {', '.join(brokers) or 'no broker'}>"

    @property
    def nameserver(self) -> str:
        """The name server's address, as clients want it."""
        return self._nameserver.address

    @property
    def brokers(self) -> dict[str, str]:
        """The brokers' addresses by their names, also of those that are down."""
        return {name: node.address for name, node in self._brokers.items()}

    def pause(self, server: str) -> None:
        """The server neither reads nor answers until `resume`; connections stay, and new ones are taken and not served."""
        self._up(server).pause()

    def resume(self, server: str) -> None:
        """A paused server goes on; what it was asked meanwhile is answered now."""
        self._up(server).resume()

    async def kill(self, server: str) -> None:
        """Ends a server as `kill -9` does: connections break, nobody is told. What it had written is there after `restart`."""
        async with self._node(server).turn:
            await self._up(server).kill()

    async def restart(self, server: str) -> None:
        """Starts a server again at its port and with its store; one that runs is stopped first, in good order."""
        async with self._node(server).turn:
            await self._node(server).restart()
        if server == NAMESERVER:
            brokers = [node.server for node in self._brokers.values() if not node.is_down]
            await asyncio.gather(*(broker.register() for broker in brokers))

    async def add_broker(self, name: str | None = None) -> str:
        """One more broker, registered when this comes back; gives its name."""
        async with self._adding:
            self._refuse_if_ended()
            name = self._free_name() if name is None else name
            if name in (NAMESERVER, *self._brokers):
                raise ClusterError(f"{name} is there already; restart() starts it again")
            if not NAME.fullmatch(name) or len(name) > BROKER_NAME_LENGTH_MAX:
                raise ClusterError(
                    f"a broker cannot be called {name[:40]!r}: letters, digits and % | _ - make a name, at most"
                    f" {BROKER_NAME_LENGTH_MAX} of them"
                )
            plan = self._plan(name)
            node = _node_of(lambda port: _Broker(replace(plan, port=port), self._interceptions))
            await node.start()
            self._brokers[name] = node
            return name

    def intercept(self, code: int, answer: Interceptor, *, server: str | None = None) -> Callable[[], None]:
        """Every request of this code, to one server or to all, is put to `answer` first; call what you get to end that.

        Several see a request in the order in which they came, until one has an answer. They run in the cluster's loop.
        """
        if server is not None:
            self._node(server)
        return self._interceptions.add(_Interception(code, answer, server))

    async def start(self) -> None:
        """`async with` calls it."""
        try:
            await self._nameserver.start()
            for _ in range(self._wanted.broker_count):
                await self.add_broker()
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        """`async with` calls it."""
        self._has_ended = True
        async with self._adding:
            nodes: list[_AnyNode] = [self._nameserver, *self._brokers.values()]
            for node in nodes:
                node.resume()  # nobody who says goodbye to it should have to wait
            outcomes = await asyncio.gather(*map(_stop, self._brokers.values()), return_exceptions=True)
            await _stop(self._nameserver)
        for outcome in outcomes:
            if isinstance(outcome, BaseException):
                raise outcome

    def complain(self) -> None:
        """Raises what interceptors did wrong, so that no test passes by accident."""
        if self._interceptions.failure is not None:
            raise ClusterError("an interceptor failed") from self._interceptions.failure

    def _new_nameserver(self, port: int) -> "_Names":
        directory = self._wanted.directory
        kv_path = None if directory is None else directory / NAMESERVER / "kvConfig.json"
        return _Names(self._interceptions, port, kv_path, self._tls, self._acl)

    def _plan(self, name: str) -> BrokerPlan:
        wanted = self._wanted
        return BrokerPlan(
            settings=replace(wanted.settings, broker_name=name),
            store=replace(wanted.store, flush=wanted.flush),
            disk=MemoryDisk() if wanted.directory is None else RealDisk(wanted.directory / name),
            nameservers=(self.nameserver,),
            host=_HOST,
            tls=self._tls,
            nameserver_tls=None if wanted.tls is None else own_client_context(wanted.tls[0]),
            acl=self._acl,
        )

    def _free_name(self) -> str:
        for number in range(BROKERS_MAX):
            name = f"broker-{chr(ord('a') + number)}"
            if name not in self._brokers:
                return name
        raise ClusterError(f"{BROKERS_MAX} brokers are there already; say a name for one more")

    def _refuse_if_ended(self) -> None:
        if self._has_ended:
            raise ClusterError("the cluster has ended with its block")

    def _node(self, name: str) -> "_AnyNode":
        self._refuse_if_ended()
        if name == NAMESERVER:
            return self._nameserver
        node = self._brokers.get(name)
        if node is None:
            raise ClusterError(
                f"there is no {name!r} here; there are {', '.join((NAMESERVER, *self._brokers))}"
            )
        return node

    def _up(self, name: str) -> "_AnyNode":
        node = self._node(name)
        if node.is_down:
            raise ClusterError(f"{name} is down; restart() starts it again")
        return node


class BlockingCluster:
    """A running cluster, to be used from any thread but its own."""

    def __init__(self, cluster: AsyncCluster, thread: "_LoopThread") -> None:
        self._cluster = cluster
        self._thread = thread

    def __repr__(self) -> str:
        return repr(self._cluster)

    @property
    def nameserver(self) -> str:
        """See `AsyncCluster`, here and below."""
        return self._cluster.nameserver

    @property
    def brokers(self) -> dict[str, str]:
        return self._cluster.brokers

    def pause(self, server: str) -> None:
        self._thread.call(lambda: self._cluster.pause(server))

    def resume(self, server: str) -> None:
        self._thread.call(lambda: self._cluster.resume(server))

    def kill(self, server: str) -> None:
        self._thread.run(self._cluster.kill(server))

    def restart(self, server: str) -> None:
        self._thread.run(self._cluster.restart(server))

    def add_broker(self, name: str | None = None) -> str:
        return self._thread.run(self._cluster.add_broker(name))

    def intercept(self, code: int, answer: Interceptor, *, server: str | None = None) -> Callable[[], None]:
        stop = self._thread.call(lambda: self._cluster.intercept(code, answer, server=server))
        return lambda: self._thread.call(stop)


class _LoopThread:
    """A thread with an event loop in it."""

    def __init__(self) -> None:
        self._thread, self._loop = loop_in_a_thread("trimtab-cluster")

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        if threading.current_thread() is self._thread:
            coroutine.close()
            raise ClusterError("this would wait for itself: do it outside of the interceptor")
        if not self._thread.is_alive():
            coroutine.close()
            raise ClusterError("the cluster has ended with its block")
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result()

    def call(self, function: Callable[[], T]) -> T:
        async def called() -> T:
            return function()

        return self.run(called())

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()


# --- interceptors ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class _Interception:
    code: int
    answer: Interceptor
    server: str | None


_OnFrames = Callable[[Connection, list[Frame]], int]


class _Interceptions:
    """Who looks at requests before the servers do."""

    def __init__(self) -> None:
        self._all: list[_Interception] = []
        self.failure: Exception | None = None

    def add(self, interception: _Interception) -> Callable[[], None]:
        self._all.append(interception)

        def remove() -> None:
            if interception in self._all:
                self._all.remove(interception)

        return remove

    def pass_on(self, server: str, connection: Connection, frames: list[Frame], to: _OnFrames) -> int:
        """Gives the server the frames that are its own to answer; how many of all were handled."""
        if not self._all:
            return to(connection, frames)
        # One after the other: whoever looks at a request looks at it once, also when the rest must wait.
        for handled, frame in enumerate(frames, start=1):
            if not self._takes(server, connection, frame):
                to(connection, [frame])
            if connection.is_closing or connection.is_choked:
                return handled
        return len(frames)

    def _takes(self, server: str, connection: Connection, frame: Frame) -> bool:
        try:
            command = decode_command(frame)
        except ProtocolError:
            return False  # the server has an answer to that
        if command.is_response:
            return False
        answer = self._answer(server, command)
        if isinstance(answer, Command) and not command.is_oneway:
            matched = msgspec.structs.replace(answer, opaque=command.opaque, flag=RESPONSE_FLAG)
            connection.send(encode_command(matched))
        return answer is not None

    def _answer(self, server: str, command: Command) -> Command | Drop | None:
        for interception in tuple(self._all):
            if interception.code != command.code or interception.server not in (None, server):
                continue
            try:
                answer = _checked_answer(interception.answer(command))
            except Exception as failure:  # noqa: BLE001 - it is the test's own code; the end of the block raises it
                self.failure = self.failure or failure
                remark = f"the interceptor of request {command.code} failed: {failure!r}"
                return Command(code=ResponseCode.SYSTEM_ERROR, opaque=command.opaque, remark=remark)
            if answer is not None:
                return answer
        return None


def _checked_answer(answer: object) -> Command | Drop | None:
    if answer is None or isinstance(answer, Command | Drop):
        return answer
    hint = ""
    if inspect.iscoroutine(answer):
        answer.close()
        hint = "; it is called within the server's loop and must be a plain function"
    raise TypeError(
        f"an interceptor gives back a Command, DROP or None, this one gave a {type(answer).__name__}{hint}"
    )


class _Broker(BrokerServer):
    def __init__(self, plan: BrokerPlan, interceptions: _Interceptions) -> None:
        super().__init__(plan)
        self._interceptions = interceptions

    def on_frames(self, connection: Connection, frames: list[Frame]) -> int:
        name = self.plan.settings.broker_name
        return self._interceptions.pass_on(name, connection, frames, super().on_frames)


class _Names(NameServer):
    def __init__(
        self,
        interceptions: _Interceptions,
        port: int,
        kv_path: Path | None,
        tls: ssl.SSLContext | None,
        acl: Acl | None,
    ) -> None:
        super().__init__(clock=SystemClock(), host=_HOST, port=port, kv_path=kv_path, tls=tls, guard=acl)
        self._interceptions = interceptions

    def on_frames(self, connection: Connection, frames: list[Frame]) -> int:
        return self._interceptions.pass_on(NAMESERVER, connection, frames, super().on_frames)


# --- one for the whole process --------------------------------------------------------------------------------------


class _Embedded:
    """The cluster behind `NAMESRV_ADDR=embedded:`."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: BlockingCluster | None = None

    def nameserver(self) -> str:
        with self._lock:
            if self._running is None:
                cluster = Cluster()
                self._running = cluster.__enter__()
                atexit.register(self._stop, cluster, os.getpid())
            return self._running.nameserver

    def _stop(self, cluster: Cluster, pid: int) -> None:
        if os.getpid() == pid:  # a child has the address, the parent has the cluster
            cluster.__exit__(None, None, None)


_embedded = _Embedded()


def embedded_nameserver() -> str:
    """The name server of a cluster of one broker, in memory, that lives as long as this process; the first call starts it."""
    return _embedded.nameserver()
