"""Source and sink on a cluster with accounts and TLS; a secret shows nowhere."""

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.security.accounts import ADMIN, written
from tests.security.certificates import Identity, identity
from trimtab import Admin, Message, Producer
from trimtab.testing import BlockingCluster, Cluster

WAIT_S = 600
SPARK_KEY, CANARY = "the-spark-key", "canary-4f1d7c0a9b"
ACCOUNTS = f"""\
accounts:
- accessKey: {ADMIN.access_key}
  secretKey: {ADMIN.secret_key}
  admin: true
- accessKey: {SPARK_KEY}
  secretKey: {CANARY}
  topicPerms:
  - orders=SUB
  - copies=PUB|SUB
  groupPerms:
  - spark-secured=SUB
  - TOOLS_CONSUMER=SUB
"""

DRIVER = """
import sys
from trimtab.spark import session

nameserver, ca, folder = sys.argv[1:]
spark = session("local[2]")
spark.sparkContext.setLogLevel("INFO")
access = {"nameserver": nameserver, "tlsCaFile": ca, "accessKey": "the-spark-key"}
for secret in ({"secretKey": "${env:SPARK_CANARY}"}, {"secretKeyFile": folder + "/key"}):
    orders = spark.read.format("rocketmq").options(**access, **secret, topic="orders", group="spark-secured").load()
    orders.explain("extended")
    print("read", orders.count())
    query = (
        spark.readStream.format("rocketmq").options(**access, **secret, topic="orders", group="spark-secured", startingOffsets="earliest")
        .load().select("body").writeStream.format("rocketmq").options(**access, **secret, topic="copies")
        .option("checkpointLocation", f"{folder}/checkpoint-{len(secret)}").trigger(availableNow=True).start()
    )
    query.awaitTermination()
    query.explain(True)
try:
    spark.read.format("rocketmq").options(**access, secretKey="not-the-secret", topic="orders", group="spark-secured").load().count()
except Exception as error:
    print("refused", error)
try:
    spark.read.format("rocketmq").options(**{**access, "tlsCaFile": ""}, secretKey="x", topic="orders", numRetries="0").load().count()
except Exception as error:
    print("plain", error)
"""


@pytest.fixture
def own(tmp_path: Path) -> Identity:
    return identity(tmp_path)


@pytest.fixture
def secured(tmp_path: Path, own: Identity) -> Iterator[BlockingCluster]:
    with Cluster(tls=(own.cert, own.key), acl=written(tmp_path, ACCOUNTS)) as cluster:
        yield cluster


async def fill(nameserver: str, ca: Path, messages: int) -> None:
    async with Admin(nameserver=nameserver, credentials=ADMIN, tls=ca) as admin:
        for topic in ("orders", "copies"):
            await admin.create_topic(topic, queues=2)
    async with Producer("tests", nameserver=nameserver, credentials=ADMIN, tls=ca) as producer:
        await asyncio.gather(
            *(producer.send(Message("orders", b"%d" % number)) for number in range(messages))
        )


def test_a_secret_is_in_no_plan_log_or_checkpoint(
    secured: BlockingCluster, own: Identity, tmp_path: Path
) -> None:
    asyncio.run(fill(secured.nameserver, own.ca, 40))
    work = tmp_path / "work"
    work.mkdir()
    (work / "key").write_text(CANARY)
    command = [sys.executable, "-c", DRIVER, secured.nameserver, str(own.ca), str(work)]
    done = subprocess.run(
        command,
        env={**os.environ, "SPARK_CANARY": CANARY},
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        check=False,
    )
    said = done.stdout + done.stderr
    assert done.returncode == 0, said[-4_000:]
    assert done.stdout.count("read 40") == 2, said[-4_000:]
    assert "refused" in done.stdout
    assert "plain" in done.stdout
    assert CANARY not in said
    (work / "key").unlink()
    files = [path for path in work.rglob("*") if path.is_file()]
    assert any(path.parent.name == "offsets" for path in files)
    assert not [path for path in files if CANARY.encode() in path.read_bytes()]
