"""Sends and pulls over one connection with raw wire values, for tests that trust nothing above the wire."""

from typing import NamedTuple, Self

from trimtab.io.connection import PeerConnection
from trimtab.wire.codes import RequestCode, ResponseCode
from trimtab.wire.commands import Command
from trimtab.wire.headers.base import Header, decode_ext, encode_ext
from trimtab.wire.headers.consume import PullMessage, PullMessageResponse
from trimtab.wire.headers.names import GetRouteInfo
from trimtab.wire.headers.send import SendMessageResponse, SendMessageV2
from trimtab.wire.messages import StoredMessage, decode_messages

ANSWER_S_MAX = 30.0
WITH_SUBSCRIPTION = 4
MAY_WAIT = 2


class Pulled(NamedTuple):
    code: int
    messages: list[StoredMessage]
    header: PullMessageResponse


class Peer:
    """One connection to one server."""

    def __init__(self, connection: PeerConnection) -> None:
        self.connection = connection

    @classmethod
    async def open(cls, address: str) -> Self:
        return cls(await PeerConnection.open(address))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.connection.close()

    async def ask(self, code: int, header: Header | None = None, body: bytes = b"") -> Command:
        ext = {} if header is None else encode_ext(header)
        command = Command(code=code, opaque=self.connection.next_opaque(), ext=ext, body=body)
        return await self.connection.ask(command, timeout_s=ANSWER_S_MAX)

    async def send(
        self, topic: str, queue_id: int, body: bytes, *, properties: str = ""
    ) -> SendMessageResponse:
        answer = await self.ask(RequestCode.SEND_MESSAGE_V2, send_header(topic, queue_id, properties), body)
        assert answer.code == ResponseCode.SUCCESS, f"{answer.code}: {answer.remark}"
        return decode_ext(SendMessageResponse, answer.ext)

    async def pull(self, topic: str, queue_id: int, offset: int, *, waits_ms: int = 0) -> Pulled:
        answer = await self.ask(
            RequestCode.PULL_MESSAGE, pull_header(topic, queue_id, offset, waits_ms=waits_ms)
        )
        assert answer.ext, f"{answer.code}: {answer.remark}"
        return Pulled(answer.code, decode_messages(answer.body), decode_ext(PullMessageResponse, answer.ext))

    async def read_all(self, topic: str, queue_id: int) -> list[StoredMessage]:
        """Everything in a queue, from its beginning on."""
        found: list[StoredMessage] = []
        offset = 0
        while True:
            pulled = await self.pull(topic, queue_id, offset)
            if not pulled.messages:
                assert pulled.code in (ResponseCode.PULL_NOT_FOUND, ResponseCode.PULL_OFFSET_MOVED), (
                    pulled.code
                )
                return found
            found += pulled.messages
            offset = pulled.header.next_begin_offset

    async def route(self, topic: str) -> Command:
        return await self.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, GetRouteInfo(topic=topic))


def send_header(topic: str, queue_id: int, properties: str = "", *, queues: int = 8) -> SendMessageV2:
    return SendMessageV2(
        producer_group="testers",
        topic=topic,
        default_topic="TBW102",
        default_topic_queue_nums=queues,
        queue_id=queue_id,
        sys_flag=0,
        born_timestamp=1_700_000_000_000,
        flag=0,
        properties=properties,
    )


def pull_header(topic: str, queue_id: int, offset: int, *, waits_ms: int = 0) -> PullMessage:
    return PullMessage(
        consumer_group="testers",
        topic=topic,
        queue_id=queue_id,
        queue_offset=offset,
        max_msg_nums=10_000,
        max_msg_bytes=1 << 20,
        sys_flag=WITH_SUBSCRIPTION | (MAY_WAIT if waits_ms else 0),
        commit_offset=0,
        suspend_timeout_millis=waits_ms,
        subscription="*",
        sub_version=0,
    )
