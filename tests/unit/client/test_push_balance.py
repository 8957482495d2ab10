"""How members of a group share: the triggers of C11, and what goes wrong in classic mode (D1 to D5), on demand."""

import asyncio
import logging
import random
from collections import Counter
from collections.abc import Sequence
from contextlib import AsyncExitStack
from typing import Any

import pytest

from tests.unit.client.pushing import (
    NEVER_S,
    TOPIC,
    Inbox,
    ask,
    by_notice_only,
    consumer,
    eventually,
    is_settled,
    numbered,
    owners,
    play,
    send,
)
from trimtab.balance.progress import FlowLimits
from trimtab.client.producer import Producer
from trimtab.client.pull_consumer import PullConsumer
from trimtab.client.push import PushConsumer
from trimtab.client.push_settings import Consuming
from trimtab.client.received import Received
from trimtab.errors import SettingsError
from trimtab.model import Message, MessageQueue
from trimtab.settings import Pulling
from trimtab.testing import DROP, AsyncCluster
from trimtab.wire.bodies import ConsumerIdList, SubscriptionGroupConfig
from trimtab.wire.codes import RequestCode, ResponseCode
from trimtab.wire.commands import Command
from trimtab.wire.fastjson_writer import encode_body

SOON = Consuming(rebalance_every_s=0.05)


async def without_notices(cluster: AsyncCluster) -> None:
    """The broker tells members of group g nothing."""
    config = SubscriptionGroupConfig(group_name="g", notify_consumer_ids_changed_enable=False)
    answer = await ask(cluster, RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=encode_body(config))
    assert answer.code == ResponseCode.SUCCESS


def test_c11_the_start_alone_brings_a_member_its_queues() -> None:
    async def scenario(cluster: AsyncCluster) -> None:
        await send(cluster, numbered(1))
        await without_notices(cluster)
        async with consumer(cluster, Inbox(), consuming=by_notice_only()) as one:
            await eventually(lambda: is_settled([one], 4), "all queues")

    play(scenario)


def test_c11_notices_alone_bring_a_group_to_balance_when_members_come_and_go() -> None:
    async def scenario(cluster: AsyncCluster) -> None:
        await send(cluster, numbered(16))
        async with AsyncExitStack() as stack:
            members = [
                await stack.enter_async_context(consumer(cluster, Inbox(), consuming=by_notice_only()))
                for _ in range(3)
            ]
            await eventually(lambda: is_settled(members, 8), "three members share")
            await members[1].close()  # B5: it says goodbye, the others are told
            left = [members[0], members[2]]
            await eventually(lambda: is_settled(left, 8), "two members share")

    play(scenario, brokers=2)


def test_c11_time_alone_brings_a_group_to_balance() -> None:
    async def scenario(cluster: AsyncCluster) -> None:
        await send(cluster, numbered(16))
        await without_notices(cluster)
        async with (
            consumer(cluster, Inbox(), consuming=SOON) as one,
            consumer(cluster, Inbox(), consuming=SOON) as two,
        ):
            await eventually(lambda: is_settled([one, two], 4), "both share")

    play(scenario)


def test_b5_a_member_whose_connection_breaks_is_replaced_by_the_others() -> None:
    async def scenario(cluster: AsyncCluster) -> None:
        await send(cluster, numbered(4))
        one = consumer(cluster, Inbox(), consuming=by_notice_only(), client_id="c1")
        async with one, consumer(cluster, Inbox(), consuming=by_notice_only(), client_id="c2") as two:
            await eventually(lambda: is_settled([one, two], 4), "both share")
            stop = cluster.intercept(
                RequestCode.HEART_BEAT, lambda command: DROP if b'"c1"' in command.body else None
            )
            connection = await one._session.connection(cluster.brokers["broker-a"])
            connection.close()
            await eventually(lambda: len(owners([two])) == 4, "the other one has all")
            stop()

    play(scenario)


def test_c9_one_line_for_every_change_and_none_without(caplog: pytest.LogCaptureFixture) -> None:
    def lines(group: str, topic: str) -> list[str]:
        mark = f"group={group} topic={topic} "
        return [
            r.getMessage()
            for r in caplog.records
            if r.getMessage().startswith("rebalanced:") and mark in r.getMessage()
        ]

    async def scenario(cluster: AsyncCluster) -> None:
        await send(cluster, numbered(1))
        async with consumer(cluster, Inbox(), consuming=SOON, client_id="c1") as one:
            await eventually(lambda: is_settled([one], 4), "it has all")
            await eventually(lambda: one._rounds.count > 10, "more rounds")
            assert len(lines("g", TOPIC)) == 1
            async with consumer(cluster, Inbox(), consuming=SOON, client_id="c2") as two:
                await eventually(lambda: is_settled([one, two], 4), "both share")
                rounds = two._rounds.count
                await eventually(lambda: two._rounds.count > rounds + 5, "more rounds")
                assert len(lines("g", TOPIC)) == 3
        assert (
            "strategy=AVG group=g topic=orders clientId=c2 queues=4 members=2 mine=2 [broker-a:2, broker-a:3]"
            in caplog.text
        )

    with caplog.at_level(logging.INFO):
        play(scenario)


