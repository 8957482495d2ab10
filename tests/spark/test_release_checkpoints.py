"""Checkpoints that releases have written are read by this one: a stream goes on exactly where it was."""

import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.spark.release_checkpoints import QUEUES, bodies_of, filled, run
from trimtab.spark.checkpoints import read_checkpoint
from trimtab.testing import Cluster

pytestmark = pytest.mark.filterwarnings("default")  # pyspark has warnings of its own

KEPT = sorted(path for path in (Path(__file__).parent / "checkpoints").iterdir() if path.is_dir())


def test_there_is_a_checkpoint_of_every_release() -> None:
    assert [path.name for path in KEPT] == ["0.1"]


@pytest.mark.parametrize("kept", KEPT, ids=lambda path: path.name)
def test_a_stream_goes_on_from_a_checkpoint_of_a_release(spark: Any, tmp_path: Path, kept: Path) -> None:
    checkpoint = tmp_path / "checkpoint"
    shutil.copytree(kept, checkpoint)
    batches = read_checkpoint(checkpoint)
    assert [batch.is_done for batch in batches] == [True, False]
    done = batches[0].sources[0].offsets
    assert set(done) == set(QUEUES)
    with Cluster(brokers=2) as cluster:
        filled(cluster)
        run(spark, cluster, checkpoint, tmp_path / "rows")
    # Spark's list of files begins with the batches of the release, which are not here: the files themselves are read.
    rows = (
        spark.read.parquet(f"{tmp_path}/rows/*.parquet")
        .orderBy("brokerName", "queueId", "queueOffset")
        .collect()
    )
    assert [row.body for row in rows] == [
        body.decode() for queue in QUEUES for body in bodies_of(queue)[done[queue] :]
    ]
    assert 0 < len(rows) < sum(len(bodies_of(queue)) for queue in QUEUES)
