"""The broker's shell: sockets, timers, the sync thread and the name servers around one core."""

import asyncio
import logging
import ssl
from dataclasses import dataclass, field

from trimtab.broker import handlers as _handlers  # noqa: F401 - declares every handler
from trimtab.broker.acl import Acl
from trimtab.broker.core import BrokerCore
from trimtab.broker.delays import DelayLevels
from trimtab.broker.placing import tags_code_of
from trimtab.broker.registration import Registrar
from trimtab.broker.requests import Peer
from trimtab.broker.settings import BrokerSettings
from trimtab.broker.store import InlineExecutor, Store, StoreSettings, ThreadExecutor
from trimtab.io.chance import Chance, seeded_chance
from trimtab.io.clock import Clock, SystemClock
from trimtab.io.disk import Disk, MemoryDisk
from trimtab.io.serving import Connection, FrameServer, ServingLimits
from trimtab.model import Now
from trimtab.wire.frames import Frame
from trimtab.wire.headers.names import RegisterBroker
from trimtab.wire.hosts import host_bytes
from trimtab.wire.messages import StoredMessage
from trimtab.wire.signing import Credentials

_log = logging.getLogger(__name__)

TICK_S = 0.1
DRAIN_S_MAX = 10.0
"""For a disk to take what was taken from clients, when the broker stops."""
VIP_DISTANCE = 2
HA_DISTANCE = 1


def _do_nothing() -> None:
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerPlan:
    """Everything that a broker is made of."""

    settings: BrokerSettings = field(default_factory=BrokerSettings)
    store: StoreSettings = field(default_factory=StoreSettings)
    disk: Disk = field(default_factory=MemoryDisk)
    nameservers: tuple[str, ...] = ()
    host: str = "127.0.0.1"
    port: int = 0
    has_vip_port: bool = False
    """Old clients send to the port two below."""
    limits: ServingLimits = field(default_factory=ServingLimits)
    tls: ssl.SSLContext | None = None
    nameserver_tls: ssl.SSLContext | None = None
    """How the name servers are reached: a context for connecting, where `tls` is one for listening."""
    acl: Acl | None = None
    credentials: Credentials | None = None
    """What the broker signs its registration with; left out, an admin account of `acl`."""
    register_every_s: float = 30.0


