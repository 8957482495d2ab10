"""Cutting rows into requests: those of one topic and queue together, as many as a request may hold."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from trimtab.client.routes import Route
from trimtab.model import MessageQueue
from trimtab.spark.options import SinkOptions
from trimtab.spark.problems import SinkWriteError
from trimtab.spark.sink_encoding import EncodedRows
from trimtab.wire.batch import BATCHED_PROPERTIES_BYTES_MAX
from trimtab.wire.hashing import java_hash
from trimtab.wire.resources import NAME, RETRY_PREFIX, TOPIC_LENGTH_MAX

BATCH_MESSAGES_MAX = 1_000
"""The answer holds an id for each, 33 bytes, and a header may have 256 KiB."""

RouteOf = Callable[[str], Route]


@dataclass(frozen=True, slots=True)
class Load:
    """What goes out in one request."""

    topic: str
    queue: MessageQueue | None
    """Where to, if the rows say so."""
    is_batch: bool
    body: Any
    properties: str
    flag: int
    count: int
    first_row: int


def loads_of(rows: EncodedRows, options: SinkOptions, route_of: RouteOf) -> Iterator[Load]:
    """The requests for some rows: those of one topic and queue together, as many as a request may hold."""
    for topic, places in _by_topic(rows, options):
        for queue, chosen in _by_queue(rows, topic, places, route_of):
            yield from _cut(rows, topic, queue, chosen, options)


def topics_of(rows: EncodedRows, options: SinkOptions) -> list[str]:
    if rows.topics is None:
        assert options.topic is not None, "checked when the query was planned"
        return [options.topic]
    return [topic.as_py() for topic in rows.topics.unique()]


def refuse_names(rows: EncodedRows) -> None:
    """Topics that no broker takes: nobody has to be asked for them."""
    if rows.topics is None:
        return
    for topic in rows.topics.unique().to_pylist():
        if len(topic) > TOPIC_LENGTH_MAX or not NAME.fullmatch(topic):
            row = rows.first_row + rows.topics.index(topic).as_py()
            raise SinkWriteError(
                f"row {row} of this task has the topic {topic!r}, which is no name of a topic: up to {TOPIC_LENGTH_MAX} of the"
                " characters a-z A-Z 0-9 _ - % |; nothing of its batch was sent"
            )


def misplaced(rows: EncodedRows, options: SinkOptions, route_of: RouteOf) -> tuple[int, MessageQueue] | None:
    """The first row, counted in its task, that names a queue which its topic does not have. A broker that no route names may be away."""
    if rows.broker_names is None or rows.queue_ids is None:
        return None
    names, ids = rows.broker_names.to_pylist(), rows.queue_ids.to_pylist()
    for topic, places in _by_topic(rows, options):
        there = set(route_of(topic).writable.queues)
        brokers = {queue.broker_name for queue in there}
        for at in places.tolist():
            if names[at] in brokers and ids[at] is not None:
                queue = MessageQueue(topic, names[at], ids[at])
                if queue not in there:
                    return rows.first_row + at, queue
    return None


def _by_topic(rows: EncodedRows, options: SinkOptions) -> Iterator[tuple[str, Any]]:
    if rows.topics is None:
        yield topics_of(rows, options)[0], np.arange(len(rows))
        return
    encoded = rows.topics.dictionary_encode()
    numbers = np.asarray(encoded.indices)
    for number, topic in enumerate(encoded.dictionary.to_pylist()):
        yield topic, np.flatnonzero(numbers == number)


def _by_queue(
    rows: EncodedRows, topic: str, places: Any, route_of: RouteOf
) -> Iterator[tuple[MessageQueue | None, Any]]:
    if rows.broker_names is not None and rows.queue_ids is not None:
        names, ids = rows.broker_names.to_pylist(), rows.queue_ids.to_pylist()
        wanted = [
            None if names[at] is None or ids[at] is None else MessageQueue(topic, names[at], ids[at])
            for at in places
        ]
    elif not (rows.sharding_keys is None and rows.partitions is None and rows.kafka_keys is None):
        queues = route_of(topic).writable.queues
        keys = _listed(rows.sharding_keys, len(rows))
        numbers = _listed(rows.partitions, len(rows))
        others = _listed(rows.kafka_keys, len(rows))
        wanted = [
            _queue_of_key(keys[at], queues)
            or _queue_of_number(numbers[at], queues)
            or _queue_of_key(others[at], queues)
            for at in places
        ]
    else:
        yield None, places
        return
    groups: dict[MessageQueue | None, list[int]] = {}
    for at, queue in zip(places.tolist(), wanted, strict=True):
        groups.setdefault(queue, []).append(at)
    for queue, group in groups.items():
        yield queue, np.array(group)


def _queue_of_key(key: str | None, queues: tuple[MessageQueue, ...]) -> MessageQueue | None:
    """As Java's SelectMessageQueueByHash chooses."""
    return None if not key else queues[abs(java_hash(key)) % len(queues)]


