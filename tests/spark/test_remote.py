"""Pipelines on a Spark Connect server: the command runs here, Spark somewhere else."""

import asyncio
import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from tests.spark.connecting import connect_server
from trimtab.pipelines.samples import TOPIC, send_orders
from trimtab.testing import Cluster

RUN_S_MAX = 300
ORDERS = 100
SENT = 110
"""Every tenth order twice."""


@pytest.fixture(scope="module")
def remote(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with connect_server(tmp_path_factory.mktemp("connect")) as address:
        yield address


@pytest.fixture(scope="module")
def nameserver() -> Iterator[str]:
    with Cluster(brokers=2) as cluster:
        asyncio.run(send_orders(cluster.nameserver, ORDERS))
        yield cluster.nameserver


def pipeline(*words: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "trimtab", "pipeline", *words, "--json", "-o", str(folder)],
        capture_output=True,
        text=True,
        check=False,
        timeout=RUN_S_MAX,
    )


def rows_of(done: "subprocess.CompletedProcess[str]") -> list[dict[str, Any]]:
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    rows: list[dict[str, Any]] = json.loads(done.stdout)["rows"]
    return rows


def test_a_stream_over_spark_connect_archives_every_message_once(
    remote: str, nameserver: str, tmp_path: Path
) -> None:
    done = pipeline("archive", "--remote", remote, "-n", nameserver, folder=tmp_path)
    assert f"starting Spark at {remote}" in done.stderr
    assert sum(row["messages"] for row in rows_of(done)) == SENT
    written = pq.read_table(tmp_path, columns=["msgId"])["msgId"].to_pylist()
    assert (len(written), len(set(written))) == (SENT, SENT)


def test_a_batch_over_spark_connect_counts_every_message(
    remote: str, nameserver: str, tmp_path: Path
) -> None:
    rows = rows_of(pipeline("windows", "--remote", remote, "-n", nameserver, folder=tmp_path / "out"))
    assert {row["tag"] for row in rows} == {"eu", "us", "asia"}
    assert sum(row["messages"] for row in rows) == SENT


def test_the_sink_over_spark_connect_copies_every_message(
    remote: str, nameserver: str, tmp_path: Path
) -> None:
    rows = rows_of(pipeline("mirror", "--remote", remote, "-n", nameserver, folder=tmp_path / "out"))
    assert rows == [{"from": TOPIC, "to": f"{TOPIC}-mirror", "messages": SENT}]


def test_a_server_that_is_not_there_is_said_in_one_sentence(nameserver: str, tmp_path: Path) -> None:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))  # and does not listen
        remote = f"sc://127.0.0.1:{nobody.getsockname()[1]}"
        done = pipeline("windows", "--remote", remote, "-n", nameserver, folder=tmp_path / "out")
    assert done.returncode != 0
    assert f"no Spark Connect server takes connections at {remote}" in done.stderr
    assert "Traceback" not in done.stderr
