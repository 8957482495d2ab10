"""Small state that is replaced as a whole: consumer offsets, topics, groups, the checkpoint.

Two generations of each are kept, in two files. A new one is written aside, synced, and renamed over the older of the two; so
whatever happens on the way, the newest complete one is there, and if that one rots, the one before it.
"""

from enum import Enum
from struct import Struct
from typing import NamedTuple

from trimtab.io.disk import Disk, opened
from trimtab.wire.hashing import crc32

DIRECTORY = "state"

_HEAD = Struct(">4sIQII")  # magic, version, generation, length, checksum
_MAGIC = b"tris"
_VERSION = 1


class StateStatus(Enum):
    """How a state was found."""

    ABSENT = "absent"
    OK = "ok"
    PREVIOUS = "previous"
    """One generation is damaged or gone; the data is the other one's, so it may be the one before the newest."""
    DAMAGED = "damaged"


_BAD = "bad"


class LoadedState(NamedTuple):
    """`data` is there with OK and PREVIOUS; `note` says in a sentence what was wrong, if anything."""

    status: StateStatus
    data: bytes | None
    note: str = ""


class _Slot(NamedTuple):
    found: bool
    generation: int
    data: bytes | None


class StateFile:
    """One named state. Used by one thread at a time."""

    def __init__(self, disk: Disk, name: str) -> None:
        self._disk = disk
        self._name = name
        self._slots = (f"{DIRECTORY}/{name}.a", f"{DIRECTORY}/{name}.b")
        self._aside = f"{DIRECTORY}/{name}.new"
        self._generation = -1

    def load(self) -> LoadedState:
        slots = [self._read(slot) for slot in self._slots]
        good = [slot for slot in slots if slot.data is not None]
        if not good:
            self._generation = 0
            if any(slot.found for slot in slots):
                text = f"both generations of {self._name} are damaged ({' and '.join(self._slots)})"
                return LoadedState(StateStatus.DAMAGED, None, text)
            return LoadedState(StateStatus.ABSENT, None)
        newest = max(good, key=lambda slot: slot.generation)
        self._generation = newest.generation
        # The first generation is alone; from the second on there are always two.
        alone = newest.generation == 1 and sum(slot.found for slot in slots) == 1
        if len(good) == 2 or alone:
            return LoadedState(StateStatus.OK, newest.data)
        wrong = self._slots[(newest.generation + 1) % 2]
        text = (
            f"{wrong} is damaged or missing; generation {newest.generation} of {self._name} is used instead"
        )
        return LoadedState(StateStatus.PREVIOUS, newest.data, text)

    def set_aside(self) -> list[str]:
        """Renames both generations, so that there is none; gives their new names."""
        renamed = []
        for slot in self._slots:
            if slot in self._disk.names(DIRECTORY):
                renamed.append(f"{slot}.{_BAD}")
                self._disk.rename(slot, renamed[-1])
        self._disk.sync_dir(DIRECTORY)
        return renamed

    def save(self, data: bytes) -> None:
        """Back when it is durable; on `OSError` the state is the old one or the new one."""
        if self._generation < 0:
            self.load()
        generation = self._generation + 1
        fields = _HEAD.pack(_MAGIC, _VERSION, generation, len(data), 0)
        head = fields[:-4] + self._checksum(fields, data).to_bytes(4)
        with opened(self._disk, self._aside, create=True) as file:
            file.truncate(0)
            file.pwrite(head + data, 0)
            file.sync()
        self._disk.rename(self._aside, self._slots[generation % 2])
        self._disk.sync_dir(DIRECTORY)
        self._generation = generation

    def _read(self, name: str) -> _Slot:
        try:
            with opened(self._disk, name) as file:
                raw = file.pread(file.size(), 0)
        except FileNotFoundError:
            return _Slot(found=False, generation=0, data=None)
        if len(raw) < _HEAD.size:
            return _Slot(found=True, generation=0, data=None)
        magic, version, generation, length, checksum = _HEAD.unpack_from(raw)
        data = raw[_HEAD.size :]
        whole = magic == _MAGIC and version == _VERSION and length == len(data)
        right_slot = name == self._slots[generation % 2]
        if not whole or not right_slot or checksum != self._checksum(raw[: _HEAD.size], data):
            return _Slot(found=True, generation=0, data=None)
        return _Slot(found=True, generation=generation, data=data)

    def _checksum(self, head: bytes, data: bytes) -> int:
        """Over the name too: a file of another state does not fit."""
        return crc32(data, crc32(head[:-4], crc32(self._name.encode())))


def state_names(disk: Disk) -> list[str]:
    """Of all states that a store has."""
    files = [name.removeprefix(f"{DIRECTORY}/") for name in disk.names(DIRECTORY)]
    return sorted({file[:-2] for file in files if file.endswith((".a", ".b"))})
