"""Runs the stock C++ client by the Python binding that ships it as a wheel, fetched once."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.apache.cache import built_once, cache_folder
from tests.apache.conversation import Conversation

SOURCE = Path(__file__).parent / "cpp"
FETCH_TIMEOUT_S = 300.0


class FetchError(Exception):
    """The wheel could not be fetched; the text carries pip's last words."""


def start_cpp_program() -> Conversation:
    """The program, running, to be used as a context manager: tell it a line, hear a line."""
    home = Path(tempfile.mkdtemp(prefix="trimtab-cpp-"))
    try:
        # Its log goes under its home.
        environment = [f"PYTHONPATH={_binding()}", f"HOME={home}"]
        command = ["env", *environment, sys.executable, str(SOURCE / "client.py")]
        return Conversation("<C++ client>", command, home)
    except BaseException:
        shutil.rmtree(home, ignore_errors=True)
        raise


def _binding() -> Path:
    key = hashlib.sha256((SOURCE / "requirements.txt").read_bytes()).hexdigest()[:24]
    return built_once(cache_folder() / "cpp" / key, _fetch)


def _fetch(folder: Path) -> None:
    command: list[str | Path] = [
        sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--require-hashes",
        "--target", folder, "--requirement", SOURCE / "requirements.txt",
    ]  # fmt: skip
    run = subprocess.run(command, capture_output=True, text=True, timeout=FETCH_TIMEOUT_S, check=False)
    if run.returncode != 0:
        raise FetchError(f"pip could not fetch the C++ client (exit {run.returncode}):\n{run.stderr[-4000:]}")
