"""What all pipelines share on the command line: the cluster or a sample in its place, Spark, a folder, and a table at the end."""

import logging
import re
import warnings
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from trimtab.cli.pipeline_remote import remote_session
from trimtab.cli.pipeline_spark import spark_session
from trimtab.cli.printing import print_json, print_table
from trimtab.errors import TrimtabError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SAMPLE_BROKERS = 2
_REASON = re.compile(r"^(?:[\w.]+\.)?\w+(?:Error|Exception): (?!Traceback)(.+)$", re.MULTILINE)

Sample = Callable[[str], Awaitable[object]]
"""Fills the cluster at an address."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One run of a pipeline."""

    name: str
    nameserver: str | None
    master: str
    remote: str | None
    folder: Path
    extra: dict[str, str]
    extra_sink: dict[str, str]
    as_json: bool

    def say(self, text: str) -> None:
        """A step, for people who watch."""
        click.echo(f"{self.name}: {text} …", err=True)

    @contextmanager
    def spark(self) -> "Iterator[SparkSession]":
        """A session for as long as the block; what goes wrong in it is said in one sentence."""
        from trimtab.cli.demo_spark import why_not

        if (reason := why_not()) is not None:
            raise TrimtabError(f"pipelines cannot run: {reason}".replace("\\[", "["))
        from pyspark.errors import PySparkException

        warnings.filterwarnings("ignore", message="PySpark does not yet fully support pandas")
        with spark_session(self.name, self._session) as session:
            try:
                yield session
            except PySparkException as error:
                raise TrimtabError(_reason(str(error))) from error

    def _session(self) -> "SparkSession":
        from trimtab.spark import session

        self.say(f"starting Spark at {self.remote or self.master}")
        if self.remote is not None:
            return remote_session(self.remote)
        local = session(self.master, app=f"trimtab-{self.name}")
        local.sparkContext.setLogLevel("FATAL")  # what fails is said below, in one sentence
        return local

    @contextmanager
    def cluster(self, sample: Sample) -> Iterator[dict[str, str]]:
        """The source's options for the cluster that was named; without one, for a cluster in this process, filled by `sample`."""
        with ExitStack() as stack:
            address = self.nameserver
            if address is None:
                from trimtab.testing import Cluster

                logging.getLogger("trimtab").setLevel(logging.CRITICAL)  # the samples fail on purpose
                self.say("no --nameserver: making a cluster and messages in this process")
                address = stack.enter_context(Cluster(brokers=SAMPLE_BROKERS)).nameserver
                _fill(sample, address)
            yield {"nameserver": address, **self.extra}

    def sink(self, source: Mapping[str, str]) -> dict[str, str]:
        """The sink's options: how to reach the cluster as the source does, and what was said of the sink."""
        from trimtab.spark.access import connection_part

        return {**connection_part(source), **self.extra_sink}

    def finish(self, titles: Sequence[str], rows: Sequence[Sequence[object]], *files: Path) -> None:
        """The short table at the end, and where the files are."""
        if self.as_json:
            print_json(
                {
                    "rows": [dict(zip(titles, row, strict=True)) for row in rows],
                    "files": [str(file) for file in files],
                }
            )
            return
        numbers = [
            title
            for at, title in enumerate(titles)
            if rows and all(isinstance(row[at], int | float) for row in rows)
        ]
        print_table(titles, [[_shown(value) for value in row] for row in rows], numbers)
        for file in files:
            click.echo(f"wrote {file}")


def _fill(sample: Sample, address: str) -> None:
    import asyncio

    async def fill() -> None:
        await sample(address)

    asyncio.run(fill())


def _shown(value: object) -> str:
    if isinstance(value, float):
        return f"{value:,.2f}"
    return f"{value:,}" if isinstance(value, int) else "-" if value is None else str(value)


def _reason(text: str) -> str:
    """What went wrong, without the way it took through Spark. The innermost error is the last one named."""
    found = _REASON.findall(text)
    return str(found[-1]) if found else text.splitlines()[0]


def job(name: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Declares a pipeline: adds the options that all have, and hands over a `Job`."""

    def declared(command: Callable[..., None]) -> Callable[..., None]:
        @wraps(command)
        def run(
            nameserver: str | None,
            master: str,
            remote: str | None,
            out: Path | None,
            option: tuple[str, ...],
            sink_option: tuple[str, ...],
            as_json: bool,  # noqa: FBT001 - click hands it over so
            **rest: Any,
        ) -> None:
            folder = (out or Path(f"trimtab-{name}")).absolute()
            command(
                Job(
                    name=name, nameserver=nameserver, master=master, remote=remote, folder=folder, extra=_pairs(option),
                    extra_sink=_pairs(sink_option), as_json=as_json,
                ),
                **rest,
            )  # fmt: skip

        for option in reversed(_OPTIONS):
            run = option(run)
        return run

    return declared


def _pairs(texts: Sequence[str]) -> dict[str, str]:
    pairs = dict(text.partition("=")[::2] for text in texts)
    if bad := [text for text in texts if "=" not in text]:
        raise click.UsageError(f"--option {bad[0]!r} is not NAME=VALUE")
    from trimtab.spark.access import is_open_secret

    if open_secrets := [name for name, value in pairs.items() if is_open_secret(name, value)]:
        name = open_secrets[0]
        raise click.UsageError(
            f"{name} would be seen by everybody on this machine: say {name}='${{env:NAME}}'"
        )
    return pairs


_OPTIONS: tuple[Callable[[Callable[..., None]], Callable[..., None]], ...] = (
    click.option(
        "-n", "--nameserver", help="The cluster; without it, one with generated messages in this process."
    ),
    click.option("--master", default="local[*]", show_default=True, help="Spark's master."),
    click.option("--remote", help="A Spark Connect server instead: sc://host:15002."),
    click.option(
        "-o",
        "--out",
        type=click.Path(path_type=Path),
        help="Folder for what is written; trimtab-NAME, if not said.",
    ),
    click.option(
        "--option",
        multiple=True,
        metavar="NAME=VALUE",
        help="An option of the source; can be said more than once. What is about the connection counts for a sink too.",
    ),
    click.option(
        "--sink-option",
        multiple=True,
        metavar="NAME=VALUE",
        help="An option of the sink, where the pipeline has one; can be said more than once.",
    ),
    click.option("--json", "as_json", is_flag=True, help="The table as one JSON document."),
)
