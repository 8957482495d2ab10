"""`trimtab group`, against servers of ours and members that say what they are told to."""

import json
from pathlib import Path

import pytest

from tests.unit.cli.verbs import good, online, run, until_alone
from tests.unit.client.admin_member import ScriptedMember
from trimtab.model import MessageQueue
from trimtab.testing import BlockingCluster
from trimtab.wire.bodies import ProcessQueueInfo

QUEUES = 2


def filled(cluster: BlockingCluster, topic: str, group: str, offset: int = 1) -> dict[tuple[str, int], int]:
    """A topic with messages, and a group that stands at `offset` in each queue; gives where the queues end."""
    ns = cluster.nameserver
    good(ns, "topic", "create", topic, "--queues", str(QUEUES))
    ends: dict[tuple[str, int], int] = {}
    while (
        len(ends) < 2 * QUEUES or min(ends.values()) < 4
    ):  # which queue a message takes is the producer's business
        good(ns, "message", "send", topic, *(str(number) for number in range(20)))
        rows = good(ns, "topic", "queues", topic, "--json").json["queues"]
        ends = {(one["broker"], one["queue_id"]): one["max_offset"] for one in rows}
    with online([ScriptedMember(group, "c-0", {topic: "*"})], list(cluster.brokers.values())):
        pass  # so the group and its retry topic are there
    until_alone(ns, group)
    good(ns, "group", "reset", group, "--topic", topic, "--to", str(offset), "--yes")
    return ends


def holding(cluster: BlockingCluster, group: str, topic: str, client_id: str, broker: str) -> ScriptedMember:
    """A member that holds all queues of a broker."""
    queues = {
        MessageQueue(topic, broker, number): ProcessQueueInfo(
            commit_offset=1, locked=number == 0, last_pull_timestamp=1, last_consume_timestamp=2**42
        )
        for number in range(QUEUES)
    }
    return ScriptedMember(group, client_id, {topic: "*"}, queues)


def test_describe_shows_each_queue_with_its_holder(cluster: BlockingCluster) -> None:
    ends = filled(cluster, "shop", "shop-g")
    members = [
        holding(cluster, "shop-g", "shop", "c-1", "broker-a"),
        holding(cluster, "shop-g", "shop", "c-2", "broker-b"),
    ]
    with online(members, list(cluster.brokers.values())):
        told = good(cluster.nameserver, "group", "describe", "shop-g", "--topic", "shop", "--json").json
        table = good(
            cluster.nameserver, "group", "describe", "shop-g", "--topic", "shop", "--sample", "0"
        ).rows
    assert told["members"] == ["c-1", "c-2"]
    assert told["message_model"] == "CLUSTERING"
    found = {(row["broker"], row["queue_id"]): row for row in told["queues"]}
    assert {place: row["holders"] for place, row in found.items()} == {
        ("broker-a", 0): ["c-1"],
        ("broker-a", 1): ["c-1"],
        ("broker-b", 0): ["c-2"],
        ("broker-b", 1): ["c-2"],
    }
    for place, row in found.items():
        assert (row["offset"], row["max_offset"], row["lag"]) == (1, ends[place], ends[place] - 1)
        assert row["lease"] == ("locked" if place[1] == 0 else None)
        assert row["per_s"] is not None
    assert told["lag"] == sum(ends.values()) - 4
    titles = table[5]
    assert titles == [
        "TOPIC",
        "BROKER",
        "QUEUE",
        "HOLDER",
        "LEASE",
        "SINCE",
        "OFFSET",
        "LAG",
        "LAG-TIME",
        "RATE",
        "ETA",
    ]
    assert table[6][:6] == ["shop", "broker-a", "0", "c-1", "locked", "-"]


