"""Everything that is in a topic, through each face; and the command that does it."""

import asyncio
import json
import subprocess
import sys

import pytest

from tests.unit.client.pull_scenes import ONE, play, send, send_to_one
from trimtab.client.pulls_drain import Api, DrainLoad, run_drain
from trimtab.testing import AsyncCluster, Cluster
from trimtab.wire.codes import RequestCode, ResponseCode
from trimtab.wire.commands import Command


@pytest.mark.parametrize("api", ["push", "pull", "columns"])
@pytest.mark.parametrize("batch", [1, 32])
def test_everything_is_drained_and_counted(api: Api, batch: int) -> None:
    async def scenario(cluster: AsyncCluster) -> None:
        expected = await send(cluster, 1_000, body=lambda number: b"x" * (number % 50 + 1))
        load = DrainLoad(
            nameserver=cluster.nameserver, topic="orders", group="g", api=api, batch_messages=batch
        )
        report = await run_drain(load)
        assert report.messages == 1_000
        assert report.body_bytes == sum(len(body) for bodies in expected.values() for body in bodies)
        assert report.messages_per_second > 0
        assert (report.wasted_pulls, report.pulls > 0, report.missed) == (0, True, 0)

    play(scenario, brokers=2)


@pytest.mark.parametrize("api", ["push", "pull", "columns"])
@pytest.mark.parametrize("left", [0, 40])
def test_what_retention_took_meanwhile_is_not_waited_for(api: Api, left: int) -> None:
    async def scenario(cluster: AsyncCluster) -> None:
        await send_to_one(cluster, 100)
        gone = 100 - left

        def deleted(command: Command) -> Command | None:
            is_it = (command.ext["topic"], command.ext["queueId"]) == (ONE.topic, str(ONE.queue_id))
            if not is_it or int(command.ext["queueOffset"]) >= gone:
                return None
            ext = {"nextBeginOffset": f"{gone}", "minOffset": f"{gone}", "maxOffset": "100"}
            return Command(
                code=ResponseCode.PULL_OFFSET_MOVED, opaque=0, ext=ext | {"suggestWhichBrokerId": "0"}
            )

        cluster.intercept(RequestCode.PULL_MESSAGE, deleted)
        report = await run_drain(
            DrainLoad(nameserver=cluster.nameserver, topic=ONE.topic, group="g", api=api)
        )
        total = report.messages + report.missed
        assert total in (100, 101), "the message that made the topic may lie in the same queue"
        assert report.missed == gone

    play(scenario)


@pytest.mark.parametrize("api", ["pull", "columns"])
def test_a_group_that_keeps_its_offsets_finds_nothing_the_second_time(api: Api) -> None:
    async def scenario(cluster: AsyncCluster) -> None:
        await send(cluster, 100)
        load = DrainLoad(
            nameserver=cluster.nameserver, topic="orders", group="g", api=api, keeps_offsets=True
        )
        assert [(await run_drain(load)).messages for _ in range(2)] == [100, 0]
        await send(cluster, 7)
        assert (await run_drain(load)).messages == 7

    play(scenario)


def test_the_command_tells_it_as_json() -> None:
    with Cluster() as cluster:

        async def fill() -> None:
            from trimtab import Message, Producer

            async with Producer("p", nameserver=cluster.nameserver) as producer:
                await producer.send_many(Message("orders", b"hello") for _ in range(50))

        asyncio.run(fill())
        command = [
            sys.executable,
            "-m",
            "trimtab",
            "bench",
            "drain",
            "-n",
            cluster.nameserver,
            "--topic",
            "orders",
        ]
        done = subprocess.run([*command, "--json"], capture_output=True, text=True, check=True, timeout=60)
        report = json.loads(done.stdout)
        assert (report["messages"], report["api"]) == (50, "pull")
        assert report["messages_per_second"] == pytest.approx(50 / report["seconds"])
        told = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
        assert "50 messages in" in told.stdout
