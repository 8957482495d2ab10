"""Looking at the offsets in a checkpoint, and setting them elsewhere while the query is stopped. Folders on this machine only.

A checkpoint has a file for the end of each batch (`offsets/7`) and one for each batch that is done (`commits/7`). A file of offsets is a
version, a line about the batch, and a line for each source.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from trimtab.model import MessageQueue
from trimtab.spark.offsets import CheckpointError, Progress, progress_from_json

OFFSET_MAX = (1 << 63) - 1
_LINES_BEFORE_SOURCES = 2


@dataclass(frozen=True, slots=True)
class BatchOffsets:
    """The end of one batch, for each source that is ours."""

    batch: int
    is_done: bool
    sources: Mapping[int, Progress]
    """By the place of the source in the query."""


def read_checkpoint(folder: Path) -> tuple[BatchOffsets, ...]:
    """The batches that the checkpoint remembers, oldest first."""
    numbers = _numbers(folder / "offsets")
    if not numbers:
        raise CheckpointError(
            f"{folder} is no checkpoint of a query that has run: there is no {folder / 'offsets'} with batches in it"
        )
    done = set(_numbers(folder / "commits"))
    return tuple(BatchOffsets(number, number in done, _sources(folder, number)) for number in numbers)


def set_offsets(folder: Path, offsets: Mapping[MessageQueue, int]) -> BatchOffsets:
    """Lets the query go on from these offsets; queues that are not named stay. The query must be stopped.

    Batches that were not done are forgotten, so that they are not run again as they were.
    """
    refuse_inexact(offsets)
    batches = read_checkpoint(folder)
    done = [batch for batch in batches if batch.is_done]
    if not done:
        raise CheckpointError(
            f"no batch of {folder} is done: begin with a new checkpoint and startingOffsets instead"
        )
    last = done[-1]
    sources = {place: _moved(progress, offsets) for place, progress in last.sources.items()}
    unknown = [queue for queue in offsets if not any(queue in source.offsets for source in sources.values())]
    if unknown:
        raise CheckpointError(f"{unknown[0]} is not in {folder}; the query reads {_known(last)}")
    _write(folder, last.batch, sources)
    for batch in batches:
        if batch.batch > last.batch:
            _remove(folder / "offsets", batch.batch)
    return BatchOffsets(last.batch, is_done=True, sources=sources)


def refuse_inexact(offsets: Mapping[MessageQueue, int]) -> None:
    """A checkpoint holds offsets as they are: -1 and -2 would be read as such, not as latest and earliest."""
    for queue, offset in offsets.items():
        if not 0 <= offset <= OFFSET_MAX:
            raise CheckpointError(
                f"{queue} cannot go on at {offset}: a checkpoint holds exact offsets from 0 on, and no words such as -1 for latest or"
                " -2 for earliest; `trimtab topic queues` shows where queues begin and end"
            )


def _moved(progress: Progress, offsets: Mapping[MessageQueue, int]) -> Progress:
    mine = {queue: offset for queue, offset in offsets.items() if queue in progress.offsets}
    return Progress({**progress.offsets, **mine}, progress.begins)


def _known(batch: BatchOffsets) -> str:
    queues = sorted(str(queue) for source in batch.sources.values() for queue in source.offsets)
    return ", ".join(queues) or "nothing of ours"


def _numbers(folder: Path) -> list[int]:
    if not folder.is_dir():
        return []
    return sorted(int(file.name) for file in folder.iterdir() if file.name.isdecimal())


def _lines(folder: Path, number: int) -> Sequence[str]:
    return (folder / "offsets" / str(number)).read_text().splitlines()


def _sources(folder: Path, number: int) -> dict[int, Progress]:
    found = {}
    for place, line in enumerate(_lines(folder, number)[_LINES_BEFORE_SOURCES:]):
        try:
            value = json.loads(line)
        except ValueError:
            continue  # another source's own form
        if isinstance(value, dict) and "v" in value and "q" in value:
            found[place] = progress_from_json(value)
    return found


def _write(folder: Path, number: int, sources: Mapping[int, Progress]) -> None:
    lines = list(_lines(folder, number))
    for place, progress in sources.items():
        lines[_LINES_BEFORE_SOURCES + place] = json.dumps(progress.to_json())
    path = folder / "offsets" / str(number)
    aside = path.with_name(f".{number}.new")
    aside.write_text("\n".join(lines))
    _checksum(path).unlink(missing_ok=True)
    aside.replace(path)


def _remove(folder: Path, number: int) -> None:
    path = folder / str(number)
    _checksum(path).unlink(missing_ok=True)
    path.unlink()


def _checksum(path: Path) -> Path:
    """Hadoop keeps one beside each file, and refuses a file that does not fit it."""
    return path.with_name(f".{path.name}.crc")
