"""Is everything there that Spark needs to read and write? Each look gives one finding, and none of them changes anything."""

import os
import sys
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec

from trimtab.errors import TrimtabError
from trimtab.spark.java import find_java_home, java_version


@dataclass(frozen=True, slots=True)
class Finding:
    """What was looked at, whether it is well, and what to know or to do."""

    what: str
    is_well: bool
    text: str


PACKAGES = {"pyspark": (4, 2), "pyarrow": (18, 0), "numpy": (1, 26), "pandas": (2, 2)}
"""Below these Spark's own checks fail, some of them without a useful word."""


def examine(nameserver: str | None = None) -> list[Finding]:
    """All findings; with a name server also whether it answers."""
    findings = [_package(name, least) for name, least in PACKAGES.items()]
    findings += [_java(), _discovery(), _worker_python(), _unix_sockets()]
    return [*findings, *([_nameserver(nameserver)] if nameserver else [])]


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
    if find_spec("pyspark_rocketmq") is None:
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
