"""Every page and every call of the API, on a real cluster."""

import asyncio

import msgspec

from tests.unit.dashboard.scene import Scene, eventually, play
from trimtab import Message, Producer, Received
from trimtab.broker.settings import BrokerSettings
from trimtab.client.push_settings import Consuming
from trimtab.dashboard.api import ENDPOINTS, PREFIX
from trimtab.dashboard.openapi import openapi
from trimtab.dashboard.tokens import Role
from trimtab.wire.codes import RESPONSE_FLAG, RequestCode, ResponseCode
from trimtab.wire.commands import Command

QUICK = BrokerSettings(delay_levels=" ".join(["1s"] * 18))


def test_every_page_shows_what_is_there() -> None:
    async def story(one: Scene) -> None:
        await one.admin.create_topic("orders", queues=4)
        (receipt,) = await one.send("orders", b'{"n": 1}', keys=["o-1"], tag="eu")
        async with one.consumer("c-1"), one.consumer("c-2"), one.browser(Role.VIEWER) as browser:

            async def is_shared() -> bool:
                return await one.holders(browser) == {"c-1", "c-2"}

            await eventually(is_shared, "both members hold something")

            async def is_listed() -> bool:
                return "billing" in (await browser.get("/")).text

            await eventually(is_listed, "the group is on the overview")
            for path, texts in {
                "/": ["healthy", "billing", "broker-a"],
                "/?part=live": ["billing"],
                "/group?name=billing": ["c-1", "c-2", "held by c-1", "acquired", "A viewer may look"],
                "/group?name=billing&part=live": ["held by c-2"],
                "/group?name=billing&join=1&leave=c-1&strategy=sticky": ["new-1", "queues would move"],
                "/topics": ["orders"],
                "/topic?name=orders&key=o-1": ["1 message found", receipt.message_id, "billing"],
                "/topic?name=orders&since=-1h": ["1 message found"],
                f"/topic?name=orders&id={receipt.message_id}": ["1 message found"],
                f"/message?topic=orders&id={receipt.offset_message_id}": [
                    "&#34;n&#34;: 1",
                    "7b 22 6e 22",
                    "Not recorded",
                ],
                "/producers": ["Group of producers"],
                "/producers?name=shop": ["No broker sees a producer", "Nobody is there to be asked"],
                "/dead-letters": ["No group has any"],
                "/dead-letters?name=billing": ["None."],
                "/simulation": ["rolling-restart"],
                "/openapi.json": ["3.1.0"],
                "/api": ["/openapi.json", "GET /api/v1/group/what-if", "POST /api/v1/dead-letters/replay"],
                "/topic?name=orders&part=live": ["billing", "hot queue"],
            }.items():
                answer = await browser.get(path)
                assert answer.status_code == 200, (path, answer.text)
                for text in texts:
                    assert text in answer.text, (path, text)
            timeline = (await browser.get(f"{PREFIX}/group/timeline?name=billing")).json()
            at_ms = timeline["rebalances"][-1]["moments"][-1]["at_ms"]
            page = await browser.get(f"/group?name=billing&at_ms={at_ms}")
            assert "not recorded until then" not in page.text
            assert "<td>c-1</td>" in page.text
            part = await browser.get(f"/group?name=billing&part=held&at_ms={at_ms}")
            assert "<td>c-1</td>" in part.text
            assert "<html" not in part.text
            assert (await browser.get("/group?name=billing&part=held")).status_code == 400
            before = await browser.get(f"{PREFIX}/group/at?name=billing&at_ms=1")
            assert {holding["holders"] for holding in before.json()["holdings"]} == {None}

    play(story)


def test_unknown_names_are_said_to_be_unknown() -> None:
    async def story(one: Scene) -> None:
        async with one.browser(Role.OPERATOR) as browser:
            for path in (
                "/group?name=nobody",
                "/topic?name=nothing",
                "/message?topic=nothing&id=00",
                "/dead-letters?name=nobody",
            ):
                answer = await browser.get(path)
                assert answer.status_code == 404, (path, answer.status_code)
                assert "nobody" in answer.text or "not" in answer.text
            for path in (
                "/group",
                "/topic",
                f"{PREFIX}/group",
                f"{PREFIX}/topic/messages?name=orders",
                "/group?name=a&name=b",
            ):
                assert (await browser.get(path)).status_code == 400, path
            assert (await browser.get("/nowhere")).status_code == 404
            assert (await browser.get(f"{PREFIX}/nowhere")).json() == {"error": "Not Found"}
        assert {kind for kind, _ in one.poller._subjects} <= {"dead letters", "producers"}
        # what does not exist is not looked at again; the lists of all there are go on

    play(story)


