"""A Spark Connect server in a process of its own, on loopback, for as long as a block."""

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyspark

from trimtab.spark.java import find_java_home

READY_S_MAX = 180
ENDED_S_MAX = 60
_SERVER = "org.apache.spark.sql.connect.service.SparkConnectServer"
_READY = re.compile(r"Spark Connect server started at: \S*?:(\d+)")
_SETTINGS = {
    "spark.connect.grpc.binding.address": "127.0.0.1",
    "spark.connect.grpc.binding.port": "0",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.ui.enabled": "false",
}


@contextmanager
def connect_server(folder: Path) -> Iterator[str]:
    """Its address, as `sc://…`. What it says is in `folder`."""
    home = Path(pyspark.__file__).parent
    settings = [word for name, value in _SETTINGS.items() for word in ("--conf", f"{name}={value}")]
    log = folder / "server.log"
    with (
        log.open("w") as said,
        subprocess.Popen(
            [
                home / "bin" / "spark-submit",
                "--class",
                _SERVER,
                "--master",
                "local[2]",
                *settings,
                "spark-internal",
            ],
            stdout=said,
            stderr=said,
            cwd=folder,
            env={
                **os.environ,
                "JAVA_HOME": str(find_java_home()),
                "SPARK_HOME": str(home),
                "PYSPARK_PYTHON": sys.executable,
            },
        ) as server,
    ):
        try:
            yield f"sc://127.0.0.1:{_port(server, log)}"
        finally:
            server.terminate()
            try:
                server.wait(ENDED_S_MAX)
            except subprocess.TimeoutExpired:
                server.kill()


def _port(server: "subprocess.Popen[bytes]", log: Path) -> str:
    """The one that it chose itself."""
    deadline = time.monotonic() + READY_S_MAX
    while (found := _READY.search(log.read_text())) is None:
        assert server.poll() is None, log.read_text()[-3000:]
        assert time.monotonic() < deadline, log.read_text()[-3000:]
        time.sleep(0.2)
    return found[1]
