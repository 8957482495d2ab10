"""The name server's small settings: namespaces of texts, the one thing it keeps over a restart.

Pure: `to_json` and `from_json` are what a shell writes and reads. The file looks like RocketMQ's own kvConfig.json.
"""

from dataclasses import dataclass, field

import msgspec

from trimtab.errors import ProtocolError, TrimtabError
from trimtab.names.routes import NamesFullError
from trimtab.wire.bodies.base import Body
from trimtab.wire.fastjson import decode_body
from trimtab.wire.fastjson_writer import Form, encode_body

ORDER_TOPICS = "ORDER_TOPIC_CONFIG"
"""The namespace of ordered topics: `topic` to `broker-a:4;broker-b:4`. Brokers get all of it with every registration."""


class KvFileError(TrimtabError):
    """The file that should hold the settings does not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KvLimits:
    """How much is kept. The sum keeps a namespace well inside one frame."""

    entries_max: int = 10_000
    """Keys and namespaces together."""
    value_bytes_max: int = 32 << 10
    total_bytes_max: int = 4 << 20


class _KvFile(Body, frozen=True, kw_only=True):
    config_table: dict[str, dict[str, str]] = msgspec.field(default_factory=dict)


@dataclass(slots=True)
class KvConfig:
    """Namespaces, keys and values. `changes` grows with every change, so that a shell sees when to save."""

    limits: KvLimits = field(default_factory=KvLimits)
    changes: int = 0
    _table: dict[str, dict[str, str]] = field(default_factory=dict)
    _total_bytes: int = 0

    def put(self, namespace: str, key: str, value: str) -> None:
        """Sets a value."""
        known = self._table.get(namespace)
        is_new = known is None or key not in known
        size = _size(key, value) + (_size(namespace) if known is None else 0)
        replaced = 0 if known is None or is_new else _size(key, known[key])
        self._require_room(
            namespace, key, value, grows=is_new, total_bytes=self._total_bytes + size - replaced
        )
        self._table.setdefault(namespace, {})[key] = value
        self._total_bytes += size - replaced
        self.changes += 1

    def get(self, namespace: str, key: str) -> str | None:
        """A value, if it is set."""
        return self._table.get(namespace, {}).get(key)

    def delete(self, namespace: str, key: str) -> None:
        """Forgets a value. Its namespace stays: an empty one tells brokers that no topic is ordered any more."""
        value = self._table.get(namespace, {}).pop(key, None)
        if value is not None:
            self._total_bytes -= _size(key, value)
            self.changes += 1

    def namespace(self, namespace: str) -> dict[str, str] | None:
        """All of a namespace, or None if there never was one."""
        table = self._table.get(namespace)
        return None if table is None else dict(table)

    def to_json(self) -> bytes:
        """All of it, to be saved."""
        return encode_body(_KvFile(config_table=self._table), Form.STANDARD)

    def load_json(self, data: bytes) -> None:
        """What was saved, in place of what is here."""
        try:
            table = decode_body(_KvFile, data).config_table
        except ProtocolError as exc:
            raise KvFileError(f"unreadable settings: {exc}") from exc
        self._table = table
        self._total_bytes = sum(
            _size(namespace) + sum(_size(key, value) for key, value in entries.items())
            for namespace, entries in table.items()
        )

    def _require_room(self, namespace: str, key: str, value: str, *, grows: bool, total_bytes: int) -> None:
        limits = self.limits
        entries = len(self._table) + sum(map(len, self._table.values()))
        if len(value.encode()) > limits.value_bytes_max:
            raise NamesFullError(f"a value of {len(value.encode())} bytes exceeds {limits.value_bytes_max}")
        if grows and entries >= limits.entries_max:
            raise NamesFullError(
                f"{namespace[:64]}/{key[:64]} refused: {limits.entries_max} settings are kept"
            )
        if total_bytes > limits.total_bytes_max:
            raise NamesFullError(
                f"{namespace[:64]}/{key[:64]} refused: more than {limits.total_bytes_max} bytes of settings"
            )


def _size(*texts: str) -> int:
    return sum(len(text.encode()) for text in texts)
