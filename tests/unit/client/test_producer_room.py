"""What does not fit on a connection waits, and is not held against the broker."""

import asyncio

import pytest

from tests.unit.client.liar import Liar, Talk
from tests.unit.client.warped import warped
from trimtab.client import producer_delivery
from trimtab.client.producer import Producer
from trimtab.errors import NotSentError
from trimtab.io import connection
from trimtab.model import Message, Receipt
from trimtab.settings import Sending, Timeouts
from trimtab.wire.commands import Command

UNBATCHED = Sending(batching=False)
TIMES = Timeouts(send_s=60.0)


def soon(talk: Talk, request: Command) -> None:
    """Stored after a moment."""
    asyncio.get_running_loop().call_later(0.1, talk.stored, request)


def test_what_waits_without_batching_fits_on_one_connection() -> None:
    assert producer_delivery.UNBATCHED_MAX < connection.UNANSWERED_MAX


def test_without_batching_more_sends_than_a_connection_takes_wait_for_room(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(connection, "UNANSWERED_MAX", 50)
    monkeypatch.setattr(producer_delivery, "UNBATCHED_MAX", 40)

    async def scenario() -> None:
        async with (
            Liar(soon) as liar,
            Producer("pg", nameserver=liar.address, timeouts=TIMES, sending=UNBATCHED) as producer,
        ):
            await producer.send(Message("T", b"first"))
            receipts = await asyncio.gather(*(producer.send(Message("T", b"x")) for _ in range(300)))
        assert {receipt.attempts for receipt in receipts} == {1}
        assert len(liar.requests) == 301

    warped(scenario())


def test_a_connection_that_others_have_filled_says_nothing_of_the_broker(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(connection, "UNANSWERED_MAX", 5)

    async def scenario() -> None:
        async with (
            Liar(soon) as liar,
            Producer("pg", nameserver=liar.address, timeouts=TIMES, sending=UNBATCHED) as producer,
        ):
            await producer.send(Message("T", b"first"))
            outcomes = await asyncio.gather(
                *(producer.send(Message("T", b"x")) for _ in range(20)), return_exceptions=True
            )
            (standing,) = producer.brokers()
        assert sum(isinstance(outcome, Receipt) for outcome in outcomes) == 5
        assert sum(isinstance(outcome, NotSentError) for outcome in outcomes) == 15
        assert (standing.in_flight, standing.weight) == (0, 1.0)
        assert standing.latency_ms < 3_000

    warped(scenario())
