"""A local session that is set up well, on a machine that may have neither Java nor an activated environment."""

import os
import sys
from collections.abc import Mapping

from pyspark.sql import SparkSession

from trimtab.spark.java import find_java_home

DEFAULTS: Mapping[str, str] = {
    "spark.python.unix.domain.socket.enabled": "true",  # a task costs a third of what it costs over TCP
    "spark.sql.session.timeZone": "UTC",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}
_HERE: Mapping[str, str] = {"spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1"}
"""Only where the executors are on this machine: those of a cluster must reach the driver."""


def local_session(master: str, app: str, conf: Mapping[str, str]) -> SparkSession:
    """See `trimtab.spark.session`."""
    os.environ["JAVA_HOME"] = str(find_java_home())
    # Workers of an environment that is not activated would run the system's Python.
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    builder = SparkSession.builder.master(master).appName(app)
    for name, value in {**defaults(master), **conf}.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def defaults(master: str) -> dict[str, str]:
    """What a session gets unless the caller says otherwise; a cluster's own settings are left to the cluster."""
    if not master.startswith("local"):
        return dict(DEFAULTS)
    return {**DEFAULTS, **_HERE, "spark.sql.shuffle.partitions": str(_cores(master))}


def _cores(master: str) -> int:
    """The 2 of `local[2]`; those of this machine where a star stands."""
    inside = master.partition("[")[2].partition("]")[0].partition(",")[0]
    return int(inside) if inside.isdecimal() else os.cpu_count() or 1
