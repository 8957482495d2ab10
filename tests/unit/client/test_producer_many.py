"""Many messages at once: however many there are, each has its own time, and the caller learns what became of each."""

import asyncio
from collections.abc import Iterator

import pytest

from tests.unit.client.liar import Liar, Talk
from tests.unit.client.warped import warped
from trimtab.client import producer_many
from trimtab.client.producer import Producer
from trimtab.errors import (
    InvalidMessageError,
    MessageIllegalError,
    NoPermissionError,
    NotSentError,
    PartlySentError,
    RequestTimeoutError,
)
from trimtab.model import Message
from trimtab.settings import Sending, Timeouts
from trimtab.wire.codes import ResponseCode
from trimtab.wire.commands import Command


def test_the_time_of_a_message_begins_when_its_turn_comes() -> None:
    async def scenario() -> None:
        loop = asyncio.get_running_loop()

        def slowly(talk: Talk, request: Command) -> None:
            loop.call_later(0.5, talk.stored, request)

        # Ten at once, half a second each: the last ones wait for ten seconds, each has one.
        sending = Sending(waiting_messages_max=10, batching=False)
        async with (
            Liar(slowly) as liar,
            Producer(
                "pg", nameserver=liar.address, sending=sending, timeouts=Timeouts(send_s=1.0)
            ) as producer,
        ):
            began = loop.time()
            receipts = await producer.send_many(Message("T", b"%d" % number) for number in range(200))
            assert len(receipts) == 200
            assert loop.time() - began >= 10
        assert [request.body for request in liar.requests] == [b"%d" % number for number in range(200)]

    warped(scenario())


def test_messages_are_taken_as_brokers_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(producer_many, "AT_ONCE_MAX", 500)

    async def scenario() -> None:
        taken = 0

        def messages() -> Iterator[Message]:
            nonlocal taken
            for _ in range(1_500):
                taken += 1
                yield Message("T", b"x")

        async with Liar() as liar, Producer("pg", nameserver=liar.address) as producer:
            sending = asyncio.create_task(producer.send_many(messages()))
            await asyncio.sleep(0.5)
            assert taken == 500
            sending.cancel()
            await asyncio.gather(sending, return_exceptions=True)
            assert producer._delivery.waiting == 0

    warped(scenario())


def test_every_receipt_and_every_error_is_told() -> None:
    async def scenario() -> None:
        def say(talk: Talk, request: Command) -> None:
            if request.body == b"refused":
                talk.answer(request, ResponseCode.MESSAGE_ILLEGAL)
            elif request.body != b"lost":
                talk.stored(request, int(request.body))

        sending = Sending(batching=False, retries=0)
        async with (
            Liar(say) as liar,
            Producer("pg", nameserver=liar.address, sending=sending) as producer,
        ):
            with pytest.raises(PartlySentError) as caught:
                await producer.send_many(
                    Message("T", body) for body in (b"0", b"refused", b"2", b"lost", b"", b"5")
                )
        error = caught.value
        assert {number: type(one) for number, one in error.errors.items()} == {
            1: MessageIllegalError,
            3: RequestTimeoutError,
            4: InvalidMessageError,
        }
        assert {number: receipt.queue_offset for number, receipt in error.receipts.items()} == {
            0: 0,
            2: 2,
            5: 5,
        }
        assert (error.indeterminate, error.retriable) == (True, False)
        assert "3 of 6 messages" in str(error)
        assert "message 1: " in str(error)

    warped(scenario())


def test_what_is_no_message_is_an_error_of_its_own_and_those_behind_it_are_sent() -> None:
    async def scenario() -> None:
        async with (
            Liar(lambda talk, request: talk.stored(request)) as liar,
            Producer("pg", nameserver=liar.address, sending=Sending(batching=False)) as producer,
        ):
            with pytest.raises(PartlySentError) as caught:
                await producer.send_many([Message("T", b"1"), None, Message("T", b"2")])  # type: ignore[list-item]
            assert [request.body for request in liar.requests] == [b"1", b"2"]
        assert {number: type(one) for number, one in caught.value.errors.items()} == {1: InvalidMessageError}
        assert list(caught.value.receipts) == [0, 2]

    warped(scenario())


# --- batches in parts -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("failing", "indeterminate"), [(ResponseCode.NO_PERMISSION, False), (None, True)], ids=["refused", "mute"]
)
def test_when_a_part_of_a_batch_fails_the_receipts_of_those_before_it_are_not_lost(
    failing: int | None, indeterminate: bool
) -> None:
    async def scenario() -> None:
        def say(talk: Talk, request: Command) -> None:
            if len(liar.requests) == 1:
                talk.answer(request, ext={"msgId": "A,B,C", "queueId": "0", "queueOffset": "7"})
            elif failing is not None:
                talk.answer(request, failing)

        sending = Sending(message_bytes_max=20_000, retries=0)
        async with (
            Liar(say) as liar,
            Producer("pg", nameserver=liar.address, sending=sending) as producer,
        ):
            with pytest.raises(PartlySentError) as caught:
                await producer.send_batch([Message("T", bytes(5_000)) for _ in range(8)], split=True)
            assert len(liar.requests) == 2, "after the first that failed no more are sent"
        error = caught.value
        assert {number: receipt.queue_offset for number, receipt in error.receipts.items()} == {
            0: 7,
            1: 8,
            2: 9,
        }
        kind = RequestTimeoutError if failing is None else NoPermissionError
        assert [type(error.errors[number]) for number in range(3, 8)] == [kind] * 3 + [NotSentError] * 2
        assert error.indeterminate == indeterminate

    warped(scenario())


def test_when_the_first_part_fails_that_is_all_there_is_to_say() -> None:
    async def scenario() -> None:
        sending = Sending(message_bytes_max=20_000)
        async with (
            Liar(lambda talk, request: talk.answer(request, ResponseCode.MESSAGE_ILLEGAL)) as liar,
            Producer("pg", nameserver=liar.address, sending=sending) as producer,
        ):
            with pytest.raises(MessageIllegalError):
                await producer.send_batch([Message("T", bytes(5_000)) for _ in range(8)], split=True)
            assert len(liar.requests) == 1

    warped(scenario())


@pytest.mark.parametrize("split", [True, False])
def test_one_message_that_is_too_large_with_its_properties_is_refused_split_or_not(split: bool) -> None:
    async def scenario() -> None:
        sending = Sending(message_bytes_max=20_000)
        large = Message("T", bytes(19_900), properties={"a": "b" * 1_000})
        async with (
            Liar(lambda talk, request: talk.stored(request)) as liar,
            Producer("pg", nameserver=liar.address, sending=sending) as producer,
        ):
            with pytest.raises(InvalidMessageError, match="at most 20000 are allowed"):
                await producer.send_batch([Message("T", b"x"), large], split=split)
            assert liar.requests == []

    warped(scenario())


def test_what_the_iterable_raises_is_raised_when_those_taken_are_done() -> None:
    async def scenario() -> None:
        def messages() -> Iterator[Message]:
            yield Message("T", b"x")
            raise ValueError("no more")

        async with (
            Liar(lambda talk, request: talk.stored(request)) as liar,
            Producer("pg", nameserver=liar.address) as producer,
        ):
            with pytest.raises(ValueError, match="no more"):
                await producer.send_many(messages())
            assert len(liar.requests) == 1

    warped(scenario())


def test_nothing_at_all_is_sent_in_no_time() -> None:
    async def scenario() -> None:
        async with Liar() as liar, Producer("pg", nameserver=liar.address) as producer:
            assert await producer.send_many([]) == []

    warped(scenario())
