"""Open files for reading, a bounded number of them, those used last. One thread's own.

When the process may open no more files, these are the ones that can be spared: the oldest is closed for the one that is wanted.
"""

from collections import OrderedDict

from trimtab.broker.store.errors import StoreBusyError, is_short_of_files
from trimtab.io.disk import Disk, DiskFile


class Handles:
    """Opens on demand; closes what was not used for longest."""

    def __init__(self, disk: Disk, open_files_max: int) -> None:
        self._disk = disk
        self._open_files_max = open_files_max
        self._files: OrderedDict[str, DiskFile] = OrderedDict()

    def get(self, name: str) -> DiskFile:
        """`FileNotFoundError` if there is no such file; `StoreBusyError` if no more files can be opened."""
        file = self._files.get(name)
        if file is not None:
            self._files.move_to_end(name)
            return file
        file = self._files[name] = self._open(name)
        if len(self._files) > self._open_files_max:
            self._close_oldest()
        return file

    def _open(self, name: str) -> DiskFile:
        while True:
            try:
                return self._disk.open(name)
            except OSError as exc:
                if not is_short_of_files(exc):
                    raise
                if not self._files:
                    raise StoreBusyError(
                        f"{name} cannot be read now: {exc}; try again, or raise the limit of open files (ulimit -n)"
                    ) from exc
                self._close_oldest()

    def _close_oldest(self) -> None:
        _, oldest = self._files.popitem(last=False)
        oldest.close()

    def drop(self, name: str) -> None:
        """For a file that is about to be removed."""
        file = self._files.pop(name, None)
        if file is not None:
            file.close()

    def close(self) -> None:
        while self._files:
            self._files.popitem()[1].close()
