"""A folder outside the tree for what is slow to fetch or to build, shared by all checkouts and processes."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


def cache_folder() -> Path:
    """`$TRIMTAB_CACHE`, else `$XDG_CACHE_HOME/trimtab`, else `~/.cache/trimtab`."""
    if own := os.environ.get("TRIMTAB_CACHE"):
        return Path(own).absolute()
    shared = os.environ.get("XDG_CACHE_HOME")
    return (Path(shared).absolute() if shared else Path.home() / ".cache") / "trimtab"


def built_once(folder: Path, build: Callable[[Path], None]) -> Path:
    """`folder`, filled by `build(temporary)` unless it is there already.

    A folder that exists is complete: it is built beside its place and renamed. The lock makes a second process
    wait instead of fetching the same files (two Mavens must not write one local repository at once).
    """
    if folder.is_dir():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    with (folder.parent / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if folder.is_dir():
            return folder
        temporary = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
        try:
            build(temporary)
            temporary.rename(folder)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
    return folder
