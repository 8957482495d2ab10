"""`trimtab spark doctor` on a cluster, and with a broken package beside ours."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.unit.spark.test_source import create
from trimtab.cli.main import main
from trimtab.spark.doctor import Finding, examine
from trimtab.testing import Cluster


def found(findings: list[Finding], what: str) -> Finding:
    return next(finding for finding in findings if finding.what == what)


def test_a_message_goes_there_and_back() -> None:
    with Cluster() as cluster:
        create(cluster, "broker-a", "checks", 2)
        findings = examine(cluster.nameserver, "checks")
        assert found(findings, "name server").is_well
        assert found(findings, "discovery").is_well
        assert found(findings, "round trip") == Finding(
            "round trip", is_well=True, text="a message to checks came back"
        )


def test_a_topic_that_cannot_be_written_is_told() -> None:
    with Cluster() as cluster:
        trip = found(examine(cluster.nameserver, "no topic!"), "round trip")
    assert not trip.is_well
    assert "the name of a topic" in trip.text


def test_a_broken_package_hides_all_sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "pyspark_broken.py").write_text("import nothing_of_that_name\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    discovery = found(examine(), "discovery")
    assert not discovery.is_well
    assert "pyspark_broken cannot be imported" in discovery.text


def test_a_round_trip_needs_a_name_server() -> None:
    result = CliRunner().invoke(main, ["spark", "doctor", "--round-trip", "t"])
    assert result.exit_code == 2
    assert "needs --nameserver" in result.output
