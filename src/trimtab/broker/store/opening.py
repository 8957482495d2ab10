"""The first steps of opening: from an empty directory, or from what an earlier life left there."""

import msgspec

from trimtab.broker.store.checkpoint import Checkpoint, decode_checkpoint
from trimtab.broker.store.errors import StoreDamagedError, StoreLayoutError
from trimtab.broker.store.index import DIRECTORY as INDEX
from trimtab.broker.store.layout import Layout, create_layout, load_layout
from trimtab.broker.store.log import DIRECTORY as LOG
from trimtab.broker.store.progress import DIRECTORY as STATE
from trimtab.broker.store.progress import StateFile, StateStatus
from trimtab.broker.store.queues import DIRECTORY as QUEUES
from trimtab.broker.store.settings import StoreSettings
from trimtab.io.chance import Chance
from trimtab.io.disk import Disk
from trimtab.wire.hashing import tags_code
from trimtab.wire.messages import StoredMessage
from trimtab.wire.properties import TAGS, decode_text, find_property

_TAGS = TAGS.encode()


def tags_code_by_tag(message: StoredMessage) -> int:
    """The code of the message's tag, as every queue has it, except those that keep a time there."""
    tag = find_property(message.properties_bytes, _TAGS)
    return 0 if tag is None else tags_code(decode_text(tag))


def find_layout(disk: Disk, settings: StoreSettings, chance: Chance) -> Layout:
    """The store's layout; an empty directory becomes a store."""
    layout = load_layout(disk)
    # A process that was killed may have left names that everybody sees and no disk has.
    for directory in ("", LOG, QUEUES, INDEX, STATE):
        if disk.names(directory):
            disk.sync_dir(directory)
    if layout is not None:
        return layout
    if disk.names(LOG):
        raise StoreLayoutError(f"{disk} has a log but no LAYOUT file; put that file back from a backup")
    state = StateFile(disk, "checkpoint")
    for _ in range(2):  # both generations, so that one can always be missed
        state.save(msgspec.msgpack.encode(Checkpoint()))
    return create_layout(disk, settings, chance)


def load_checkpoint(state: StateFile, report: list[str], *, required: bool) -> Checkpoint | None:
    """The newest one that is whole; without one only a rebuild helps."""
    loaded = state.load()
    if loaded.note:
        report.append(loaded.note)
    if loaded.data is not None:
        return decode_checkpoint(loaded.data)
    if required:
        raise StoreDamagedError(
            file="state/checkpoint.a",
            offset=0,
            what="it is missing" if loaded.status is StateStatus.ABSENT else loaded.note,
            advice="put state/ back from a backup of the same moment, or make it anew from the log with `trimtab store rebuild FOLDER`",
        )
    return None
