"""A broker core without sockets, threads or sleeping: clients are numbers, time is a number, the disk is in memory.

    broker = Driver()
    client = broker.connect()
    client.send("T", b"body", DELAY="3")
    broker.advance(10_000)
    assert [message.body for message in client.pull("T")] == [b"body"]

Frames are really encoded and decoded. `restart` opens the store anew on the same disk, after a clean stop or after a crash.
"""

from collections import deque
from collections.abc import Callable
from typing import Any

from trimtab.broker import handlers as _handlers  # noqa: F401 - declares every handler
from trimtab.broker.core import BrokerCore
from trimtab.broker.delays import DelayLevels
from trimtab.broker.placing import tags_code_of
from trimtab.broker.requests import Peer
from trimtab.broker.settings import BrokerSettings
from trimtab.broker.store import Executor, InlineExecutor, Store, StoreSettings
from trimtab.errors import ProtocolError
from trimtab.io.chance import seeded_chance
from trimtab.io.disk import Disk, MemoryDisk
from trimtab.model import MessageQueue, Now
from trimtab.wire.bodies import (
    ConsumeFromWhere,
    ConsumerData,
    ConsumeType,
    HeartbeatData,
    LockBatchRequestBody,
    MessageModel,
    ProducerData,
    SubscriptionData,
)
from trimtab.wire.codes import ONEWAY_FLAG, RESPONSE_FLAG, LanguageCode, RequestCode, ResponseCode, Version
from trimtab.wire.commands import Command, decode_command, encode_command
from trimtab.wire.fastjson_writer import encode_body
from trimtab.wire.frames import FrameDecoder
from trimtab.wire.headers.base import Header, decode_ext, encode_ext
from trimtab.wire.headers.consume import PullMessage
from trimtab.wire.headers.send import SendMessageResponse, SendMessageV2
from trimtab.wire.hosts import host_bytes
from trimtab.wire.messages import StoredMessage, decode_messages
from trimtab.wire.properties import encode_properties

WALL_MS = 1_700_000_000_000
TICK_MS = 100
ADDRESS = "127.0.0.1:10911"


class HeldExecutor:
    """Does nothing until it is told to: a disk that takes its time, or dies."""

    def __init__(self) -> None:
        self.jobs: deque[tuple[Callable[[], None], Callable[[Exception | None], None]]] = deque()
        self.failure: OSError | None = None
        self.is_holding = True

    def submit(self, job: Callable[[], None], done: Callable[[Exception | None], None]) -> None:
        self.jobs.append((job, done))
        if not self.is_holding:
            self.run()

    def run(self) -> None:
        """Does what was submitted, and what follows from it."""
        while self.jobs:
            job, done = self.jobs.popleft()
            if self.failure is None:
                job()
            done(self.failure)

    def close(self) -> None:
        self.jobs.clear()


