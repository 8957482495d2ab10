"""Broadcasting: every member gets everything, offsets are in a file in Java's form, failures are not tried again."""

import asyncio
import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.unit.client.pushing import (
    TOPIC,
    Inbox,
    consumer,
    eventually,
    numbered,
    owners,
    play,
    send,
    stored_offset,
)
from trimtab.client.admin import Admin
from trimtab.client.producer import Producer
from trimtab.client.push_offsets import FileOffsets
from trimtab.client.push_settings import Consuming
from trimtab.client.received import Received
from trimtab.errors import SettingsError
from trimtab.model import Message, MessageQueue
from trimtab.settings import Intervals
from trimtab.testing import AsyncCluster

JAVA_FILE = """{
\t"offsetTable":{{
\t\t\t"brokerName":"broker-a",
\t\t\t"queueId":1,
\t\t\t"topic":"orders"
\t\t}:7,{
\t\t\t"brokerName":"broker-a",
\t\t\t"queueId":0,
\t\t\t"topic":"orders"
\t\t}:5
\t}
}"""
"""As 4.9.3 writes it."""


def test_c6_every_member_has_all_queues_and_gets_every_message(tmp_path: Path) -> None:
    async def scenario(cluster: AsyncCluster) -> None:
        await send(cluster, numbered(40))
        inboxes = {name: Inbox() for name in ("c1", "c2")}
        consuming = Consuming(offsets_directory=tmp_path)
        options: dict[str, Any] = {"broadcast": True, "consuming": consuming}
        async with (
            consumer(cluster, inboxes["c1"], client_id="c1", **options) as one,
            consumer(cluster, inboxes["c2"], client_id="c2", **options) as two,
        ):
            await eventually(
                lambda: all(len(inbox.messages) == 40 for inbox in inboxes.values()), "all came twice"
            )
            assert len(owners([one])) == len(owners([two])) == 4
            queues = list(owners([one]))
        assert [await stored_offset(cluster, queue) for queue in queues] == [-1] * 4
        for name in inboxes:
            table = FileOffsets(tmp_path, name, "g").load()
            assert sum(table.values()) == 40

        again = Inbox()
        await send(cluster, numbered(4, start=40))
        async with consumer(cluster, again, client_id="c1", **options):
            await eventually(lambda: len(again.messages) == 4, "only the new ones")

    play(scenario)


def test_without_an_id_a_broadcasting_consumer_is_known_again(tmp_path: Path) -> None:
    async def scenario(cluster: AsyncCluster) -> None:
        await send(cluster, numbered(4))
        options: dict[str, Any] = {"broadcast": True, "consuming": Consuming(offsets_directory=tmp_path)}
        first, second = Inbox(), Inbox()
        async with consumer(cluster, first, **options) as one:
            await eventually(lambda: len(first.messages) == 4, "all came")
            client_id = one.client_id
        await send(cluster, numbered(4, start=4))
        async with consumer(cluster, second, **options) as two:
            assert two.client_id == client_id
            await eventually(lambda: len(second.messages) == 4, "the new ones")
        assert set(second.bodies) == {b"4", b"5", b"6", b"7"}

    play(scenario)


def test_a_failed_message_is_not_tried_again_and_a_line_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(cluster: AsyncCluster) -> None:
        await send(cluster, numbered(8))
        seen = []

        async def handle(message: Received) -> None:
            seen.append(message.body)
            raise ValueError("no")

        consuming = Consuming(offsets_directory=tmp_path)
        async with consumer(cluster, handle, broadcast=True, consuming=consuming) as it:
            await eventually(
                lambda: sum(holding.offset for holding in it.holdings()) == 8, "all are done with"
            )
        assert sorted(seen) == [b"%d" % number for number in range(8)]

    play(scenario)
    assert "broadcasting: 1 failed message(s)" in caplog.text


def test_the_file_is_java_s_both_ways(tmp_path: Path) -> None:
    offsets = FileOffsets(tmp_path, "10.0.0.1@DEFAULT", "g")
    assert offsets.path == tmp_path / "10.0.0.1@DEFAULT" / "g" / "offsets.json"
    offsets.path.parent.mkdir(parents=True)
    offsets.path.write_text(JAVA_FILE)
    table = offsets.load()
    assert table == {MessageQueue("orders", "broker-a", 1): 7, MessageQueue("orders", "broker-a", 0): 5}
    offsets._write(b"")
    assert offsets.load() == table  # a damaged file: the backup counts
    assert offsets.path.with_name("offsets.json.bak").read_text() == JAVA_FILE


