"""Live: one poll for all pages, streams of changes, servers that hang."""

import asyncio
import json
import os
import re
import signal
import ssl
import sys
from collections import Counter
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest
import trustme
from click.testing import CliRunner

import trimtab
from tests.unit.dashboard.scene import WAIT_S, Scene, eventually, play
from trimtab.cli.main import main
from trimtab.dashboard import group_watch
from trimtab.dashboard.api import PREFIX
from trimtab.dashboard.app import changes
from trimtab.dashboard.history import History
from trimtab.dashboard.poller import LISTENERS_MAX, MEMBERS_ASKED_MAX
from trimtab.dashboard.serving import DashboardPlan, running
from trimtab.dashboard.subject import BusyError, LookFailedError, Pace, Subject
from trimtab.dashboard.tokens import Role
from trimtab.io.clock import SystemClock
from trimtab.settings import Timeouts
from trimtab.testing import Cluster
from trimtab.wire.codes import RequestCode
from trimtab.wire.commands import Command


def test_fifty_pages_cost_one_poll() -> None:
    async def story(one: Scene) -> None:
        await one.admin.create_topic("orders", queues=1)
        await one.admin.create_group("billing")
        asked: Counter[int] = Counter()

        def count(command: Command) -> None:
            asked[command.code] += 1

        one.cluster.intercept(RequestCode.GET_CONSUME_STATS, count)
        one.cluster.intercept(RequestCode.GET_BROKER_CONSUME_STATS, count)
        subject = one.poller.group("billing")
        await subject.now()
        asked.clear()
        groups, overviews = subject.looks, one.poller.overview.looks
        async with AsyncExitStack() as stack, one.browser(Role.VIEWER) as browser:
            streams = []
            for _ in range(50):
                streams.append(changes(subject))
                stack.push_async_callback(streams[-1].aclose)
                await anext(streams[-1])
            assert subject.listeners == 50
            while subject.looks < groups + 5:
                await asyncio.gather(*(anext(stream) for stream in streams))
                await browser.get("/group?name=billing&part=live")
                await browser.get("/?part=live")
        looks = subject.looks - groups + 1  # one may be under way
        assert asked[RequestCode.GET_CONSUME_STATS] <= looks
        assert asked[RequestCode.GET_BROKER_CONSUME_STATS] <= one.poller.overview.looks - overviews + 1
        assert subject.listeners == 0

    play(story)


def test_there_is_a_limit_of_pages() -> None:
    async def story(one: Scene) -> None:
        async with AsyncExitStack() as stack:
            for _ in range(LISTENERS_MAX):
                await stack.enter_async_context(one.poller.overview.listening())
            with pytest.raises(BusyError):
                one.poller.check_listeners()
            async with one.browser(Role.VIEWER) as browser:
                assert (await browser.get("/events")).status_code == 503

    play(story)


def test_a_mistake_while_looking_ends_no_page() -> None:
    async def run() -> None:
        looks: list[int | ValueError] = [ValueError("a mistake"), 1, ValueError("another"), 2]

        async def look() -> int:
            found = looks.pop(0)
            if isinstance(found, ValueError):
                raise found
            return found

        subject = Subject(look, 0.0, SystemClock())
        with pytest.raises(LookFailedError):
            await subject.now()
        async with subject.listening() as changed:
            for value, is_wrong in ((1, False), (1, True), (2, False)):
                await asyncio.wait_for(changed.wait(), WAIT_S)
                changed.clear()
                assert (await subject.now(), subject.error is not None) == (value, is_wrong)
        subject.task.cancel()

    asyncio.run(run())


def test_while_nobody_is_there_it_rests_and_whoever_comes_gets_a_fresh_look() -> None:
    async def run() -> None:
        looks, rests = 0, 0
        rested = asyncio.Event()

        async def look() -> int:
            nonlocal looks
            looks += 1
            return looks

        async def rest() -> None:
            nonlocal rests
            rests += 1
            if rests == 3:
                rested.set()

        subject = Subject(look, 0.0, SystemClock(), pace=Pace(idle_s=0.0, rest_s=0.0), rest=rest)
        assert await subject.now() == 1
        await asyncio.wait_for(rested.wait(), WAIT_S)
        assert looks == 1
        assert await subject.now() == 2
        async with subject.listening() as changed:
            while looks < 5:
                await asyncio.wait_for(changed.wait(), WAIT_S)
                changed.clear()
        subject.task.cancel()

    asyncio.run(run())


def test_a_look_is_drawn_once_for_all_pages() -> None:
    async def run() -> None:
        looking = asyncio.Event()

        async def look() -> int:
            if looking.is_set():
                await asyncio.Event().wait()
            looking.set()
            return 7

        drawings: list[int] = []

        def draw(value: int, _error: object) -> str:
            drawings.append(value)
            return str(value)

        subject = Subject(look, 0.0, SystemClock())
        texts = await asyncio.gather(*(subject.drawn(draw) for _ in range(50)))
        assert (set(texts), drawings) == ({"7"}, [7])
        subject.task.cancel()

    asyncio.run(run())