class BrokerServer:
    """One broker, running."""

    def __init__(self, plan: BrokerPlan, *, clock: Clock | None = None, chance: Chance | None = None) -> None:
        self.plan = plan
        self._clock = clock or SystemClock()
        self._chance = chance or seeded_chance()
        self._server = FrameServer(
            self,
            clock=self._clock,
            host=plan.host,
            port=plan.port,
            more_ports=(plan.port - VIP_DISTANCE,) if plan.has_vip_port else (),
            limits=plan.limits,
            tls=plan.tls,
        )
        self._core: BrokerCore | None = None
        self._registrar: Registrar | None = None
        self._ticker: asyncio.TimerHandle | None = None
        self._has_sent = False
        """Since the last time somebody wanted to know: only sending ends a connection in the midst of its frames."""

    def __repr__(self) -> str:
        return f"<BrokerServer {self.plan.settings.broker_name} {self._server!r}>"

    @property
    def core(self) -> BrokerCore:
        """The broker itself."""
        assert self._core is not None, "the broker is not started"
        return self._core

    @property
    def address(self) -> str:
        """Where clients find it."""
        return self.core.address

    async def start(self) -> None:
        """Opens the store, listens, registers."""
        loop = asyncio.get_running_loop()
        store = self._open_store(loop)
        try:
            await self._server.bind()
            port = self._server.address.rpartition(":")[2]
            address = f"{self.plan.settings.advertised_host}:{port}"
            self._core = BrokerCore(
                self.plan.settings, store, self._chance, address, self._now(), acl=self.plan.acl
            )
            for note in self._core.states.notes:
                _log.warning("%s: %s", self.plan.settings.broker_name, note)
            self._core.writes.when_settled = self._settle
            self._core.when_outbox_full = self._send_outbox
            await self._server.start()
        except BaseException:
            self._core = None
            await self._server.kill()
            store.close()
            raise
        self._tick(loop)
        await self._register()

    async def stop(self) -> None:
        """Says goodbye, reads no more, answers what is held and what the disk still has to take, closes."""
        if self._core is None:
            return
        if self._registrar is not None:
            await self._registrar.stop()
        if self._ticker is not None:
            self._ticker.cancel()
        core = self._core
        self._server.hear_no_more()
        core.answer_all_held(self._now())
        self._flush()
        await self._drain(core)
        await self._server.stop()
        core.states.save_offsets(core.offsets)
        core.store.close()
        self._core = None

    async def _drain(self, core: BrokerCore) -> None:
        """Waits until everything that was asked is on disk and answered, for some seconds."""
        try:
            async with asyncio.timeout(DRAIN_S_MAX):
                while await self._settled(core):
                    self._flush()
                saved = asyncio.Event()
                core.store.when_states_are_saved(saved.set)
                await saved.wait()
        except TimeoutError:
            _log.warning(
                "%s: the disk has not taken the last %d bytes of the log within %g s; their senders are not answered",
                self.plan.settings.broker_name,
                core.store.written_end - core.store.visible_end,
                DRAIN_S_MAX,
            )
        self._flush()

    async def _settled(self, core: BrokerCore) -> bool:
        """Back when what is written now is visible, or never will be; False if there was nothing to wait for."""
        store, settled, failures = core.store, asyncio.Event(), list[Exception]()
        if store.visible_end >= store.written_end:
            return False

        def done(failure: Exception | None) -> None:
            if failure is not None:
                failures.append(failure)
            settled.set()

        store.on_visible(store.written_end, done)
        await settled.wait()
        return not failures

    def pause(self) -> None:
        """Does nothing until `resume`, as a process that is stopped; only the name servers still hear of it."""
        if self._ticker is not None:
            self._ticker.cancel()
        self._server.pause()

    def resume(self) -> None:
        """Goes on where `pause` stopped it."""
        self._server.resume()
        self._tick(asyncio.get_running_loop())

    async def kill(self) -> None:
        """Ends as a process that is killed: nobody is told, and only what was written is there for the next start."""
        core, self._core = self._core, None
        if core is None:
            return
        core.writes.when_settled = _do_nothing
        if self._ticker is not None:
            self._ticker.cancel()
        await self._server.kill()
        if self._registrar is not None:
            await self._registrar.stop(says_goodbye=False)
        core.store.abandon()

    async def register(self) -> None:
        """Tells the name servers at once, instead of in some seconds."""
        if self._registrar is not None:
            await self._registrar.now()

    def _open_store(self, loop: asyncio.AbstractEventLoop) -> Store:
        plan = self.plan
        levels = DelayLevels(plan.settings.delay_levels)

        def code_of(message: StoredMessage) -> int:
            return tags_code_of(message.topic, message.properties_bytes, message.store_timestamp, levels)

        if isinstance(plan.disk, MemoryDisk):
            executors: tuple[InlineExecutor, InlineExecutor] | tuple[ThreadExecutor, ThreadExecutor]
            executors = (InlineExecutor(), InlineExecutor())
        else:
            name, soon = plan.settings.broker_name, loop.call_soon_threadsafe
            executors = (ThreadExecutor(soon, f"{name}-sync"), ThreadExecutor(soon, f"{name}-housekeeping"))
        try:
            store = Store.open(
                plan.disk, plan.store, executors=executors, chance=self._chance, tags_code_of=code_of
            )
        except BaseException:
            for executor in executors:
                executor.close()
            raise
        for sentence in store.report:
            _log.warning("%s: %s", plan.settings.broker_name, sentence)
        return store

    async def _register(self) -> None:
        settings, core = self.plan.settings, self.core
        if self.plan.acl is not None:
            for warning in self.plan.acl.warnings:
                _log.warning("%s: %s", settings.broker_name, warning)
        host, _, port = core.address.rpartition(":")
        identity = RegisterBroker(
            broker_name=settings.broker_name,
            broker_addr=core.address,
            cluster_name=settings.cluster_name,
            ha_server_addr=f"{host}:{int(port) + HA_DISTANCE}",
            broker_id=settings.broker_id,
        )
        self._registrar = Registrar(
            self.plan.nameservers,
            identity,
            core.topics.snapshot,
            every_s=self.plan.register_every_s,
            tls=self.plan.nameserver_tls,
            credentials=self._credentials,
        )
        core.changed_routes = set()
        await self._registrar.start()
        core.when_registered = self._registrar.when_told

    def _credentials(self) -> Credentials | None:
        acl = self.plan.acl
        return self.plan.credentials or (None if acl is None else acl.admin_credentials())

    # --- events -----------------------------------------------------------------------------------------------

    def on_frames(self, connection: Connection, frames: list[Frame]) -> int:
        """All frames that one read brought; how many of them were handled."""
        core, now = self.core, self._now()
        if connection.id not in core.peers:
            host = host_bytes(connection.peer if ":" not in connection.host else f"[{connection.host}]:0")
            core.on_connect(Peer(connection.id, connection.peer, host, connection.is_secure))
        try:
            self._has_sent = False
            for handled, frame in enumerate(frames, start=1):
                core.on_frame(connection.id, frame, now)
                if self._has_sent and (connection.is_closing or connection.is_choked):
                    return handled
        finally:
            core.finish(now)
            self._flush()
        return len(frames)

    def on_closed(self, connection: Connection) -> None:
        """A connection is gone."""
        if self._core is not None:
            self._core.on_close(connection.id, self._now(), is_known_to_peer=not connection.was_closed_here)
            self._flush()

    def _tick(self, loop: asyncio.AbstractEventLoop) -> None:
        self._ticker = loop.call_later(TICK_S, self._tick, loop)  # first: whatever fails below, time goes on
        now = self._now()
        self.core.tick(now)
        self.core.store.tick(now.monotonic_ms)
        self._flush()

    def _settle(self) -> None:
        self.core.writes.settle(self._now())
        self.core.finish(self._now())
        self._flush()

    def _send_outbox(self) -> None:
        core = self.core
        outbox, core.outbox, core.outbox_bytes = core.outbox, {}, 0
        self._has_sent = True
        for number, frames in outbox.items():
            connection = self._server.connection(number)
            if connection is not None:
                for frame in frames:
                    connection.send(frame)

    def _flush(self) -> None:
        core = self.core
        self._send_outbox()
        while core.incidents:
            code, error = core.incidents.popleft()
            _log.error("request %d failed inside", code, exc_info=error)
        closing, core.to_close = core.to_close, []
        for number in closing:
            connection = self._server.connection(number)
            if connection is not None:
                connection.close()
        if core.changed_routes != set() and self._registrar is not None:
            self._registrar.soon(core.changed_routes)
            core.changed_routes = set()

    def _now(self) -> Now:
        return Now(self._clock.monotonic_ms(), self._clock.wall_ms())