def test_members_lag_and_list(cluster: BlockingCluster) -> None:
    ends = filled(cluster, "lagging", "lag-g", offset=2)
    ns = cluster.nameserver
    assert good(ns, "group", "lag", "lag-g", "--json").json["lag"] == sum(ends.values()) - 2 * len(ends)
    titles, *topics, total = good(ns, "group", "lag", "lag-g").rows
    assert titles == ["TOPIC", "QUEUES", "LAG", "LARGEST", "LAG-TIME", "RATE"]
    assert {len(row) for row in topics} == {5}
    assert (total[0], total[-1].endswith("/s"), len(total)) == ("total", True, 4)
    assert "no members connected" in good(ns, "group", "members", "lag-g").out
    member = holding(cluster, "lag-g", "lagging", "c-1", "broker-a")
    with online([member], list(cluster.brokers.values())):
        (row,) = good(ns, "group", "members", "lag-g", "--json").json["members"]
        assert (row["client_id"], row["language"], row["version"], row["queues"], row["brokers"]) == (
            "c-1",
            "JAVA",
            "V4_9_3",
            QUEUES,
            ["broker-a", "broker-b"],
        )
        assert good(ns, "group", "members", "lag-g", "--stacks", "c-1").out == "main: working\n"
        listed = good(ns, "group", "list", "--long", "--json").json["groups"]
        (row,) = [row for row in listed if row["group"] == "lag-g"]
        assert row["members"] == 1
    assert "lag-g" in good(ns, "group", "list").out.splitlines()
    assert "TOOLS_CONSUMER" not in good(ns, "group", "list").out.splitlines()


def test_reset_shows_every_queue_before_and_after(cluster: BlockingCluster) -> None:
    ends = filled(cluster, "again", "again-g", offset=3)
    ns = cluster.nameserver
    dry = good(ns, "group", "reset", "again-g", "--to", "begin", "--dry-run", "--json").json
    moves = [move for move in dry["moves"] if move["topic"] == "again"]
    assert {(move["broker"], move["queue_id"]) for move in moves} == set(ends)
    assert {(move["before"], move["after"]) for move in moves} == {(3, 0)}
    assert dry["done"] is False
    assert good(ns, "group", "lag", "again-g", "--json").json["lag"] == sum(ends.values()) - 3 * len(ends)
    table = good(ns, "group", "reset", "again-g", "--to", "end", "--yes")
    assert "group again-g is moved in 4 queue(s)" in table.out
    assert good(ns, "group", "lag", "again-g", "--json").json["lag"] == 0
    assert run(ns, "group", "reset", "again-g", "--to", "nowhere").code == 2
    assert run(ns, "group", "reset", "again-g", "--to", "begin").code == 2  # nobody to ask


def test_a_live_group_is_not_moved_to_an_offset(cluster: BlockingCluster) -> None:
    filled(cluster, "live", "live-g")
    with online([holding(cluster, "live-g", "live", "c-1", "broker-a")], list(cluster.brokers.values())):
        told = run(cluster.nameserver, "group", "reset", "live-g", "--to", "2", "--yes")
        assert (told.code, told.err.count("\n")) == (1, 1)
        assert "1 member(s) connected" in told.err
        moved = good(cluster.nameserver, "group", "reset", "live-g", "--to", "begin", "--yes", "--json").json
        assert moved["through"] == ["members"]
        refused = run(cluster.nameserver, "group", "delete", "live-g", "--yes")
        assert (refused.code, "stop them first" in refused.err) == (1, True)


def test_clone_and_delete(cluster: BlockingCluster) -> None:
    filled(cluster, "cloned", "first-g", offset=3)
    ns = cluster.nameserver
    with online([ScriptedMember("second-g", "c-9", {"cloned": "*"})], list(cluster.brokers.values())):
        pass
    until_alone(ns, "second-g")
    moved = good(ns, "group", "clone", "first-g", "second-g", "--topic", "cloned", "--yes", "--json").json
    assert {move["after"] for move in moved["moves"]} == {3}
    described = good(ns, "group", "describe", "second-g", "--sample", "0", "--topic", "cloned", "--json").json
    assert {row["offset"] for row in described["queues"]} == {3}
    assert "nothing was changed" in good(ns, "group", "delete", "second-g", "--dry-run").out
    good(ns, "group", "delete", "second-g", "--yes")
    told = run(ns, "group", "describe", "second-g")
    assert told.code == 1
    assert "'second-g' does not exist" in told.err


