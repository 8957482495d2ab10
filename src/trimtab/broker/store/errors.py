"""What can go wrong with the store, in the caller's terms."""

import errno

from trimtab.errors import TrimtabError

OVERLOAD = "[OVERLOAD]system busy, start flow control for a while"
"""How Apache's brokers begin the remark of SYSTEM_BUSY; clients and their people look for it."""
_TOO_MANY_FILES = (errno.EMFILE, errno.ENFILE)
_NOT_ALLOWED = (errno.EACCES, errno.EPERM, errno.EROFS)


def is_short_of_files(failure: BaseException | None) -> bool:
    """Whether a call failed only because too many files are open: nothing was done, and a later try may succeed."""
    return isinstance(failure, OSError) and failure.errno in _TOO_MANY_FILES


def remedy_for(failure: OSError) -> str:
    """What to do when a file of a store could not be used."""
    if failure.errno in _NOT_ALLOWED:
        return "give this user the right to write there, or name another directory"
    return "mend the disk or make room"


class StoreError(TrimtabError):
    """The store cannot do what was asked."""


class StoreDamagedError(StoreError):
    """Bytes that were known to be on disk are not there or have changed. Nothing was cut away."""

    def __init__(self, *, file: str, offset: int, what: str, advice: str) -> None:
        self.file = file
        self.offset = offset
        self.what = what
        self.advice = advice
        super().__init__(f"{file} is damaged at byte {offset}: {what}; {advice}")


class StoreLayoutError(StoreError):
    """The directory was written by another version, or is no store."""


class StoreReadOnlyError(StoreError):
    """The disk refused to make data durable. Reading goes on; writing ends until the broker is started again."""

    indeterminate = True


class StoreWriteError(StoreError):
    """The disk refused a batch. None of it is stored; the next one may be."""

    retriable = True


class StoreFullError(StoreError):
    """Too little room is left on the disk, or writing ran too far ahead of it. It gets better by itself or by making room."""

    retriable = True


class StoreSearchTooWideError(StoreError):
    """A search ended before it had looked everywhere, and found nothing so far. A narrower one may find it."""


class StoreBusyError(StoreError):
    """Too much is on its way already, or too many files are open. Nothing is wrong with what is stored; it gets better by itself."""

    retriable = True


class StoreClosedError(StoreError):
    """The store was closed."""
