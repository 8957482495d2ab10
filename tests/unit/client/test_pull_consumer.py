"""A pull consumer against a real cluster of ours: what it gets, where it stands, what it leaves behind."""

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime

import pytest

import trimtab
from tests.unit.client.pull_scenes import ONE, play, send, send_to_one, until
from trimtab.client.pull_consumer import PullConsumer
from trimtab.client.received import Received
from trimtab.client.subscriptions import SQL
from trimtab.errors import ClosedError, NoPermissionError, NoRouteError, SettingsError, TrimtabError
from trimtab.model import MessageQueue
from trimtab.settings import Pulling
from trimtab.testing import AsyncCluster
from trimtab.wire.codes import RESPONSE_FLAG, RequestCode, ResponseCode
from trimtab.wire.commands import Command
from trimtab.wire.headers.base import encode_ext
from trimtab.wire.headers.consume import OffsetResponse


def consumer_of(cluster: AsyncCluster, group: str = "g", **options: object) -> PullConsumer:
    return PullConsumer(group, nameserver=cluster.nameserver, **{"start": "first", **options})  # type: ignore[arg-type]


async def gather(consumer: PullConsumer, count: int) -> list[Received]:
    """So many messages, polled; the test's own time limit ends it if they do not come."""
    found: list[Received] = []
    while len(found) < count:
        found += await consumer.poll(1)
    return found


def bodies_of(messages: list[Received]) -> dict[MessageQueue, list[bytes]]:
    found: dict[MessageQueue, list[bytes]] = {}
    for message in messages:
        found.setdefault(message.queue, []).append(message.body)
    return found


def test_it_is_a_public_name() -> None:
    assert trimtab.PullConsumer is PullConsumer


def test_assigned_queues_are_read_in_order_and_every_field_is_there() -> None:
    async def scenario(cluster: AsyncCluster) -> None:
        expected = await send(cluster, 500, tag=lambda number: "eu")
        async with consumer_of(cluster) as consumer:
            await consumer.assign(await consumer.queues("orders"))
            found = await gather(consumer, 500)
        assert bodies_of(found) == expected
        first = found[0]
        assert (first.topic, first.tag, first.keys, first.reconsume_times) == ("orders", "eu", (), 0)
        assert (first.broker_name, first.queue_id) == (first.queue.broker_name, first.queue.queue_id)
        assert first.message_id == first.properties["UNIQ_KEY"]
        assert 0 < first.born_timestamp <= first.store_timestamp + 60_000
        assert len(first.offset_message_id) == 32

    play(scenario, brokers=2)


def test_async_for_gives_one_message_after_the_other() -> None:
    async def scenario(cluster: AsyncCluster) -> None:
        expected = await send(cluster, 100)
        found = []
        async with consumer_of(cluster, subscribe={"orders": "*"}) as consumer:
            async for message in consumer:
                found.append(message)
                if len(found) == 100:
                    break
        assert bodies_of(found) == expected

    play(scenario)


def test_a_loop_that_is_left_and_a_poll_go_on_where_the_other_was() -> None:
    async def scenario(cluster: AsyncCluster) -> None:
        bodies = await send_to_one(cluster, 50)
        async with consumer_of(cluster) as consumer:
            await consumer.assign([ONE])
            found = [await anext(consumer) for _ in range(7)]
            found += await consumer.poll(5, messages_max=3)
            assert len(found) == 10
            found += [await anext(consumer)]
            found += await gather(consumer, 39)
        assert [message.body for message in found][-50:] == bodies

    play(scenario)


def test_poll_comes_back_with_nothing_when_its_time_is_over() -> None:
    async def scenario(cluster: AsyncCluster) -> None:
        await send(cluster, 1)
        async with consumer_of(cluster, start="last", subscribe={"orders": "*"}) as consumer:
            for queue in consumer.assigned:
                await consumer.seek(queue, "end")
            assert await consumer.poll(0.05) == []

    play(scenario)


@pytest.mark.parametrize("expression", ["eu", SQL("TAGS = 'eu'")], ids=str)
def test_what_is_not_wanted_does_not_come(expression: str | SQL) -> None:
    async def scenario(cluster: AsyncCluster) -> None:
        await send(cluster, 300, tag=lambda number: ("eu", "us", None)[number % 3])
        async with consumer_of(cluster, subscribe={"orders": expression}) as consumer:
            found = await gather(consumer, 100)
            assert {message.tag for message in found} == {"eu"}
            assert await consumer.poll(0.05) == []

    play(scenario)


