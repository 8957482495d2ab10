"""A broker that lies about leases, offsets or members: a member of ours reads nothing on such a word, or stops; it never guesses."""

import asyncio
import logging
from collections.abc import Awaitable, Callable

import pytest

from tests.unit.client.liar import BROKER, Liar, Talk
from tests.unit.client.pushing import TOPIC, Inbox, eventually
from trimtab.balance.recorder import Kind
from trimtab.client.push import PushConsumer
from trimtab.client.push_settings import Consuming
from trimtab.errors import ClientIdTakenError
from trimtab.model import MessageQueue
from trimtab.wire.bodies import Connection, ConsumerConnection, ConsumerRunningInfo, LockBatchRequestBody
from trimtab.wire.bodies.locks import LeaseBatchResponseBody
from trimtab.wire.codes import LEASED_VERSION, LanguageCode, RequestCode, ResponseCode
from trimtab.wire.commands import Command
from trimtab.wire.fastjson import decode_body
from trimtab.wire.fastjson_writer import encode_body

QUEUE = MessageQueue(TOPIC, BROKER, 0)
ME = "10.0.0.1@me"

Queues = tuple[MessageQueue, ...]


class LeaseLiar:
    """Tells the truth but where a test says otherwise."""

    def __init__(self) -> None:
        self.grant: Callable[[Queues], LeaseBatchResponseBody] = lambda asked: LeaseBatchResponseBody(
            lock_ok_mq_set=asked
        )
        self.listed: Callable[[Connection], tuple[Connection, ...]] = lambda me: (me,)
        self.offset = 0
        self.life = "somebody else"
        self.asked: list[int] = []

    def __call__(self, talk: Talk, command: Command) -> None:
        self.asked.append(command.code)
        if command.code == RequestCode.LOCK_BATCH_MQ:
            wanted = decode_body(LockBatchRequestBody, command.body).mq_set
            talk.answer(command, body=encode_body(self.grant(wanted)))
        elif command.code == RequestCode.GET_CONSUMER_CONNECTION_LIST:
            self._list_members(talk, command)
        elif command.code == RequestCode.QUERY_CONSUMER_OFFSET:
            talk.answer(command, ext={"offset": str(self.offset)})
        elif command.code == RequestCode.GET_CONSUMER_RUNNING_INFO:
            talk.answer(
                command, body=encode_body(ConsumerRunningInfo(properties={"trimtab.life": self.life}))
            )
        elif command.code == RequestCode.PULL_MESSAGE:
            pass  # held for ever: there is nothing to read
        else:
            talk.answer(command)

    def _list_members(self, talk: Talk, command: Command) -> None:
        host, port = talk.transport.get_extra_info("peername")
        me = member(ME, f"{host}:{port}")
        is_joined = RequestCode.LOCK_BATCH_MQ in self.asked or self.asked.count(command.code) > 1
        listed = self.listed(me) if is_joined else ()
        talk.answer(command, body=encode_body(ConsumerConnection(connection_set=listed)))

    def count(self, code: RequestCode) -> int:
        return self.asked.count(code)


def member(client_id: str, address: str) -> Connection:
    return Connection(
        client_id=client_id, client_addr=address, language=LanguageCode.PYTHON, version=LEASED_VERSION
    )


def meet(liar: LeaseLiar, scenario: Callable[[PushConsumer], Awaitable[None]], queues: int = 1) -> None:
    async def run() -> None:
        async with Liar(liar, queues=queues) as server:
            consumer = PushConsumer(
                "g", subscribe={TOPIC: "*"}, handler=Inbox(), nameserver=server.address, client_id=ME, mode="leased",
                start="first", consuming=Consuming(rebalance_every_s=0.2, drain_s_max=0.0),
            )  # fmt: skip
            async with consumer:
                await scenario(consumer)

    asyncio.run(run())


async def reads_nothing(liar: LeaseLiar, consumer: PushConsumer, after: RequestCode) -> None:
    """It asked thrice, and each time made nothing of the answer."""
    await eventually(lambda: liar.count(after) >= 3, "it asked thrice")
    assert consumer.holdings() == ()
    assert liar.count(RequestCode.PULL_MESSAGE) == 0


def test_the_liar_is_believed_while_it_tells_the_truth() -> None:
    liar = LeaseLiar()

    async def scenario(consumer: PushConsumer) -> None:
        await eventually(lambda: liar.count(RequestCode.PULL_MESSAGE), "the queue is read")
        assert QUEUE in [held.queue for held in consumer.holdings()]

    meet(liar, scenario)


