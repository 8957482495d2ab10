"""Is everything there that Spark needs to read and write? Each look gives one finding; only the round trip writes, one message, where it is told to."""

import os
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from pkgutil import iter_modules
from typing import Any

from trimtab.errors import TrimtabError
from trimtab.spark.java import find_java_home, java_version


@dataclass(frozen=True, slots=True)
class Finding:
    """What was looked at, whether it is well, and what to know or to do."""

    what: str
    is_well: bool
    text: str


_DISCOVERED = "pyspark_"
PACKAGES = {"pyspark": (4, 2), "pyarrow": (18, 0), "numpy": (1, 26), "pandas": (2, 2)}
"""Below these Spark's own checks fail, some of them without a useful word."""
ROUND_TRIP_LOOKS = 10
ROUND_TRIP_PAUSE_S = 0.3


def examine(nameserver: str | None = None, topic: str | None = None) -> list[Finding]:
    """All findings; with a name server also whether it answers, and with a topic whether a message comes back from there."""
    findings = [_package(name, least) for name, least in PACKAGES.items()]
    findings += [_java(), _discovery(), _worker_python(), _unix_sockets()]
    if nameserver:
        findings.append(_nameserver(nameserver))
    if nameserver and topic:
        findings.append(_round_trip(nameserver, topic))
    return findings


def _package(name: str, least: tuple[int, int]) -> Finding:
    wanted = ".".join(map(str, least))
    try:
        found = version(name)
    except PackageNotFoundError:
        return Finding(name, is_well=False, text='not installed: pip install "trimtab[spark]"')
    numbers = tuple(int(part) for part in found.split(".")[:2] if part.isdecimal())
    if numbers < least:
        return Finding(name, is_well=False, text=f"{found}, at least {wanted} is needed")
    return Finding(name, is_well=True, text=found)


def _java() -> Finding:
    try:
        home = find_java_home()
    except TrimtabError as error:
        return Finding("Java", is_well=False, text=str(error))
    return Finding("Java", is_well=True, text=f"{java_version(home / 'bin' / 'java')} in {home}")


def _discovery() -> Finding:
    """Does what Spark does: all packages named pyspark_… are imported, and one that fails hides all others."""
    found = []
    for info in iter_modules():
        if not info.name.startswith(_DISCOVERED):
            continue
        try:
            source = getattr(import_module(info.name), "DefaultSource", None)
        except Exception as error:  # noqa: BLE001 - it is what Spark would meet, whatever it is
            text = f"package {info.name} cannot be imported, so Spark finds no source at all: {error!r}"
            return Finding("discovery", is_well=False, text=text)
        if source is not None:
            found.append(source.name())
    if "rocketmq" not in found:
        text = (
            'Spark will not find "rocketmq" by itself: install trimtab, or call trimtab.spark.register(spark)'
        )
        return Finding("discovery", is_well=False, text=text)
    return Finding("discovery", is_well=True, text='Spark finds format("rocketmq") by itself')


def _worker_python() -> Finding:
    chosen = os.environ.get("PYSPARK_PYTHON")
    if chosen is None and sys.prefix != sys.base_prefix and not os.environ.get("VIRTUAL_ENV"):
        text = f"workers would run the system's Python: set PYSPARK_PYTHON={sys.executable}, or use trimtab.spark.session()"
        return Finding("workers' Python", is_well=False, text=text)
    return Finding("workers' Python", is_well=True, text=chosen or sys.executable)


def _unix_sockets() -> Finding:
    is_on = os.environ.get("PYSPARK_UDS_MODE", "").lower() == "true"
    text = (
        "on"
        if is_on
        else "trimtab.spark.session() turns them on; elsewhere set spark.python.unix.domain.socket.enabled=true"
    )
    return Finding("unix sockets", is_well=True, text=text)


def _nameserver(address: str) -> Finding:
    from trimtab.spark.access import Access  # noqa: PLC0415
    from trimtab.spark.background import background, patience_s  # noqa: PLC0415 - only when one is named
    from trimtab.spark.cluster import ClusterView  # noqa: PLC0415

    access = Access(nameserver=address, retries=0)

    async def ask() -> frozenset[str]:
        return await ClusterView(await background().session(access), access).live_brokers()

    try:
        brokers = background().run(ask(), asked="list of brokers", seconds_max=patience_s(access))
    except TrimtabError as error:
        return Finding("name server", is_well=False, text=str(error))
    return Finding(
        "name server",
        is_well=bool(brokers),
        text=f"{address} knows {', '.join(sorted(brokers)) or 'no broker'}",
    )


def _round_trip(address: str, topic: str) -> Finding:
    """One message through the sink and the source as tasks run them, in this process."""
    import pyarrow as pa  # noqa: PLC0415 - an extra, here and below
    from pyspark.sql.types import StringType, StructField, StructType  # noqa: PLC0415

    from trimtab.io.chance import seeded_chance  # noqa: PLC0415
    from trimtab.spark.source import RocketMQSource  # noqa: PLC0415

    text = f"trimtab-doctor-{seeded_chance().randbytes(8).hex()}"
    where = {"nameserver": address, "topic": topic}
    try:
        row = StructType([StructField("body", StringType())])
        writer: Any = RocketMQSource(dict(where)).writer(row, overwrite=False)
        writer.write(iter([pa.RecordBatch.from_pydict({"body": [text]})]))
        came = any(text in bodies for bodies in _read_lately(where))
    except TrimtabError as error:
        return Finding("round trip", is_well=False, text=str(error))
    told = (
        f"a message to {topic} came back" if came else f"a message to {topic} was taken and did not come back"
    )
    return Finding("round trip", is_well=came, text=told)


def _read_lately(where: dict[str, str]) -> Iterator[list[str]]:
    """Bodies of the last minutes, some times over: a broker of 4.9 shows a message a moment after it has taken it."""
    from trimtab.spark.source import RocketMQSource  # noqa: PLC0415

    lately = RocketMQSource({**where, "startingTimestamp": "-5m", "columns": "body", "bodyAs": "string"})
    pause = threading.Event()
    for _ in range(ROUND_TRIP_LOOKS):
        reader: Any = lately.reader(lately.schema())
        for part in reader.partitions():
            for batch in reader.read(part):
                yield batch.column(0).to_pylist()
        pause.wait(ROUND_TRIP_PAUSE_S)