def test_queues_that_are_read_already_get_another_filter_by_assigning_them_again() -> None:
    async def scenario(cluster: AsyncCluster) -> None:
        await send_to_one(cluster, 40, tag=lambda number: ("a", "b")[number % 2])
        async with consumer_of(cluster) as consumer:
            await consumer.assign([ONE], "a")
            first = await consumer.poll(5, 1)
            await consumer.assign([ONE], "b")
            (message, *_) = await gather(consumer, 1)
            assert (message.tag, message.queue_offset) == ("b", first[0].queue_offset + 1)
            await consumer.seek(ONE, "begin")
            assert {message.tag for message in await gather(consumer, 20)} == {"b"}

    play(scenario)


def test_an_assignment_that_fails_changes_nothing() -> None:
    async def scenario(cluster: AsyncCluster) -> None:
        await send_to_one(cluster, 10, tag=lambda _: "a")
        other = MessageQueue("orders", "broker-a", 1)
        async with consumer_of(cluster) as consumer:
            await consumer.assign([ONE], "a")
            for queues, expression in (
                ([other, MessageQueue("nowhere", "broker-a", 0)], "*"),
                ([other, MessageQueue("orders", "broker-z", 0)], "*"),
                ([other], SQL("((a")),
            ):
                with pytest.raises(TrimtabError):
                    await consumer.assign(queues, expression)
                assert consumer.assigned == (ONE,)
            assert len(await gather(consumer, 10)) == 10

    play(scenario)


def test_c10_an_offset_below_minus_one_starts_nothing_and_skips_nothing() -> None:
    async def scenario(cluster: AsyncCluster) -> None:
        await send_to_one(cluster, 3)
        answer = Command(
            code=ResponseCode.SUCCESS, opaque=0, flag=RESPONSE_FLAG, ext=encode_ext(OffsetResponse(offset=-5))
        )
        stop = cluster.intercept(RequestCode.QUERY_CONSUMER_OFFSET, lambda _: answer)
        async with consumer_of(cluster, start="last") as consumer:
            with pytest.raises(SettingsError, match="no offset in orders@broker-a:0 to start at"):
                await consumer.assign([ONE])
            assert consumer.assigned == ()
        async with consumer_of(cluster, start="last", subscribe={"orders": "*"}) as consumer:
            assert consumer.assigned == ()
            stop()
            consumer._rebalance_soon()
            assert len(await gather(consumer, 3)) >= 3

    play(scenario)


def test_two_who_assign_at_once_do_it_one_after_the_other() -> None:
    async def scenario(cluster: AsyncCluster) -> None:
        await send_to_one(cluster, 10)
        async with consumer_of(cluster) as consumer:
            queues = await consumer.queues("orders")
            await asyncio.gather(*(consumer.assign(some) for some in (queues, (), queues, queues)))
            assert set(consumer.assigned) == set(queues)
            found = await gather(consumer, 11)
            places = {(message.queue, message.queue_offset) for message in found}
            assert len(found) == len(places) == 11
            assert await consumer.poll(0.05) == []

    play(scenario)


# --- places -------------------------------------------------------------------------------------------------------


def test_seek_goes_to_an_offset_to_either_end_and_to_a_time() -> None:
    async def scenario(cluster: AsyncCluster) -> None:
        await send_to_one(cluster, 30)
        async with consumer_of(cluster) as consumer:
            await consumer.assign([ONE])
            end = await consumer.offset_of(ONE, "end")
            await gather(consumer, 20)
            assert await consumer.seek(ONE, 12) == 12
            assert consumer.position(ONE) == 12
            again = await gather(consumer, end - 12)
            assert [message.queue_offset for message in again] == list(range(12, end))
            assert await consumer.seek(ONE, "begin") == 0
            assert (await anext(consumer)).queue_offset == 0
            assert await consumer.seek(ONE, "end") == end
            assert await consumer.poll(0.05) == []
            at = datetime.fromtimestamp(again[0].store_timestamp / 1000, UTC)
            await consumer.seek(ONE, at)
            assert (await anext(consumer)).store_timestamp == again[0].store_timestamp

    play(scenario)


def test_only_a_queue_that_is_read_can_be_sought() -> None:
    async def scenario(cluster: AsyncCluster) -> None:
        await send(cluster, 1)
        async with consumer_of(cluster) as consumer:
            with pytest.raises(SettingsError, match="orders@broker-a:0 is not read by this consumer"):
                await consumer.seek(ONE, 1)

    play(scenario)


