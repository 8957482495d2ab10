"""Stock clients in a process of their own, told line by line what to do; what happens to them comes back as events."""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING, Any, Self

import msgspec

from tests.interop.servers import eventually, unique
from trimtab.wire.bodies import ConsumerIdList, SubscriptionGroupConfig
from trimtab.wire.codes import RequestCode, ResponseCode
from trimtab.wire.fastjson import decode_body
from trimtab.wire.fastjson_writer import encode_body
from trimtab.wire.headers.base import decode_ext
from trimtab.wire.headers.consume import GroupOnly, OffsetResponse, QueryConsumerOffset, UpdateConsumerOffset

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from types import TracebackType

    from tests.apache.conversation import Conversation
    from tests.interop.servers import ServerUnderTest


class StockError(Exception):
    """The stock client threw; `code` is the broker's answer, if that is what it threw about."""

    def __init__(self, text: str, code: int) -> None:
        super().__init__(text)
        self.code = code


class Queue(msgspec.Struct, frozen=True, order=True):
    """A message queue as the programs write it."""

    topic: str
    broker: str
    id: int


class Receipt(msgspec.Struct, frozen=True):
    """What a send came back with."""

    status: str
    broker: str
    queue_id: int
    offset: int
    id: str | None = None
    offset_id: str | None = None
    transaction_id: str | None = None
    state: str | None = None
    region: str | None = None


class Message(msgspec.Struct, frozen=True):
    """A message as the client's user sees it."""

    topic: str
    queue_id: int
    offset: int
    id: str
    body: bytes
    properties: dict[str, str]
    broker: str | None = None
    offset_id: str | None = None
    flag: int = 0
    sys_flag: int = 0
    times: int = 0
    born_ms: int = 0
    stored_ms: int = 0
    batch: int = 0
    from_: Queue | None = msgspec.field(name="from", default=None)


class Pulled(msgspec.Struct, frozen=True):
    """One answer to a pull."""

    status: str
    next: int
    first: int
    end: int
    messages: list[Message]


class Share(msgspec.Struct, frozen=True):
    """One rebalance of one topic: who was there, and what it gave."""

    number: int
    topic: str
    members: list[str]
    queues: list[Queue]


class Program:
    """The process. It talks one line at a time."""

    def __init__(self, version: str, conversation: Conversation) -> None:
        self.version = version
        self._conversation = conversation
        self._events: list[dict[str, Any]] = []

    @property
    def pid(self) -> int:
        return self._conversation.pid

    def do(self, what: str, **fields: object) -> Any:
        """What the program answers; `StockError` if the client threw."""
        line = json.dumps({"do": what, **_without_none(fields)})
        answer = json.loads(self._conversation.ask(line))
        if "error" in answer:
            raise StockError(answer["error"], answer.get("code", -1))
        return answer.get("ok")

    def events(self, client: str, kind: str) -> list[dict[str, Any]]:
        """What happened so far, oldest first."""
        self._events += self.do("events", **{"from": len(self._events)})
        return [event for event in self._events if event["client"] == client and event["kind"] == kind]

    def kill(self) -> None:
        """Takes the process away as a crash would."""
        self._conversation.kill()

    def client(self, kind: str, server: ServerUnderTest, **options: object) -> Client:
        """A started client; end it with its `with` block."""
        return Client(self, kind, server, options)


