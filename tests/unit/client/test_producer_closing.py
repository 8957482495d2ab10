"""A producer that closes: nothing new leaves, whoever waits is told, and nothing is left behind however it is waited for."""

import asyncio
import itertools
import threading

import pytest

from tests.unit.client.liar import Liar, Talk
from tests.unit.client.warped import warped
from trimtab import blocking
from trimtab.client import sessions
from trimtab.client.producer import Producer
from trimtab.errors import ClosedError, PartlySentError
from trimtab.model import Message
from trimtab.settings import Sending, Timeouts
from trimtab.testing import Cluster
from trimtab.wire.codes import RequestCode
from trimtab.wire.commands import Command

TIMES = Timeouts(send_s=1.0, request_s=1.0)
X = Message("T", b"x")


def soon(talk: Talk, request: Command) -> None:
    """Stored after a moment."""
    asyncio.get_running_loop().call_later(0.1, talk.stored, request)


def test_a_closed_producer_sends_no_more_of_what_never_ends() -> None:
    async def scenario() -> None:
        sending = Sending(waiting_messages_max=10, batching=False)
        async with Liar(soon) as liar:
            async with Producer("pg", nameserver=liar.address, timeouts=TIMES, sending=sending) as producer:
                many = asyncio.create_task(producer.send_many(itertools.repeat(X)))
                await asyncio.sleep(1.05)
            sent = len(liar.requests)
            with pytest.raises(PartlySentError) as caught:
                await many
            assert len(liar.requests) == sent
        assert len(caught.value.receipts) == sent >= 100
        assert {type(error) for error in caught.value.errors.values()} == {ClosedError}

    warped(scenario())


def test_a_send_begun_while_the_producer_closes_is_refused() -> None:
    async def scenario() -> None:
        async with Liar(soon) as liar:
            async with Producer("pg", nameserver=liar.address, timeouts=TIMES) as producer:
                delivery, parcel = producer._delivery, producer._packer.pack(X)
            with pytest.raises(ClosedError, match="before the message left"):
                await delivery.of(parcel, None)
            assert liar.requests == []

    warped(scenario())


def test_a_request_that_waits_for_its_reply_hears_that_the_producer_was_closed() -> None:
    async def scenario() -> None:
        async with Liar(lambda talk, request: talk.stored(request)) as liar:
            async with Producer("pg", nameserver=liar.address, timeouts=TIMES) as producer:
                asking = asyncio.create_task(producer.request(X, timeout_s=30))
                while not liar.requests:  # noqa: ASYNC110 - it happens in a server
                    await asyncio.sleep(0.01)
            with pytest.raises(ClosedError, match="before the reply came") as caught:
                await asking
        assert caught.value.indeterminate

    warped(scenario())


def test_a_thread_that_waits_for_its_reply_hears_it_too() -> None:
    failures: list[BaseException] = []

    def ask(producer: blocking.Producer) -> None:
        try:
            producer.request(X, timeout_s=30)
        except BaseException as error:  # noqa: BLE001 - what it is, is the question
            failures.append(error)

    with Cluster() as cluster:
        stored = threading.Event()
        cluster.intercept(RequestCode.SEND_MESSAGE_V2, lambda _command: stored.set())
        producer = blocking.Producer("pg", nameserver=cluster.nameserver)
        with producer:
            asking = threading.Thread(target=ask, args=(producer,))
            asking.start()
            stored.wait()
        asking.join()
    assert [isinstance(error, ClosedError) for error in failures] == [True]


def test_who_waits_for_a_route_while_the_producer_closes_is_not_cancelled_for_it() -> None:
    class Silent(Liar):
        def asked(self, talk: Talk, command: Command) -> None:
            """No name server that answers."""

    async def scenario() -> None:
        async with Silent() as silent:
            timeouts = Timeouts(send_s=1.0, request_s=9.0)
            async with Producer("pg", nameserver=silent.address, timeouts=timeouts) as producer:
                asking = asyncio.create_task(producer.request(X))
                await asyncio.sleep(0.1)
            with pytest.raises(ClosedError):
                await asking

    warped(scenario())


def test_a_close_that_nobody_waits_for_goes_on_and_a_second_one_sees_its_end() -> None:
    async def scenario() -> None:
        before = asyncio.all_tasks()
        async with Liar() as mute:
            producer = Producer("pg", nameserver=mute.address, timeouts=TIMES)
            await producer.start()
            sending = asyncio.create_task(producer.send(X))
            await asyncio.sleep(0.1)
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.1):
                    await producer.close()
            await producer.close()
            assert [one for one in sessions._shared if one.session is producer._session] == []
            await asyncio.gather(sending, return_exceptions=True)
            assert asyncio.all_tasks() <= before | {asyncio.current_task()}
            await producer.close()

    warped(scenario())


def test_a_producer_that_is_started_while_it_closes_is_open() -> None:
    async def scenario() -> None:
        async with Liar(soon) as liar:
            producer = Producer("pg", nameserver=liar.address, timeouts=TIMES)
            await producer.start()
            sending = asyncio.create_task(producer.send(X))
            await asyncio.sleep(0)
            closing = asyncio.create_task(producer.close())
            await asyncio.sleep(0)
            async with producer:
                assert (await producer.send(X)).status == "SEND_OK"
            assert (await sending).status == "SEND_OK"
            await closing

    warped(scenario())
