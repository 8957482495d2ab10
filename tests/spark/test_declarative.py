"""The declarative pipeline of `examples/` is run by Spark's own command, twice: the second run reads only what came since."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pyspark

from tests.unit.spark.test_source import create, fill, numbered
from trimtab.spark.java import find_java_home
from trimtab.testing import Cluster

EXAMPLE = Path(__file__).parents[2] / "examples" / "declarative"
COMMAND = ("run", "--remote", "local[2]", "--conf", "spark.sql.catalogImplementation=hive")
RUN_S_MAX = 300


def run(folder: Path, nameserver: str) -> None:
    spark = Path(pyspark.__file__).parent
    environment = {
        **os.environ, "JAVA_HOME": str(find_java_home()), "SPARK_HOME": str(spark), "NAMESRV_ADDR": nameserver,
        "PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
    }  # fmt: skip
    done = subprocess.run(
        [spark / "bin" / "spark-pipelines", *COMMAND],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=RUN_S_MAX,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]


def bodies(folder: Path) -> list[bytes]:
    column = pq.read_table(folder / "spark-warehouse" / "orders", columns=["body"])["body"]
    return sorted(bytes(body or b"") for body in column.to_pylist())


def test_the_declarative_pipeline_runs_twice_and_reads_every_message_once(tmp_path: Path) -> None:
    project = shutil.copytree(EXAMPLE, tmp_path / "declarative")
    spec = project / "spark-pipeline.yml"
    spec.write_text(spec.read_text().replace("file:///tmp/trimtab-declarative", f"file://{tmp_path}"))
    with Cluster() as cluster:
        create(cluster, "broker-a", "orders", 4)
        fill(cluster, numbered(30))
        run(project, cluster.nameserver)
        assert bodies(project) == sorted(numbered(30))
        fill(cluster, numbered(10, "later"))
        run(project, cluster.nameserver)
    assert bodies(project) == sorted(numbered(30) + numbered(10, "later"))
