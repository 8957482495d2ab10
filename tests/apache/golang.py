"""Builds our small Go programs against a stock Go client, once, and runs them."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from tests.apache.cache import built_once, cache_folder
from tests.apache.conversation import Conversation
from tests.apache.java import find_tool

if TYPE_CHECKING:
    from collections.abc import Sequence

SOURCES = Path(__file__).parent / "go"
BUILD_TIMEOUT_S = 900.0


class BuildError(Exception):
    """The Go program could not be built; the text carries the compiler's last words."""


def go_program(name: str) -> Path:
    """The executable of `tests/apache/go/<name>`, built once and kept in the cache."""
    source = SOURCES / name
    files = sorted(file for file in source.iterdir() if file.suffix in (".go", ".mod", ".sum"))
    text = b"".join(file.name.encode() + b"\0" + file.read_bytes() for file in files)
    key = hashlib.sha256(text).hexdigest()[:24]
    return built_once(cache_folder() / "go" / key, lambda folder: _build(source, folder / name)) / name


def start_go_program(name: str, args: Sequence[str] = ()) -> Conversation:
    """The program, running, to be used as a context manager: tell it a line, hear a line."""
    program = go_program(name)
    home = Path(tempfile.mkdtemp(prefix="trimtab-go-"))
    try:
        return Conversation(f"<Go program {name}>", [program, *args], home)
    except BaseException:
        shutil.rmtree(home, ignore_errors=True)
        raise


def _build(source: Path, program: Path) -> None:
    go = find_tool("go", "Install Go 1.21 or newer")
    command: list[str | Path] = [go, "build", "-trimpath", "-o", program, "."]
    run = subprocess.run(
        command,
        cwd=source,
        env={**os.environ, "GOFLAGS": "-mod=readonly -buildvcs=false", "GOTOOLCHAIN": "local"},
        capture_output=True,
        text=True,
        timeout=BUILD_TIMEOUT_S,
        check=False,
    )
    if run.returncode != 0:
        raise BuildError(
            f"go could not build {source} (exit {run.returncode}); it fetches its modules from the module proxy:\n{run.stderr[-4000:]}"
        )