def test_callbacks_hear_of_queues_and_a_queue_is_let_go_after_the_callback() -> None:
    async def scenario(cluster: AsyncCluster) -> None:
        await send(cluster, numbered(4))
        assigned: list[MessageQueue] = []
        revoked: list[MessageQueue] = []
        may_go = asyncio.Event()

        async def on_revoked(queues: tuple[MessageQueue, ...]) -> None:
            revoked.extend(queues)
            await may_go.wait()

        options: dict[str, Any] = {"consuming": by_notice_only(), "subscribe": {TOPIC: "*"}}
        async with consumer(
            cluster, Inbox(), on_assigned=assigned.extend, on_revoked=on_revoked, client_id="c1", **options
        ) as one:
            await eventually(lambda: len([q for q in assigned if q.topic == TOPIC]) == 4, "four came")
            commits: list[int] = []
            cluster.intercept(
                RequestCode.UPDATE_CONSUMER_OFFSET,
                lambda command: commits.append(int(command.ext["queueId"])),
            )
            async with consumer(cluster, Inbox(), client_id="c2", **options) as two:
                await eventually(lambda: len(revoked) == 2, "two go")
                assert commits == []
                may_go.set()
                await eventually(lambda: is_settled([one, two], 4), "both share")
            await eventually(lambda: len([q for q in assigned if q.topic == TOPIC]) == 6, "two came back")
        assert len([queue for queue in revoked if queue.topic == TOPIC]) == 6  # the last four at the end

    play(scenario)