class Client:
    """One connection."""

    def __init__(self, driver: "Driver", number: int) -> None:
        self._driver = driver
        self.number = number
        self.is_closed = False
        self._decoder = FrameDecoder()
        self._opaque = 0
        self.answers: dict[int, Command] = {}
        self._requests: list[Command] = []

    def __repr__(self) -> str:
        return f"<Client {self.number}>"

    def hear(self, data: bytes) -> None:
        for frame in self._decoder.feed(data):
            command = decode_command(frame)
            if command.is_response:
                assert command.opaque not in self.answers, "answered twice"
                self.answers[command.opaque] = command
            else:
                self._requests.append(command)

    def received(self, *codes: RequestCode) -> list[Command]:
        """What the broker asked or told since the last time; with codes, only those, and the others are dropped."""
        requests, self._requests = self._requests, []
        return [request for request in requests if not codes or request.code in codes]

    def request(
        self,
        code: RequestCode,
        header: Header | None = None,
        body: bytes = b"",
        *,
        is_oneway: bool = False,
        version: int = Version.V4_9_3,
        language: LanguageCode = LanguageCode.JAVA,
        ext: dict[str, str] | None = None,
    ) -> int:
        """Sends a request; its answer will be in `answers` under the number that comes back."""
        self._opaque += 1
        command = Command(
            code=code,
            opaque=self._opaque,
            flag=ONEWAY_FLAG if is_oneway else 0,
            ext=({} if header is None else encode_ext(header)) | (ext or {}),
            body=body,
            version=version,
            language=language,
        )
        self._driver.feed(self, encode_command(command))
        return self._opaque

    def ask(self, code: RequestCode, header: Header | None = None, body: bytes = b"", **how: Any) -> Command:
        """A request that is answered at once."""
        opaque = self.request(code, header, body, **how)
        assert opaque in self.answers, f"{code.name} was not answered"
        return self.answers[opaque]

    def reply(self, to: Command, *, code: int = 0, body: bytes = b"", remark: str | None = None) -> None:
        """Answers a question of the broker."""
        answer = Command(code=code, opaque=to.opaque, flag=RESPONSE_FLAG, body=body, remark=remark)
        self._driver.feed(self, encode_command(answer))

    def close(self) -> None:
        """Hangs up."""
        self._driver.close(self)

    # --- what nearly every test does

    def send_header(
        self, topic: str, *, queue_id: int = 0, group: str = "pg", **properties: str
    ) -> SendMessageV2:
        return SendMessageV2(
            producer_group=group,
            topic=topic,
            default_topic="TBW102",
            default_topic_queue_nums=4,
            queue_id=queue_id,
            sys_flag=0,
            born_timestamp=self._driver.now.wall_ms,
            flag=7,
            properties=encode_properties(properties).decode(),
            reconsume_times=0,
        )

    def send(
        self, topic: str, body: bytes = b"body", *, queue_id: int = 0, group: str = "pg", **properties: str
    ) -> SendMessageResponse:
        """Sends a message and expects that it is stored."""
        header = self.send_header(topic, queue_id=queue_id, group=group, **properties)
        answer = self.ask(RequestCode.SEND_MESSAGE_V2, header, body)
        assert answer.code == ResponseCode.SUCCESS, answer.remark
        return decode_ext(SendMessageResponse, answer.ext)

    def pull_header(self, topic: str, queue_id: int = 0, offset: int = 0, **changes: Any) -> PullMessage:
        fields: dict[str, Any] = {
            "consumer_group": "TOOLS_CONSUMER", "topic": topic, "queue_id": queue_id, "queue_offset": offset,
            "max_msg_nums": 32, "sys_flag": 4, "commit_offset": 0, "suspend_timeout_millis": 0, "sub_version": 0,
            "subscription": "*", "expression_type": "TAG",
        }  # fmt: skip
        return PullMessage(**(fields | changes))

    def pull(self, topic: str, queue_id: int = 0, offset: int = 0) -> list[StoredMessage]:
        """All messages of a queue from an offset on, as a consumer gets them."""
        found: list[StoredMessage] = []
        while True:
            answer = self.ask(
                RequestCode.PULL_MESSAGE, self.pull_header(topic, queue_id, offset + len(found))
            )
            if answer.code != ResponseCode.SUCCESS:
                return found
            found += decode_messages(answer.body)

    def bodies(self, topic: str, queue_id: int = 0) -> list[bytes]:
        return [message.body for message in self.pull(topic, queue_id)]

    def heartbeat(
        self,
        client_id: str,
        *,
        consumes: dict[str, list[str]] | None = None,
        produces: list[str] | None = None,
        version: int = Version.V4_9_3,
        language: LanguageCode = LanguageCode.JAVA,
    ) -> None:
        """Joins groups: consumers with their topics, producers by name."""
        consumers = tuple(
            ConsumerData(
                group_name=group,
                consume_type=ConsumeType.CONSUME_PASSIVELY,
                message_model=MessageModel.CLUSTERING,
                consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
                subscription_data_set=tuple(
                    SubscriptionData(topic=topic, sub_string="*") for topic in topics
                ),
            )
            for group, topics in (consumes or {}).items()
        )
        producers = tuple(ProducerData(group_name=group) for group in produces or [])
        data = HeartbeatData(client_id=client_id, consumer_data_set=consumers, producer_data_set=producers)
        answer = self.ask(RequestCode.HEART_BEAT, body=encode_body(data), version=version, language=language)
        assert answer.code == ResponseCode.SUCCESS, answer.remark

    def lock(self, group: str, client_id: str, *queues: MessageQueue) -> Command:
        body = LockBatchRequestBody(consumer_group=group, client_id=client_id, mq_set=queues)
        return self.ask(RequestCode.LOCK_BATCH_MQ, body=encode_body(body))