def test_members_of_groups_are_asked_for_in_turn() -> None:
    async def story(one: Scene) -> None:
        await one.admin.create_topic("orders", queues=1)
        names = [f"group-{number:03}" for number in range(2 * MEMBERS_ASKED_MAX)]
        await asyncio.gather(*(one.admin.create_group(name) for name in names))
        asked: Counter[int] = Counter()
        one.cluster.intercept(
            RequestCode.GET_CONSUMER_CONNECTION_LIST, lambda command: asked.update([command.code])
        )
        subject = one.poller.overview

        async def looked(times: int) -> None:
            until = subject.looks + times
            async with subject.listening() as changed:
                while subject.looks < until:
                    await asyncio.wait_for(changed.wait(), WAIT_S)
                    changed.clear()

        await looked(2)  # now all are known
        asked.clear()
        await looked(3)
        assert asked.total() <= 4 * MEMBERS_ASKED_MAX / 2
        async with one.consumer("c-1", subscribe={"orders": "*"}), one.browser(Role.VIEWER) as browser:

            async def is_seen() -> bool:
                groups = (await browser.get("/api/v1/overview")).json()["groups"]
                return {row["group"]: row["members"] for row in groups}.get("billing") == 1

            await eventually(is_seen, "a member that came is counted when its group's turn comes")

    play(story)


def test_a_hung_broker_delays_no_page_and_is_named() -> None:
    async def story(one: Scene) -> None:
        await one.admin.create_topic("orders", queues=1)
        await one.admin.create_group("billing")
        async with one.browser(Role.VIEWER) as browser:

            async def is_healthy() -> bool:
                page = (await browser.get("/")).text
                return "billing" in page and "healthy" in page

            await eventually(is_healthy, "all is well")
            await browser.get("/group?name=billing")
            one.cluster.pause("broker-b")
            try:
                looks = one.poller.overview.looks
                for path in ("/", "/group?name=billing"):
                    assert (await browser.get(path)).status_code == 200
                assert one.poller.overview.looks <= looks + 1  # nobody waited for a look

                async def is_named() -> bool:
                    found = (await browser.get("/api/v1/overview")).json()
                    return {row["broker"]: bool(row["error"]) for row in found["brokers"]} == {
                        "broker-a": False,
                        "broker-b": True,
                    }

                await eventually(is_named, "the broker that hangs is named, and it alone")
            finally:
                one.cluster.resume("broker-b")

    play(story, brokers=2, timeouts=Timeouts(request_s=0.5))


def test_a_hung_broker_holds_up_no_list_and_is_named_where_its_letters_are_missing() -> None:
    async def story(one: Scene) -> None:
        await one.admin.create_group("billing")
        await one.admin.create_topic("%DLQ%billing", queues=1)
        await one.send("%DLQ%billing", *(b"%d" % number for number in range(20)))
        lists = ("/producers", "/dead-letters", f"{PREFIX}/producers/groups", f"{PREFIX}/dead-letters")
        async with one.browser(Role.VIEWER) as browser:
            for path in lists:
                assert (await browser.get(path)).status_code == 200
            actions = one.desk.actions
            subjects: list[Subject[Any]] = [
                one.poller.listing("producers", actions.producer_groups),
                one.poller.listing("dead letters", actions.dead_groups),
            ]
            one.cluster.pause("broker-b")
            try:
                looks = [subject.looks for subject in subjects]
                for path in lists:
                    assert (await browser.get(path)).status_code == 200
                for subject, before in zip(subjects, looks, strict=True):
                    assert subject.looks <= before + 1  # nobody waited for a look

                async def is_named() -> bool:
                    found = (await browser.get(f"{PREFIX}/dead-letters/group?name=billing")).json()
                    assert {letter["broker"] for letter in found["letters"]} <= {"broker-a", "broker-b"}
                    return bool(found["letters"]) and "broker-b" in str(found["failures"])

                await eventually(is_named, "letters of one broker, and the other one is named")
                page = (await browser.get("/dead-letters?name=billing")).text
                assert "broker-b: " in page
            finally:
                one.cluster.resume("broker-b")

    play(story, brokers=2, timeouts=Timeouts(request_s=0.5))


def test_routes_of_many_topics_are_asked_for_in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_watch, "ROUTES_ASKED_MAX", 3)

    async def story(one: Scene) -> None:
        topics = [f"topic-{number}" for number in range(7)]
        for topic in topics:
            await one.admin.create_topic(topic, queues=1)
        async with trimtab.PushConsumer(
            "billing",
            nameserver=one.cluster.nameserver,
            subscribe=dict.fromkeys(topics, "*"),
            handler=nothing,
        ):
            watch = group_watch.GroupWatch(one.admin, "billing", SystemClock(), History(None))
            known = []
            for _ in range(4):
                assert (await watch.look()).group.members
                known.append(len(watch._routes))
        assert known == [3, 6, 8, 8]  # the group's retry topic too

    play(story)


async def nothing(_message: object) -> None:
    """Handles anything."""


