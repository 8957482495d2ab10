"""A try that left and was not answered may have been stored: whatever the tries after it end in, the error says so."""

import asyncio

import pytest

from tests.unit.client.liar import Liar, Talk
from tests.unit.client.warped import warped
from trimtab.client.producer import Producer
from trimtab.errors import (
    ConnectionLostError,
    MaybeStoredError,
    RequestTimeoutError,
    ServerUnreachableError,
    TrimtabError,
)
from trimtab.model import Message, Receipt
from trimtab.settings import Sending, Timeouts
from trimtab.wire.codes import ResponseCode
from trimtab.wire.commands import Command

TIMES = Timeouts(send_s=1.0, request_s=1.0)
ONCE_MORE = Sending(policy="round-robin", retries=1)
GONE = "127.0.0.1:1"


async def failure_of_the_first_send(names: Liar, brokers: dict[str, str]) -> MaybeStoredError:
    """Of two tries, of which the first goes to the first broker."""
    names.brokers = brokers
    async with Producer("pg", nameserver=names.address, timeouts=TIMES, sending=ONCE_MORE) as producer:
        producer._policy._counters.of("T")._value = 1  # type: ignore[attr-defined]
        with pytest.raises(MaybeStoredError) as caught:
            await producer.send(Message("T", b"x"))
        return caught.value


def test_a_broker_that_could_not_be_reached_is_not_the_last_word_after_one_that_did_not_answer() -> None:
    async def scenario() -> None:
        async with Liar() as mute:
            error = await failure_of_the_first_send(mute, {"a": mute.address, "b": GONE})
            assert len(mute.requests) == 1
        assert (error.indeterminate, error.retriable) == (True, True)
        assert isinstance(error.earlier, RequestTimeoutError)
        assert isinstance(error.last, ServerUnreachableError)
        assert str(error.earlier) in str(error)
        assert str(error.last) in str(error)

    warped(scenario())


@pytest.mark.parametrize(
    ("code", "retriable"), [(ResponseCode.SYSTEM_BUSY, True), (ResponseCode.MESSAGE_ILLEGAL, False)]
)
def test_a_refusal_is_not_the_last_word_after_one_that_did_not_answer(code: int, retriable: bool) -> None:
    async def scenario() -> None:
        async with Liar() as mute, Liar(lambda talk, request: talk.answer(request, code)) as refusing:
            error = await failure_of_the_first_send(mute, {"a": mute.address, "b": refusing.address})
        assert (error.indeterminate, error.retriable) == (True, retriable)

    warped(scenario())


def test_the_only_broker_dies_with_the_message_and_does_not_come_back() -> None:
    async def scenario() -> None:
        def dies(talk: Talk, _request: Command) -> None:
            only._server.close()
            talk.transport.abort()

        async with Liar(dies) as only, Liar() as names:
            names.brokers = {"only": only.address}
            async with Producer("pg", nameserver=names.address, timeouts=TIMES) as producer:
                with pytest.raises(MaybeStoredError) as caught:
                    await producer.send(Message("T", b"x"))
            assert len(only.requests) == 1
        assert isinstance(caught.value.earlier, ConnectionLostError)

    warped(scenario())


def test_a_later_try_that_only_waits_behind_others_does_not_hide_one_that_left() -> None:
    async def scenario() -> None:
        async with Liar() as mute:
            timeouts = Timeouts(send_s=1.0, attempt_s=0.4)
            async with Producer("pg", nameserver=mute.address, timeouts=timeouts) as producer:

                async def one_of_many(number: int) -> Receipt | TrimtabError:
                    await asyncio.sleep(0.15 * number)
                    try:
                        return await producer.send(Message("T", b"X%d" % number))
                    except TrimtabError as error:
                        return error

                outcomes = await asyncio.gather(*(one_of_many(number) for number in range(5)))
            arrived = b" ".join(request.body for request in mute.requests)
        for number, outcome in enumerate(outcomes):
            assert isinstance(outcome, TrimtabError)
            assert outcome.indeterminate or b"X%d" % number not in arrived, outcome
        assert any(isinstance(outcome, MaybeStoredError) for outcome in outcomes)

    warped(scenario())
