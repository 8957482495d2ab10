"""Many runs of the simulator, spread over Spark: scenario x mode and strategy x seed."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import functions as f

from trimtab.errors import SettingsError
from trimtab.pipelines.drawing import bars, page, section, table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PAGE = "report.html"
WAYS = (
    ("classic", "AVG"), ("classic", "CONSISTENT_HASH"), ("leased", "AVG"), ("leased", "sticky"), ("leased", "lag"),
)  # fmt: skip
RUNS_MAX = 1_000_000
_COUNTS = ("moved", "moved_min", "delivered", "delivered_twice", "lost")
_FIGURES = (
    "moved_per_min",
    "max_mean",
    "double_held_s",
    "unheld_s",
    "t_converge_s",
    "requests_per_member",
    "simulated_s",
)
_SCHEMA = (
    "scenario string, mode string, strategy string, seed long, "
    + ", ".join(f"{name} long" for name in _COUNTS)
    + ", "
    + ", ".join(f"{name} double" for name in _FIGURES)
    + ", broken array<string>"
)
_ARROW_TYPES: dict[str, pa.DataType] = {
    **dict.fromkeys(("scenario", "mode", "strategy"), pa.string()),
    **dict.fromkeys(("seed", *_COUNTS), pa.int64()),
    **dict.fromkeys(_FIGURES, pa.float64()),
    "broken": pa.list_(pa.string()),
}
_ARROW = pa.schema(_ARROW_TYPES)
TITLES = (
    "scenario", "mode", "strategy", "runs", "moved/min", "max/mean", "double-held s", "unheld s", "twice", "twice max", "lost",
    "converge s max", "broken",
)  # fmt: skip


def runs(
    spark: "SparkSession",
    *,
    scenarios: Sequence[str],
    ways: Sequence[tuple[str, str]] = WAYS,
    seeds: int = 100,
    first_seed: int = 0,
    tasks: int | None = None,
    world: Mapping[str, Any] | None = None,
) -> "DataFrame":
    """A row a run. `world` are options of `trimtab.sim.run`: members, queues, brokers and so on."""
    count = len(scenarios) * len(ways) * seeds
    if not 1 <= count <= RUNS_MAX:
        raise SettingsError(f"{count} runs were asked for; 1 to {RUNS_MAX} can be made")
    plays = [(scenario, mode, strategy) for scenario in scenarios for mode, strategy in ways]
    wanted = spark.createDataFrame(plays, "scenario string, mode string, strategy string").crossJoin(
        spark.range(first_seed, first_seed + seeds).withColumnRenamed("id", "seed")
    )
    shared = wanted.repartition(
        tasks or min(count, 4 * int(spark.conf.get("spark.sql.shuffle.partitions") or 1))
    )
    return shared.mapInArrow(_player(dict(world or {})), _SCHEMA)


def _player(world: dict[str, Any]) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def play(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from trimtab.sim import run  # noqa: PLC0415 - where it runs, not where it is planned

        for batch in batches:
            for wanted in batch.to_pylist():
                report = run(**wanted, **world)
                row = {name: getattr(report, name) for name in (*_COUNTS, *_FIGURES)}
                yield pa.RecordBatch.from_pylist(
                    [{**wanted, **row, "broken": list(report.violations)}], schema=_ARROW
                )

    return play


def summary(played: "DataFrame") -> "DataFrame":
    """A row for each scenario, mode and strategy: means over the seeds, and the worst."""
    return (
        played.groupBy("scenario", "mode", "strategy")
        .agg(
            f.count("*").alias("runs"),
            f.avg("moved_per_min").alias("moved_per_min"),
            f.avg("max_mean").alias("max_mean"),
            f.avg("double_held_s").alias("double_held_s"),
            f.avg("unheld_s").alias("unheld_s"),
            f.avg("delivered_twice").alias("delivered_twice"),
            f.max("delivered_twice").alias("delivered_twice_max"),
            f.sum("lost").alias("lost"),
            f.max("t_converge_s").alias("t_converge_s_max"),
            f.sum((f.size("broken") > 0).cast("int")).alias("broken"),
        )
        .orderBy("scenario", "mode", "strategy")
    )


def sweep(spark: "SparkSession", folder: str | Path, **wanted: Any) -> list[tuple[Any, ...]]:
    """Plays, writes the runs, the summary and a page into `folder`; the summary's rows in the order of `TITLES`."""
    folder = Path(folder)
    runs(spark, **wanted).write.mode("overwrite").parquet(str(folder / "runs.parquet"))
    found = summary(spark.read.parquet(str(folder / "runs.parquet")))
    found.coalesce(1).write.mode("overwrite").parquet(str(folder / "summary.parquet"))
    rows = [tuple(row) for row in found.collect()]
    (folder / PAGE).write_text(sweep_page(rows), encoding="utf-8")
    return rows


def sweep_page(rows: Sequence[tuple[Any, ...]]) -> str:
    """The page of a sweep. PURE."""
    parts = [
        section("Means over the seeds", "Times are virtual.", table(TITLES, [_shown(row) for row in rows]))
    ]
    for scenario in dict.fromkeys(row[0] for row in rows):
        own = [row for row in rows if row[0] == scenario]
        for title in ("moved/min", "double-held s", "unheld s", "twice"):
            at = TITLES.index(title)
            values = [
                (f"{row[1]} {row[2]}", float(row[at]))
                for row in own
                if row[at] is not None and math.isfinite(row[at])
            ]
            parts.append(section(f"{scenario}: {title}", "Mean of a run.", bars(values)))
    return page("Sweep of the simulator", parts)


def _shown(row: tuple[Any, ...]) -> list[object]:
    return ["-" if value is None else value for value in row]
