"""Every verb that talks to servers, on a live group with a Java member and one of ours, at whichever servers are chosen.

What the verbs say is compared with mqadmin in `test_cli_beside_mqadmin.py`; here none of them may be missing.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from tests.interop.java_program import JAVA_CLIENTS
from tests.interop.ours import Loop, Ours
from tests.interop.servers import eventually
from tests.unit.cli.test_framework import ALL
from tests.unit.cli.verbs import Told, good, run

if TYPE_CHECKING:
    from tests.interop.java_program import JavaPrograms
    from tests.interop.servers import ServerUnderTest
    from tests.interop.stock_client import Client

MIXED = {"mixed-sdks", "mixed-strategies"}
"""What doctor finds: the Java program's strategy is a class of its own around AVG, and goes by that name."""
QUEUES = 2
TALKING = {"topic", "group", "message", "dlq", "cluster"}


class Walk:
    """Runs verbs and notes which ones."""

    def __init__(self, server: ServerUnderTest) -> None:
        self.nameserver = server.nameserver
        self.walked: set[tuple[str, ...]] = set()

    def __call__(self, *args: str, stdin: str | None = None) -> Told:
        self.walked.add(args[:2])
        return good(self.nameserver, *args, stdin=stdin)

    def finds(self, *args: str) -> Told:
        """A verb that says by its exit code that something is not well."""
        self.walked.add(args[:2])
        told = run(self.nameserver, *args, "--timeout", "30")
        assert (told.code, told.err) == (1, ""), (args, told)
        return told

    def fails(self, code: int, *args: str) -> Told:
        self.walked.add(args[:2])
        told = run(self.nameserver, *args, "--timeout", "30")
        assert (told.code, told.err.count("\n")) == (code, 1), (args, told)
        return told


def test_every_verb_works_on_a_group_of_java_and_ours(
    server: ServerUnderTest, java_programs: JavaPrograms
) -> None:
    verb = Walk(server)
    topic = server.make_topic("walked", queues=QUEUES)
    group = f"{topic}-g"
    program = java_programs.running(JAVA_CLIENTS[1] if server.version.startswith("5.") else JAVA_CLIENTS[0])
    verb("message", "send", topic, stdin="".join(f"{number}\n" for number in range(20)))
    with (
        Loop() as loop,
        program.client("push", server, group=group, tags={topic: "*"}) as java,
        Ours(loop, server, group, subscribe={topic: "*"}) as ours,
    ):
        _shared(server, group, topic, java, ours)
        _while_they_live(verb, topic, group, {java.id, ours.id})
    eventually(
        lambda: not run(server.nameserver, "group", "members", group, "--json").json["members"],
        "all have gone",
    )
    _when_they_are_gone(verb, topic, group)
    there = {path[:2] for path, _ in ALL if path[0] in TALKING}
    assert there - verb.walked == set()


def _shared(server: ServerUnderTest, group: str, topic: str, java: Client, ours: Ours) -> None:
    def is_shared() -> bool:
        java.do("rebalance")  # the program's Java shares out when it is told to, and only then
        ours.rebalance()
        told = run(server.nameserver, "group", "describe", group, "--topic", topic, "--sample", "0", "--json")
        queues = told.json["queues"] if told.code == 0 else []
        held = [tuple(row["holders"]) for row in queues]
        if len(held) < QUEUES or set(held) != {(java.id,), (ours.id,)} or told.json["lag"]:
            return False
        # Each broker makes the retry topic when it first hears of the group, and members hear of that with their next route.
        found = run(server.nameserver, "group", "doctor", group, "--sample", "0", "--json")
        return {row["cause"] for row in found.json["findings"]} == MIXED

    eventually(is_shared, "both hold something, each queue has one holder, and all is consumed")


def _while_they_live(verb: Walk, topic: str, group: str, ids: set[str]) -> None:
    assert topic in verb("topic", "list").out.split()
    assert group in verb("group", "list").out.split()
    for name in ("describe", "queues", "route"):
        assert verb("topic", name, topic, "--json").json
    members = verb("group", "members", group, "--json").json["members"]
    assert {row["client_id"] for row in members} == ids
    assert {row["language"] for row in members} == {"JAVA", "PYTHON"}
    rows = verb("group", "describe", group, "--sample", "0.2", "--json").json["queues"]
    assert {name for row in rows for name in row["holders"]} == ids
    # Beside Java a queue can begin again a little before where it was left: RocketMQ's own way of handing over.
    eventually(lambda: verb("group", "lag", group, "--json").json["lag"] == 0, "all is consumed")
    assert verb("group", "check", group, "--lag-critical", "0", "--format", "nagios").out.startswith("OK")
    assert len(verb("group", "watch", group, "-c", "1").out.splitlines()) >= len(ids) + QUEUES
    assert ids & set(verb("group", "history", group, "--json").json["members"])
    told = verb.finds("group", "doctor", group, "--sample", "0.2", "--json").json
    assert {row["cause"] for row in told["findings"]} == MIXED
    assert verb("group", "simulate", group, "--join", "1", "--strategy", "AVG", "--json").json["shares"]
    assert verb("group", "canary", group, "--json").json["members"] == []
    for name in ("info", "brokers", "health"):
        assert verb("cluster", name).out


def _when_they_are_gone(verb: Walk, topic: str, group: str) -> None:
    receipt = verb("message", "send", topic, "looked for", "--key", "k-1", "--json").json
    found = eventually(
        lambda: (
            verb("message", "query", topic, "--id", receipt["message_id"], "--json").json["messages"]
            if run(verb.nameserver, "message", "query", topic, "--id", receipt["message_id"]).code == 0
            else None
        ),
        "the index has the message",
    )
    offset_id = found[0]["offset_message_id"]
    assert verb("message", "get", offset_id, "--json").json["body"] == "looked for"
    assert "looked for" in verb("message", "consume", topic).out.splitlines()
    assert verb("message", "tail", topic, "-o", "begin", "-c", "1").out
    assert verb("message", "resend", offset_id, "--dry-run", "--json").json["to"] == topic
    verb.fails(1, "message", "trace", receipt["message_id"])
    moves = verb("group", "reset", group, "--to", "begin", "--topic", topic, "--yes", "--json").json
    assert json.dumps(moves)
    verb("group", "clone", group, f"{group}-2", "--yes")
    verb("dlq", "list")
    verb.fails(1, "dlq", "show", group)
    verb.fails(1, "dlq", "replay", group, "--yes")
    verb("topic", "create", f"{topic}-2", "--queues", "1")
    verb("topic", "alter", f"{topic}-2", "--queues", "2")
    verb("topic", "delete", f"{topic}-2", "--yes")
    verb("group", "delete", group, "--yes")
