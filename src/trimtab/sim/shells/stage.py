"""A cluster of real servers with real clients, on virtual time, and what can be done to them."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeVar

import msgspec

from trimtab.broker.server import BrokerPlan, BrokerServer
from trimtab.broker.settings import BrokerSettings
from trimtab.client.admin import Admin
from trimtab.client.producer import Producer
from trimtab.client.push import PushConsumer
from trimtab.client.push_settings import Consuming
from trimtab.client.received import Received
from trimtab.errors import TrimtabError
from trimtab.io.chance import Chance, seeded_chance
from trimtab.io.disk import MemoryDisk
from trimtab.model import Message, MessageQueue
from trimtab.names.server import NameServer
from trimtab.sim.shells.ledger import Ledger
from trimtab.sim.shells.loop import VirtualLoop
from trimtab.sim.shells.network import Network
from trimtab.sim.shells.process import BEGIN_S, State, VirtualClock, VirtualProcess

T = TypeVar("T")

GROUP: Final = "billing"
TOPIC: Final = "orders"
BROKER_PORT: Final = 10_911
NAMES_PORT: Final = 9_876
LOOK_EVERY_S: Final = 0.25
CLOSE_S_MAX: Final = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """What the stage is made of."""

    seed: int = 0
    brokers: int = 2
    queues: int = 8
    """At each broker."""
    per_s: float = 20.0
    """Messages a second, of all queues together."""
    handler_s: float = 0.03
    broker_kind: str = "ours"
    """Or "apache": the leases of a closed connection last until they end by themselves."""
    delay_s_max: float = 0.003
    drift: float = 0.01
    """How wrong clocks run at most."""


class StageReport(msgspec.Struct, frozen=True, kw_only=True):
    """What came of it."""

    simulated_s: float
    sent: int
    delivered: int
    delivered_twice: int
    lost: int
    held_twice: int
    moved: int
    violations: tuple[str, ...]
    digest: str
    """Equal for equal traces."""


@dataclass(slots=True, eq=False)
class Player:
    """A member of the group, in its process."""

    name: str
    process: VirtualProcess
    consumer: PushConsumer
    handled: list[bytes] = field(default_factory=list)


class Stage:
    """See the module's own words."""

    def __init__(self, loop: VirtualLoop, setting: Setting) -> None:
        self.setting = setting
        self.loop = loop
        self.chance = seeded_chance(setting.seed)
        self.network = loop.network = Network(loop, self._own_chance(), delay_s_max=setting.delay_s_max)
        self.ledger = Ledger(TOPIC, lambda: self.passed_s)
        loop.set_exception_handler(lambda _, what: self.ledger.failed(what))
        self.members: list[Player] = []
        self.brokers: dict[str, VirtualProcess] = {}
        self.processes: list[VirtualProcess] = []
        self.names: VirtualProcess
        self._disks: dict[str, MemoryDisk] = {}
        self._is_sending = True
        self._sender: asyncio.Task[None] | None = None
        self._joined = 0

    @property
    def passed_s(self) -> float:
        """Virtual seconds since the beginning."""
        return self.loop.world_s - BEGIN_S

    def _own_chance(self) -> Chance:
        """Everybody has chance of its own: what one uses up is not another's."""
        return seeded_chance(self.chance.randrange(2**62))

    # --- making -----------------------------------------------------------------------------------------------

    def _process(self, name: str, host: str | None = None) -> VirtualProcess:
        rate = 1 + self.setting.drift * (2 * self.chance.random() - 1)
        number = len(self.processes) + 1
        process = VirtualProcess(name, host or f"10.0.{number // 250}.{number % 250}", rate=rate)
        self.processes.append(process)
        return process

    def _clock(self, process: VirtualProcess) -> VirtualClock:
        return VirtualClock(process, lambda: self.loop.world_s)

    async def within(self, process: VirtualProcess, doing: Coroutine[Any, Any, T]) -> T:
        """Does something in a process."""
        return await self.loop.create_task(doing, context=process.context())

    async def open(self) -> None:
        """Name server, brokers, and a producer that sends all the time."""
        self.names = self._process("names")
        server = NameServer(clock=self._clock(self.names), host=self.names.host, port=NAMES_PORT)
        await self.within(self.names, server.start())
        for number in range(self.setting.brokers):
            await self.start_broker(f"broker-{number}")
        await self._create_topic()
        sender = self._process("producer")
        self._sender = self.loop.create_task(self._send(sender), context=sender.context())

    async def _create_topic(self) -> None:
        operator = self._process("operator")

        async def create() -> None:
            async with Admin(nameserver=self.nameserver, clock=self._clock(operator)) as admin:
                await admin.create_topic(TOPIC, queues=self.setting.queues)

        await self.within(operator, create())

    @property
    def nameserver(self) -> str:
        """Its address."""
        return f"{self.names.host}:{NAMES_PORT}"

    async def start_broker(self, name: str) -> None:
        """A broker, or one that was killed once more, with what it had written."""
        before = self.brokers.get(name)
        process = self.brokers[name] = self._process(name, None if before is None else before.host)
        settings = BrokerSettings(broker_name=name, advertised_host=process.host)
        if self.setting.broker_kind == "apache":
            settings = replace(settings, closed_lease_grace_ms=settings.lease_ms)
        plan = BrokerPlan(
            settings=settings,
            disk=self._disks.setdefault(name, MemoryDisk()),
            nameservers=(self.nameserver,),
            host=process.host,
            port=BROKER_PORT,
        )
        server = BrokerServer(plan, clock=self._clock(process), chance=self._own_chance())
        await self.within(process, server.start())
        self.ledger.note(name, "starts")

    async def join(
        self, *, client_id: str | None = None, mode: str = "leased", strategy: str | None = None
    ) -> Player:
        """One member more."""
        self._joined += 1
        name = f"member-{self._joined}"
        process = self._process(name)
        player = Player(name, process, self._consumer(name, process, client_id, mode, strategy))
        self.members.append(player)
        self.ledger.note(name, "joins")
        await self.within(process, player.consumer.start())
        return player

    def _consumer(
        self, name: str, process: VirtualProcess, client_id: str | None, mode: str, strategy: str | None
    ) -> PushConsumer:
        ledger, setting = self.ledger, self.setting

        async def handle(message: Received) -> None:
            ledger.starting(name, message.queue, message.body)
            await asyncio.sleep(setting.handler_s)
            ledger.handled.add(message.body)

        def took(queues: tuple[MessageQueue, ...]) -> None:
            ledger.took(name, queues)

        def left(queues: tuple[MessageQueue, ...]) -> None:
            ledger.left(name, queues)

        return PushConsumer(
            GROUP, subscribe={TOPIC: "*"}, handler=handle, nameserver=self.nameserver, client_id=client_id, start="first",
            mode=mode, strategy=strategy, on_assigned=took, on_revoked=left, on_lost=left,
            consuming=Consuming(drain_s_max=30.0), clock=self._clock(process), chance=self._own_chance(),
        )  # fmt: skip

    async def _send(self, process: VirtualProcess) -> None:
        gap_s, number = 1 / self.setting.per_s, 0
        async with Producer(
            "shop", nameserver=self.nameserver, clock=self._clock(process), chance=self._own_chance()
        ) as producer:
            while self._is_sending:
                body = str(number).encode()
                number += 1
                try:
                    await producer.send(Message(TOPIC, body))
                except TrimtabError as error:
                    self.ledger.note("producer", f"could not send {number - 1}: {type(error).__name__}")
                else:
                    self.ledger.sent[body] = None
                await asyncio.sleep(gap_s)

    # --- what happens -----------------------------------------------------------------------------------------

    async def sleep(self, s: float) -> None:
        """Time passes."""
        await asyncio.sleep(s)

    async def leave(self, player: Player) -> None:
        """A member closes, in order."""
        self.ledger.note(player.name, "leaves")
        self.members.remove(player)
        await self.within(player.process, player.consumer.close())
        player.process.state = State.DEAD

    def crash(self, player: Player, *, is_silent: bool = False) -> None:
        """`kill -9`; silent: the whole machine goes, and nobody hears of it."""
        self.ledger.note(player.name, "vanishes" if is_silent else "crashes")
        self.members.remove(player)
        self.ledger.gone(player.name)
        self.kill(player.process, is_silent=is_silent)

    def kill(self, process: VirtualProcess, *, is_silent: bool = False) -> None:
        """Any process, a broker too; `start_broker` starts that again."""
        self.ledger.note(process.name, "is killed")
        process.state = State.DEAD
        self.network.ended(process, is_silent=is_silent)
        if process.name in self._disks:
            self._disks[process.name].unlock()

    def pause(self, player: Player) -> None:
        """SIGSTOP: its connections stay, its code does not run."""
        self.ledger.note(player.name, "stands still")
        self.ledger.gone(player.name)
        player.process.state = State.PAUSED

    def go_on(self, player: Player) -> None:
        """SIGCONT: what was due meanwhile comes now, in its order."""
        self.ledger.note(player.name, "goes on")
        process = player.process
        process.state = State.RUNNING
        late, process.late = process.late, []
        for run in late:
            self.loop.call_soon(run)

    async def settle(self, s_max: float = 120.0) -> float:
        """Until every queue has one holder and shares are even; how long that took."""
        began_s = self.passed_s
        while not self.is_settled():
            if self.passed_s - began_s > s_max:
                shares = dict(self.ledger.shares(with_retries=True))
                raise TimeoutError(f"the group did not settle within {s_max} s: {shares}")
            await asyncio.sleep(LOOK_EVERY_S)
        return self.passed_s - began_s

    def is_settled(self) -> bool:
        """Whether every queue has one holder, and shares differ by one at most: in leased mode those of all topics together."""
        awake = [player for player in self.members if player.process.is_awake]
        held = self.ledger.shares(with_retries=False)
        is_leased = all(player.consumer.mode == "leased" for player in awake)
        shares = self.ledger.shares(with_retries=is_leased)
        counts = [shares[player.name] for player in awake]
        is_whole = sum(held[player.name] for player in awake) == self.setting.queues * self.setting.brokers
        return is_whole and max(counts) - min(counts) <= 1

    # --- the end ----------------------------------------------------------------------------------------------

    async def end(self, drain_s_max: float = 120.0) -> None:
        """No more is sent; what was sent is waited for; all leave."""
        self._is_sending = False
        if self._sender is not None:
            await self._sender
        until_s = self.passed_s + drain_s_max
        while self.ledger.lost and self.passed_s < until_s:
            await self.sleep(LOOK_EVERY_S)
        closing = [self.within(player.process, player.consumer.close()) for player in self.members]
        async with asyncio.timeout(CLOSE_S_MAX):
            await asyncio.gather(*closing)

    def bury(self) -> None:
        """What is left of dead processes may end by itself now: nobody looks any more."""
        for process in self.processes:
            process.state = State.RUNNING
            process.late.clear()

    def report(self) -> StageReport:
        """What came of it so far."""
        ledger = self.ledger
        return StageReport(
            simulated_s=self.passed_s,
            sent=len(ledger.sent),
            delivered=ledger.got.total(),
            delivered_twice=ledger.delivered_twice,
            lost=ledger.lost,
            held_twice=ledger.held_twice,
            moved=ledger.moved,
            violations=tuple(ledger.broken),
            digest=ledger.digest,
        )


Play = Callable[[Stage], Awaitable[object]]


def run_on_stage(play: Play, **setting: Any) -> StageReport:
    """Opens a stage, plays, lets everything be handled, and says what came of it. The options are those of `Setting`."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        loop = runner.get_loop()
        assert isinstance(loop, VirtualLoop), "it was made just now"
        return runner.run(_played(Stage(loop, Setting(**setting)), play))


async def _played(stage: Stage, play: Play) -> StageReport:
    try:
        await stage.open()
        await play(stage)
        await stage.end()
        return stage.report()
    finally:
        stage.bury()
