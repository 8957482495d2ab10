"""The demo's third part: Spark, in a process of its own, writes the topics to Parquet and makes the balance report of what consumers traced."""

import asyncio
import json
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from trimtab.errors import JavaNotFoundError, TrimtabError

if TYPE_CHECKING:
    from trimtab.cli.demo_screen import Screen

SPARK_S_MAX = 480.0
LOG_FILE = "spark.log"


def why_not() -> str | None:
    """What Spark lacks here, and what to install; None if it can run."""
    if any(find_spec(package) is None for package in ("pyspark", "pyarrow", "numpy")):
        return 'it needs Spark: pip install "trimtab\\[spark]"'
    from trimtab.spark.java import find_java_home

    try:
        find_java_home()
    except JavaNotFoundError as error:
        return str(error).replace("[", "\\[")
    return None


async def archive_topics(nameserver: str, topics: list[str], folder: Path, screen: "Screen") -> int:
    """How many messages are in the archive."""
    from trimtab.io.clock import SystemClock

    clock = SystemClock()
    began_ms = clock.monotonic_ms()
    async with screen.moving(
        lambda: f"Spark is at work ({(clock.monotonic_ms() - began_ms) / 1000:.0f} s) …"
    ):
        found = json.loads(await _said_by_spark(nameserver, topics, folder))
    rows = int(found["rows"])
    screen.say(
        f"{rows:,} messages of {' and '.join(topics)} are Parquet files now, with {found['ids']:,} different ids:"
        f" [bold]{found['archive']}[/bold]"
    )
    screen.say(
        f"balance-report made a page of {found['deliveries']:,} traced deliveries, {found['moves']:,} moves of queues among"
        f" them: [bold]{found['page']}[/bold]"
    )
    screen.say(f"Spark took {(clock.monotonic_ms() - began_ms) / 1000:.0f} s for all of it.")
    return rows


async def _said_by_spark(nameserver: str, topics: list[str], folder: Path) -> bytes:
    log = folder / LOG_FILE
    with log.open("wb") as errors:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "trimtab.cli.demo_spark", nameserver, ",".join(topics), str(folder),
            stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=errors, start_new_session=True,
        )  # fmt: skip
        try:
            async with asyncio.timeout(SPARK_S_MAX):
                said, _ = await process.communicate()
        except TimeoutError:
            raise TrimtabError(f"Spark was not done within {SPARK_S_MAX:.0f} s; its log: {log}") from None
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
    if process.returncode != 0:
        raise TrimtabError(f"Spark ended with {process.returncode}; its log: {log}")
    return said.splitlines()[-1]


def archive_and_report(nameserver: str, topics: str, folder: str) -> dict[str, int | str]:
    """In the other process: what is there now, once."""
    from trimtab.cli.pipeline import free_folder
    from trimtab.pipelines.balance import balance_report
    from trimtab.pipelines.streams import archive
    from trimtab.spark import session

    spark = session("local[2]", app="trimtab-demo")
    spark.sparkContext.setLogLevel("ERROR")
    try:
        # Every demo is a cluster of its own, which cannot go on with the archive of another one.
        archived = str(free_folder(Path(folder) / "archive"))
        archive(spark, archived, options={"nameserver": nameserver, "topic": topics}).awaitTermination()
        rows = spark.read.parquet(archived)
        report = balance_report(
            spark, f"{folder}/balance", options={"nameserver": nameserver}, topics=tuple(topics.split(","))
        )
        return {
            "archive": archived,
            "rows": rows.count(),
            "ids": rows.select("msgId").distinct().count(),
            "deliveries": spark.read.parquet(f"{folder}/balance/deliveries.parquet").count(),
            "moves": len(report.moves),
            "page": str(report.page),
        }
    finally:
        spark.stop()


if __name__ == "__main__":
    sys.stdout.write(json.dumps(archive_and_report(*sys.argv[1:])) + "\n")