def test_a_reset_is_previewed_and_then_done() -> None:
    async def story(one: Scene) -> None:
        await one.admin.create_topic("orders", queues=2)
        await one.admin.create_group("billing")
        await one.send("orders", b"1", b"2", b"3", b"4")
        async with one.browser(Role.OPERATOR) as browser:
            form = {"csrf": one.csrf(browser), "name": "billing", "topic": "orders", "to": "end"}
            page = await browser.post("/group/reset", data=form)
            assert "Preview" in page.text
            assert 'value="yes"' in page.text
            assert {row.offset for row in await one.admin.group_offsets("billing", "orders")} != {2}
            page = await browser.post("/group/reset", data=form | {"apply": "yes"})
            assert "Done" in page.text
            assert [row.offset for row in await one.admin.group_offsets("billing", "orders")] == [2, 2]
            for to in ("tomorrow", "", "x" * 100):
                assert (await browser.post("/group/reset", data=form | {"to": to})).status_code == 400
            wish = {"name": "billing", "topic": "orders", "to": "begin"}
            headers = {"X-CSRF-Token": one.csrf(browser)}
            answer = await browser.post(f"{PREFIX}/group/reset", json=wish, headers=headers)
            assert not answer.json()["done"]
            answer = await browser.post(
                f"{PREFIX}/group/reset", json=wish | {"preview": False}, headers=headers
            )
            assert answer.json()["done"]
            assert answer.json()["moved"] == 2
            assert [row.offset for row in await one.admin.group_offsets("billing", "orders")] == [0, 0]

    play(story)


def test_a_dead_letter_is_replayed_after_a_preview_and_a_message_resent() -> None:
    async def story(one: Scene) -> None:
        await one.admin.create_topic("orders", queues=1)
        is_fixed = asyncio.Event()
        got: list[bytes] = []

        async def picky(message: Received) -> None:
            if not is_fixed.is_set():
                raise ValueError("not today")
            got.append(message.body)

        async with (
            one.consumer("c-1", handler=picky, consuming=Consuming(reconsume_times_max=0)),
            one.browser(Role.OPERATOR) as browser,
        ):
            await one.send("orders", b"once")

            async def is_dead() -> bool:
                found = (await browser.get(f"{PREFIX}/dead-letters")).json()
                return any(row["messages"] for row in found["groups"])

            await eventually(is_dead, "a dead letter")
            page = await browser.get("/dead-letters?name=billing")
            assert 'name="ids"' in page.text
            form = {"csrf": one.csrf(browser), "name": "billing"}
            assert (
                await browser.post("/dead-letters/replay", data=form | {"apply": "yes"})
            ).status_code == 400
            letters = (await browser.get(f"{PREFIX}/dead-letters/group?name=billing")).json()["letters"]
            form["ids"] = letters[0]["offset_message_id"]
            page = await browser.post("/dead-letters/replay", data=form)
            assert "would go to group billing" in page.text
            assert not got
            is_fixed.set()
            page = await browser.post("/dead-letters/replay", data=form | {"apply": "yes"})
            assert "went to group billing" in page.text

            async def has_come() -> bool:
                return got == [b"once"]

            await eventually(has_come, "the letter comes again")
            (line,) = (await browser.get(f"{PREFIX}/topic/messages?name=orders&since=-1h")).json()["messages"]
            wish = {"csrf": one.csrf(browser), "topic": "orders", "id": line["offset_message_id"], "to": ""}
            assert "would go to orders" in (await browser.post("/message/resend", data=wish)).text
            assert (
                "went to orders" in (await browser.post("/message/resend", data=wish | {"apply": "yes"})).text
            )
            topic = (await browser.get(f"{PREFIX}/topic?name=orders")).json()
            assert topic["messages"] == 2

    play(story, settings=QUICK)