@pytest.mark.parametrize("offset", [-1, 1.5, True, 2**63])
def test_an_offset_that_nobody_could_start_at_is_not_committed(offset: int) -> None:
    async def scenario(cluster: AsyncCluster) -> None:
        await send_to_one(cluster, 3)
        async with consumer_of(cluster) as consumer:
            await consumer.commit({ONE: 2})
            with pytest.raises(SettingsError, match="offset"):
                await consumer.commit({ONE: offset})
            assert await consumer.committed(ONE) == 2

    play(scenario)


def test_an_offset_that_no_broker_can_count_is_no_place() -> None:
    async def scenario(cluster: AsyncCluster) -> None:
        await send_to_one(cluster, 3)
        async with consumer_of(cluster) as consumer:
            await consumer.assign([ONE])
            with pytest.raises(SettingsError, match="more than brokers can count"):
                await consumer.seek(ONE, 2**63)

    play(scenario)


def test_an_offset_that_is_gone_is_passed_on_to_where_the_broker_says() -> None:
    async def scenario(cluster: AsyncCluster) -> None:
        await send_to_one(cluster, 10)
        async with consumer_of(cluster) as consumer:
            await consumer.assign([ONE])
            await consumer.seek(ONE, 10_000)
            end = await consumer.offset_of(ONE, "end")
            await until(lambda: consumer.position(ONE) < 10_000)
            assert consumer.position(ONE) in (0, end)

    play(scenario)


# --- commits ------------------------------------------------------------------------------------------------------


def test_a_message_is_done_when_the_next_one_is_asked_for() -> None:
    async def scenario(cluster: AsyncCluster) -> None:
        await send_to_one(cluster, 10)

        async def fail_in_the_middle() -> None:
            async with consumer_of(cluster) as consumer:
                await consumer.assign([ONE])
                seen.extend([await anext(consumer) for _ in range(4)])
                raise ZeroDivisionError

        seen: list[Received] = []
        with pytest.raises(ZeroDivisionError):
            await fail_in_the_middle()
        message = seen[-1]
        async with consumer_of(cluster) as consumer:
            assert await consumer.committed(ONE) == message.queue_offset
            await consumer.assign([ONE])
            assert (await anext(consumer)).queue_offset == message.queue_offset, "it was not done"

    play(scenario)


def test_a_clean_end_commits_what_was_handed_out() -> None:
    async def scenario(cluster: AsyncCluster) -> None:
        await send_to_one(cluster, 10)
        async with consumer_of(cluster) as consumer:
            await consumer.assign([ONE])
            for _ in range(4):
                message = await anext(consumer)
        async with consumer_of(cluster) as consumer:
            assert await consumer.committed(ONE) == message.queue_offset + 1

    play(scenario)


def test_without_auto_commit_only_commit_commits() -> None:
    async def scenario(cluster: AsyncCluster) -> None:
        await send_to_one(cluster, 10)
        async with consumer_of(cluster, auto_commit_s=None) as consumer:
            await consumer.assign([ONE])
            batch = await consumer.poll(5, messages_max=3)
            await consumer.commit()
            await gather(consumer, 1)
        async with consumer_of(cluster) as consumer:
            assert await consumer.committed(ONE) == batch[-1].queue_offset + 1
            await consumer.commit({ONE: 2})
            assert await consumer.committed(ONE) == 2

    play(scenario)


def test_auto_commit_commits_what_is_done_by_itself() -> None:
    async def scenario(cluster: AsyncCluster) -> None:
        await send_to_one(cluster, 10)
        async with consumer_of(cluster, auto_commit_s=0.02) as consumer, consumer_of(cluster, "g2") as other:
            await consumer.assign([ONE])
            for _ in range(5):
                message = await anext(consumer)
            assert message.queue_offset >= 4
            committed = -1
            while committed != message.queue_offset:
                committed = await consumer.committed(ONE) or 0
            assert await other.committed(ONE) in (None, 0)

    play(scenario)


def test_offsets_that_a_filter_passed_over_are_committed_too() -> None:
    async def scenario(cluster: AsyncCluster) -> None:
        await send_to_one(cluster, 30, tag=lambda number: "eu" if number < 10 else "us")
        async with consumer_of(cluster) as consumer:
            await consumer.assign([ONE], "eu")
            end = await consumer.offset_of(ONE, "end")
            await gather(consumer, 10)
            while consumer.position(ONE) < end:
                await consumer.poll(0.01)
            await consumer.commit()
            assert await consumer.committed(ONE) == end

    play(scenario)