def _queue_of_number(number: int | None, queues: tuple[MessageQueue, ...]) -> MessageQueue | None:
    return None if number is None else queues[number % len(queues)]


def _listed(column: Any | None, count: int) -> list[Any]:
    return [None] * count if column is None else column.to_pylist()


def _cut(
    rows: EncodedRows, topic: str, queue: MessageQueue | None, places: Any, options: SinkOptions
) -> Iterator[Load]:
    """Batches of entries that lie side by side; single messages where a batch cannot carry them."""
    sizes = np.diff(_borders(rows.entries))[places]
    alone = sizes > options.batch_bytes
    alone |= np.diff(_borders(rows.properties))[places] > BATCHED_PROPERTIES_BYTES_MAX
    if rows.is_delayed is not None:
        alone |= np.asarray(rows.is_delayed)[places]
    if options.compression != "none":
        alone |= np.diff(_borders(rows.bodies))[places] >= options.compress_from_bytes
    if topic.startswith(RETRY_PREFIX):
        alone[:] = True
    batch_max = min(BATCH_MESSAGES_MAX, options.in_flight_max)
    filled = np.cumsum(sizes, dtype=np.int64)
    begin = 0
    for stop in (*np.flatnonzero(alone).tolist(), len(places)):
        while begin < stop:
            before = int(filled[begin - 1]) if begin else 0
            fitting = int(np.searchsorted(filled, before + options.batch_bytes, "right"))
            end = min(fitting, begin + batch_max, stop)
            yield _batch(rows, topic, queue, places[begin:end])
            begin = end
        if stop < len(places):
            yield _single(rows, topic, queue, int(places[stop]))
            begin = stop + 1


def _batch(rows: EncodedRows, topic: str, queue: MessageQueue | None, places: Any) -> Load:
    first, last = int(places[0]), int(places[-1])
    if last - first + 1 == len(places):
        borders = _borders(rows.entries)
        data = rows.entries.buffers()[2]
        body: Any = memoryview(data)[int(borders[first]) : int(borders[last + 1])]
    else:
        body = b"".join(rows.entries.take(pa.array(places)).to_pylist())
    return Load(topic, queue, True, body, "WAIT\x01true", 0, len(places), rows.first_row + first)  # noqa: FBT003


def _single(rows: EncodedRows, topic: str, queue: MessageQueue | None, at: int) -> Load:
    properties = rows.properties[at].as_py().decode()
    body = rows.bodies[at].as_py()
    return Load(topic, queue, False, body, properties, int(rows.flags[at]), 1, rows.first_row + at)  # noqa: FBT003


def _borders(column: Any) -> Any:
    """Where the values of a binary column begin and end in its bytes."""
    return np.frombuffer(column.buffers()[1], np.int32)[column.offset : column.offset + len(column) + 1]
