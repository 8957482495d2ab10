"""The file that says: this directory is a store, laid out like this. Other numbers are refused, never guessed at."""

import msgspec

from trimtab.broker.store.errors import StoreLayoutError
from trimtab.broker.store.settings import StoreSettings
from trimtab.io.chance import Chance
from trimtab.io.disk import Disk, opened

NAME = "LAYOUT"
_ASIDE = "LAYOUT.new"
LAYOUT = 1


class Layout(msgspec.Struct, frozen=True):
    """`salt` is the store's own number: files of another store do not fit its checksums."""

    layout: int
    salt: int
    queue_file_entries: int
    check: int = 0

    def checked(self) -> "Layout":
        return msgspec.structs.replace(self, check=self.layout ^ self.salt ^ self.queue_file_entries ^ 0x5EED)


def load_layout(disk: Disk) -> Layout | None:
    """None if there is none; `StoreLayoutError` if it is not one of ours."""
    try:
        with opened(disk, NAME) as file:
            raw = file.pread(file.size(), 0)
    except FileNotFoundError:
        return None
    try:
        layout = msgspec.json.decode(raw, type=Layout)
    except msgspec.DecodeError as exc:
        raise StoreLayoutError(f"{NAME} of {disk} is damaged: {exc}; put it back from a backup") from exc
    if layout.layout != LAYOUT:
        raise StoreLayoutError(
            f"{disk} is laid out as version {layout.layout}, this program knows version {LAYOUT}; use the program that wrote it"
        )
    if layout != layout.checked():
        raise StoreLayoutError(f"{NAME} of {disk} is damaged; put it back from a backup")
    return layout


def create_layout(disk: Disk, settings: StoreSettings, chance: Chance) -> Layout:
    """Makes an empty directory a store."""
    layout = Layout(LAYOUT, chance.randrange(1 << 32), settings.queue_file_entries).checked()
    with opened(disk, _ASIDE, create=True) as file:
        file.truncate(0)
        file.pwrite(msgspec.json.encode(layout) + b"\n", 0)
        file.sync()
    disk.rename(_ASIDE, NAME)
    disk.sync_dir("")
    return layout