class Driver:
    """One broker core, its store and its clients."""

    def __init__(
        self,
        settings: BrokerSettings | None = None,
        *,
        disk: Disk | None = None,
        store_settings: StoreSettings | None = None,
        sync_executor: Executor | None = None,
    ) -> None:
        self.settings = settings or BrokerSettings()
        self.disk = disk or MemoryDisk()
        self._store_settings = store_settings
        self.sync_executor = sync_executor or InlineExecutor()
        self.now = Now(1_000_000, WALL_MS)
        self._connections = 0
        self.clients: dict[int, Client] = {}
        self.core = self._open()

    def _open(self) -> BrokerCore:
        levels = DelayLevels(self.settings.delay_levels)

        def code_of(message: StoredMessage) -> int:
            return tags_code_of(message.topic, message.properties_bytes, message.store_timestamp, levels)

        store = Store.open(
            self.disk,
            self._store_settings,
            executors=(self.sync_executor, InlineExecutor()),
            chance=seeded_chance(1),
            tags_code_of=code_of,
        )
        core = BrokerCore(self.settings, store, seeded_chance(2), ADDRESS, self.now)
        core.writes.when_settled = self.settle
        return core

    def connect(self) -> Client:
        """A new connection, from an address of its own."""
        self._connections += 1
        number = self._connections
        address = f"10.0.0.{number}:5000"
        self.core.on_connect(Peer(number, address, host_bytes(address)))
        client = self.clients[number] = Client(self, number)
        return client

    def feed(self, client: Client, data: bytes) -> None:
        """What one read of a connection brings. Nonsense closes the connection, as it does over a socket."""
        assert not client.is_closed, "this client has hung up"
        try:
            for frame in FrameDecoder().feed(data):
                self.core.on_frame(client.number, frame, self.now)
        except ProtocolError:
            self.close(client)
        self.core.finish(self.now)
        self._hand_out()

    def close(self, client: Client) -> None:
        client.is_closed = True
        del self.clients[client.number]
        self.core.on_close(client.number, self.now)
        self._hand_out()

    def settle(self) -> None:
        """What the store calls when something became visible by itself."""
        self.core.writes.settle(self.now)
        self.core.finish(self.now)
        self._hand_out()

    def advance(self, ms: int, step_ms: int = TICK_MS) -> None:
        """Lets time go by, with a tick every `step_ms`."""
        end_ms = self.now.monotonic_ms + ms
        while self.now.monotonic_ms < end_ms:
            step = min(step_ms, end_ms - self.now.monotonic_ms)
            self.now = Now(self.now.monotonic_ms + step, self.now.wall_ms + step)
            self.tick()

    def tick(self) -> None:
        self.core.tick(self.now)
        self.core.store.tick(self.now.monotonic_ms)
        self._hand_out()
        assert not self.core.incidents, list(self.core.incidents)

    def set_wall(self, wall_ms: int) -> None:
        """Somebody sets the clock; the time to measure with goes on."""
        self.now = Now(self.now.monotonic_ms, wall_ms)

    def stop(self) -> None:
        """As the server stops: whoever waits is answered, states are saved, the store is closed."""
        self.core.answer_all_held(self.now)
        self._hand_out()
        self.core.states.save_offsets(self.core.offsets)
        self.core.store.close()

    def restart(self, *, crash: bool = False, after_ms: int = 0) -> None:
        """A new process on the same disk. All connections are gone."""
        if crash:
            self.core.writes.when_settled = lambda: None
            self.core.store.abandon()
        else:
            self.stop()
        self.clients.clear()
        self.now = Now(self.now.monotonic_ms + after_ms, self.now.wall_ms + after_ms)
        self.core = self._open()

    def _hand_out(self) -> None:
        outbox, self.core.outbox = self.core.outbox, {}
        for number, frames in outbox.items():
            client = self.clients.get(number)
            if client is not None:
                client.hear(b"".join(frames))
        closing, self.core.to_close = self.core.to_close, []
        for number in closing:
            if number in self.clients:
                self.close(self.clients[number])
