"""A push consumer against a real cluster of ours: messages, offsets, subscriptions."""

import asyncio
import threading
from datetime import UTC, datetime
from typing import Any

import pytest

from tests.unit.client.pushing import (
    TOPIC,
    Inbox,
    ask,
    by_notice_only,
    consumer,
    eventually,
    numbered,
    play,
    send,
    stored_offset,
)
from trimtab.broker.settings import BrokerSettings
from trimtab.client.push import PushConsumer
from trimtab.client.push_settings import Consuming
from trimtab.client.received import Received
from trimtab.client.subscriptions import SQL
from trimtab.errors import ClosedError, InvalidMessageError, SettingsError, SubscriptionParseFailedError
from trimtab.model import Message, MessageQueue
from trimtab.settings import Intervals
from trimtab.testing import AsyncCluster
from trimtab.wire.bodies import ConsumeFromWhere, ConsumerConnection, ConsumeType, MessageModel
from trimtab.wire.codes import LanguageCode, RequestCode, ResponseCode
from trimtab.wire.fastjson import decode_body
from trimtab.wire.headers.consume import GroupOnly

OLD_LOGS = BrokerSettings(young_log_bytes=0)
"""A new group has no offset, so the client decides where it begins."""


def wall_ms() -> float:
    return datetime.now(UTC).timestamp() * 1000


async def known_group(cluster: AsyncCluster, group: str = "g") -> ConsumerConnection | None:
    answer = await ask(cluster, RequestCode.GET_CONSUMER_CONNECTION_LIST, GroupOnly(consumer_group=group))
    return decode_body(ConsumerConnection, answer.body) if answer.code == ResponseCode.SUCCESS else None


def test_every_message_comes_once_and_the_group_s_offsets_are_stored_at_the_end() -> None:
    async def scenario(cluster: AsyncCluster) -> None:
        await send(cluster, numbered(1_000))
        inbox = Inbox()
        async with consumer(cluster, inbox) as one:
            await eventually(lambda: len(inbox.messages) >= 1_000, "all came")
            queues = [holding.queue for holding in one.holdings() if holding.queue.topic == TOPIC]
        assert sorted(inbox.bodies, key=int) == [b"%d" % number for number in range(1_000)]
        assert len(queues) == 8
        ends = {
            queue: max(m.queue_offset for m in inbox.messages if m.queue == queue) + 1 for queue in queues
        }
        assert {queue: await stored_offset(cluster, queue) for queue in queues} == ends

        again = Inbox()
        await send(cluster, numbered(10, start=1_000))
        async with consumer(cluster, again):
            await eventually(lambda: len(again.messages) >= 10, "the new ones came")
        assert sorted(again.bodies, key=int) == [b"%d" % number for number in range(1_000, 1_010)]

    play(scenario, brokers=2)


def test_offsets_are_stored_while_it_runs() -> None:
    async def scenario(cluster: AsyncCluster) -> None:
        await send(cluster, numbered(8))
        inbox = Inbox()
        async with consumer(cluster, inbox, consuming=Consuming(offsets_every_s=0.05)) as one:
            await eventually(lambda: len(inbox.messages) >= 8, "all came")
            queues = [holding.queue for holding in one.holdings() if holding.queue.topic == TOPIC]
            total = 0
            while total < 8:
                total = sum([max(0, await stored_offset(cluster, queue)) for queue in queues])
                await asyncio.sleep(0.01)
            assert total == 8

    play(scenario)


def test_a_batch_handler_gets_lists_of_one_queue_in_order() -> None:
    async def scenario(cluster: AsyncCluster) -> None:
        await send(cluster, numbered(500))
        batches: list[list[Received]] = []

        async def handle(messages: list[Received]) -> None:
            batches.append(messages)

        async with consumer(cluster, handle, batch_messages_max=16):
            await eventually(lambda: sum(map(len, batches)) >= 500, "all came")
        assert max(map(len, batches)) == 16
        for batch in batches:
            assert len({message.queue for message in batch}) == 1
            offsets = [message.queue_offset for message in batch]
            assert offsets == list(range(offsets[0], offsets[0] + len(batch)))

    play(scenario)


