"""Checkpoints of queries: read, and set elsewhere."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from trimtab.cli.main import main
from trimtab.model import MessageQueue
from trimtab.spark.checkpoints import read_checkpoint, set_offsets
from trimtab.spark.offsets import CheckpointError, Progress

A, B = MessageQueue("t", "broker-a", 0), MessageQueue("t", "broker-a", 1)


def checkpoint(folder: Path, ends: list[Progress], done: int) -> Path:
    for name in ("offsets", "commits"):
        (folder / name).mkdir()
    for number, end in enumerate(ends):
        text = "\n".join(["v1", '{"batchWatermarkMs":0}', '{"someone":"else"}', json.dumps(end.to_json())])
        (folder / "offsets" / str(number)).write_text(text)
        (folder / "offsets" / f".{number}.crc").write_bytes(b"crc")
        if number < done:
            (folder / "commits" / str(number)).write_text("v1\n{}")
    return folder


def test_batches_are_read_and_offsets_set(tmp_path: Path) -> None:
    ends = [Progress({A: 5, B: 5}, {A: 0, B: 0}), Progress({A: 9, B: 7}), Progress({A: 20, B: 20})]
    folder = checkpoint(tmp_path, ends, done=2)
    batches = read_checkpoint(folder)
    assert [(batch.batch, batch.is_done) for batch in batches] == [(0, True), (1, True), (2, False)]
    assert [batch.sources[1] for batch in batches] == ends
    set_offsets(folder, {A: 3})
    batches = read_checkpoint(folder)
    assert [batch.batch for batch in batches] == [0, 1], "a batch that was not done is not run again"
    assert batches[-1].sources[1].offsets == {A: 3, B: 7}
    lines = (folder / "offsets" / "1").read_text().splitlines()
    assert lines[:3] == ["v1", '{"batchWatermarkMs":0}', '{"someone":"else"}']
    assert sorted(file.name for file in (folder / "offsets").iterdir()) == [".0.crc", "0", "1"]


def test_what_is_no_checkpoint_says_so(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="is no checkpoint of a query that has run"):
        read_checkpoint(tmp_path)
    folder = checkpoint(tmp_path, [Progress({A: 5})], done=0)
    with pytest.raises(CheckpointError, match="no batch of"):
        set_offsets(folder, {A: 1})


def test_a_queue_that_the_query_does_not_read_is_refused(tmp_path: Path) -> None:
    folder = checkpoint(tmp_path, [Progress({A: 5})], done=1)
    with pytest.raises(CheckpointError, match=r"t@broker-a:1 is not in .*the query reads t@broker-a:0"):
        set_offsets(folder, {B: 1})


@pytest.mark.parametrize("offset", [-1, -2, 1 << 63])
def test_a_checkpoint_takes_exact_offsets_alone(tmp_path: Path, offset: int) -> None:
    folder = checkpoint(tmp_path, [Progress({A: 5, B: 5})], done=1)
    with pytest.raises(CheckpointError, match=f"t@broker-a:0 cannot go on at {offset}: .* from 0 on"):
        set_offsets(folder, {B: 1, A: offset})
    to = json.dumps({"t": {"broker-a": {"0": offset}}})
    for words in (["--yes"], ["--dry-run"]):
        done = CliRunner().invoke(
            main, ["spark", "offsets", "reset", "--checkpoint", str(folder), "--to", to, *words]
        )
        assert done.exit_code == 1
        assert f"cannot go on at {offset}" in done.output
    assert read_checkpoint(folder)[-1].sources[1].offsets == {A: 5, B: 5}
