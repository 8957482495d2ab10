"""A mistake in one message is its own: it is named before anything is sent, and those behind it go on."""

import asyncio
from typing import Any, cast

import pytest

from tests.unit.client.liar import Liar, Talk
from tests.unit.client.warped import warped
from trimtab.client.producer import Producer
from trimtab.errors import InvalidMessageError, PartlySentError
from trimtab.model import Message, MessageQueue
from trimtab.settings import Sending, Timeouts
from trimtab.wire.commands import Command

TIMES = Timeouts(send_s=1.0, request_s=1.0)


def honest(talk: Talk, request: Command) -> None:
    talk.answer(request, ext={"msgId": ",".join(["0" * 32] * 9), "queueId": "3", "queueOffset": "0"})


def message(**odd: Any) -> Message:
    return Message(**{"topic": "T", "body": b"x", **odd})


NUMBERLESS = MessageQueue("T", "liar", cast("int", "1"))

WRONG: list[tuple[Any, str]] = [
    (message(flag=2**31), "flag 2147483648 is not between"),
    (message(flag=-(2**31) - 1), "flag -2147483649"),
    (message(flag=None), "flag is a NoneType"),
    (message(flag="1"), "flag is a str"),
    (message(flag=1.5), "flag is a float"),
    (message(flag=0.0), "flag is a float"),
    (message(delay_level="3"), "delay level is a str"),
    (message(delay_level=-1), "delay level -1"),
    (message(delay_level=2**31), "delay level 2147483648"),
    (message(deliver_at_ms=1.5), "time of delivery is a float"),
    (message(deliver_at_ms=-5), "time of delivery -5"),
    (message(keys=5), "keys are a int"),
    (message(properties=[("a", "b")]), "properties are a list"),
    (message(topic=None), "topic is a NoneType"),
    (message(topic=["T"]), "topic is a list"),
    (message(body=None), "body for topic 'T' is a NoneType"),
    (None, "NoneType is not a Message"),
    (b"x", "bytes is not a Message"),
]


@pytest.mark.parametrize(("wrong", "rule"), WRONG)
def test_what_a_message_cannot_have_names_the_rule_and_is_not_sent(wrong: Any, rule: str) -> None:
    async def scenario() -> None:
        async with Liar(honest) as liar, Producer("pg", nameserver=liar.address, timeouts=TIMES) as producer:
            for send in (
                producer.send,
                producer.send_oneway,
                producer.request,
                lambda one: producer.send(one, key="k"),
                lambda one: producer.send_in_transaction(one, lambda _message, _id: pytest.fail("began")),
            ):
                with pytest.raises(InvalidMessageError, match=f"{rule}|cannot be delayed"):
                    await send(wrong)
            assert liar.requests == []

    warped(scenario())


@pytest.mark.parametrize(
    ("wrong", "rule"), [(one, rule) for one, rule in WRONG if "delay" not in rule and "delivery" not in rule]
)
@pytest.mark.parametrize("place", [0, 1])
@pytest.mark.parametrize("split", [True, False])
def test_nor_is_a_batch_that_has_one(wrong: Any, rule: str, place: int, split: bool) -> None:
    async def scenario() -> None:
        async with Liar(honest) as liar, Producer("pg", nameserver=liar.address, timeouts=TIMES) as producer:
            messages = [message(), message()]
            messages[place] = wrong
            with pytest.raises(InvalidMessageError, match=f"{rule}|one topic"):
                await producer.send_batch(messages, split=split)
            assert liar.requests == []

    warped(scenario())


@pytest.mark.parametrize("where", [{"key": 5}, {"queue": 3}, {"queue": NUMBERLESS}], ids=str)
def test_a_place_that_is_none_names_the_rule(where: dict[str, Any]) -> None:
    async def scenario() -> None:
        async with Liar(honest) as liar, Producer("pg", nameserver=liar.address, timeouts=TIMES) as producer:
            with pytest.raises(InvalidMessageError, match="give a"):
                await producer.send(message(), **where)
            with pytest.raises(InvalidMessageError, match="give a"):
                await producer.send_batch([message()], **where)
            assert liar.requests == []

    warped(scenario())