class Client:
    """One named client in a program."""

    def __init__(
        self, program: Program, kind: str, server: ServerUnderTest, options: Mapping[str, object]
    ) -> None:
        self._program = program
        self.name = unique(kind)
        self.group = str(options.get("group") or unique(f"group-{kind}"))
        made = {**options, "client": self.name, "group": self.group, "nameserver": server.nameserver}
        self.id = str(program.do("make", kind=kind, **made))
        self._is_open = True

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.shutdown()

    def shutdown(self) -> None:
        if self._is_open:
            self._is_open = False
            self._program.do("shutdown", client=self.name)

    def do(self, what: str, **fields: object) -> Any:
        return self._program.do(what, client=self.name, **fields)

    def events(self, kind: str) -> list[dict[str, Any]]:
        return self._program.events(self.name, kind)

    # Producers.

    def send(self, topic: str, body: bytes = b"", **fields: object) -> Receipt:
        return msgspec.convert(self.do("send", topic=topic, body=encoded(body), **fields), Receipt)

    def send_all(self, topic: str, bodies: Iterable[bytes], **fields: object) -> list[Receipt]:
        return [self.send(topic, body, **fields) for body in bodies]

    def transact(self, topic: str, body: bytes, plan: str, when_asked: str = "ROLLBACK_MESSAGE") -> Receipt:
        """Sends within a transaction that ends as `plan` says, and as `when_asked` says if the broker asks."""
        properties = {"plan": plan, "when_asked": when_asked}
        answer = self.do("transaction", topic=topic, body=encoded(body), properties=properties)
        return msgspec.convert(answer, Receipt)

    # Consumers.

    def received(self) -> list[Message]:
        """What the listener got so far, in order."""
        return messages_of(self.events("message"))

    def wait_for(self, count: int, *, nudged: bool = False) -> list[Message]:
        """Waits until the listener got so many. `nudged`: rebalances meanwhile, for topics that come after the start."""

        def enough() -> list[Message] | None:
            if nudged:
                self.do("rebalance")
            found = self.received()
            return found if len(found) >= count else None

        return eventually(enough, f"{self.name} gets {count} messages")

    def shares(self, topic: str) -> list[Share]:
        """The rebalances of a topic so far."""
        found = msgspec.convert(self.events("shared"), list[Share])
        return [share for share in found if share.topic == topic]

    def holds(self, topic: str) -> list[Queue]:
        """The queues of a topic that it pulls from now."""
        return sorted(queue for queue in queues_of(self.do("holds")) if queue.topic == topic)

    def queues(self, topic: str) -> list[Queue]:
        """All queues of a topic, in order."""
        return sorted(queues_of(self.do("queues", topic=topic)))

    def read(self, topic: str) -> list[Message]:
        """Everything in a topic (pull consumers)."""
        return messages_of(self.do("read", topic=topic))

    def read_when(self, topic: str, count: int) -> list[Message]:
        """Everything in a topic as soon as that is so many (pull consumers)."""

        def enough() -> list[Message] | None:
            found = self.read(topic)
            return found if len(found) >= count else None

        return eventually(enough, f"{count} messages in {topic}")

    def pull(self, queue: Queue, offset: int, **fields: object) -> Pulled:
        return pulled_of(self.do("pull", queue=plain(queue), offset=offset, **fields))

    def poll(self, count: int) -> list[Message]:
        """Polls until so many messages came (lite pull consumers)."""
        found: list[Message] = []

        def enough() -> bool:
            found.extend(messages_of(self.do("poll")))
            return len(found) >= count

        eventually(enough, f"{self.name} polls {count} messages")
        return found


def encoded(body: bytes) -> str:
    return base64.b64encode(body).decode()


def plain(queue: Queue) -> dict[str, object]:
    """A queue as the programs read it."""
    return msgspec.structs.asdict(queue)


def messages_of(answer: object) -> list[Message]:
    return msgspec.convert(answer, list[Message])


def pulled_of(answer: object) -> Pulled:
    return msgspec.convert(answer, Pulled)


def queues_of(answer: object) -> list[Queue]:
    return msgspec.convert(answer, list[Queue])


def by_queue(messages: Sequence[Message]) -> dict[tuple[str | None, int], list[Message]]:
    """Messages of each queue, in the order they came."""
    queues: dict[tuple[str | None, int], list[Message]] = {}
    for message in messages:
        queues.setdefault((message.broker, message.queue_id), []).append(message)
    return queues


def members(server: ServerUnderTest, group: str) -> list[list[str]]:
    """The sorted client ids of a group, as each broker lists them."""
    answers = [
        server.ask(broker.address, RequestCode.GET_CONSUMER_LIST_BY_GROUP, GroupOnly(consumer_group=group))
        for broker in server.brokers
    ]
    return [
        sorted(decode_body(ConsumerIdList, answer.body).consumer_id_list)
        if answer.code == ResponseCode.SUCCESS
        else []
        for answer in answers
    ]


def offset_stored(server: ServerUnderTest, group: str, queue: Queue) -> int | None:
    """The offset that the broker keeps for a group, or None if there is none."""
    header = QueryConsumerOffset(consumer_group=group, topic=queue.topic, queue_id=queue.id)
    address = next(broker.address for broker in server.brokers if broker.name == queue.broker)
    answer = server.ask(address, RequestCode.QUERY_CONSUMER_OFFSET, header)
    return decode_ext(OffsetResponse, answer.ext).offset if answer.code == ResponseCode.SUCCESS else None


def make_offset_table(server: ServerUnderTest, group: str, topic: str) -> None:
    """Before a stock consumer of a new group stores its first offsets, all at once: at Apache's brokers they may replace one another (test_first_offsets.py)."""
    for broker in server.brokers:
        config = encode_body(SubscriptionGroupConfig(group_name=group))
        answers = [
            server.ask(broker.address, RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=config),
            server.ask(
                broker.address, RequestCode.UPDATE_CONSUMER_OFFSET,
                UpdateConsumerOffset(consumer_group=group, topic=topic, queue_id=0, commit_offset=0),
            ),
        ]  # fmt: skip
        assert {answer.code for answer in answers} == {ResponseCode.SUCCESS}


def wait_until_stored(server: ServerUnderTest, group: str, queues: Iterable[Queue], messages: int) -> None:
    """Until the offsets of a group say that it has so many messages behind it. What a client says last is one-way: it may be under way when the client is gone."""
    places = list(queues)
    eventually(
        lambda: sum(offset_stored(server, group, queue) or 0 for queue in places) == messages,
        f"{messages} are stored as handled",
    )


def _without_none(fields: Mapping[str, object]) -> dict[str, object]:
    return {name: value for name, value in fields.items() if value is not None}
