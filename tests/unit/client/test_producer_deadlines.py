"""Every send ends within its own time, whatever it shares its way with. Time is the loop's own, so the bounds are tight."""

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable
from contextlib import ExitStack, asynccontextmanager, suppress

import pytest

from tests.unit.client.liar import Liar, Say, Talk
from tests.unit.client.warped import warped
from trimtab.balance.adaptive import PROBES_MAX
from trimtab.client.producer import Producer
from trimtab.errors import NotSentError, RequestTimeoutError, ServerUnreachableError, TrimtabError
from trimtab.model import Message, MessageQueue, Receipt
from trimtab.settings import Sending, Timeouts
from trimtab.wire.codes import ResponseCode
from trimtab.wire.commands import Command

SLACK_S = 0.05
TIMES = Timeouts(send_s=1.0, request_s=1.0)
TWO = MessageQueue("T", "two", 0)


async def timed(sending: Awaitable[Receipt]) -> tuple[Receipt | TrimtabError, float]:
    """What became of a send, and how long it took in the loop's time."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    try:
        outcome: Receipt | TrimtabError = await sending
    except TrimtabError as error:
        outcome = error
    return outcome, loop.time() - began


def later(delay_s: float, code: int = ResponseCode.SUCCESS) -> Say:
    def say(talk: Talk, request: Command) -> None:
        loop = asyncio.get_running_loop()
        if code == ResponseCode.SUCCESS:
            loop.call_later(delay_s, talk.stored, request)
        else:
            loop.call_later(delay_s, talk.answer, request, code)

    return say


def test_a_second_try_behind_younger_sends_ends_in_its_own_time() -> None:
    async def scenario() -> None:
        # The first broker refuses late; the second never answers, and has younger sends of others before it.
        busy = later(0.4, ResponseCode.SYSTEM_BUSY)
        async with Liar(busy) as one, Liar() as two:
            one.brokers = {"one": one.address, "two": two.address}
            sending = Sending(policy="round-robin")
            async with Producer("pg", nameserver=one.address, timeouts=TIMES, sending=sending) as producer:
                await producer._delivery.route("T")
                producer._policy._counters.of("T")._value = 1  # type: ignore[attr-defined]
                old = asyncio.create_task(timed(producer.send(Message("T", b"old"))))
                await asyncio.sleep(0.3)
                young = [asyncio.create_task(timed(producer.send(Message("T", b"y1"), queue=TWO)))]
                await asyncio.sleep(0.05)
                young.append(asyncio.create_task(timed(producer.send(Message("T", b"y2"), queue=TWO))))
                outcome, took_s = await old
                assert isinstance(outcome, TrimtabError)
                assert took_s <= 1.0 + SLACK_S
                for outcome, took_s in await asyncio.gather(*young):
                    assert isinstance(outcome, TrimtabError)
                    assert 1.0 - SLACK_S <= took_s <= 1.0 + SLACK_S

    warped(scenario())


def test_one_with_little_time_does_not_take_the_time_of_those_it_travels_with() -> None:
    async def scenario() -> None:
        answers = []

        def say(talk: Talk, request: Command) -> None:
            answers.append(request)
            asyncio.get_running_loop().call_later(0.1 if len(answers) == 1 else 0.7, talk.stored, request)

        async with Liar(say) as one, Liar() as other:
            one.brokers = {"one": one.address, "other": other.address}
            queue = MessageQueue("T", "one", 0)
            sending = Sending(policy="round-robin", retries=1)
            async with Producer("pg", nameserver=one.address, timeouts=TIMES, sending=sending) as producer:
                await producer._delivery.route("T")
                first = asyncio.create_task(timed(producer.send(Message("T", b"1"), queue=queue)))
                await asyncio.sleep(0.05)
                producer._policy._counters.of("T")._value = 1  # type: ignore[attr-defined]
                # It may go elsewhere and has half of its time; the other one has one place and all of it.
                free = asyncio.create_task(timed(producer.send(Message("T", b"2"))))
                bound = asyncio.create_task(timed(producer.send(Message("T", b"3"), queue=queue)))
                assert isinstance((await first)[0], Receipt)
                outcome, took_s = await bound
                assert isinstance(outcome, Receipt), outcome
                assert 0.7 <= took_s <= 0.8
                assert (await free)[1] <= 1.0 + SLACK_S
                assert len(other.requests) == 1, "the other one had its second try"
                assert len(one.requests) == 2, "they left together"

    warped(scenario())


@pytest.mark.parametrize("batching", [True, False])
@pytest.mark.parametrize(
    ("kind", "is_listening"),
    [(RequestTimeoutError, True), (RequestTimeoutError, False)],
    ids=["mute", "deaf"],
)
def test_a_broker_that_does_not_answer_costs_exactly_the_time_of_a_send(
    kind: type[TrimtabError], is_listening: bool, batching: bool
) -> None:
    async def scenario() -> None:
        async with Liar(listens=is_listening) as liar, Liar() as names:
            names.brokers = {"liar": liar.address}
            sending = Sending(batching=batching)
            async with Producer("pg", nameserver=names.address, timeouts=TIMES, sending=sending) as producer:
                outcomes = await asyncio.gather(
                    *(timed(producer.send(Message("T", b"x"))) for _ in range(50))
                )
        for outcome, took_s in outcomes:
            assert isinstance(outcome, kind | NotSentError)
            assert 1.0 <= took_s <= 1.0 + SLACK_S

    warped(scenario())


def test_a_broker_that_cannot_be_reached_costs_no_more_than_the_time_of_a_send() -> None:
    async def scenario() -> None:
        async with Liar() as names:
            names.brokers = {"gone": "127.0.0.1:1"}
            async with Producer("pg", nameserver=names.address, timeouts=TIMES) as producer:
                for _ in range(5):
                    outcome, took_s = await timed(producer.send(Message("T", b"x")))
                    assert isinstance(outcome, ServerUnreachableError)
                    assert took_s <= 1.0 + SLACK_S

    warped(scenario())


# Not classic-4.2: as published, its second try goes to the very broker that has just failed.
@pytest.mark.parametrize("policy", ["adaptive", "round-robin", "4.9.3"])
def test_with_the_usual_settings_a_hanging_broker_costs_half_of_the_time_and_no_failure(policy: str) -> None:
    async def scenario() -> None:
        async with Liar(lambda talk, request: talk.stored(request)) as well, Liar() as hanging:
            well.brokers = {"hanging": hanging.address, "well": well.address}
            async with Producer("pg", nameserver=well.address, sending=Sending(policy=policy)) as producer:
                found = [await timed(producer.send(Message("T", b"x"))) for _ in range(6)]
        send_s = Timeouts().send_s
        for outcome, took_s in found:
            assert isinstance(outcome, Receipt), outcome
            assert outcome.queue.broker_name == "well"
            assert took_s <= (send_s / 2 if outcome.attempts > 1 else 0) + SLACK_S
        assert max(outcome.attempts for outcome, _ in found if isinstance(outcome, Receipt)) == 2

    warped(scenario())


def test_a_broker_that_is_slow_and_answers_others_is_not_given_up_early() -> None:
    async def scenario() -> None:
        slowly = later(2.2)
        async with Liar(slowly) as one, Liar(slowly) as two:
            one.brokers = {"one": one.address, "two": two.address}
            sending = Sending(batching=False)
            async with Producer("pg", nameserver=one.address, sending=sending) as producer:
                await producer._delivery.route("T")

                async def one_of_many(number: int) -> tuple[Receipt | TrimtabError, float]:
                    await asyncio.sleep(0.2 * number)
                    return await timed(producer.send(Message("T", b"x")))

                found = await asyncio.gather(*(one_of_many(number) for number in range(30)))
        # Those that left before the first answer cannot know that the brokers live; all others wait.
        assert [outcome.attempts for outcome, _ in found[12:] if isinstance(outcome, Receipt)] == [1] * 18

    warped(scenario())


def test_a_new_broker_that_swallows_connections_gets_a_few_probes_while_it_is_dialled() -> None:
    async def scenario() -> None:
        async with Liar(lambda talk, request: talk.stored(request)) as well, swallowing() as dark:
            well.brokers = {"well": well.address}
            async with Producer("pg", nameserver=well.address) as producer:
                for _ in range(10):
                    await producer.send(Message("T", b"x"))
                well.brokers = {"dark": dark, "well": well.address}
                await producer._session.refresh_route("T")
                found = [await timed(producer.send(Message("T", b"x")))]
                found += await asyncio.gather(*(timed(producer.send(Message("T", b"x"))) for _ in range(500)))
        receipts = [outcome for outcome, _ in found if isinstance(outcome, Receipt)]
        assert len(receipts) == 501
        assert 1 <= sum(receipt.attempts > 1 for receipt in receipts) <= PROBES_MAX + 5

    warped(scenario())


@asynccontextmanager
async def swallowing() -> AsyncIterator[str]:
    """An address where connections are begun and never made: nobody takes them, and no more may wait."""
    with ExitStack() as stack:
        listening = stack.enter_context(socket.socket())
        listening.bind(("127.0.0.1", 0))
        listening.listen(0)
        for _ in range(4):
            one = stack.enter_context(socket.socket())
            one.setblocking(False)
            with suppress(BlockingIOError):
                one.connect(listening.getsockname())
        await asyncio.sleep(0.1)
        yield "{}:{}".format(*listening.getsockname())


def test_the_only_broker_has_all_of_the_time() -> None:
    async def scenario() -> None:
        async with Liar(later(2.5)) as slow, Producer("pg", nameserver=slow.address) as producer:
            outcome, took_s = await timed(producer.send(Message("T", b"x")))
        assert isinstance(outcome, Receipt)
        assert 2.5 <= took_s < 3.0
        assert len(slow.requests) == 1

    warped(scenario())


def test_the_time_of_a_try_can_be_given() -> None:
    async def scenario() -> None:
        async with Liar() as one, Liar() as two:
            one.brokers = {"one": one.address, "two": two.address}
            timeouts = Timeouts(send_s=1.0, attempt_s=0.1)
            async with Producer("pg", nameserver=one.address, timeouts=timeouts) as producer:
                outcome, took_s = await timed(producer.send(Message("T", b"x")))
        assert isinstance(outcome, RequestTimeoutError)
        assert took_s <= 0.3 + SLACK_S
        assert len(one.requests) + len(two.requests) == 3

    warped(scenario())


# --- routes ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("place", [{"key": "k"}, {"queue": MessageQueue("T", "x", 0)}], ids=["key", "queue"])
def test_after_a_broker_moved_sends_with_one_place_find_it_at_once(place: dict[str, object]) -> None:
    async def scenario() -> None:
        async with Liar(lambda talk, request: talk.stored(request)) as new:
            old = Liar(lambda talk, request: talk.stored(request))
            await old.__aenter__()
            new.brokers = {"x": old.address}
            async with Producer("pg", nameserver=new.address, timeouts=TIMES) as producer:
                assert isinstance((await timed(producer.send(Message("T", b"x"), **place)))[0], Receipt)  # type: ignore[arg-type]
                new.brokers = {"x": new.address}
                await old.__aexit__(None, None, None)
                found = []
                for _ in range(6):
                    found.append(await timed(producer.send(Message("T", b"x"), **place)))  # type: ignore[arg-type]
                    await asyncio.sleep(0.01)
        assert [isinstance(outcome, Receipt) for outcome, _ in found][1:] == [True] * 5, found

    warped(scenario())


def test_a_send_that_waits_for_a_broker_to_be_dialled_again_asks_where_it_is_now() -> None:
    async def scenario() -> None:
        async with Liar(lambda talk, request: talk.stored(request)) as new:
            new.brokers = {"x": "127.0.0.1:1"}
            async with Producer("pg", nameserver=new.address, timeouts=TIMES) as producer:
                for _ in range(3):  # the pauses grow
                    await timed(producer.send(Message("T", b"x")))
                new.brokers = {"x": new.address}
                producer._session.refresh_route_soon = lambda *_, **__: None  # type: ignore[method-assign]
                outcome, took_s = await timed(producer.send(Message("T", b"x"), key="k"))
        assert isinstance(outcome, Receipt), outcome
        assert took_s < 0.5

    warped(scenario())


# --- room -----------------------------------------------------------------------------------------------------------


def test_sends_that_wait_for_room_leave_in_the_order_in_which_they_were_made() -> None:
    async def scenario() -> None:
        sending = Sending(waiting_messages_max=1)
        async with Liar(lambda talk, request: talk.stored(request)) as liar:
            async with Producer("pg", nameserver=liar.address, timeouts=TIMES, sending=sending) as producer:
                await producer.send(Message("T", b"0"), key="k")

                async def one_and_then_another() -> None:
                    await producer.send(Message("T", b"1"), key="k")
                    await producer.send(Message("T", b"5"), key="k")

                async with asyncio.TaskGroup() as tasks:
                    tasks.create_task(one_and_then_another())
                    await asyncio.sleep(0)
                    for number in (2, 3, 4):
                        tasks.create_task(producer.send(Message("T", b"%d" % number), key="k"))
            assert [request.body for request in liar.requests] == [b"0", b"1", b"2", b"3", b"4", b"5"]

    warped(scenario())


def test_one_that_stops_waiting_for_room_stands_in_nobody_s_way() -> None:
    async def scenario() -> None:
        held: list[tuple[Talk, Command]] = []
        sending = Sending(waiting_bytes_max=1_000)
        async with Liar(lambda talk, request: held.append((talk, request))) as liar:
            async with Producer("pg", nameserver=liar.address, timeouts=TIMES, sending=sending) as producer:
                first = asyncio.create_task(producer.send(Message("T", bytes(600))))
                await asyncio.sleep(0.1)
                large = asyncio.create_task(producer.send(Message("T", bytes(900))))
                await asyncio.sleep(0)
                small = asyncio.create_task(producer.send(Message("T", bytes(100)), key="k"))
                await asyncio.sleep(0.1)
                assert producer._delivery.waiting == 1, "the small one does not pass the large one"
                large.cancel()
                await asyncio.sleep(0)
                assert producer._delivery.waiting == 2
                while not (first.done() and small.done()):
                    await asyncio.sleep(0.01)
                    while held:
                        talk, request = held.pop()
                        talk.stored(request)
            assert producer._delivery.waiting == 0
            assert producer._delivery.waiting_bytes == 0

    warped(scenario())
