"""From a send to the long-polled pull that shows the message, at a given load, over two connections."""

import asyncio
import struct
import time
from dataclasses import dataclass
from typing import cast

from bench.load import PROPERTIES, QUEUES
from trimtab.wire.codes import RequestCode
from trimtab.wire.frames import Frame, FrameDecoder
from trimtab.wire.headers.consume import PullMessage
from trimtab.wire.headers.send import SendMessageV2
from trimtab.wire.hot import encode_pull_request, encode_send_request
from trimtab.wire.messages import decode_messages

SIZE = 128
TURN_S = 0.002
SETTLE_S = 0.5
"""At the beginning, left out: connections, topic and code are warm after it."""
PATIENCE_S = 30.0
_STAMP = struct.Struct(">d")


@dataclass(frozen=True, slots=True)
class Latencies:
    p50_ms: float
    p99_ms: float
    per_second: float


class _Paced(asyncio.Protocol):
    """Sends stamped messages; the answers only count."""

    def __init__(self, topic: str) -> None:
        self._decoder = FrameDecoder()
        self._heads = [self._frame(topic, queue)[:-SIZE] for queue in range(QUEUES)]
        self._next = 0
        self.answered = 0
        self.transport: asyncio.Transport

    @staticmethod
    def _frame(topic: str, queue_id: int) -> bytes:
        header = SendMessageV2(
            producer_group="bench", topic=topic, default_topic="TBW102", default_topic_queue_nums=QUEUES, queue_id=queue_id,
            sys_flag=0, born_timestamp=1_700_000_000_000, flag=0, properties=PROPERTIES, reconsume_times=0, batch=False,
        )  # fmt: skip
        return encode_send_request(RequestCode.SEND_MESSAGE_V2, header, opaque=queue_id, body=bytes(SIZE))

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        for frame in self._decoder.feed(data):
            if b'"code":0,' not in frame.header:
                raise RuntimeError(f"refused: {frame.header!r}")
            self.answered += 1

    def send(self, count: int) -> None:
        body = _STAMP.pack(time.perf_counter()) + bytes(SIZE - _STAMP.size)
        frames = [self._heads[(self._next + number) % QUEUES] + body for number in range(count)]
        self._next += count
        self.transport.write(b"".join(frames))


class _Watcher(asyncio.Protocol):
    """One long poll on its way per queue."""

    def __init__(self, topic: str) -> None:
        self._topic = topic
        self._decoder = FrameDecoder()
        self._offsets = [0] * QUEUES
        self.seconds: list[float] = []
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._transport.write(b"".join(map(self._pull, range(QUEUES))))

    def _pull(self, queue: int) -> bytes:
        header = PullMessage(
            consumer_group="TOOLS_CONSUMER", topic=self._topic, queue_id=queue, queue_offset=self._offsets[queue],
            max_msg_nums=32, sys_flag=6, commit_offset=0, suspend_timeout_millis=15_000, sub_version=0,
            subscription="*", expression_type="TAG",
        )  # fmt: skip
        return encode_pull_request(header, opaque=queue)

    def data_received(self, data: bytes) -> None:
        now = time.perf_counter()
        self._transport.write(b"".join([self._answered(frame, now) for frame in self._decoder.feed(data)]))

    def _answered(self, frame: Frame, now: float) -> bytes:
        queue = int(frame.header.split(b'"opaque":', 1)[1].split(b",", 1)[0])
        if frame.body:
            messages = decode_messages(frame.body)
            self.seconds += [now - _STAMP.unpack_from(message.body)[0] for message in messages]
            self._offsets[queue] = messages[-1].queue_offset + 1
        return self._pull(queue)


async def latencies(address: str, topic: str, per_second: float, seconds: float) -> Latencies:
    """Sends for some seconds, evenly, and waits until everything was seen. The topic must be new and exist."""
    loop = asyncio.get_running_loop()
    host, _, port = address.rpartition(":")
    watching, watcher = await loop.create_connection(lambda: _Watcher(topic), host, int(port))
    sending, sender = await loop.create_connection(lambda: _Paced(topic), host, int(port))
    begin = time.perf_counter()
    sent = settled = 0
    while (passed := time.perf_counter() - begin) < seconds + SETTLE_S:
        due = int(passed * per_second) - sent
        if due:
            sender.send(due)
            sent += due
        if passed < SETTLE_S:
            settled = sent
        await asyncio.sleep(TURN_S)
    passed = time.perf_counter() - begin
    deadline = time.perf_counter() + PATIENCE_S
    while len(watcher.seconds) < sent or sender.answered < sent:
        if time.perf_counter() > deadline:
            raise RuntimeError(f"{len(watcher.seconds)} of {sent} messages were seen")
        await asyncio.sleep(0.01)
    watching.close()
    sending.close()
    found = sorted(watcher.seconds[settled:])
    return Latencies(
        p50_ms=found[len(found) // 2] * 1_000,
        p99_ms=found[len(found) * 99 // 100] * 1_000,
        per_second=sent / passed,
    )