@pytest.mark.parametrize(
    ("grant", "told"),
    [
        (lambda asked: LeaseBatchResponseBody(lock_ok_mq_set=(*asked, *asked)), "granted a lease twice"),
        (
            lambda asked: LeaseBatchResponseBody(lock_ok_mq_set=(*asked, MessageQueue("other", BROKER, 7))),
            "were not asked for, other@liar:7 among them",
        ),
        (lambda asked: LeaseBatchResponseBody(lock_ok_mq_set=asked, lease_epochs=()), "with 0 epoch"),
    ],
)
def test_an_answer_that_cannot_be_true_grants_nothing(
    grant: Callable[[Queues], LeaseBatchResponseBody], told: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    liar = LeaseLiar()
    liar.grant = grant

    async def scenario(consumer: PushConsumer) -> None:
        await reads_nothing(liar, consumer, RequestCode.LOCK_BATCH_MQ)
        assert liar.count(RequestCode.UNLOCK_BATCH_MQ) > 0, "what it may have granted is given back"

    meet(liar, scenario)
    assert told in caplog.text


def test_an_offset_that_no_group_can_have_starts_nothing() -> None:
    liar = LeaseLiar()
    liar.offset = -7

    async def scenario(consumer: PushConsumer) -> None:
        await reads_nothing(liar, consumer, RequestCode.QUERY_CONSUMER_OFFSET)

    meet(liar, scenario)


def test_a_lease_that_is_taken_back_without_a_word_is_lost_and_nothing_more_is_written() -> None:
    liar = LeaseLiar()

    async def scenario(consumer: PushConsumer) -> None:
        await eventually(lambda: liar.count(RequestCode.PULL_MESSAGE), "the queue is read")
        liar.grant = lambda _: LeaseBatchResponseBody()
        await eventually(lambda: consumer.holdings() == (), "it noticed at the next renewal")
        assert any(event.kind == Kind.LOST for event in consumer.recorder.events)

    meet(liar, scenario)


def test_a_lease_under_an_ever_new_epoch_is_never_read_without_a_look_at_the_offset() -> None:
    liar, epochs = LeaseLiar(), iter(range(1, 10_000))
    liar.grant = lambda asked: LeaseBatchResponseBody(
        lock_ok_mq_set=asked, lease_epochs=tuple(next(epochs) for _ in asked)
    )

    async def scenario(consumer: PushConsumer) -> None:
        await eventually(lambda: liar.count(RequestCode.PULL_MESSAGE), "the queue is read")
        looked = liar.count(RequestCode.QUERY_CONSUMER_OFFSET)
        await eventually(lambda: liar.count(RequestCode.QUERY_CONSUMER_OFFSET) > looked, "it looks again")
        assert consumer.mode == "leased"

    meet(liar, scenario)


def test_an_offset_that_goes_back_after_a_lapse_makes_the_member_begin_anew_from_there() -> None:
    liar = LeaseLiar()
    liar.offset = 100

    async def scenario(consumer: PushConsumer) -> None:
        await eventually(lambda: QUEUE in [held.queue for held in consumer.holdings()], "it holds the queue")
        liar.offset = 40
        address = next(iter(consumer._session.masters()))
        connection = consumer._session.connection_now(address)
        assert connection is not None
        connection.close()
        await eventually(
            lambda: [held.offset for held in consumer.holdings() if held.queue == QUEUE] == [40],
            "it reads from where the broker says the group is",
        )
        causes = [event.cause for event in consumer.recorder.events if event.kind == Kind.LOST]
        assert "another member held it meanwhile" in causes

    meet(liar, scenario)


def test_a_list_with_one_member_many_times_counts_it_once() -> None:
    liar = LeaseLiar()
    liar.listed = lambda me: (me, *[member("10.0.0.2@other", f"10.0.0.2:{port}") for port in range(1, 9)])

    async def scenario(consumer: PushConsumer) -> None:
        # Four queues of the topic and four of the retry topic, for two members.
        await eventually(lambda: len(consumer.holdings()) == 4, "it takes its half")

    meet(liar, scenario, queues=4)


def test_a_list_that_shows_a_live_namesake_stops_the_member_whoever_is_right() -> None:
    liar = LeaseLiar()
    liar.listed = lambda me: (me, member(ME, "10.0.0.2:1"))

    async def scenario(consumer: PushConsumer) -> None:
        with pytest.raises(ClientIdTakenError, match=r"by a live member at 10\.0\.0\.2:1"):
            await consumer.wait()
        assert liar.count(RequestCode.PULL_MESSAGE) == 0
        assert liar.count(RequestCode.UNLOCK_BATCH_MQ) == 0

    meet(liar, scenario)


def test_a_member_that_its_broker_does_not_list_counts_itself() -> None:
    liar = LeaseLiar()
    liar.listed = lambda _: ()

    async def scenario(consumer: PushConsumer) -> None:
        await eventually(lambda: QUEUE in [held.queue for held in consumer.holdings()], "it holds the queue")

    meet(liar, scenario)


def test_a_refusal_to_say_who_is_there_takes_no_lease() -> None:
    class Mute(LeaseLiar):
        def _list_members(self, talk: Talk, command: Command) -> None:
            talk.answer(command, ResponseCode.NO_PERMISSION)

    liar = Mute()

    async def scenario(consumer: PushConsumer) -> None:
        await reads_nothing(liar, consumer, RequestCode.GET_CONSUMER_CONNECTION_LIST)
        assert liar.count(RequestCode.LOCK_BATCH_MQ) == 0

    meet(liar, scenario)
