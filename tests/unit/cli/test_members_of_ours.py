"""What `trimtab group` shows of members of ours: since when, how fresh their leases are, what they recorded."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager

import pytest

import trimtab
from tests.unit.cli.verbs import good, online, run, until_alone
from tests.unit.client.admin_member import ScriptedMember
from trimtab.testing import BlockingCluster

QUEUES = 4
WAIT_S_MAX = 120


async def handle(_message: trimtab.Received) -> None:
    return None


@contextmanager
def consuming(
    nameserver: str, group: str, *names: str, mode: str | None = None, every_s: float = 20.0
) -> Iterator[None]:
    """Consumers that join one after the other, in a thread of their own."""
    ready, done = threading.Event(), threading.Event()

    async def live() -> None:
        async with AsyncExitStack() as stack:
            for name in names:
                consumer = trimtab.PushConsumer(
                    group,
                    subscribe={"orders": "*"},
                    handler=handle,
                    nameserver=nameserver,
                    client_id=name,
                    mode=mode,
                    consuming=trimtab.Consuming(rebalance_every_s=every_s),
                )
                await stack.enter_async_context(consumer)
                while not consumer.holdings():  # noqa: ASYNC110 - it tells nobody
                    await asyncio.sleep(0.01)
            ready.set()
            await asyncio.to_thread(done.wait)

    def body() -> None:
        try:
            asyncio.run(asyncio.wait_for(live(), WAIT_S_MAX))
        finally:
            ready.set()

    thread = threading.Thread(target=body)
    thread.start()
    ready.wait()
    try:
        yield
    finally:
        done.set()
        thread.join()


def settled(nameserver: str, group: str, members: int) -> list[dict[str, object]]:
    """The rows of `group describe` once every queue has one holder and all members have some."""
    while True:
        rows = good(
            nameserver, "group", "describe", group, "--topic", "orders", "--sample", "0", "--json"
        ).json["queues"]
        holders = [tuple(row["holders"]) for row in rows]
        if len(set(holders)) == members and all(len(one) == 1 for one in holders):
            return list(rows)


@pytest.fixture(scope="module")
def nameserver(cluster: BlockingCluster) -> str:
    good(cluster.nameserver, "topic", "create", "orders", "--queues", str(QUEUES // 2))
    for group in ("billing", "classic-g", "birds"):
        known_everywhere(cluster, group)
    return cluster.nameserver


def known_everywhere(cluster: BlockingCluster, group: str) -> None:
    """The group's retry topic is made and routed, so that members see the same queues from the begin."""
    with online([ScriptedMember(group, "c-0", {"orders": "*"})], list(cluster.brokers.values())):
        pass
    until_alone(cluster.nameserver, group)
    route = ("topic", "route", f"%RETRY%{group}", "--json", "--timeout", "30")
    while (told := run(cluster.nameserver, *route)).code or len(told.json["brokers"]) < len(cluster.brokers):
        pass


def test_leases_since_history_and_what_would_be(nameserver: str) -> None:
    with consuming(nameserver, "billing", "c-1", "c-2"):
        rows = settled(nameserver, "billing", 2)
        assert {row["lease"] for row in rows} == {"leased"}
        assert all(isinstance(row["lease_age_ms"], int) and isinstance(row["since_ms"], int) for row in rows)
        table = good(nameserver, "group", "describe", "billing", "--topic", "orders", "--sample", "0").rows[
            6:
        ]
        assert all("-" not in (row[4], row[5]) for row in table)

        told = good(nameserver, "group", "history", "billing", "--json").json
        moves = [
            change for change in told["changes"] if (change["before"], change["member"]) == ("c-1", "c-2")
        ]
        assert moves, "c-2 got queues that c-1 had"
        assert all(move["took_ms"] is not None and move["cause"] for move in moves)
        assert sum(one["moved"] for one in told["rebalances"]) >= len(moves)
        assert "moved" in good(nameserver, "group", "history", "billing", "--all").out

        would = good(
            nameserver, "group", "simulate", "billing", "--join", "1", "--queues", "+8", "--json"
        ).json
        assert (would["strategy"], would["mode"], would["queues"]) == ("sticky", "leased", QUEUES + 8 + 2)
        assert [share["member"] for share in would["shares"]] == ["c-1", "c-2", "new-1"]
        shown = good(nameserver, "group", "simulate", "billing", "--leave", "c-2", "--strategy", "AVG").out
        assert "AVG (leased)" in shown
        assert "moved/min" in shown
        for args, said in (
            (("--leave", "c-22"), "did you mean c-2"),
            (("--strategy", "stiky"), "did you mean 'sticky'"),
            (("--leave", "c-1", "--leave", "c-2"), "no member left"),
        ):
            refused = run(nameserver, "group", "simulate", "billing", *args, "--timeout", "30")
            assert (refused.code, refused.err.count("\n")) == (2, 1)
            assert said in refused.err


