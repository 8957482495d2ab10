"""Ctrl-C in a pipeline: one line, exit code 130, and nothing that still runs."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

WAIT_S = 300
GONE_S_MAX = 60


def until(true: Callable[[], bool], seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while not true():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.2)
    return True


def of_session(leader: int) -> list[str]:
    """What runs in the session of a process: the JVM, workers of Spark, servers."""
    found = subprocess.run(["ps", "-eo", "sid=,stat=,args="], capture_output=True, text=True, check=True)
    fields = [line.split(None, 2) for line in found.stdout.splitlines()]
    return [words[2] for words in fields if words[0] == str(leader) and not words[1].startswith("Z")]


BESIDE = ("sh", "-c", 'trap "" INT; exec "$@"', "sh")
"""As a shell without job control starts what runs beside it: Ctrl-C is ignored until the command asks for it."""


def command(folder: Path, *words: str) -> list[str]:
    out = str(folder / "out")
    return [sys.executable, "-m", "trimtab", "pipeline", *words, "-o", out, "--master", "local[1]"]


@pytest.mark.parametrize(
    ("shell", "words", "moment"),
    [
        ((), ("archive", "--every", "1 second"), lambda folder: bool(list(folder.glob("out/**/*.parquet")))),
        (BESIDE, ("sweep", "--seeds", "4000"), lambda folder: "playing" in (folder / "said").read_text()),
        (BESIDE, ("windows",), lambda folder: "starting Spark" in (folder / "said").read_text()),
    ],
    ids=["a stream", "a batch", "Spark is starting"],
)
def test_ctrl_c_ends_a_pipeline_with_one_line_and_leaves_nothing(
    tmp_path: Path, shell: tuple[str, ...], words: tuple[str, ...], moment: Callable[[Path], bool]
) -> None:
    said = tmp_path / "said"
    with (
        said.open("w") as file,
        subprocess.Popen(
            [*shell, *command(tmp_path, *words)],
            stdout=file,
            stderr=file,
            cwd=tmp_path,
            start_new_session=True,
        ) as running,
    ):
        try:
            assert until(lambda: moment(tmp_path) or running.poll() is not None, WAIT_S), said.read_text()
            assert running.poll() is None, said.read_text()
            before = len(said.read_text())
            os.killpg(running.pid, signal.SIGINT)  # as a terminal does it: everybody in front of it gets it
            assert running.wait(WAIT_S) == 130, said.read_text()
            assert until(lambda: not of_session(running.pid), GONE_S_MAX), of_session(running.pid)
        finally:
            if running.poll() is None:
                os.killpg(running.pid, signal.SIGKILL)
    lines = [line for line in said.read_text()[before:].splitlines() if line.strip()]
    assert f"{words[0]}: interrupted, stopping Spark …" in lines
    assert not [line for line in lines if "Traceback" in line or "ERROR" in line], lines
