"""A real folder whose log can be kept from becoming durable, as a disk that is overrun or hangs."""

import threading
from pathlib import Path

from trimtab.io.disk import Bytes, RealDisk, RealFile

STALL_S_MAX = 60.0


class StallingFile:
    """One open file; its sync comes back when the gate is open."""

    def __init__(self, file: RealFile, gate: threading.Event) -> None:
        self._file = file
        self._gate = gate
        self.pread = file.pread
        self.truncate = file.truncate
        self.size = file.size
        self.close = file.close

    def pwrite(self, data: Bytes, offset: int) -> None:
        self._file.pwrite(data, offset)

    def sync(self) -> None:
        assert self._gate.wait(STALL_S_MAX), "the test forgot to open the gate"
        self._file.sync()


class StallingDisk(RealDisk):
    """See above. It begins with the gate open."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.gate = threading.Event()
        self.gate.set()

    def open(self, name: str, *, create: bool = False) -> StallingFile | RealFile:  # type: ignore[override]
        file = super().open(name, create=create)
        return StallingFile(file, self.gate) if name.startswith("log/") else file