@pytest.mark.parametrize(
    ("limits", "level", "code", "nagios"),
    [
        ((), "ok", 0, 0),
        (("--lag-warn", "1000000", "--lag-critical", "2000000"), "ok", 0, 0),
        (("--lag-warn", "1"), "warning", 1, 1),
        (("--lag-warn", "1", "--lag-critical", "2"), "critical", 1, 2),
    ],
)
def test_check_in_all_its_forms(
    cluster: BlockingCluster, limits: tuple[str, ...], level: str, code: int, nagios: int
) -> None:
    name = f"check-{code}-{nagios}-{len(limits)}"
    lag = sum(filled(cluster, name, f"{name}-g").values()) - 4
    args = (cluster.nameserver, "group", "check", f"{name}-g", "--topic", name, *limits)
    told = run(*args)
    assert (told.code, told.out) == (code, f"{level}: {lag} message(s) wait for group {name}-g\n")
    told = run(*args, "--format", "nagios")
    assert told.code == nagios
    assert told.out.startswith(f"{level.upper()} - {lag} messages wait for group {name}-g | lag={lag};")
    told = run(*args, "--json")
    assert (told.code, told.json["level"], told.json["lag"]) == (code, level, lag)
    told = run(*args, "--format", "prometheus")
    samples = [line for line in told.out.splitlines() if line.startswith("trimtab_group_lag_messages{")]
    assert sum(int(line.rpartition(" ")[2]) for line in samples) == lag


def test_check_of_what_cannot_be_known() -> None:
    told = run("127.0.0.1:1", "group", "check", "g", "--format", "nagios")
    assert (told.code, told.out.startswith("UNKNOWN - ")) == (3, True)
    assert run("127.0.0.1:1", "group", "check", "g").code == 3
    assert run("127.0.0.1:1", "group", "check", "g", "--lag-warn", "5", "--lag-critical", "1").code == 2


def test_watch_tells_changes_and_history_reads_them_back(cluster: BlockingCluster, tmp_path: Path) -> None:
    filled(cluster, "watched", "watch-g")
    record = tmp_path / "watch.jsonl"
    args = (cluster.nameserver, "group", "watch", "watch-g", "--interval", "0.05", "-c", "2")
    with online([holding(cluster, "watch-g", "watched", "c-1", "broker-a")], list(cluster.brokers.values())):
        told = good(*args, "--record", str(record))
    lines = told.out.splitlines()
    assert [line.split("  ")[1] for line in lines] == [
        "c-1 joined",
        "watched@broker-a:0: nobody -> c-1",
        "watched@broker-a:1: nobody -> c-1",
    ]
    assert [json.loads(line)["what"] for line in record.read_text().splitlines()] == [
        "joined",
        "moved",
        "moved",
    ]
    (row,) = json.loads(run(None, "group", "history", str(record), "--json").out)["rebalances"]
    assert (row["cause"], row["moved"]) == ("c-1 joined", 2)
    assert "c-1 joined" in run(None, "group", "history", str(record)).out


def test_doctor_names_faults_and_is_silent_about_a_healthy_group(cluster: BlockingCluster) -> None:
    filled(cluster, "sick", "sick-g")
    ns = cluster.nameserver
    addresses = list(cluster.brokers.values())
    healthy = [
        holding(cluster, "sick-g", "sick", "c-1", "broker-a"),
        holding(cluster, "sick-g", "sick", "c-2", "broker-b"),
    ]
    with online(healthy, addresses):
        told = good(ns, "group", "doctor", "sick-g", "--sample", "0")
        assert told.out.startswith("group sick-g: nothing is wrong (2 member(s)")
    until_alone(ns, "sick-g")
    with online([healthy[0], holding(cluster, "sick-g", "sick", "c-1", "broker-a")], addresses):
        told = run(ns, "group", "doctor", "sick-g", "--sample", "0", "--json", "--timeout", "30")
        assert told.code == 1
        causes = {finding["cause"] for finding in told.json["findings"]}
        assert causes == {"same-client-id", "unheld-queues"}