# --- pauses and limits --------------------------------------------------------------------------------------------


def test_a_paused_queue_gives_nothing_and_loses_nothing() -> None:
    async def scenario(cluster: AsyncCluster) -> None:
        expected = await send(cluster, 400)
        async with consumer_of(cluster) as consumer:
            await consumer.assign(await consumer.queues("orders"))
            paused = next(iter(expected))
            consumer.pause(paused)
            rest = sum(len(bodies) for queue, bodies in expected.items() if queue != paused)
            found = await gather(consumer, rest)
            assert paused not in bodies_of(found)
            assert await consumer.poll(0.05) == []
            consumer.resume(paused)
            found += await gather(consumer, len(expected[paused]))
        assert bodies_of(found) == expected

    play(scenario)


def test_what_waits_to_be_handed_out_is_bounded() -> None:
    async def scenario(cluster: AsyncCluster) -> None:
        expected = await send(cluster, 600, body=lambda number: b"%05d" % number * 400)
        pulling = Pulling(pull_messages_max=20, held_bytes_max=200_000)
        async with consumer_of(cluster, pulling=pulling) as consumer:
            await consumer.assign(await consumer.queues("orders"))
            room = consumer._reading.room
            await until(lambda: room.taken_bytes > 150_000)
            await asyncio.sleep(0.05)
            assert room.taken_bytes < 200_000 + 4 * 64_000
            found = await gather(consumer, 600)
        assert bodies_of(found) == expected
        assert room.taken_bytes == 0

    play(scenario)


# --- groups -------------------------------------------------------------------------------------------------------


def test_two_members_share_the_queues_and_one_gets_all_when_the_other_leaves() -> None:
    async def scenario(cluster: AsyncCluster) -> None:
        await send(cluster, 8)
        async with consumer_of(cluster, subscribe={"orders": "*"}) as first:
            every = set(await first.queues("orders"))
            await until(lambda: set(first.assigned) == every)
            async with consumer_of(cluster, subscribe={"orders": "*"}) as second:
                await until(lambda: len(first.assigned) == len(second.assigned) == len(every) // 2)
                assert {*first.assigned, *second.assigned} == every
                assert first.client_id != second.client_id
            await until(lambda: set(first.assigned) == every)

    play(scenario)


def test_topics_can_be_added_changed_and_given_up() -> None:
    async def scenario(cluster: AsyncCluster) -> None:
        await send(cluster, 40, "orders", tag=lambda number: ("a", "b")[number % 2])
        await send(cluster, 10, "bills")
        async with consumer_of(cluster) as consumer:
            await consumer.subscribe("orders", "a")
            await gather(consumer, 20)
            await consumer.subscribe("bills")
            assert {message.topic for message in await gather(consumer, 10)} == {"bills"}
            await consumer.subscribe("orders", "b")
            for queue in consumer.assigned:
                await consumer.seek(queue, "begin")
            await consumer.unsubscribe("bills")
            assert {queue.topic for queue in consumer.assigned} == {"orders"}
            assert {message.tag for message in await gather(consumer, 20)} == {"b"}

    play(scenario)


def test_a_namespace_is_on_the_wire_and_not_in_what_users_see() -> None:
    async def scenario(cluster: AsyncCluster) -> None:
        async with trimtab.Producer("p", nameserver=cluster.nameserver, namespace="prod") as producer:
            await producer.send(trimtab.Message("orders", b"x"))
        async with consumer_of(cluster, namespace="prod", subscribe={"orders": "*"}) as consumer:
            (message,) = await gather(consumer, 1)
            assert message.topic == "orders"
            await consumer.commit()
            assert await consumer.committed(message.queue) == 1

    play(scenario)


# --- what goes wrong ----------------------------------------------------------------------------------------------


def test_a_topic_that_nobody_knows_is_told_at_once_and_nothing_is_left_open() -> None:
    async def scenario(cluster: AsyncCluster) -> None:
        with pytest.raises(NoRouteError, match="'nowhere' has no route"):
            async with consumer_of(cluster, subscribe={"nowhere": "*"}):
                pass
        await send(cluster, 1)
        async with consumer_of(cluster, subscribe={"orders": "*"}) as consumer:
            assert await gather(consumer, 1)

    play(scenario)


def test_a_refusal_is_raised_where_messages_are_asked_for_and_reading_goes_on() -> None:
    async def scenario(cluster: AsyncCluster) -> None:
        await send_to_one(cluster, 5)

        def refuse(command: Command) -> Command:
            return Command(
                code=ResponseCode.NO_PERMISSION, opaque=command.opaque, flag=RESPONSE_FLAG, remark="no"
            )

        remove = cluster.intercept(RequestCode.PULL_MESSAGE, refuse)
        async with consumer_of(cluster) as consumer:
            await consumer.assign([ONE])
            with pytest.raises(NoPermissionError):
                await anext(consumer)
            remove()
            found: list[Received] = []
            while len(found) < 5:
                try:
                    found += await consumer.poll(1)
                except NoPermissionError:
                    continue

    play(scenario)


def test_a_closed_consumer_says_so() -> None:
    async def scenario(cluster: AsyncCluster) -> None:
        await send(cluster, 1)
        async with consumer_of(cluster, subscribe={"orders": "*"}) as consumer:
            await gather(consumer, 1)
        with pytest.raises(ClosedError):
            await consumer.poll()
        with pytest.raises(StopAsyncIteration):
            await anext(consumer)
        await consumer.close()

    play(scenario)


def test_a_consumer_that_never_started_says_so() -> None:
    async def scenario() -> None:
        consumer = PullConsumer("g", nameserver="h:1")
        for ask in (
            lambda: consumer.assigned,
            lambda: consumer.client_id,
            consumer.tallies,
            lambda: aiter(consumer),
        ):
            with pytest.raises(ClosedError, match="has not been started"):
                ask()

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: PullConsumer("g", nameserver="h:1", start="middle"), "none of 'first', 'last'"),  # type: ignore[arg-type]
        (lambda: PullConsumer("g", nameserver="h:1", auto_commit_s=0), "must be positive"),
        (lambda: PullConsumer("g", nameserver="h:1", start=datetime.min), "no time that a queue can be"),  # noqa: DTZ901 - a zone would make it one
        (lambda: PullConsumer("g", nameserver="h:1", subscribe="orders"), "no table"),  # type: ignore[arg-type]
        (lambda: PullConsumer("g", nameserver="h:1", subscribe={"orders": ["a"]}), "neither a text"),  # type: ignore[dict-item]
        (lambda: Pulling(depth_max=0), "1 or more"),
        (lambda: Pulling(suspend_ms=30_000), "longer than suspend_ms"),
        (lambda: Pulling(retry_s_min=9), "at most retry_s_max"),
    ],
)
def test_settings_that_make_no_sense_are_refused(make: Callable[[], object], text: str) -> None:
    with pytest.raises(SettingsError, match=text):
        make()


