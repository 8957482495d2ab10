"""Our command line beside Apache's admin tool, at the same servers: the same figures. And `group doctor` with Java members."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest

from tests.interop.java_program import JAVA_CLIENTS
from tests.interop.servers import eventually
from tests.unit.cli.verbs import good, online, run
from tests.unit.client.admin_member import ScriptedMember

if TYPE_CHECKING:
    from tests.interop.java_program import JavaPrograms
    from tests.interop.mqadmin import MqAdmin, MqAdmins
    from tests.interop.servers import ServerUnderTest
    from tests.interop.stock_client import Client, Program

QUEUES = 2


@pytest.fixture
def mqadmin(server: ServerUnderTest, mqadmins: MqAdmins) -> MqAdmin:
    return mqadmins.at(server.nameserver, "5.5.0" if server.version.startswith("5.") else "4.9.3")


@pytest.fixture
def member_program(java_programs: JavaPrograms, server: ServerUnderTest) -> Program:
    """A stock Java client of the servers' own generation."""
    return java_programs.running(JAVA_CLIENTS[1] if server.version.startswith("5.") else JAVA_CLIENTS[0])


def settled(server: ServerUnderTest, group: str, topic: str, count: int) -> dict[str, Any]:
    """The description of a group that has consumed all, as soon as it has committed that."""

    def described() -> dict[str, Any] | None:
        found = run(
            server.nameserver, "group", "describe", group, "--topic", topic, "--sample", "0", "--json"
        )
        if found.code != 0:
            return None
        told: dict[str, Any] = found.json
        done = sum(row["offset"] or 0 for row in told["queues"]) == count and told["lag"] == 0
        return told if done else None

    return eventually(described, f"{group} has committed {count} messages")


def test_lag_holders_route_and_members_are_those_of_mqadmin(
    server: ServerUnderTest, mqadmin: MqAdmin, member_program: Program
) -> None:
    topic = server.make_topic("beside", queues=QUEUES)
    ns = server.nameserver
    good(ns, "message", "send", topic, *(str(number) for number in range(10)))
    with member_program.client("push", server, tags={topic: "*"}) as consumer:
        consumer.wait_for(10)
        settled(server, consumer.group, topic, 10)
        ours = good(ns, "group", "describe", consumer.group, "--topic", topic, "--json").json
        theirs = [
            row
            for row in mqadmin.lines("consumerProgress", "-g", consumer.group, "-s", "true")
            if row[0] == topic
        ]
        assert [
            (row["broker"], row["queue_id"], row["max_offset"], row["offset"], row["lag"])
            for row in ours["queues"]
        ] == [(row[1], int(row[2]), int(row[3]), int(row[4]), int(row[6])) for row in theirs]
        # mqadmin shows of a client id what stands before the @.
        assert [row["holders"][0].split("@")[0] for row in ours["queues"]] == [row[5] for row in theirs]

        (member,) = good(ns, "group", "members", consumer.group, "--json").json["members"]
        (shown,) = [
            row for row in mqadmin.lines("consumerConnection", "-g", consumer.group) if consumer.id in row
        ]
        assert (member["client_id"], member["language"], member["version"]) == (consumer.id, *shown[-2:])
        assert member["queues"] >= 2 * QUEUES

    # Nobody is there any more, and more came: the lag is the same again.
    good(ns, "message", "send", topic, "more", "and more", "and more still")
    group = consumer.group
    ours = good(ns, "group", "lag", group, "--json").json
    progress = mqadmin.lines("consumerProgress", "-g", group)
    (total,) = [
        int(row[-1])
        for row in progress
        if row[:2] == ["Diff", "Total:"] or row[:3] == ["Consume", "Diff", "Total:"]
    ]
    assert ours["lag"] == total == 3

    status = [row for row in mqadmin.lines("topicStatus", "-t", topic) if row[0].startswith("broker-")]
    queues = good(ns, "topic", "queues", topic, "--json").json["queues"]
    assert sorted(
        (row["broker"], row["queue_id"], row["min_offset"], row["max_offset"]) for row in queues
    ) == sorted((row[0], *map(int, row[1:4])) for row in status)

    route = "".join("".join(row) for row in mqadmin.lines("topicRoute", "-t", topic))
    told = good(ns, "topic", "route", topic, "--json").json
    assert sorted(re.findall(r'"readQueueNums":(\d+)', route)) == [
        str(one["read_queues"]) for one in told["queues"]
    ]
    for place in told["brokers"]:
        assert place["addresses"]["0"] in route


def causes(server: ServerUnderTest, group: str, *options: str) -> set[str]:
    told = run(
        server.nameserver, "group", "doctor", group, "--sample", "0.2", "--json", "--timeout", "30", *options
    )
    assert told.err == "", told.err
    return {finding["cause"] for finding in told.json["findings"]}


def until(
    server: ServerUnderTest, group: str, wanted: set[str], members: list[Client], *options: str
) -> None:
    """The doctor finds this, and nothing else, once all have settled. These clients share out queues only when told to."""
    last: list[set[str]] = []

    def found() -> bool:
        for member in members:
            member.do("rebalance")
        last[:] = [causes(server, group, *options)]
        return last[0] == wanted

    try:
        eventually(found, f"the doctor finds {wanted}")
    except AssertionError as error:
        raise AssertionError(f"the doctor found {last}, not {wanted}") from error


def test_the_doctor_is_silent_about_healthy_java_members(
    server: ServerUnderTest, member_program: Program
) -> None:
    topic = server.make_topic("healthy", queues=QUEUES)
    group = f"{topic}-g"
    with (
        member_program.client("push", server, group=group, tags={topic: "*"}) as first,
        member_program.client("push", server, group=group, tags={topic: "*"}) as second,
    ):
        until(server, group, set(), [first, second])


def test_the_doctor_names_faults_of_java_groups(server: ServerUnderTest, member_program: Program) -> None:
    topic = server.make_topic("sick", queues=1)
    group = f"{topic}-g"
    ns = server.nameserver
    addresses = [broker.address for broker in server.brokers]

    def join(expression: str = "*") -> Client:
        return member_program.client("push", server, group=group, tags={topic: expression})

    with join() as first, join() as second:
        pair = [first, second]
        until(server, group, set(), pair)
        with join() as third:
            until(server, group, {"more-members-than-queues"}, [*pair, third])
        with join("eu") as third:
            until(server, group, {"more-members-than-queues", "unequal-subscriptions"}, [*pair, third])
        until(server, group, set(), pair)
        with online([ScriptedMember(group, first.id, {topic: "*"})], addresses):
            assert "same-client-id" in causes(server, group)
        until(server, group, set(), pair)
        good(ns, "topic", "alter", topic, "--perm", "r", "--broker", server.brokers[0].name)
        until(server, group, {"read-only-queues"}, pair)
        good(ns, "topic", "alter", topic, "--perm", "rw", "--write-queues", "2")
        until(server, group, {"unread-queues"}, pair)
        good(ns, "topic", "alter", topic, "--write-queues", "1")
        until(server, group, set(), pair)
        first.do("suspend")
        good(ns, "message", "send", topic, *("x" for _ in range(8)))
        until(server, group, {"stuck-offset"}, pair, "--stuck-after", "1s")
        first.do("resume")
        until(server, group, set(), pair, "--stuck-after", "1s")

    until(server, group, set(), [])
    good(ns, "message", "send", topic, "nobody reads this")
    until(server, group, {"no-members"}, [])