def test_a_plain_function_runs_in_threads_several_at_once() -> None:
    async def scenario(cluster: AsyncCluster) -> None:
        await send(cluster, numbered(4))
        together = threading.Barrier(4)
        threads: set[str] = set()

        def handle(message: Received) -> None:
            together.wait(60)
            threads.add(threading.current_thread().name)

        async with consumer(cluster, handle, consuming=Consuming(concurrency=4)):
            await eventually(lambda: len(threads) == 4, "four threads at once")
        assert threading.current_thread().name not in threads

    play(scenario)


def test_async_handlers_run_as_many_at_once_as_allowed_and_no_more() -> None:
    async def scenario(cluster: AsyncCluster) -> None:
        await send(cluster, numbered(60))
        running, most, done = 0, 0, 0

        async def handle(message: Received) -> None:
            nonlocal running, most, done
            running += 1
            most = max(most, running)
            await asyncio.sleep(0.005)
            running -= 1
            done += 1

        async with consumer(cluster, handle, consuming=Consuming(concurrency=7)):
            await eventually(lambda: done == 60, "all done")
        assert most == 7

    play(scenario)


def test_tags_and_sql_filter_what_comes() -> None:
    async def scenario(cluster: AsyncCluster) -> None:
        await send(
            cluster,
            [
                Message(TOPIC, b"%d" % number, tag="abc"[number % 3], properties={"n": str(number)})
                for number in range(30)
            ],
        )
        by_tag, by_sql = Inbox(), Inbox()
        async with (
            consumer(cluster, by_tag, "tags", subscribe={TOPIC: "a || c"}),
            consumer(cluster, by_sql, "sql", subscribe={TOPIC: SQL("n >= 25 AND TAGS <> 'a'")}),
        ):
            await eventually(lambda: len(by_tag.messages) == 20 and len(by_sql.messages) == 4, "what matches")
        assert {message.tag for message in by_tag.messages} == {"a", "c"}
        assert sorted(by_sql.bodies) == [b"25", b"26", b"28", b"29"]

    play(scenario)


def test_a_filter_that_no_broker_takes_is_an_error_at_the_start() -> None:
    async def scenario(cluster: AsyncCluster) -> None:
        await send(cluster, numbered(1))
        with pytest.raises(SubscriptionParseFailedError, match="filter for topic 'orders'"):
            async with consumer(cluster, Inbox(), subscribe={TOPIC: SQL("n >>> 5")}):
                pass

    play(scenario)


def test_c10_start_first_last_and_at_a_time() -> None:
    async def scenario(cluster: AsyncCluster) -> None:
        await send(cluster, numbered(40))
        everything = Inbox()
        async with consumer(cluster, everything, "first"):
            await eventually(lambda: len(everything.messages) == 40, "all came")
        last_stored_ms = max(message.store_timestamp for message in everything.messages)
        moment_ms = last_stored_ms + 1
        await eventually(lambda: wall_ms() > moment_ms, "that moment is over")
        late, timed = Inbox(), Inbox()
        async with consumer(cluster, late, "late", start="last") as one:
            await eventually(lambda: len(one.holdings()) == 5, "it holds its queues")
            await send(cluster, numbered(80, start=40))
            await eventually(lambda: len(late.messages) == 80, "the new ones came")
        async with consumer(cluster, timed, "timed", start=datetime.fromtimestamp(moment_ms / 1000, UTC)):
            await eventually(lambda: len(timed.messages) == 80, "those since that time came")
        wanted = {b"%d" % number for number in range(40, 120)}
        assert set(late.bodies) == set(timed.bodies) == wanted

    play(scenario, settings=OLD_LOGS)


def test_b1_b2_a_heartbeat_tells_brokers_all_about_the_group_at_once() -> None:
    async def scenario(cluster: AsyncCluster) -> None:
        await send(cluster, numbered(1))
        async with consumer(cluster, Inbox(), subscribe={TOPIC: "a || b"}) as one:
            known = await known_group(cluster)
            assert known is not None
            assert known.consume_type is ConsumeType.CONSUME_PASSIVELY
            assert known.message_model is MessageModel.CLUSTERING
            assert known.consume_from_where is ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
            assert set(known.subscription_table) == {TOPIC, "%RETRY%g"}
            subscription = known.subscription_table[TOPIC]
            assert (set(subscription.tags_set), set(subscription.code_set)) == (
                {"a", "b"},
                {ord("a"), ord("b")},
            )
            (connection,) = known.connection_set
            assert (connection.client_id, connection.language) == (one.client_id, LanguageCode.PYTHON)
        assert await known_group(cluster) is None  # B5: it said goodbye

    play(scenario)


