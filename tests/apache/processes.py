"""Child processes that do not outlive us.

Each child leads a session of its own, so a Ctrl-C in the terminal reaches us alone and we end the children in
order, by pid. Three things see to it that none stays behind: `end` at the end of each `with`, an `atexit` guard for
what was forgotten, and, where `setpriv` is at hand, the kernel's parent-death signal for the case that we are killed.
"""

from __future__ import annotations

import atexit
import os
import shutil
import signal
import subprocess
import threading
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

STOP_TIMEOUT_S = 90.0
KILL_TIMEOUT_S = 30.0
TAIL_BYTES = 8192

_running: dict[int, subprocess.Popen[bytes]] = {}
_owner_pid = os.getpid()


def spawn(
    command: Sequence[str | Path],
    *,
    log: Path,
    directory: Path,
    environment: Mapping[str, str] = {},
    talks: bool = False,
) -> subprocess.Popen[bytes]:
    """A running child whose output goes to `log`; one that `talks` has pipes for stdin and stdout instead."""
    with log.open("ab") as output:
        child = subprocess.Popen(
            [*_die_with_us(), *command],
            stdin=subprocess.PIPE if talks else subprocess.DEVNULL,
            stdout=subprocess.PIPE if talks else output,
            stderr=output,
            cwd=directory,
            env={**os.environ, **environment},
            start_new_session=True,
        )
    _running[child.pid] = child
    return child


def end(children: Iterable[subprocess.Popen[bytes]], timeout_s: float = STOP_TIMEOUT_S) -> None:
    """Asks all children to go (SIGTERM), kills who is still there after the timeout, and reaps them."""
    remaining = [child for child in children if child.poll() is None]
    for child in remaining:
        child.send_signal(signal.SIGTERM)
        child.send_signal(signal.SIGCONT)  # a paused child would never hear the first
    deadline_s = time.monotonic() + timeout_s
    for child in remaining:
        try:
            child.wait(max(0.0, deadline_s - time.monotonic()))
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait(KILL_TIMEOUT_S)
    forget_the_dead()


def kill(child: subprocess.Popen[bytes]) -> None:
    """Takes the child away as a power cut would (SIGKILL)."""
    child.kill()
    child.wait(KILL_TIMEOUT_S)
    forget_the_dead()


def running_pids() -> list[int]:
    """The children started here that have not been reaped."""
    forget_the_dead()
    return sorted(_running)


def forget_the_dead() -> None:
    for pid, child in list(_running.items()):
        if child.poll() is not None:
            _running.pop(pid, None)  # several threads may see it dead


def tail(log: Path) -> str:
    """The last lines of a log file, for an error message."""
    if not log.exists():
        return ""
    with log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - TAIL_BYTES))
        return file.read().decode(errors="replace")


def _die_with_us() -> list[str]:
    """A prefix for commands; only in the main thread, because the kernel takes the starting *thread's* end for ours."""
    setpriv = shutil.which("setpriv")
    if setpriv is None or threading.current_thread() is not threading.main_thread():
        return []
    return [setpriv, "--pdeathsig", "KILL"]


@atexit.register
def _kill_the_forgotten() -> None:
    if os.getpid() != _owner_pid:
        return  # a fork inherits the table, not the children
    for child in list(_running.values()):
        kill(child)