# --- columns ------------------------------------------------------------------------------------------------------


def test_columns_of_a_part_of_a_queue_equal_its_messages() -> None:
    pa = pytest.importorskip("pyarrow")

    async def scenario(cluster: AsyncCluster) -> None:
        await send_to_one(cluster, 3_000, tag=lambda number: ("eu", "us")[number % 2])
        async with consumer_of(cluster, pulling=Pulling(pull_messages_max=32)) as consumer:
            names = ["queue_offset", "body", "tag", "message_id"]
            batches = [batch async for batch in consumer.pull_columns(ONE, 100, 2_900, columns=names)]
            table = pa.Table.from_batches(batches)
            assert table.column_names == names
            assert table["queue_offset"].to_pylist() == list(range(100, 2_900))
            await consumer.assign([ONE])
            await consumer.seek(ONE, 100)
            found = await gather(consumer, 2_800)
            for name in names:
                assert table[name].to_pylist() == [getattr(message, name) for message in found[:2_800]]
            some = [b async for b in consumer.pull_columns(ONE, columns=["tag"], expression="us")]
            assert pa.Table.from_batches(some)["tag"].to_pylist() == ["us"] * 1_500

    play(scenario)


@pytest.mark.parametrize("columns", ["bodie", ["body", "nope"], []])
def test_columns_that_messages_do_not_have_are_named(columns: list[str]) -> None:
    pytest.importorskip("pyarrow")

    async def scenario(cluster: AsyncCluster) -> None:
        await send_to_one(cluster, 3)
        async with consumer_of(cluster) as consumer:
            with pytest.raises(SettingsError, match="no column of a message; there are topic, "):
                async for _ in consumer.pull_columns(ONE, columns=columns):
                    pass
            (batch,) = [batch async for batch in consumer.pull_columns(ONE, columns="body")]
            assert batch.schema.names == ["body"]
            assert batch.num_rows >= 3

    play(scenario)
