"""Open files for reading, a bounded number of them, those used last. One thread's own."""

from collections import OrderedDict

from trimtab.io.disk import Disk, DiskFile


class Handles:
    """Opens on demand; closes what was not used for longest."""

    def __init__(self, disk: Disk, open_files_max: int) -> None:
        self._disk = disk
        self._open_files_max = open_files_max
        self._files: OrderedDict[str, DiskFile] = OrderedDict()

    def get(self, name: str) -> DiskFile:
        """`FileNotFoundError` if there is no such file."""
        file = self._files.get(name)
        if file is not None:
            self._files.move_to_end(name)
            return file
        file = self._files[name] = self._disk.open(name)
        if len(self._files) > self._open_files_max:
            _, oldest = self._files.popitem(last=False)
            oldest.close()
        return file

    def drop(self, name: str) -> None:
        """For a file that is about to be removed."""
        file = self._files.pop(name, None)
        if file is not None:
            file.close()

    def close(self) -> None:
        while self._files:
            self._files.popitem()[1].close()
