"""The file that says: these servers can be used, at these addresses. It names its process, and goes when that stops.

Two starts may name the same file. The one that became ready last has it; who stops removes only its own.
"""

import json
import os
from pathlib import Path

from trimtab.errors import TrimtabError


class ReadyFileError(TrimtabError):
    """It cannot be written."""


def write(path: Path, facts: dict[str, object]) -> None:
    """As a whole or not at all."""
    aside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        aside.write_text(f"{json.dumps(facts)}\n")
        aside.replace(path)
    except OSError as error:
        aside.unlink(missing_ok=True)
        raise ReadyFileError(
            f"the ready file {path} cannot be written: {error.strerror}; name another place with --ready-file"
        ) from error


def remove_own(path: Path) -> None:
    if _pid_in(path) == os.getpid():
        path.unlink(missing_ok=True)


def remove_if_left_over(path: Path) -> None:
    """Of a process that is gone: whoever waits for the file must not take that one for the next."""
    pid = _pid_in(path)
    if pid is None or not _lives(pid):
        path.unlink(missing_ok=True)


def _pid_in(path: Path) -> int | None:
    try:
        pid = json.loads(path.read_bytes())["pid"]
    except (OSError, ValueError, LookupError, TypeError):
        return None
    return pid if isinstance(pid, int) and pid > 0 else None


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        return True
    return True