@pytest.mark.parametrize("timeout_s", [0, -1.0, float("inf"), float("nan"), "1"])
def test_a_request_that_would_wait_no_time_or_for_ever_is_not_sent(timeout_s: Any) -> None:
    async def scenario() -> None:
        async with Liar(honest) as liar, Producer("pg", nameserver=liar.address, timeouts=TIMES) as producer:
            with pytest.raises(InvalidMessageError, match="timeout_s is"):
                await producer.request(message(), timeout_s=timeout_s)
            assert liar.requests == []

    warped(scenario())


@pytest.mark.parametrize("nothing", [{"keys": None}, {"properties": None}, {"delay_level": None}], ids=str)
def test_no_keys_properties_or_delay_may_be_said_with_none(nothing: dict[str, None]) -> None:
    async def scenario() -> None:
        sending = Sending(trace=True)
        async with (
            Liar(honest) as liar,
            Producer("pg", nameserver=liar.address, timeouts=TIMES, sending=sending) as producer,
        ):
            for _ in range(2):
                assert (await producer.send(message(**nothing))).status == "SEND_OK"
            assert len(await producer.send_batch([message(**nothing)] * 2)) == 2

    warped(scenario())


def test_messages_beside_one_with_a_bad_flag_are_sent_and_so_are_those_after_it() -> None:
    async def scenario() -> None:
        async with Liar(honest) as liar, Producer("pg", nameserver=liar.address, timeouts=TIMES) as producer:
            with pytest.raises(PartlySentError) as caught:
                await producer.send_many(message(flag=flag) for flag in (0, 0, 2**31, 0))
            assert list(caught.value.errors) == [2]
            assert (await producer.send(message())).status == "SEND_OK"

    warped(scenario())


@pytest.mark.parametrize("batching", [True, False])
def test_a_load_that_cannot_be_laid_out_fails_alone_and_its_lane_goes_on(batching: bool) -> None:
    async def scenario() -> None:
        sending = Sending(batching=batching)
        async with (
            Liar(honest) as liar,
            Producer("pg", nameserver=liar.address, timeouts=TIMES, sending=sending) as producer,
        ):
            await producer.send(message())
            parcel = producer._packer.pack(message())
            parcel.flag = "not a number"  # type: ignore[assignment]
            with pytest.raises(InvalidMessageError, match="nothing was sent"):
                await producer._delivery.of(parcel, None)
            (standing,) = producer.brokers()
            assert (standing.in_flight, standing.weight) == (0, 1.0)
            assert (await producer.send(message())).status == "SEND_OK"

    warped(scenario())


def test_whoever_hears_of_what_is_stored_cannot_hold_up_a_lane() -> None:
    async def scenario() -> None:
        def fails(*_: object) -> None:
            raise ValueError("it is no good")

        async with Liar(honest) as liar, Producer("pg", nameserver=liar.address, timeouts=TIMES) as producer:
            producer._lanes._on_stored = fails
            receipts = await asyncio.gather(*(producer.send(message()) for _ in range(3)))
            receipts.append(await producer.send(message()))
            assert {receipt.status for receipt in receipts} == {"SEND_OK"}

    warped(scenario())


def test_where_the_broker_was_to_choose_the_queue_the_receipt_says_which_one_it_is() -> None:
    async def scenario() -> None:
        async with Liar(honest) as liar, Producer("pg", nameserver=liar.address, timeouts=TIMES) as producer:
            any_queue = MessageQueue("T", "liar", -1)
            assert (await producer.send(message(), queue=any_queue)).queue == MessageQueue("T", "liar", 3)
            (receipt,) = await producer.send_batch([message()], queue=any_queue)
            assert receipt.queue.queue_id == 3

    warped(scenario())
