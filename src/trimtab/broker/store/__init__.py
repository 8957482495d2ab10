"""The broker's durable store. Everything that others need of it is named here."""

from trimtab.broker.store.errors import (
    StoreBusyError,
    StoreClosedError,
    StoreDamagedError,
    StoreError,
    StoreFullError,
    StoreLayoutError,
    StoreReadOnlyError,
    StoreWriteError,
)
from trimtab.broker.store.flusher import Executor, InlineExecutor, ThreadExecutor
from trimtab.broker.store.fresh import Appended, AppendedTogether, Grown
from trimtab.broker.store.progress import LoadedState, StateStatus
from trimtab.broker.store.queues import Entry
from trimtab.broker.store.reading import ReadResult, ReadStatus, TimeRule, keys_of
from trimtab.broker.store.settings import StoreSettings, StoreSettingsError
from trimtab.broker.store.store import Store, StoreStats

__all__ = [
    "Appended",
    "AppendedTogether",
    "Entry",
    "Executor",
    "Grown",
    "InlineExecutor",
    "LoadedState",
    "ReadResult",
    "ReadStatus",
    "StateStatus",
    "Store",
    "StoreBusyError",
    "StoreClosedError",
    "StoreDamagedError",
    "StoreError",
    "StoreFullError",
    "StoreLayoutError",
    "StoreReadOnlyError",
    "StoreSettings",
    "StoreSettingsError",
    "StoreStats",
    "StoreWriteError",
    "ThreadExecutor",
    "TimeRule",
    "keys_of",
]
