"""What a store consists of."""

from dataclasses import dataclass

from trimtab.broker.store.catalog import Catalog
from trimtab.broker.store.handles import Handles
from trimtab.broker.store.index import Index
from trimtab.broker.store.layout import Layout
from trimtab.broker.store.log import Log
from trimtab.broker.store.progress import StateFile
from trimtab.broker.store.queues import QueueFiles
from trimtab.broker.store.settings import StoreSettings
from trimtab.io.disk import Disk


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """Made together, for one directory."""

    disk: Disk
    settings: StoreSettings
    handles: Handles
    log: Log
    catalog: Catalog
    index: Index
    files: QueueFiles
    state: StateFile


def make_parts(disk: Disk, settings: StoreSettings, layout: Layout) -> Parts:
    handles = Handles(disk, settings.open_files_max)
    files = QueueFiles(handles, layout.queue_file_entries, layout.salt)
    return Parts(
        disk=disk,
        settings=settings,
        handles=handles,
        log=Log(disk, handles, settings, layout.salt),
        catalog=Catalog(files),
        index=Index(handles, layout.salt),
        files=files,
        state=StateFile(disk, "checkpoint"),
    )
