"""The dashboard before Apache with stock Java consumers: what can be known is shown, of the rest it says why not."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import httpx
import pytest

import trimtab
from tests.interop.java_program import JAVA_CLIENTS
from tests.interop.servers import unique
from trimtab.dashboard.serving import DashboardPlan, running
from trimtab.dashboard.tokens import Role
from trimtab.settings import Timeouts

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.interop.java_program import JavaPrograms
    from tests.interop.servers import ServerUnderTest
    from tests.interop.stock_client import Program

WAIT_S = 90.0
PATIENT = Timeouts(request_s=30.0, send_s=30.0)


@pytest.fixture
def member_program(java_programs: JavaPrograms, server: ServerUnderTest) -> Program:
    """A stock Java client of the servers' own generation."""
    return java_programs.running(JAVA_CLIENTS[1] if server.version.startswith("5.") else JAVA_CLIENTS[0])


@asynccontextmanager
async def dashboard(server: ServerUnderTest) -> AsyncIterator[httpx.AsyncClient]:
    async with (
        trimtab.Admin(nameserver=server.nameserver, timeouts=PATIENT) as admin,
        running(admin, DashboardPlan(port=0)) as one,
        httpx.AsyncClient(base_url=one.url, timeout=WAIT_S) as client,
    ):
        client.headers["Authorization"] = f"Bearer {one.tokens[Role.OPERATOR]}"
        yield client


async def until_shown(client: httpx.AsyncClient, path: str, *texts: str) -> str:
    page = ""
    try:
        async with asyncio.timeout(WAIT_S):
            while not all(text in page for text in texts):
                page = (await client.get(path)).text
                await asyncio.sleep(0.1)
    except TimeoutError:
        raise AssertionError(f"{path} never shows {texts}: {page}") from None
    return page


def test_a_group_of_java_is_shown(server: ServerUnderTest, member_program: Program) -> None:
    topic = server.make_topic("seen", queues=2)

    async def look() -> None:
        async with dashboard(server) as client:
            async with trimtab.Producer(
                unique("pg"), nameserver=server.nameserver, timeouts=PATIENT
            ) as producer:
                receipt = await producer.send(trimtab.Message(topic, b"{}", keys=["o-1"]))
                told = "policy adaptive" if server.is_own else f"Not told by {producer.client_id}"
                await until_shown(client, f"/producers?name={producer.group}", told)
            names = [broker.name for broker in server.brokers]
            page = await until_shown(
                client, f"/group?name={group}", f"held by {consumer.id}", f"{names[-1]}:1", "AVG"
            )
            assert f"Not recorded by {consumer.id}" in page
            assert "JAVA" in page
            found = (await client.get("/api/v1/group", params={"name": group})).json()
            assert (found["unheld"], found["double_held"], len(found["members"])) == (0, 0, 1)
            assert [one["queues"] for one in found["members"]] == [2 * len(names)]
            await until_shown(client, "/", group, *names)
            await until_shown(client, f"/topic?name={topic}&key=o-1", "1 message found", group)
            page = await until_shown(client, f"/message?topic={topic}&id={receipt.offset_message_id}", "o-1")
            assert "Not recorded: clients write traces only if they are told to" in page
            what = (
                await client.get(
                    "/api/v1/group/what-if", params={"name": group, "join": 1, "strategy": "AVG"}
                )
            ).json()
            assert sorted(share["queues_then"] for share in what["shares"]) == [2, 2]
            wish = {"name": group, "topic": topic, "to": "begin"}
            preview = (await client.post("/api/v1/group/reset", json=wish)).json()
            assert (preview["done"], preview["change"]["through"]) == (False, "members")

    with member_program.client("push", server, tags={topic: "*"}) as consumer:
        group = consumer.group
        asyncio.run(look())
