"""`trimtab up` in a process of its own, for benches."""

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.apache.cluster import ApacheCluster

READY_S_MAX = 30.0


@contextmanager
def own_cluster(flush: str, *, brokers: int = 1) -> Iterator[dict[str, Any]]:
    """What it says when it is ready: `nameserver`, and `brokers` by name."""
    with tempfile.TemporaryDirectory() as folder:
        ready = Path(folder) / "ready.json"
        process = subprocess.Popen(
            [
                sys.executable, "-m", "trimtab", "up", "--data", str(Path(folder) / "data"), "--flush", flush,
                "--brokers", str(brokers), "--nameserver-port", "0", "--broker-port", "0", "--ready-file", str(ready),
            ],
            stdout=subprocess.DEVNULL,
        )  # fmt: skip
        try:
            deadline_s = time.monotonic() + READY_S_MAX
            while not ready.exists():
                if process.poll() is not None or time.monotonic() > deadline_s:
                    raise RuntimeError("trimtab up did not become ready")
                time.sleep(0.02)
            yield json.loads(ready.read_text())
        finally:
            process.terminate()
            process.wait(20)


@contextmanager
def nameserver_of(server: str, flush: str) -> Iterator[str]:
    """Of our own servers (`own`), or of Apache's of a version with its usual flush."""
    if server == "own":
        with own_cluster(flush) as ready:
            yield str(ready["nameserver"])
    else:
        with ApacheCluster(server, heap_mib=1024) as cluster:
            yield cluster.nameserver