def test_b1_topics_come_and_go_while_it_runs() -> None:
    async def scenario(cluster: AsyncCluster) -> None:
        await send(cluster, [Message(topic, b"x") for topic in ("one", "two")])
        inbox = Inbox()
        async with consumer(cluster, inbox, subscribe={"one": "*"}, consuming=by_notice_only()) as it:
            await eventually(lambda: [m.topic for m in inbox.messages] == ["one"], "topic one")
            await it.subscribe("two")
            known = await known_group(cluster)
            assert known is not None
            assert "two" in known.subscription_table
            await eventually(lambda: [m.topic for m in inbox.messages] == ["one", "two"], "topic two")
            await it.unsubscribe("one")
            assert {holding.queue.topic for holding in it.holdings()} <= {"two", "%RETRY%g"}
            known = await known_group(cluster)
            assert known is not None
            assert "one" not in known.subscription_table
            await send(cluster, [Message(topic, b"y") for topic in ("one", "two")])
            await eventually(
                lambda: [m.topic for m in inbox.messages] == ["one", "two", "two"], "only topic two"
            )

    play(scenario)


def test_a_changed_filter_counts_from_then_on() -> None:
    async def scenario(cluster: AsyncCluster) -> None:
        await send(cluster, numbered(10, tag="a"))
        inbox = Inbox()
        async with consumer(cluster, inbox, subscribe={TOPIC: "a"}) as it:
            await eventually(lambda: len(inbox.messages) == 10, "those with tag a")
            await it.subscribe(TOPIC, "b")
            await send(cluster, numbered(10, tag="a") + numbered(10, start=10, tag="b"))
            await eventually(lambda: len(inbox.messages) == 20, "those with tag b")
            assert {message.tag for message in inbox.messages[10:]} == {"b"}

    play(scenario)


def test_pause_and_resume() -> None:
    async def scenario(cluster: AsyncCluster) -> None:
        await send(cluster, numbered(1))
        inbox = Inbox()
        async with consumer(cluster, inbox) as it:
            await eventually(lambda: len(inbox.messages) == 1, "the first")
            it.pause()
            # A pull that the broker holds may still bring one message for each queue.
            await send(cluster, numbered(100, start=1))
            await eventually(lambda: all(h.waiting_messages == 0 for h in it.holdings()), "nothing waits")
            await asyncio.sleep(0.1)
            came = len(inbox.messages)
            await send(cluster, numbered(100, start=101))
            await asyncio.sleep(0.1)
            assert len(inbox.messages) == came
            it.resume()
            await eventually(lambda: len(inbox.messages) == 201, "all")

    play(scenario)


def test_a_topic_that_comes_later_is_found() -> None:
    async def scenario(cluster: AsyncCluster) -> None:
        inbox = Inbox()
        async with consumer(cluster, inbox):
            await send(cluster, numbered(10))
            await eventually(lambda: len(inbox.messages) == 10, "all came")

    play(scenario)


def test_two_groups_in_one_process_share_a_session_and_each_gets_everything() -> None:
    async def scenario(cluster: AsyncCluster) -> None:
        await send(cluster, numbered(50))
        first, second = Inbox(), Inbox()
        async with consumer(cluster, first, "g1") as one, consumer(cluster, second, "g2") as two:
            assert one.client_id == two.client_id
            await eventually(lambda: len(first.messages) == len(second.messages) == 50, "all came twice")

    play(scenario)


def test_a_namespace_is_not_seen_by_handlers() -> None:
    async def scenario(cluster: AsyncCluster) -> None:
        await send(cluster, [Message("prod%orders", b"inside"), Message(TOPIC, b"outside")])
        inbox = Inbox()
        async with consumer(cluster, inbox, namespace="prod"):
            await eventually(lambda: len(inbox.messages) == 1, "the one inside")
            known = await known_group(cluster, "prod%g")
            assert known is not None
            assert set(known.subscription_table) == {"prod%orders", "%RETRY%prod%g"}
        assert inbox.bodies == [b"inside"]

    play(scenario)


