"""`trimtab pipeline` as far as it goes without Spark."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from trimtab.cli.main import main
from trimtab.cli.pipeline import free_folder, is_taken
from trimtab.cli.pipeline_job import Job, _reason


def run(*words: str) -> tuple[int, str]:
    result = CliRunner().invoke(main, ["pipeline", *words])
    return result.exit_code, result.output


def test_all_pipelines_are_listed_with_what_they_do() -> None:
    code, said = run("list", "--json")
    assert code == 0
    rows = {row["name"]: row["what"] for row in json.loads(said)}
    assert set(rows) == {
        "archive",
        "backfill",
        "balance-report",
        "dedup",
        "dlq",
        "mirror",
        "sweep",
        "windows",
    }
    assert all(rows.values())


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["archive", "--option", "tag"], "is not NAME=VALUE"),
        (["archive", "--option", "secretKey=abc"], "secretKey='${env:NAME}'"),
        (["archive", "--option", "SECRETKEY=abc"], "SECRETKEY='${env:NAME}'"),
        (["archive", "--option", "securitytoken=abc"], "securitytoken='${env:NAME}'"),
        (["mirror", "--sink-option", "secretKey=abc"], "secretKey='${env:NAME}'"),
        (["mirror", "--sink-option", "tag"], "is not NAME=VALUE"),
        (["sweep", "-s", "nothing"], "nothing"),
        (["archiv"], "archive"),
    ],
)
def test_what_is_asked_wrongly_is_said_before_spark_starts(words: list[str], said: str) -> None:
    code, text = run(*words)
    assert code in (1, 2)
    assert said in text


def test_an_error_of_spark_is_cut_down_to_its_reason() -> None:
    text = (
        "[PYTHON_DATA_SOURCE_ERROR] Failed: Traceback (most recent call last):\n  File x\n"
        "trimtab.spark.problems.OptionError: option 'topic' is 'nobody': there is no such topic\n"
    )
    assert _reason(text) == "option 'topic' is 'nobody': there is no such topic"
    assert _reason("[TABLE] not found\nmore") == "[TABLE] not found"


def test_a_sink_takes_of_the_sources_options_what_is_about_the_connection() -> None:
    job = Job(
        name="mirror", nameserver="h:1", master="local", remote=None, folder=Path(), extra={}, extra_sink={"batchBytes": "64k"},
        as_json=False,
    )  # fmt: skip
    source = {
        "nameserver": "h:1",
        "ACCESSKEY": "me",
        "maxOffsetsPerTrigger": "9",
        "startingOffsets": "latest",
    }
    assert job.sink(source) == {"nameserver": "h:1", "ACCESSKEY": "me", "batchBytes": "64k"}


def test_a_sample_run_has_a_folder_of_its_own(tmp_path: Path) -> None:
    folder = tmp_path / "trimtab-archive"
    assert free_folder(folder) == folder
    folder.mkdir()
    assert free_folder(folder) == folder, "nothing lies in it"
    (folder / "_checkpoint").mkdir()
    (tmp_path / "trimtab-archive-2").write_text("a file")
    assert is_taken(folder)
    assert free_folder(folder) == tmp_path / "trimtab-archive-3"


@pytest.mark.parametrize("name", ["archive", "mirror"])
def test_a_sample_run_does_not_go_on_with_what_lies_in_a_folder(tmp_path: Path, name: str) -> None:
    (tmp_path / "of-yesterday").touch()
    code, said = run(name, "--out", str(tmp_path))
    assert code == 1
    assert f"{tmp_path} is not empty, and a sample run begins anew: choose another folder" in said
