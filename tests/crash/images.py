"""Small stores, ready-made, to be damaged."""

from random import Random
from typing import NamedTuple

from tests.crash.harness import HOST, START_MS
from trimtab.broker.store import Store, StoreSettings
from trimtab.sim.disk import SimDisk
from trimtab.wire.hashing import tags_code
from trimtab.wire.messages import Storable, decode_messages

SETTINGS = StoreSettings(
    segment_bytes=4096, checkpoint_bytes=4096, queue_file_entries=64, disk_free_bytes_min=0, retention_ms=0
)
TOPICS = ("alpha", "beta")
TAGS = ("red", "green")


class Sent(NamedTuple):
    body: bytes
    tag: str
    physical_offset: int


Sents = dict[tuple[str, int], list[Sent]]


def send(store: Store, sents: Sents, number: int, chance: Random) -> None:
    """One message; what it is follows from its number."""
    topic, queue_id, tag = TOPICS[number % 2], number % 3, TAGS[number % 5 % 2]
    body = b"%d:" % number + chance.randbytes(number * 7 % 90)
    key = b"key%d" % number
    message = Storable(
        topic.encode(), body, b"KEYS\x01%b\x02TAGS\x01%b" % (key, tag.encode()), queue_id, START_MS, HOST
    )
    appended = store.append(message, START_MS + number, HOST, tags_code(tag), (key,))
    sents.setdefault((topic, queue_id), []).append(Sent(body, tag, appended.physical_offset))


def make_store(disk: SimDisk, *, messages: int = 60) -> tuple[Store, Sents]:
    """A store with messages in several segments, the last of them behind the last checkpoint."""
    chance = Random(1)
    store = Store.open(disk, SETTINGS, chance=chance)
    sents: Sents = {}
    for number in range(messages):
        send(store, sents, number, chance)
        if number % 3 == 2:
            store.write()
        if number == messages * 2 // 3:
            store.tick(10_000)
            store.save_state("progress", b"first")
            store.save_state("progress", b"second")
    store.write()
    return store, sents


def show(store: Store, topic: str, queue_id: int, offset: int) -> bytes:
    """The body of one message."""
    (message,) = decode_messages(store.read(topic, queue_id, offset, messages_max=1, bytes_max=1).body)
    assert (message.topic, message.queue_id, message.queue_offset) == (topic, queue_id, offset)
    return message.body