def holders_of(nameserver: str, group: str) -> dict[str, list[str]]:
    """Who holds which queues, those of retries among them; once every queue has one holder."""
    while True:
        rows = good(nameserver, "group", "describe", group, "--sample", "0", "--json").json["queues"]
        if all(len(row["holders"]) == 1 for row in rows):
            found: dict[str, list[str]] = {}
            for row in rows:
                found.setdefault(row["holders"][0], []).append(
                    f"{row['topic']}@{row['broker']}:{row['queue_id']}"
                )
            return found


def test_a_canary_is_ordered_by_one_command_and_called_back_by_one(nameserver: str) -> None:
    with consuming(nameserver, "birds", "c-1", "c-2", "c-3", every_s=0.3):
        settled(nameserver, "birds", 3)
        assert "has no canary" in good(nameserver, "group", "canary", "birds").out
        broker = next(
            name
            for names in holders_of(nameserver, "birds").values()
            for name in names
            if name.startswith("orders")
        )
        for args, said in (
            (("--member", "c-1", "--member", "c-2", "--member", "c-3", "--part", "0.5"), "at least one member must be left"),
            (("--member", "c-9", "--part", "0.5"), "is not in the group"),
            (("--member", "c-1", "--part", "1.5"), "between 0 and 1"),
            (("--member", "c-1"), "either a part of the queues or named queues"),
            (("--member", "c-1", "--queue", "orders@nowhere:7"), "is not among the group's queues"),
            (("--member", "c-1", "--queue", "orders"), "is no queue"),
            (("--off", "--part", "0.5"), "leave the other options out"),
            (("--off",), "has no canary"),
        ):  # fmt: skip
            refused = run(nameserver, "group", "canary", "birds", *args, "--timeout", "30")
            assert refused.code != 0
            assert said in refused.err
        order = ("--member", "c-1", "--queue", broker)
        assert good(nameserver, "group", "canary", "birds", *order, "--json").json["queues"] == [broker]
        while holders_of(nameserver, "birds").get("c-1") != [broker]:
            pass
        shown = good(nameserver, "group", "canary", "birds").out
        assert "c-1" in shown
        assert broker in shown
        good(nameserver, "group", "canary", "birds", "--off")
        while sorted(map(len, holders_of(nameserver, "birds").values())) != [2, 2, 2]:
            pass


def test_classic_members_have_no_lease(nameserver: str) -> None:
    with consuming(nameserver, "classic-g", "c-1", mode="classic"):
        rows = settled(nameserver, "classic-g", 1)
        assert {(row["lease"], row["lease_age_ms"]) for row in rows} == {(None, None)}
        assert all(row["since_ms"] is not None for row in rows)
        would = good(nameserver, "group", "simulate", "classic-g", "--join", "1", "--json").json
        assert (would["strategy"], would["mode"]) == ("AVG", "classic")


def test_a_group_whose_members_record_nothing_and_names_that_do_not_exist(nameserver: str) -> None:
    told = good(nameserver, "group", "history", "billing")
    assert "no member records what happens" in told.out
    for args in (("history", "biling"), ("simulate", "biling")):
        refused = run(nameserver, "group", *args, "--timeout", "30")
        assert (refused.code, refused.err.count("\n")) == (1, 1)
        assert "did you mean billing?" in refused.err
    missing = run(None, "group", "history", "nowhere.jsonl")
    assert (missing.code, "there is no file nowhere.jsonl" in missing.err) == (1, True)
