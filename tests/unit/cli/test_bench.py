"""`trimtab bench`: each verb gives one JSON object with the promised names."""

import json
from collections import Counter
from collections.abc import Callable

import pytest
from click.testing import CliRunner

from trimtab import blocking
from trimtab.cli.bench_send import QUEUES
from trimtab.cli.main import main
from trimtab.client.rebalance_load import Sending
from trimtab.testing import Cluster
from trimtab.wire.codes import RESPONSE_FLAG, RequestCode, ResponseCode
from trimtab.wire.commands import Command


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
        with blocking.Admin(nameserver=cluster.nameserver) as admin:
            assert len(admin.topic_queues("t").queues) == QUEUES, "made before the first send"
        batches = run(
            "send",
            "-n",
            cluster.nameserver,
            "--topic",
            "t",
            "--messages",
            "100",
            "--batch",
            "7",
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


def test_bench_send_counts_what_has_a_receipt_and_says_by_its_exit_code_that_not_all_has() -> None:
    with Cluster() as cluster:
        cluster.intercept(RequestCode.SEND_BATCH_MESSAGE, _refusing_every_second())
        args = ("--topic", "t", "--messages", "100", "--batch", "10", "--in-flight", "1", "--json")
        outcome = CliRunner().invoke(main, ["bench", "send", "-n", cluster.nameserver, *args])
    assert outcome.exit_code == 1
    told = json.loads(outcome.stdout)
    assert (told["messages"], told["errors"], sum(told["shares"].values())) == (100, 50, 50)
    assert told["messages_per_second"] == pytest.approx(50 / told["seconds"])
    assert "answered 13 MessageIllegal" in told["first_error"]
    assert told["first_error"] in outcome.stderr


def _refusing_every_second() -> Callable[[Command], Command | None]:
    seen: list[Command] = []

    def refuse(request: Command) -> Command | None:
        seen.append(request)
        if len(seen) % 2:
            return None
        return Command(code=ResponseCode.MESSAGE_ILLEGAL, opaque=request.opaque, flag=RESPONSE_FLAG)

    return refuse


def test_a_message_that_was_stored_though_its_send_failed_makes_up_for_no_lost_one() -> None:
    sending = Sending()
    sending.acknowledged = {b"1", b"2"}
    sending.errors = 1
    assert sending.missing(Counter({b"1": 1, b"3": 1})) == 1


def test_bench_rebalance_counts_what_changes_cost() -> None:
    with Cluster() as cluster:
        told = run(
            "rebalance", "-n", cluster.nameserver, "--members", "2", "--changes", "2", "--rate", "200", "--handler-ms", "5",
            "--mode", "leased", "--queues", "4", "--pause-s", "0.3",
        )  # fmt: skip
        names = {
            "sent", "delivered_twice", "lost", "double_held_s", "unheld_s", "unheld_ms_max", "undelivered_s", "undelivered_ms_max",
            "moved", "converge_ms_max",
        }  # fmt: skip
        assert names <= set(told)
        assert (told["lost"], told["delivered_twice"], told["double_held_s"]) == (0, 0, 0.0)
        with blocking.Admin(nameserver=cluster.nameserver) as admin:
            left = [*admin.topics().names, *admin.groups().names]
        assert not [name for name in left if "trimtab-rebalance" in name], "topic and group are gone"
