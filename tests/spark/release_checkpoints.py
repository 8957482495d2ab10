"""The query whose checkpoints are kept in `checkpoints/`, one for each release: a later release must go on from them exactly.

    python -m tests.spark.release_checkpoints tests/spark/checkpoints/0.1

writes one with the sources that are there. It ends as after a crash: the last batch is planned and not done.
"""

import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tests.unit.spark.test_source import create, fill, numbered
from trimtab.model import MessageQueue
from trimtab.spark import session
from trimtab.testing import BlockingCluster, Cluster

WAIT_S = 300
PER_QUEUE = 25
QUEUES = [
    MessageQueue("orders", broker, number) for broker in ("broker-a", "broker-b") for number in range(2)
]


def filled(cluster: BlockingCluster) -> None:
    """The same messages at the same offsets, whenever it is called on a new cluster of two brokers."""
    for broker in cluster.brokers:
        create(cluster, broker, "orders", 2)
    for queue in QUEUES:
        fill(cluster, bodies_of(queue), queue=queue)


def bodies_of(queue: MessageQueue) -> list[bytes]:
    return numbered(PER_QUEUE, f"{queue.broker_name}-{queue.queue_id}-")


def run(spark: Any, cluster: BlockingCluster, checkpoint: Path, rows: Path) -> None:
    stream = spark.readStream.format("rocketmq").options(
        nameserver=cluster.nameserver, topic="orders", startingOffsets="earliest", maxOffsetsPerTrigger="30"
    )
    query = (
        stream.load()
        .selectExpr("cast(body as string) body", "brokerName", "queueId", "queueOffset")
        .writeStream.format("parquet")
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start(str(rows))
    )
    assert query.awaitTermination(WAIT_S), "it did not end"


def main(folder: Path) -> None:
    """Keeps the first two batches, the second of them not done."""
    with TemporaryDirectory() as rows, Cluster(brokers=2) as cluster:
        filled(cluster)
        spark = session("local[2]")
        run(spark, cluster, folder, Path(rows))
        spark.stop()
    for part, kept in (("offsets", 2), ("commits", 1)):
        for file in (folder / part).iterdir():
            number = file.name.removeprefix(".").removesuffix(".crc")
            if number.isdecimal() and int(number) >= kept:
                file.unlink()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
