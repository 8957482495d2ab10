"""Every list and describe at 2,000 topics, 1,000 groups and 20,000 queues. How long it takes is `bench/cli_scale.py`'s business."""

from collections.abc import Iterator

import pytest

from tests.unit.cli.large import BROKERS, WIDE, Size, large_cluster
from tests.unit.cli.verbs import good

SIZE = Size()


@pytest.fixture(scope="module")
def nameserver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with large_cluster(tmp_path_factory.mktemp("large"), SIZE) as cluster:
        yield cluster.nameserver


def test_lists(nameserver: str) -> None:
    assert set(SIZE.topic_names) <= set(good(nameserver, "topic", "list").out.splitlines())
    assert set(SIZE.group_names) <= set(good(nameserver, "group", "list").out.splitlines())
    lines = good(nameserver, "group", "list", "--long", "--json").json["groups"]
    members = {line["group"]: line["members"] for line in lines}
    assert (members[WIDE], members["group-0001"]) == (SIZE.members, 0)
    assert {row[0] for row in good(nameserver, "cluster", "brokers").rows} >= {"BROKER"}
    assert len(good(nameserver, "dlq", "list", "--json").json["groups"]) == SIZE.dead


def test_topics(nameserver: str) -> None:
    for verb in ("describe", "route", "queues"):
        assert all(name in good(nameserver, "topic", verb, "topic-0007").out for name in BROKERS)
    assert len(good(nameserver, "topic", "queues", "topic-0007", "--json").json["queues"]) == 2 * SIZE.queues


def test_the_group_that_has_all_queues(nameserver: str) -> None:
    told = good(nameserver, "group", "describe", WIDE, "--sample", "0", "--json").json
    rows = [row for row in told["queues"] if not row["topic"].startswith("%RETRY%")]
    assert len(rows) == SIZE.wide_queues
    assert all(len(row["holders"]) == 1 for row in rows)
    assert len(good(nameserver, "group", "members", WIDE, "--json").json["members"]) == SIZE.members
    assert len(good(nameserver, "group", "lag", WIDE, "--json").json["topics"]) >= SIZE.wide_topics
    one = good(nameserver, "group", "describe", "group-0001", "--sample", "0", "--json").json
    assert (one["members"], one["lag"]) == ([], 0)
    moved = good(nameserver, "group", "simulate", WIDE, "--join", "1", "--strategy", "AVG", "--json").json
    assert sum(share["after"] for share in moved["shares"]) >= SIZE.wide_queues