def test_dead_letters_have_pages_and_their_cause_if_it_was_traced() -> None:
    async def story(one: Scene) -> None:
        await one.admin.create_group("billing")
        for topic in ("%DLQ%billing", "%RETRY%billing"):
            await one.admin.create_topic(topic, queues=1)
        receipts = await one.send("%DLQ%billing", *(b"%d" % number for number in range(5)))
        records = [
            ["SubBefore", "1000", "", "billing", "r1", receipts[3].message_id, "2", "k"],
            ["SubAfter", "r1", receipts[3].message_id, "7", "false", "k", "2"],
        ]
        text = "".join("\x01".join(record) + "\x02" for record in records)
        await one.send("RMQ_SYS_TRACE_TOPIC", text.encode(), keys=[receipts[3].message_id])
        async with one.browser(Role.OPERATOR) as browser:
            path = f"{PREFIX}/dead-letters/group?name=billing"
            first = (await browser.get(f"{path}&count=2")).json()
            assert (len(first["letters"]), first["complete"], first["causes"]) == (2, False, {})
            last = (await browser.get(f"{path}&count=2&skip=3")).json()
            assert (last["complete"], last["skipped"]) == (True, 3)
            assert last["causes"] == {receipts[3].offset_message_id: "EXCEPTION after 7ms, 1 try traced"}
            counted = [(row["cause"], row["letters"]) for row in last["by_cause"]]
            assert sorted(counted, key=str) == [("EXCEPTION", 1), (None, 1)]
            page = (await browser.get("/dead-letters?name=billing&skip=2")).text
            assert "<b>2</b> not recorded" in page
            assert "3 to 5, oldest first" in page
            assert "EXCEPTION after 7ms" in page
            form = {
                "csrf": one.csrf(browser),
                "name": "billing",
                "ids": receipts[4].offset_message_id,
                "apply": "yes",
            }
            assert "went to group billing" in (await browser.post("/dead-letters/replay", data=form)).text

    play(story)


def test_groups_of_producers_are_listed_where_brokers_know_them() -> None:
    async def story(one: Scene) -> None:
        await one.admin.create_topic("orders", queues=1)
        async with (
            Producer("shop", nameserver=one.cluster.nameserver) as producer,
            one.browser(Role.VIEWER) as browser,
        ):
            await producer.send(Message("orders", b"x"))

            async def is_listed() -> bool:
                return "/producers?name=shop" in (await browser.get("/producers")).text

            await eventually(is_listed, "the group is listed")
            told = (await browser.get("/api/v1/producers?name=shop")).json()
            (choices,) = told["choices"]
            assert (choices["client_id"], choices["policy"]) == (producer.client_id, "adaptive")
            assert [one["broker"] for one in choices["brokers"]] == ["broker-a"]
            assert told["untold"] == []
            assert "policy adaptive" in (await browser.get("/producers?name=shop")).text
            stop = one.cluster.intercept(
                RequestCode.GET_ALL_PRODUCER_INFO,
                lambda command: Command(
                    code=ResponseCode.REQUEST_CODE_NOT_SUPPORTED, opaque=command.opaque, flag=RESPONSE_FLAG
                ),
            )

            async def is_untold() -> bool:
                page = (await browser.get("/producers")).text
                return "Not told by broker-a: brokers before 4.9.4" in page

            await eventually(is_untold, "the broker that cannot tell is named")
            stop()

    play(story)


def test_a_scenario_is_played_in_both_modes() -> None:
    async def story(one: Scene) -> None:
        async with one.browser(Role.OPERATOR) as browser:
            form = {"csrf": one.csrf(browser), "scenario": "join", "members": "3", "queues": "8", "seed": "7"}
            page = await browser.post("/simulation", data=form)
            assert page.status_code == 200, page.text
            assert "Delivered twice" in page.text
            for mode in ("leased", "classic"):
                assert f"{mode}: who held each of 8 queues" in page.text
            assert (await browser.post("/simulation", data=form | {"scenario": "nothing"})).status_code == 400
            assert (await browser.post("/simulation", data=form | {"members": "many"})).status_code == 400

    play(story)


def test_the_document_names_every_endpoint_and_its_types() -> None:
    document = openapi()
    assert {(path, method.upper()) for path, methods in document["paths"].items() for method in methods} == {
        (PREFIX + one.path, one.method) for one in ENDPOINTS
    }
    known = set(document["components"]["schemas"])
    text = msgspec.json.encode(document).decode()
    assert {part.split('"')[0] for part in text.split("#/components/schemas/")[1:]} <= known