def test_members_that_come_and_go_are_seen_and_told() -> None:
    async def story(one: Scene) -> None:
        await one.admin.create_topic("orders", queues=2)
        async with one.browser(Role.VIEWER) as browser, one.consumer("c-1"):

            async def is_alone() -> bool:
                return await one.holders(browser) == {"c-1"}

            async def is_shared() -> bool:
                return await one.holders(browser) == {"c-1", "c-2"}

            await eventually(is_alone, "one member has all queues")
            async with one.consumer("c-2"):
                await eventually(is_shared, "both members hold something")
            await eventually(is_alone, "one member has all queues again")
            past = (await browser.get("/api/v1/group/timeline?name=billing")).json()
            kinds = {(row["source"], row["kind"]) for each in past["rebalances"] for row in each["moments"]}
            assert {
                ("recorder", "acquired"),
                ("recorder", "released"),
                ("seen", "joined"),
                ("seen", "left"),
            } <= kinds
            assert past["not_recording"] == []

    play(story)


def test_it_listens_streams_and_stops(tmp_path: Path) -> None:
    async def run() -> None:
        async with (
            Cluster() as cluster,
            trimtab.Admin(nameserver=cluster.nameserver) as admin,
            running(admin, DashboardPlan(port=0, folder=tmp_path, pace=Pace(overview_s=0.1))) as one,
            httpx.AsyncClient(base_url=one.url, timeout=WAIT_S) as client,
        ):
            client.headers["Authorization"] = f"Bearer {one.tokens[Role.VIEWER]}"
            async with client.stream("GET", "/events") as answer:
                assert answer.headers["content-type"].startswith("text/event-stream")
                lines = answer.aiter_lines()
                told = [await anext(lines) for _ in range(6)]
                assert told[0] == told[3] == "event: changed"
            assert (await client.get("/api/v1/overview")).json()["brokers"][0]["broker"] == "broker-a"

    asyncio.run(run())
    assert {path.stat().st_mode & 0o077 for path in tmp_path.iterdir()} == {0}


def test_up_with_a_dashboard_says_where_and_stops() -> None:
    async def run() -> None:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "trimtab", "up", "--memory", "--nameserver-port", "0", "--broker-port", "0",
            "--dashboard", "--dashboard-port", "0", stdout=asyncio.subprocess.PIPE,
        )  # fmt: skip
        assert process.stdout is not None
        try:
            text = ""
            async with asyncio.timeout(WAIT_S):
                while "viewer token" not in text or "operator token" not in text:
                    line = await process.stdout.readline()
                    assert line, text
                    text += line.decode()
            url = re.search(r"dashboard: (\S+)", text)
            token = re.search(r"operator token: (\S+)", text)
            assert url is not None
            assert token is not None
            async with httpx.AsyncClient(base_url=url[1], timeout=WAIT_S) as client:
                answer = await client.get("/api/v1/overview", headers={"Authorization": f"Bearer {token[1]}"})
                assert json.loads(answer.text)["brokers"][0]["broker"] == "broker-a"
            os.kill(process.pid, signal.SIGTERM)
            assert await asyncio.wait_for(process.wait(), WAIT_S) == 0
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()

    asyncio.run(run())


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["dashboard", "--memory", "--data", "x"], "contradict"),
        (["dashboard", "--memory", "--host", "0.0.0.0"], "in clear"),
        (["dashboard", "--memory", "--host", "here"], "no IP address"),
    ],
)
def test_what_is_asked_wrongly_is_said(arguments: list[str], text: str) -> None:
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 2
    assert text in result.output


def test_with_a_certificate_it_speaks_https_and_its_cookie_is_for_that_alone(tmp_path: Path) -> None:
    authority = trustme.CA()
    identity = authority.issue_cert("127.0.0.1")
    (tmp_path / "cert.pem").write_bytes(b"".join(blob.bytes() for blob in identity.cert_chain_pems))
    (tmp_path / "key.pem").write_bytes(identity.private_key_pem.bytes())
    trust = ssl.create_default_context()
    authority.configure_trust(trust)

    async def run() -> None:
        plan = DashboardPlan(port=0, tls_cert=tmp_path / "cert.pem", tls_key=tmp_path / "key.pem")
        async with (
            Cluster() as cluster,
            trimtab.Admin(nameserver=cluster.nameserver) as admin,
            running(admin, plan) as one,
            httpx.AsyncClient(base_url=one.url, verify=trust, timeout=WAIT_S) as client,
        ):
            assert one.url.startswith("https://")
            form = {"token": one.tokens[Role.VIEWER]}
            plain = one.url.replace("https", "http").rstrip("/")
            assert (await client.post("/sign-in", data=form, headers={"Origin": plain})).status_code == 403
            answer = await client.post("/sign-in", data=form, headers={"Origin": one.url.rstrip("/")})
            assert answer.status_code == 303
            assert "secure" in answer.headers["set-cookie"].lower()
            assert (await client.get("/")).status_code == 200

    asyncio.run(run())
