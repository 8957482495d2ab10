"""How a store behaves, with units in the names."""

from dataclasses import dataclass
from typing import Literal

from trimtab.errors import TrimtabError

_HOUR_MS = 3_600_000


class StoreSettingsError(TrimtabError):
    """Settings that make no sense, alone or together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreSettings:
    """The defaults are those of a broker that must not lose what it acknowledged."""

    flush: Literal["sync", "async"] = "sync"
    """sync: a message is shown and acknowledged once it is on disk; async: once it is handed to the system."""
    flush_interval_ms: int = 500
    """With async: how much a power cut may take."""
    segment_bytes: int = 256 << 20
    frame_bytes_max: int = 4 << 20
    """A batch that grows beyond this is written at once, in more than one piece."""
    record_bytes_max: int = 16 << 20
    checkpoint_bytes: int = 32 << 20
    """How much of the log is looked through after a crash, at most about twice this."""
    unsynced_bytes_max: int = 256 << 20
    """How much may be written and not yet durable; while it is more, the store takes nothing. So it is while a sync hangs."""
    checkpoint_interval_ms: int = 2_000
    retention_ms: int = 72 * _HOUR_MS
    """0: keep for ever."""
    retention_bytes: int = 0
    """0: as much as there is room for."""
    disk_free_bytes_min: int = 512 << 20
    """Below this the store takes no more messages."""
    queue_file_entries: int = 1 << 18
    open_files_max: int = 256
    scan_entries_max: int = 4_096
    """How many messages one read passes over when a filter refuses them."""
    query_results_max: int = 64
    query_index_files_max: int = 256
    """How many files of the index one query by key reads, each in well under a millisecond; others wait meanwhile."""

    def __post_init__(self) -> None:
        if self.flush not in ("sync", "async"):
            raise StoreSettingsError(f"flush is {self.flush!r}; say 'sync' or 'async'")
        for name, least in _LEAST.items():
            value = getattr(self, name)
            if value < least:
                raise StoreSettingsError(f"{name} is {value}; it must be at least {least}")
        if self.queue_file_entries % 64:
            raise StoreSettingsError(
                f"queue_file_entries is {self.queue_file_entries}; it must be a multiple of 64"
            )


_LEAST = {
    "flush_interval_ms": 1,
    "segment_bytes": 1 << 10,
    "frame_bytes_max": 1 << 10,
    "record_bytes_max": 1 << 10,
    "checkpoint_bytes": 1 << 10,
    "unsynced_bytes_max": 1 << 10,
    "checkpoint_interval_ms": 1,
    "retention_ms": 0,
    "retention_bytes": 0,
    "disk_free_bytes_min": 0,
    "queue_file_entries": 64,
    "open_files_max": 4,
    "scan_entries_max": 1,
    "query_results_max": 1,
    "query_index_files_max": 1,
}
