"""Messages and stores for the tests beside this file."""

from trimtab.broker.store import Appended, Store, StoreSettings
from trimtab.io.disk import Disk, MemoryDisk
from trimtab.wire.hashing import tags_code
from trimtab.wire.messages import Storable, decode_messages

HOST = b"\x7f\0\0\1\0\0\x2a\x9f"
HOST_V6 = b"\x20\x01" + bytes(13) + b"\1\0\0\x2a\x9f"
NOW_MS = 1_700_000_000_000
SMALL = StoreSettings(segment_bytes=2048, checkpoint_bytes=2048, queue_file_entries=64, disk_free_bytes_min=0)


def message(body: bytes = b"body", *, topic: str = "T", queue_id: int = 0, tag: str = "", key: str = "", born_host: bytes = HOST) -> Storable:  # fmt: skip
    pairs = [("TAGS", tag)] * bool(tag) + [("KEYS", key)] * bool(key)
    properties = "\x02".join(f"{name}\x01{value}" for name, value in pairs).encode()
    return Storable(topic.encode(), body, properties, queue_id, NOW_MS, born_host)


def put(store: Store, body: bytes = b"body", *, topic: str = "T", queue_id: int = 0, tag: str = "", key: str = "", at_ms: int = NOW_MS, write: bool = True) -> Appended:  # fmt: skip
    keys = [one.encode() for one in key.split()]
    appended = store.append(
        message(body, topic=topic, queue_id=queue_id, tag=tag, key=key), at_ms, HOST, tags_code(tag), keys
    )
    if write:
        store.write()
    return appended


def bodies(store: Store, offset: int = 0, *, topic: str = "T", queue_id: int = 0, messages_max: int = 1000) -> list[bytes]:  # fmt: skip
    result = store.read(topic, queue_id, offset, messages_max=messages_max, bytes_max=1 << 20)
    return [one.body for one in decode_messages(result.body)]


def open_store(disk: Disk | None = None, settings: StoreSettings = SMALL) -> Store:
    return Store.open(disk or MemoryDisk(), settings)