def test_what_we_write_is_what_java_writes(tmp_path: Path) -> None:
    offsets = FileOffsets(tmp_path, "c", "g")
    table = {MessageQueue("orders", "broker-a", 1): 7, MessageQueue("orders", "broker-a", 0): 5}
    asyncio.run(offsets.write_all(table))
    assert offsets.path.read_text() == JAVA_FILE
    asyncio.run(offsets.write(MessageQueue("orders", "broker-a", 0), 6))
    assert offsets.load()[MessageQueue("orders", "broker-a", 0)] == 6
    assert [json.loads(number) for number in re.findall(r"\}:(\d+)", offsets.path.read_text())] == [7, 6]


def test_offsets_of_queues_that_are_not_held_are_kept_while_their_topic_is_subscribed(tmp_path: Path) -> None:
    here, away, other = (
        MessageQueue(topic, broker, 0)
        for topic, broker in (("orders", "broker-a"), ("orders", "broker-b"), ("bills", "broker-a"))
    )
    topics = ["orders", "bills"]
    offsets = FileOffsets(tmp_path, "c", "g", topics=lambda: topics)

    async def scenario() -> None:
        await offsets.write_all({here: 1, away: 2, other: 3})
        await offsets.write_all({here: 5})
        assert offsets.load() == {here: 5, away: 2, other: 3}
        topics.remove("bills")
        await offsets.write_all({here: 6})
        assert offsets.load() == {here: 6, away: 2}
        await offsets.write_all({})
        assert offsets.load() == {here: 6, away: 2}

    asyncio.run(scenario())


def test_what_comes_while_nobody_sees_that_a_broker_is_back_is_not_skipped(tmp_path: Path) -> None:
    async def scenario(cluster: AsyncCluster) -> None:
        inbox = Inbox()
        async with Admin(nameserver=cluster.nameserver) as admin:
            await admin.create_topic(TOPIC, queues=1)
        consuming = Consuming(offsets_directory=tmp_path, rebalance_every_s=0.05, offsets_every_s=0.05)
        options: dict[str, Any] = {
            "broadcast": True, "start": "last", "consuming": consuming, "client_id": "c",
            "intervals": Intervals(route_refresh_s=0.1),
        }  # fmt: skip
        queue, file = MessageQueue(TOPIC, "broker-b", 0), FileOffsets(tmp_path, "c", "g")
        async with consumer(cluster, inbox, **options) as it:
            await eventually(lambda: len(owners([it])) == 2, "both brokers are read")
            await send(cluster, numbered(4))
            await eventually(lambda: len(inbox.messages) == 4, "all came")
            await eventually(lambda: queue in file.load(), "it is written")
            await cluster.kill("broker-b")
            await eventually(lambda: len(owners([it])) == 1, "one broker is away")
            stored = file.path.stat().st_mtime_ns
            await send(cluster, numbered(1, start=4))
            await eventually(lambda: file.path.stat().st_mtime_ns != stored, "offsets are written again")
            await cluster.restart("broker-b")
            async with Producer("pg", nameserver=cluster.nameserver) as producer:
                await producer.send(Message(TOPIC, b"5"), queue=queue)
            await eventually(lambda: b"5" in inbox.bodies, "what came before it was seen")
        assert sorted(inbox.bodies) == [b"%d" % number for number in range(6)]

    play(scenario, brokers=2)


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "../../etc"])
def test_a_name_that_leads_elsewhere_is_no_folder(tmp_path: Path, name: str) -> None:
    with pytest.raises(SettingsError, match="cannot be the name of a folder"):
        FileOffsets(tmp_path, name, "g")


def test_a_client_id_that_cannot_be_a_folder_is_refused_at_the_start(tmp_path: Path) -> None:
    async def scenario(cluster: AsyncCluster) -> None:
        options: dict[str, Any] = {"broadcast": True, "consuming": Consuming(offsets_directory=tmp_path)}
        with pytest.raises(SettingsError, match="cannot be the name of a folder"):
            async with consumer(cluster, Inbox(), client_id="../elsewhere", **options):
                pass

    play(scenario)
