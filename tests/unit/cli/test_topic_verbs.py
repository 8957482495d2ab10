"""`trimtab topic`, against servers of ours."""

import pytest

from tests.unit.cli.verbs import good, run
from trimtab.testing import DROP, BlockingCluster
from trimtab.wire.codes import RequestCode


def test_a_topic_from_making_to_deleting(cluster: BlockingCluster) -> None:
    ns = cluster.nameserver
    assert "8 queue(s) at broker-a, broker-b" in good(ns, "topic", "create", "life", "--queues", "8").out
    assert "life" in good(ns, "topic", "list").out.splitlines()
    described = good(ns, "topic", "describe", "life", "--json").json
    assert [(one["broker"], one["read_queues"], one["perm"]) for one in described["brokers"]] == [
        ("broker-a", 8, "rw"),
        ("broker-b", 8, "rw"),
    ]
    assert "8 -> 4" in good(ns, "topic", "alter", "life", "--queues", "4", "--dry-run").out
    assert good(ns, "topic", "describe", "life", "--json").json["brokers"][0]["read_queues"] == 8
    good(ns, "topic", "alter", "life", "--queues", "4", "--broker", "broker-a")
    sizes = [one["read_queues"] for one in good(ns, "topic", "describe", "life", "--json").json["brokers"]]
    assert sizes == [4, 8]
    assert "nothing was changed" in good(ns, "topic", "delete", "life", "--dry-run").out
    assert good(ns, "topic", "delete", "life", "--yes", "--json").json["deleted"] is True
    assert "life" not in good(ns, "topic", "list", "--all").out.splitlines()


def test_a_list_hides_what_belongs_to_the_servers(cluster: BlockingCluster) -> None:
    ns = cluster.nameserver
    good(ns, "topic", "create", "plain")
    shown = good(ns, "topic", "list", "--json").json["topics"]
    every = good(ns, "topic", "list", "--all", "--json").json["topics"]
    assert "plain" in shown
    assert not {"TBW102", "broker-a", "DefaultCluster", "SCHEDULE_TOPIC_XXXX"} & {*shown}
    assert {"TBW102", "broker-a"} <= {*every}


def test_a_table_and_its_json_say_the_same(cluster: BlockingCluster) -> None:
    ns = cluster.nameserver
    good(ns, "topic", "create", "same", "--queues", "2")
    good(ns, "message", "send", "same", "a", "b", "c")
    rows = good(ns, "topic", "queues", "same").rows
    assert rows[0][:5] == ["BROKER", "QUEUE", "MIN", "MAX", "MESSAGES"]
    told = good(ns, "topic", "queues", "same", "--json").json
    assert [row[:4] for row in rows[1:]] == [
        [one["broker"], str(one["queue_id"]), str(one["min_offset"]), str(one["max_offset"])]
        for one in told["queues"]
    ]
    assert sum(one["max_offset"] for one in told["queues"]) == 3


def test_a_route_and_what_every_name_server_says(cluster: BlockingCluster) -> None:
    ns = cluster.nameserver
    good(ns, "topic", "create", "routed", "--queues", "3")
    rows = good(ns, "topic", "route", "routed").rows
    assert [row[0] for row in rows] == ["BROKER", "broker-a", "broker-b"]
    assert rows[1][2:] == ["3", "3", "rw", f"0={cluster.brokers['broker-a']}"]
    each = good(ns, "topic", "route", "routed", "--each", "--json").json
    assert (each["agree"], [one["nameserver"] for one in each["nameservers"]]) == (True, [ns])


@pytest.mark.parametrize("verb", ["describe", "route", "queues", "delete"])
def test_an_unknown_topic_is_one_line_with_a_name_that_is_like_it(
    cluster: BlockingCluster, verb: str
) -> None:
    good(cluster.nameserver, "topic", "create", "payments")
    told = run(cluster.nameserver, "topic", verb, "paymants")
    assert told.code == 1
    assert told.err.count("\n") == 1
    assert "'paymants' does not exist" in told.err
    assert "did you mean payments?" in told.err


def test_what_is_asked_wrongly_is_exit_code_2(cluster: BlockingCluster) -> None:
    ns = cluster.nameserver
    for args in (
        ("topic", "create"),
        ("topic", "create", "t", "--queues", "0"),
        ("topic", "create", "t", "--cluster", "Elsewhere"),
        ("topic", "alter", "t"),
        ("topic", "lst"),
        ("topic", "delete", "plain2"),
    ):
        if args[-1] == "plain2":
            good(ns, "topic", "create", "plain2")
        assert run(ns, *args).code == 2, args


def test_a_server_that_cannot_be_reached_is_exit_code_3() -> None:
    told = run("127.0.0.1:1", "topic", "list")
    assert told.code == 3
    assert told.err.startswith("trimtab: list of topics: no name server answered")
    guessed = run(None, "topic", "list", "-n", "127.0.0.1:1")
    assert guessed.code == 3


def test_a_hung_broker_is_named_and_the_others_are_shown(cluster: BlockingCluster) -> None:
    ns = cluster.nameserver
    good(ns, "topic", "create", "half", "--queues", "1")
    stop = cluster.intercept(RequestCode.GET_TOPIC_STATS_INFO, lambda _: DROP, server="broker-b")
    timeout_s = 0.5
    told = run(ns, "topic", "queues", "half", "--json", "--timeout", str(timeout_s))
    while told.code != 3 or "broker-a" not in told.out:  # a loaded machine: with more time
        timeout_s *= 2
        assert timeout_s < 60
        told = run(ns, "topic", "queues", "half", "--json", "--timeout", str(timeout_s))
    stop()
    assert [one["broker"] for one in told.json["queues"]] == ["broker-a"]
    assert [one["broker"] for one in told.json["failures"]] == ["broker-b"]
    assert told.err.startswith("trimtab: broker-b: ")
