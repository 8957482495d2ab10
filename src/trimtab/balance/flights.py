"""Flight recorders as they are published on a topic: JSON lines, one event a line. PURE.

    {"v":1,"group":"billing","client_id":"10.0.0.7@1","number":4,"at_ms":1760000000000,"kind":"acquired","cause":"it is in my share",
     "topic":"orders","broker":"broker-a","queue":3,"offset":120,"in_flight":0}

`number` counts the events of one life of a member from 1 on: a hole is what was dropped. What an event has nothing to say about is left
out. A message's body is one or more lines, each ended by a line feed; its key is the group, its tag says that it is flights. Readers pass
over fields that they do not know; a line of another version is counted as unreadable.
"""

from collections.abc import Iterable
from typing import NamedTuple

import msgspec

from trimtab.balance.recorder import Event
from trimtab.model import MessageQueue

VERSION = 1
TAG = "flights"
BODY_BYTES_MAX = 128 * 1024


class FlightLine(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One event of one member."""

    v: int
    group: str
    client_id: str
    number: int
    at_ms: int
    """Wall time of the member."""
    kind: str
    cause: str = ""
    topic: str | None = None
    broker: str | None = None
    queue: int | None = None
    other: str = ""
    offset: int | None = None
    duration_ms: int | None = None
    in_flight: int | None = None
    detail: str = ""

    @property
    def message_queue(self) -> MessageQueue | None:
        """The queue that it is about, if it is about one."""
        if self.topic is None or self.broker is None or self.queue is None:
            return None
        return MessageQueue(self.topic, self.broker, self.queue)


class Lines(NamedTuple):
    """What a body had."""

    lines: list[FlightLine]
    unreadable: int


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(FlightLine)


def line_of(group: str, client_id: str, number: int, event: Event) -> bytes:
    """The line of an event, with its end."""
    queue = event.queue
    line = FlightLine(
        v=VERSION,
        group=group,
        client_id=client_id,
        number=number,
        at_ms=event.at_ms,
        kind=event.kind,
        cause=event.cause,
        topic=None if queue is None else queue.topic,
        broker=None if queue is None else queue.broker_name,
        queue=None if queue is None else queue.queue_id,
        other=event.other,
        offset=event.offset,
        duration_ms=event.duration_ms,
        in_flight=event.in_flight,
        detail=event.detail,
    )
    return _encoder.encode(line) + b"\n"


def bodies_of(lines: Iterable[bytes], *, bytes_max: int = BODY_BYTES_MAX) -> list[tuple[bytes, int]]:
    """Lines put together into bodies of bounded size, each with the count of its lines; a line is never cut."""
    bodies: list[tuple[bytes, int]] = []
    gathered: list[bytes] = []
    size = 0
    for line in lines:
        if gathered and size + len(line) > bytes_max:
            bodies.append((b"".join(gathered), len(gathered)))
            gathered, size = [], 0
        gathered.append(line)
        size += len(line)
    if gathered:
        bodies.append((b"".join(gathered), len(gathered)))
    return bodies


def lines_of(body: bytes) -> Lines:
    """The events in a body. Others may write to the topic, too: what is no line of ours is passed over and counted."""
    lines, unreadable = [], 0
    for text in body.split(b"\n"):
        if not text.strip():
            continue
        try:
            line = _decoder.decode(text)
        except (msgspec.DecodeError, UnicodeDecodeError):
            unreadable += 1
            continue
        if line.v == VERSION:
            lines.append(line)
        else:
            unreadable += 1
    return Lines(lines, unreadable)
