"""`trimtab bench`: each verb gives one JSON object with the promised names."""

import json

from click.testing import CliRunner

from trimtab.cli.main import main
from trimtab.testing import Cluster


def run(*args: str) -> dict[str, object]:
    outcome = CliRunner().invoke(main, ["bench", *args, "--json"], catch_exceptions=False)
    assert outcome.exit_code == 0, outcome.output
    found = json.loads(outcome.stdout)
    assert isinstance(found, dict)
    return found


def test_bench_send_creates_the_topic_and_waits_for_every_receipt() -> None:
    with Cluster() as cluster:
        told = run(
            "send",
            "-n",
            cluster.nameserver,
            "--topic",
            "t",
            "--messages",
            "500",
            "--size",
            "64",
            "--in-flight",
            "32",
        )
        assert {"messages", "seconds", "messages_per_second", "p50_ms", "p99_ms", "errors"} <= set(told)
        assert (told["messages"], told["errors"]) == (500, 0)
        batches = run(
            "send",
            "-n",
            cluster.nameserver,
            "--topic",
            "t",
            "--messages",
            "100",
            "--batch",
            "10",
            "--policy",
            "4.9.3",
        )
        assert (batches["messages"], batches["errors"]) == (100, 0)
        alone = run(
            "send",
            "-n",
            cluster.nameserver,
            "--topic",
            "t",
            "--messages",
            "50",
            "--no-batching",
            "--rate",
            "1000",
        )
        assert (alone["messages"], alone["errors"]) == (50, 0)
        for api in ("pull", "push", "columns"):
            drained = run("drain", "-n", cluster.nameserver, "--topic", "t", "--api", api)
            assert drained["messages"] == 650, api


def test_bench_rebalance_counts_what_changes_cost() -> None:
    with Cluster() as cluster:
        told = run(
            "rebalance", "-n", cluster.nameserver, "--members", "2", "--changes", "2", "--rate", "200", "--handler-ms", "5",
            "--mode", "leased", "--queues", "4", "--pause-s", "0.3",
        )  # fmt: skip
        names = {"sent", "delivered_twice", "lost", "double_held_s", "unheld_s", "moved", "converge_ms_max"}
        assert names <= set(told)
        assert (told["lost"], told["delivered_twice"], told["double_held_s"]) == (0, 0, 0.0)