def test_a_callback_that_fails_costs_no_queue(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(cluster: AsyncCluster) -> None:
        await send(cluster, numbered(4))
        inbox = Inbox()

        def fail(_: object) -> None:
            raise RuntimeError("mine")

        async with consumer(cluster, inbox, on_assigned=fail, on_revoked=fail):
            await eventually(lambda: len(inbox.messages) == 4, "all came")

    play(scenario)
    assert "the callback on_assigned failed" in caplog.text


# --- what goes wrong in classic mode, on demand ---------------------------------------------------------------------


def test_d1_d2_a_queue_that_moves_while_handlers_run_is_delivered_again() -> None:
    async def scenario(cluster: AsyncCluster) -> None:
        await send(cluster, numbered(40))
        gate = asyncio.Event()
        counts: Counter[bytes] = Counter()

        async def handle(message: Received) -> None:
            counts[message.body] += 1
            await gate.wait()

        consuming = by_notice_only(concurrency=40)
        async with consumer(cluster, handle, consuming=consuming, client_id="c1") as one:
            await eventually(lambda: len(counts) == 40, "all are at work")
            async with consumer(cluster, handle, consuming=consuming, client_id="c2") as two:
                await eventually(lambda: is_settled([one, two], 4), "both share")
                await eventually(
                    lambda: sum(counts.values()) == 60, "half of them came again, with the queues"
                )
                gate.set()
        twice = [body for body, count in counts.items() if count == 2]
        assert len(twice) == 20

    play(scenario)


def test_d3_members_with_different_views_hold_queues_twice_until_the_next_round() -> None:
    async def scenario(cluster: AsyncCluster) -> None:
        await send(cluster, numbered(4))
        alone: dict[str, str] = {}

        def only_me(_: Command) -> Command | None:
            if not alone:
                return None
            body = encode_body(ConsumerIdList(consumer_id_list=(alone["id"],)))
            return Command(code=ResponseCode.SUCCESS, opaque=0, body=body)

        cluster.intercept(RequestCode.GET_CONSUMER_LIST_BY_GROUP, only_me)
        async with consumer(cluster, Inbox(), consuming=by_notice_only(), client_id="c1") as one:
            await eventually(lambda: is_settled([one], 4), "it has all")
            alone["id"] = "c1"  # c1 sees itself alone, and c2 sees a group without itself
            async with consumer(cluster, Inbox(), consuming=SOON, client_id="c2") as two:
                await eventually(lambda: two._rounds.count > 2, "rounds")
                assert len(owners([one])) == 4
                assert owners([two]) == {}
                alone["id"] = "c2"
                await eventually(lambda: len(owners([two])) == 4, "it thinks it is alone")
                double = [queue for queue, who in owners([one, two]).items() if len(who) == 2]
                assert len(double) == 4
                alone.clear()
                one.rebalance_soon()
                await eventually(lambda: is_settled([one, two], 4), "true views mend it")

    play(scenario)


def hot_ones(inbox: Inbox) -> int:
    return sum(body.startswith(b"hot") for body in inbox.bodies)


def test_d4_queues_are_balanced_and_messages_are_not() -> None:
    async def scenario(cluster: AsyncCluster) -> None:
        await send(cluster, numbered(4))
        inboxes = [Inbox(), Inbox()]
        async with AsyncExitStack() as stack:
            members = [
                await stack.enter_async_context(consumer(cluster, inbox, consuming=SOON)) for inbox in inboxes
            ]
            await eventually(lambda: is_settled(members, 4), "both share")
            hot = next(holding.queue for holding in members[0].holdings() if holding.queue.topic == TOPIC)
            async with Producer("pg", nameserver=cluster.nameserver) as producer:
                for number in range(50):
                    await producer.send(Message(TOPIC, b"hot %d" % number), queue=hot)
            await eventually(lambda: hot_ones(inboxes[0]) == 50, "all came to one member")
            assert hot_ones(inboxes[1]) == 0

    play(scenario)


def test_d5_more_members_than_queues_leave_the_rest_idle() -> None:
    async def scenario(cluster: AsyncCluster) -> None:
        await send(cluster, numbered(4))
        async with AsyncExitStack() as stack:
            members = [
                await stack.enter_async_context(consumer(cluster, Inbox(), consuming=SOON)) for _ in range(6)
            ]
            await eventually(lambda: is_settled(members, 4), "four have one each")
            idle = [member for member in members if not owners([member])]
            assert len(idle) == 2

    play(scenario)


def test_c7_a_queue_whose_pulls_fell_silent_is_taken_anew() -> None:
    async def scenario(cluster: AsyncCluster) -> None:
        await send(cluster, numbered(4))
        inbox = Inbox()
        lost: list[MessageQueue] = []
        async with consumer(cluster, inbox, consuming=SOON, on_lost=lost.extend) as one:
            await eventually(lambda: len(inbox.messages) == 4, "all came")
            victim = next(holding.queue for holding in one.holdings() if holding.queue.topic == TOPIC)
            pulls = one._engine.held[victim].pulls
            assert pulls is not None
            pulls.drop()  # what must never happen: nobody pulls, and nobody knows
            pulls.last_pull_ms -= 130_000
            await eventually(lambda: lost == [victim], "it was given up")
            await eventually(lambda: victim in owners([one]), "and taken anew")
            async with Producer("pg", nameserver=cluster.nameserver) as producer:
                await producer.send(Message(TOPIC, b"after"), queue=victim)
            await eventually(lambda: inbox.bodies[-1] == b"after", "messages come again")

    play(scenario)


def test_c7_a_queue_that_waits_for_room_is_not_silent() -> None:
    async def scenario(cluster: AsyncCluster) -> None:
        await send(cluster, [Message(TOPIC, b"%d" % number * 500) for number in range(200, 240)])
        gate = asyncio.Event()
        inbox = Inbox()
        lost: list[MessageQueue] = []

        async def handle(message: Received) -> None:
            await gate.wait()
            await inbox(message)

        options: dict[str, Any] = {
            "consuming": SOON,
            "pulling": Pulling(held_bytes_max=1),
            "on_lost": lost.extend,
        }
        async with consumer(cluster, handle, **options) as one:
            held = one._engine.held
            await eventually(
                lambda: any(it.pulls is not None and it.pulls.is_held_back for it in held.values()), "no room"
            )
            for it in held.values():
                assert it.pulls is not None
                if it.pulls.is_held_back:
                    it.pulls.last_pull_ms -= 130_000  # as long as the slowest handler takes
            rounds = one._rounds.count
            await eventually(lambda: one._rounds.count > rounds + 3, "the member looked again")
            assert lost == []
            gate.set()
            await eventually(lambda: len(inbox.messages) >= 40, "all came")
        assert len(set(inbox.bodies)) == len(inbox.bodies) == 40

    play(scenario)


def test_c12_flow_control_stops_pulls_of_a_queue_and_of_the_process() -> None:
    async def scenario(cluster: AsyncCluster) -> None:
        async with Producer("pg", nameserver=cluster.nameserver) as producer:
            await producer.send_many(numbered(2_000))
        gate = asyncio.Event()
        seen = 0

        async def handle(message: Received) -> None:
            nonlocal seen
            await gate.wait()
            seen += 1

        limits = FlowLimits(queue_messages_max=50, process_messages_max=120)
        consuming = Consuming(limits=limits, rebalance_every_s=NEVER_S, concurrency=4)
        async with consumer(cluster, handle, consuming=consuming) as one:
            await eventually(
                lambda: any(h.why_held_back for h in one._engine.held.values()), "a queue is held back"
            )
            await eventually(lambda: len(one._engine._held_back) == 4, "all are")
            waiting = [holding.waiting_messages for holding in one.holdings()]
            # What was on its way when the limit was reached still comes: at most the depth of the pipeline.
            assert sum(waiting) <= 120 + 4 * 4 * 50
            gate.set()
            await eventually(lambda: seen == 2_000, "all came")

    play(scenario)


def test_c12_a_limit_for_a_topic_is_shared_by_its_queues() -> None:
    async def scenario(cluster: AsyncCluster) -> None:
        await send(cluster, numbered(2_000))
        gate, seen = asyncio.Event(), 0

        async def handle(message: Received) -> None:
            nonlocal seen
            await gate.wait()
            seen += 1

        limits = FlowLimits(topic_messages_max=80)
        consuming = Consuming(limits=limits, rebalance_every_s=NEVER_S, concurrency=4)
        pulling = Pulling(depth_max=1, pull_messages_max=5)
        async with consumer(cluster, handle, consuming=consuming, pulling=pulling) as one:
            await eventually(lambda: len(one._engine._held_back) == 4, "all queues are held back")
            waiting = {holding.queue: holding.waiting_messages for holding in one.holdings()}
            assert all(
                messages in range(21, 26) for queue, messages in waiting.items() if queue.topic == TOPIC
            )
            gate.set()
            await eventually(lambda: seen == 2_000, "all came")

    play(scenario)


def test_a_strategy_of_the_user_s_own_can_be_named() -> None:
    class First:
        name = "first-takes-all"

        def allocate(
            self, group: str, me: str, queues: Sequence[MessageQueue], members: Sequence[str]
        ) -> tuple[MessageQueue, ...]:
            return tuple(queues) if me == members[0] else ()

    async def scenario(cluster: AsyncCluster) -> None:
        await send(cluster, numbered(8))
        options: dict[str, Any] = {"strategy": First.name, "own_strategies": [First()]}
        async with (
            consumer(cluster, Inbox(), client_id="a", **options) as one,
            consumer(cluster, Inbox(), client_id="b", **options) as two,
            PullConsumer(
                "h", subscribe={TOPIC: "*"}, nameserver=cluster.nameserver, strategy=First.name, own_strategies=[First()]
            ) as reader,
        ):  # fmt: skip
            await eventually(lambda: (len(owners([one])), len(owners([two]))) == (4, 0), "the first has all")
            assert len(reader.assigned) == 4

    play(scenario)
    with pytest.raises(SettingsError, match="same name"):
        PushConsumer("g", subscribe={}, handler=Inbox(), strategy="x", own_strategies=[First(), First()])
    with pytest.raises(SettingsError, match="unknown strategy"):
        PushConsumer("g", subscribe={}, handler=Inbox(), strategy="x", own_strategies=[First()])


def test_a_strategy_of_the_user_s_own_decides() -> None:
    class LastTakesAll:
        name = "LAST_TAKES_ALL"

        def allocate(
            self, group: str, me: str, queues: tuple[MessageQueue, ...], members: tuple[str, ...]
        ) -> tuple[MessageQueue, ...]:
            return tuple(queues) if me == members[-1] else ()

    async def scenario(cluster: AsyncCluster) -> None:
        await send(cluster, numbered(4))
        options: dict[str, Any] = {"consuming": SOON, "strategy": LastTakesAll()}
        async with (
            consumer(cluster, Inbox(), client_id="c1", **options) as one,
            consumer(cluster, Inbox(), client_id="c2", **options) as two,
        ):
            await eventually(lambda: len(owners([two])) == 4 and not owners([one]), "the last one has all")

    play(scenario)


def test_g8_members_come_and_go_while_messages_flow_and_none_is_missed() -> None:
    async def scenario(cluster: AsyncCluster) -> None:
        await send(cluster, numbered(8))
        rng = random.Random(8)
        counts: Counter[bytes] = Counter()

        async def handle(message: Received) -> None:
            await asyncio.sleep(rng.random() * 0.003)
            counts[message.body] += 1

        members: list[PushConsumer] = []

        async def join() -> None:
            one = consumer(cluster, handle, consuming=Consuming(rebalance_every_s=0.2, drain_s_max=5.0))
            await one.start()
            members.append(one)

        await join()
        sent = 8
        for _ in range(8):
            await send(cluster, numbered(60, start=sent))
            sent += 60
            if len(members) > 1 and rng.random() < 0.5:
                await members.pop(rng.randrange(len(members))).close()
            else:
                await join()
        await eventually(lambda: len(counts) == sent, "every message was handled")
        for one in members:
            await one.close()

    play(scenario, brokers=2)
