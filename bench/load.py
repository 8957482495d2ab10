"""A load of raw wire values over one connection: as fast as a client in Python can be, the same for every server."""

import asyncio
import time
from dataclasses import dataclass
from typing import cast

from trimtab.wire.batch import BatchEntry, encode_batch
from trimtab.wire.codes import RequestCode
from trimtab.wire.frames import Frame, FrameDecoder
from trimtab.wire.headers.consume import PullMessage
from trimtab.wire.headers.send import SendMessageV2
from trimtab.wire.hot import encode_pull_request, encode_send_request
from trimtab.wire.messages import decode_messages

QUEUES = 8
PROPERTIES = "UNIQ_KEY\x017F000001000018B4AAC27E32C6E70000\x02WAIT\x01true\x02TAGS\x01TagA"


@dataclass(frozen=True, slots=True)
class Load:
    """What is sent."""

    topic: str
    messages: int
    size: int
    in_flight: int
    batch: int = 1


class _Sender(asyncio.Protocol):
    """Keeps a number of sends on their way until all are answered. Answers are counted and their codes looked at, no more."""

    def __init__(self, load: Load, done: "asyncio.Future[None]") -> None:
        self._load = load
        self._done = done
        self._pending = b""
        self._left = load.messages // load.batch
        self._unanswered = 0
        frames = [self._frame(number) for number in range(QUEUES)]
        self._frame_bytes = len(frames[0])
        assert {len(frame) for frame in frames} == {self._frame_bytes}
        self._ring = b"".join(frames) * (load.in_flight // QUEUES + 2)
        self._next = 0
        self._transport: asyncio.Transport

    def _frame(self, queue_id: int) -> bytes:
        load = self._load
        header = SendMessageV2(
            producer_group="bench", topic=load.topic, default_topic="TBW102", default_topic_queue_nums=QUEUES,
            queue_id=queue_id, sys_flag=0, born_timestamp=1_700_000_000_000, flag=0,
            properties=PROPERTIES if load.batch == 1 else "WAIT\x01true", reconsume_times=0, batch=load.batch > 1,
        )  # fmt: skip
        body = b"x" * load.size
        if load.batch == 1:
            return encode_send_request(RequestCode.SEND_MESSAGE_V2, header, opaque=queue_id, body=body)
        entries = [BatchEntry(body, PROPERTIES.encode())] * load.batch
        return encode_send_request(
            RequestCode.SEND_BATCH_MESSAGE, header, opaque=queue_id, body=encode_batch(entries)
        )

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._send(self._load.in_flight)

    def data_received(self, data: bytes) -> None:
        data = self._pending + data
        at = answered = 0
        end = len(data)
        while end - at >= 4:
            following = at + 4 + int.from_bytes(data[at : at + 4])
            if following > end:
                break
            at = following
            answered += 1
        if data.count(b'"code":0,', 0, at) != answered:
            raise RuntimeError(f"refused: {data[:1_000]!r}")
        self._pending = data[at:]
        self._unanswered -= answered
        self._send(answered)
        if not self._left and not self._unanswered and not self._done.done():
            self._done.set_result(None)

    def _send(self, count: int) -> None:
        count = min(count, self._left)
        self._left -= count
        self._unanswered += count
        if count:
            begin = self._next * self._frame_bytes
            self._transport.write(self._ring[begin : begin + count * self._frame_bytes])
            self._next = (self._next + count) % QUEUES

    def connection_lost(self, exc: Exception | None) -> None:
        if not self._done.done():
            self._done.set_exception(exc or ConnectionError("the server closed the connection"))


class _Puller(asyncio.Protocol):
    """Drains every queue, one pull on its way per queue."""

    def __init__(self, topic: str, bytes_max: int | None, done: "asyncio.Future[int]") -> None:
        self._topic = topic
        self._bytes_max = bytes_max
        self._done = done
        self._decoder = FrameDecoder()
        self._offsets = [0] * QUEUES
        self._open = set(range(QUEUES))
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._transport.write(b"".join(self._pull(queue) for queue in range(QUEUES)))

    def _pull(self, queue: int) -> bytes:
        header = PullMessage(
            consumer_group="TOOLS_CONSUMER", topic=self._topic, queue_id=queue, queue_offset=self._offsets[queue],
            max_msg_nums=32 if self._bytes_max is None else 100_000, sys_flag=4, commit_offset=0,
            suspend_timeout_millis=0, sub_version=0, subscription="*", expression_type="TAG", max_msg_bytes=self._bytes_max,
        )  # fmt: skip
        return encode_pull_request(header, opaque=queue)

    def data_received(self, data: bytes) -> None:
        pulls = [self._answered(frame) for frame in self._decoder.feed(data)]
        if any(pulls):
            self._transport.write(b"".join(pulls))
        if not self._open and not self._done.done():
            self._done.set_result(sum(self._offsets))

    def _answered(self, frame: Frame) -> bytes:
        queue = int(frame.header.split(b'"opaque":', 1)[1].split(b",", 1)[0])
        if not frame.body:
            self._open.discard(queue)
            return b""
        self._offsets[queue] += len(decode_messages(frame.body))
        return self._pull(queue)

    def connection_lost(self, exc: Exception | None) -> None:
        if not self._done.done():
            self._done.set_exception(exc or ConnectionError("the server closed the connection"))


async def sends_per_second(address: str, load: Load) -> float:
    """Messages per second, answered."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[None] = loop.create_future()
    host, _, port = address.rpartition(":")
    start = time.perf_counter()
    transport, _ = await loop.create_connection(lambda: _Sender(load, done), host, int(port))
    await done
    seconds = time.perf_counter() - start
    transport.close()
    return load.messages / seconds


async def pulls_per_second(address: str, topic: str, bytes_max: int | None = None) -> float:
    """Messages per second, pulled and decoded as views."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[int] = loop.create_future()
    host, _, port = address.rpartition(":")
    start = time.perf_counter()
    transport, _ = await loop.create_connection(lambda: _Puller(topic, bytes_max, done), host, int(port))
    count = await done
    seconds = time.perf_counter() - start
    transport.close()
    return count / seconds
