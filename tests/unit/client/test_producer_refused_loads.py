"""A load that gathered by itself and is refused for what it is: its messages leave again in smaller ones, and only what is wrong fails."""

import asyncio

import pytest

from tests.unit.client.liar import Liar, Say, Talk
from tests.unit.client.warped import warped
from trimtab.client.producer import Producer
from trimtab.errors import MessageIllegalError
from trimtab.model import Message, Receipt
from trimtab.settings import Sending, Timeouts
from trimtab.wire.batch import decode_batch
from trimtab.wire.codes import RequestCode, ResponseCode
from trimtab.wire.commands import Command

TIMES = Timeouts(send_s=1.0, request_s=1.0)
ILL = b"ill"

Refusal = tuple[int, str]
ILLEGAL: Refusal = ResponseCode.MESSAGE_ILLEGAL, "the message is illegal"
TOO_LONG: Refusal = (
    ResponseCode.SYSTEM_ERROR,
    "java.lang.RuntimeException: message size exceeded, CommitLog.java:1655",
)
UNKNOWN: Refusal = ResponseCode.REQUEST_CODE_NOT_SUPPORTED, " request type 320 not supported"


class Queue:
    """One queue of a broker that takes no batch of more than so many bytes, and nothing that is ill."""

    def __init__(self, refusal: Refusal, bytes_max: int) -> None:
        self.stored: list[bytes] = []
        self.refused = 0
        self._refusal = refusal
        self._bytes_max = bytes_max

    def say(self, talk: Talk, request: Command) -> None:
        is_batch = request.code == RequestCode.SEND_BATCH_MESSAGE
        bodies = [one.body for one in decode_batch(request.body)] if is_batch else [request.body]
        if ILL in bodies or (is_batch and len(request.body) > self._bytes_max):
            self.refused += 1
            code, remark = self._refusal
            talk.answer(request, code, remark=remark)
            return
        ext = {
            "msgId": ",".join(["0" * 32] * len(bodies)),
            "queueId": "0",
            "queueOffset": str(len(self.stored)),
        }
        self.stored += bodies
        talk.answer(request, ext=ext)


async def sent(say: Say, bodies: list[bytes], policy: str = "adaptive") -> list[Receipt | BaseException]:
    sending = Sending(policy=policy)
    async with (
        Liar(say) as liar,
        Producer("pg", nameserver=liar.address, timeouts=TIMES, sending=sending) as producer,
    ):
        await producer.send(
            Message("T", b"first")
        )  # finds the route, so that those that follow leave in their order
        outcomes = await asyncio.gather(
            *(producer.send(Message("T", body)) for body in bodies), return_exceptions=True
        )
        if policy == "4.9.3":
            assert all(broker.is_available for broker in producer.brokers())
        return outcomes


@pytest.mark.parametrize("policy", ["adaptive", "4.9.3"])
@pytest.mark.parametrize(("refusal", "bytes_max"), [(ILLEGAL, 5_000), (TOO_LONG, 5_000), (UNKNOWN, 0)])
def test_a_broker_that_takes_shorter_batches_or_none_gets_them(
    refusal: Refusal, bytes_max: int, policy: str
) -> None:
    async def scenario() -> None:
        queue = Queue(refusal, bytes_max)
        bodies = [b"%03d" % number for number in range(300)]
        outcomes = await sent(queue.say, bodies, policy)
        assert [one.queue_offset for one in outcomes if isinstance(one, Receipt)] == list(range(1, 301))
        assert queue.stored == [b"first", *bodies]
        assert queue.refused < 15

    warped(scenario())


def test_one_message_that_a_broker_does_not_take_fails_alone() -> None:
    async def scenario() -> None:
        queue = Queue(ILLEGAL, 1 << 20)
        bodies = [ILL if number == 17 else b"%03d" % number for number in range(300)]
        outcomes = await sent(queue.say, bodies)
        assert [number for number, one in enumerate(outcomes) if isinstance(one, MessageIllegalError)] == [17]
        assert queue.stored == [b"first", *bodies[:17], *bodies[18:]]

    warped(scenario())


def test_after_that_loads_are_as_long_as_before() -> None:
    async def scenario() -> None:
        batches = 0

        def say(talk: Talk, request: Command) -> None:
            nonlocal batches
            batches += request.code == RequestCode.SEND_BATCH_MESSAGE
            queue.say(talk, request)

        queue = Queue(ILLEGAL, 1 << 20)
        async with Liar(say) as liar, Producer("pg", nameserver=liar.address, timeouts=TIMES) as producer:
            await producer.send(Message("T", b"first"))
            mixed = [Message("T", ILL if number == 99 else b"x") for number in range(100)]
            await asyncio.gather(*map(producer.send, mixed), return_exceptions=True)
            batches = 0
            await asyncio.gather(*(producer.send(Message("T", b"x")) for _ in range(100)))
            assert batches == 1

    warped(scenario())


def test_an_explicit_batch_that_is_too_long_where_it_is_stored_has_one_try_and_is_not_stored() -> None:
    async def scenario() -> None:
        queue = Queue(TOO_LONG, 100)
        async with (
            Liar(queue.say) as liar,
            Producer("pg", nameserver=liar.address, timeouts=TIMES) as producer,
        ):
            with pytest.raises(MessageIllegalError, match="size exceeded") as caught:
                await producer.send_batch([Message("T", bytes(100))] * 2)
            assert not caught.value.indeterminate
            assert not caught.value.retriable
            assert queue.refused == 1

    warped(scenario())