def test_what_makes_no_sense_is_refused_before_anything_starts() -> None:
    def make(**options: Any) -> PushConsumer:
        given: dict[str, Any] = {
            "subscribe": {TOPIC: "*"},
            "handler": Inbox(),
            "nameserver": "127.0.0.1:1",
        }
        return PushConsumer("g", **(given | options))

    mistakes: list[tuple[dict[str, Any], str]] = [
        ({"start": "yesterday"}, "none of 'first', 'last'"),
        ({"mode": "magic"}, "mode 'magic'"),
        ({"strategy": "NO_SUCH"}, "NO_SUCH"),
        ({"handler": 5}, "cannot be called"),
        ({"batch_messages_max": 0}, "batch_messages_max"),
        ({"subscribe": {TOPIC: SQL(" ")}}, "empty"),
        ({"subscribe": {TOPIC: "||"}}, "names no tag"),
        ({"subscribe": {TOPIC: ["eu", "us"]}}, "neither a text"),
        ({"subscribe": [TOPIC]}, "no table"),
        ({"start": datetime.min}, "no time that a queue can be searched for"),  # noqa: DTZ901 - a zone would make it one
    ]
    for options, text in mistakes:
        with pytest.raises(SettingsError, match=text):
            make(**options)
    with pytest.raises(InvalidMessageError):
        make(subscribe={"no spaces please": "*"})
    with pytest.raises(ClosedError, match="not open"):
        make().holdings()
    with pytest.raises(ClosedError, match="has not been started"):
        _ = make().client_id
    with pytest.raises(SettingsError, match="above 0"):
        Intervals(heartbeat_s=0)


def test_a_closed_consumer_stays_closed_and_wait_ends() -> None:
    async def scenario(cluster: AsyncCluster) -> None:
        await send(cluster, numbered(1))
        it = consumer(cluster, Inbox())
        await it.start()
        waiting = asyncio.create_task(it.wait())
        await it.close()
        await it.close()
        await asyncio.wait_for(waiting, 60)
        with pytest.raises(ClosedError):
            it.pause()
        assert repr(it) == "<PushConsumer group='g' closed>"

    play(scenario)


def test_nothing_is_left_running_after_the_end() -> None:
    async def scenario(cluster: AsyncCluster) -> None:
        await send(cluster, numbered(10))
        before = asyncio.all_tasks()
        inbox = Inbox()
        async with consumer(cluster, inbox, ordered=True, group="o"), consumer(cluster, Inbox()):
            await eventually(lambda: len(inbox.messages) == 10, "all came")
        await eventually(lambda: asyncio.all_tasks() <= before, "no task is left")

    play(scenario)


def test_retry_topic_queue_is_part_of_the_holdings() -> None:
    async def scenario(cluster: AsyncCluster) -> None:
        await send(cluster, numbered(1))
        async with consumer(cluster, Inbox()) as it:
            retry = MessageQueue("%RETRY%g", "broker-a", 0)
            await eventually(lambda: retry in [holding.queue for holding in it.holdings()], "the retry queue")

    play(scenario)


def test_a_traced_consumer_tells_when_handlers_begin_and_how_they_end() -> None:
    async def scenario(cluster: AsyncCluster) -> None:
        await send(cluster, numbered(2, keys=["k"]))
        seen: dict[bytes, str] = {}

        async def handle(message: Received) -> None:
            seen[message.body] = message.message_id
            if message.body == b"1":
                raise ValueError("no")

        traces = Inbox()
        async with (
            consumer(cluster, handle, consuming=Consuming(trace=True)),
            consumer(cluster, traces, "reader", subscribe={"RMQ_SYS_TRACE_TOPIC": "*"}),
        ):
            await eventually(lambda: b"".join(traces.bodies).count(b"SubAfter") == 2, "both are told of")
        records = [
            record.split("\x01") for body in traces.bodies for record in body.decode().split("\x02") if record
        ]
        begun = {fields[5]: fields for fields in records if fields[0] == "SubBefore"}
        ended = {fields[2]: fields for fields in records if fields[0] == "SubAfter"}
        assert set(begun) == set(ended) == set(seen.values())
        for body, success, code in ((b"0", "true", "0"), (b"1", "false", "2")):
            before, after = begun[seen[body]], ended[seen[body]]
            assert before[4] == after[1]  # one request, the same id
            assert (before[3], before[6], before[7]) == ("g", "0", "k")
            assert (after[4], after[5], after[6], after[8]) == (success, "k", code, "g")

    play(scenario)
