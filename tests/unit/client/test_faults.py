"""Whatever a broker, a name server or the network does: a send ends in the documented error, within its time, saying what may have happened."""

import asyncio
import gc
import tracemalloc
from collections.abc import Awaitable, Callable, Coroutine
from itertools import pairwise

import msgspec
import pytest

from tests.unit.client.liar import Liar, Talk
from tests.unit.client.warped import WarpedLoop, warped
from trimtab.client.producer import Producer
from trimtab.client.producer_lanes import UnreadableReceiptError
from trimtab.errors import (
    ConnectionLostError,
    NoPermissionError,
    NoRouteError,
    NotSentError,
    RequestTimeoutError,
    ServerUnreachableError,
    SystemBusyError,
    TrimtabError,
    UnknownResponseError,
)
from trimtab.model import Message, MessageQueue
from trimtab.settings import Sending, Timeouts
from trimtab.testing import DROP, AsyncCluster, Cluster
from trimtab.wire.bodies import TopicRouteData
from trimtab.wire.codes import RESPONSE_FLAG, LanguageCode, RequestCode, ResponseCode, Version
from trimtab.wire.commands import Command, encode_command

SHORT = Timeouts(send_s=0.4, request_s=0.4, connect_s=0.4, close_s=0.4)
LONG = Timeouts(send_s=60, request_s=60)
ROUND_MESSAGES = 1_000
LATE_S = SHORT.send_s * 1.5
"""More than any of these may take, in the time of a loop that waits for nothing but time."""
PATIENCE_S = 20.0
"""More than anything may take, however busy the machine is."""


def play(scenario: Callable[[], Awaitable[None]]) -> None:
    async def run() -> None:
        async with asyncio.timeout(60):
            await scenario()

    asyncio.run(run())


def play_warped(scenario: Callable[[], Coroutine[None, None, None]]) -> None:
    """On a loop where deadlines are exact: for scenarios whose servers live on it."""
    warped(scenario())


async def failure_of(sending: Awaitable[object]) -> TrimtabError:
    """What a send ends in, in good time."""
    is_exact = isinstance(asyncio.get_running_loop(), WarpedLoop)
    async with asyncio.timeout(LATE_S if is_exact else PATIENCE_S):
        with pytest.raises(TrimtabError) as caught:
            await sending
    return caught.value


def sent_to(
    say: Callable[[Talk, Command], None], *, batching: bool = True, retries: int = 0
) -> tuple[TrimtabError, Liar]:
    """The failure of one send to a broker that behaves like this."""
    found: list[tuple[TrimtabError, Liar]] = []

    async def scenario() -> None:
        async with Liar(say) as liar:
            sending = Sending(batching=batching, retries=retries)
            async with Producer("pg", nameserver=liar.address, timeouts=SHORT, sending=sending) as producer:
                found.append((await failure_of(producer.send(Message("T", b"x"))), liar))

    play_warped(scenario)
    return found[0]


# --- answers that do not come ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("batching", [True, False])
def test_no_answer(batching: bool) -> None:
    error, _ = sent_to(lambda _talk, _request: None, batching=batching)
    assert isinstance(error, RequestTimeoutError)
    assert (error.retriable, error.indeterminate) == (True, True)


def test_the_connection_ends_before_the_answer() -> None:
    error, _ = sent_to(lambda talk, _request: talk.transport.close())
    assert isinstance(error, ConnectionLostError)
    assert error.indeterminate


def test_a_broker_that_takes_connections_and_reads_nothing() -> None:
    async def scenario() -> None:
        async with Liar(listens=False) as deaf, Liar() as names:
            names.brokers = {"deaf": deaf.address}
            async with Producer("pg", nameserver=names.address, timeouts=SHORT) as producer:
                error = await failure_of(producer.send(Message("T", b"x")))
        assert isinstance(error, RequestTimeoutError)
        assert error.indeterminate

    play_warped(scenario)


def test_nobody_is_there() -> None:
    async def scenario() -> None:
        async with Liar() as names:
            names.brokers = {"gone": "127.0.0.1:1"}
            async with Producer("pg", nameserver=names.address, timeouts=SHORT) as producer:
                error = await failure_of(producer.send(Message("T", b"x")))
        assert isinstance(error, ServerUnreachableError)
        assert (error.retriable, error.indeterminate) == (True, False)

    play_warped(scenario)


def test_a_half_open_connection_is_given_up_and_dialled_anew() -> None:
    async def scenario() -> None:
        timeouts = Timeouts(send_s=0.3, request_s=0.3, silent_s=0.05)
        sends = 0

        def deaf_at_first(talk: Talk, request: Command) -> None:
            nonlocal sends
            sends += 1
            if len(liar.talks) > 1:
                talk.stored(request)

        async with Liar(deaf_at_first) as liar, Liar() as names:
            names.brokers = {"liar": liar.address}
            async with Producer("pg", nameserver=names.address, timeouts=timeouts) as producer:
                error = await failure_of(producer.send(Message("T", b"x")))
                assert error.indeterminate
                async with asyncio.timeout(PATIENCE_S):
                    while True:
                        try:
                            await producer.send(Message("T", b"x"))
                            break
                        except TrimtabError:
                            continue
            assert len(liar.talks) > 1

    play_warped(scenario)


def test_messages_behind_one_that_is_not_answered_never_leave() -> None:
    async def scenario() -> None:
        async with (
            Liar(lambda _talk, _request: None) as liar,
            Producer("pg", nameserver=liar.address, timeouts=SHORT, sending=Sending(retries=0)) as producer,
        ):
            first = asyncio.create_task(failure_of(producer.send(Message("T", b"first"))))
            while not liar.requests:  # noqa: ASYNC110 - it happens in a server
                await asyncio.sleep(0.005)
            second = asyncio.create_task(failure_of(producer.send(Message("T", b"second"))))
            assert (await first).indeterminate
            behind = await second
        # It left after the first was given up, or its own time was over before: both are said as they are.
        assert isinstance(behind, NotSentError if len(liar.requests) == 1 else RequestTimeoutError)

    play_warped(scenario)


# --- answers that are wrong -----------------------------------------------------------------------------------------


def test_an_answer_given_twice_counts_once() -> None:
    async def scenario() -> None:
        def twice(talk: Talk, request: Command) -> None:
            talk.stored(request, 5)
            talk.stored(request, 6)

        async with Liar(twice) as liar, Producer("pg", nameserver=liar.address, timeouts=LONG) as producer:
            offsets = [(await producer.send(Message("T", b"x"))).queue_offset for _ in range(5)]
        assert offsets == [5] * 5

    play_warped(scenario)


def test_answers_out_of_order_find_their_sends() -> None:
    async def scenario() -> None:
        held: list[tuple[Talk, Command]] = []

        def backwards(talk: Talk, request: Command) -> None:
            held.append((talk, request))
            if len(held) == 20:
                for held_talk, held_request in reversed(held):
                    held_talk.stored(held_request, int(held_request.body))

        async with Liar(backwards) as liar:
            sending = Sending(batching=False)
            async with Producer("pg", nameserver=liar.address, sending=sending, timeouts=LONG) as producer:
                receipts = await producer.send_many(Message("T", b"%d" % number) for number in range(20))
        assert [receipt.queue_offset for receipt in receipts] == list(range(20))

    play_warped(scenario)


def test_an_answer_that_comes_too_late_is_dropped_and_the_connection_goes_on() -> None:
    async def scenario() -> None:
        first: list[Command] = []

        def late(talk: Talk, request: Command) -> None:
            if not first:
                first.append(request)
                return
            talk.stored(first[0], 1)
            talk.stored(request, 2)

        async with (
            Liar(late) as liar,
            Producer("pg", nameserver=liar.address, timeouts=SHORT, sending=Sending(retries=0)) as producer,
        ):
            assert isinstance(await failure_of(producer.send(Message("T", b"x"))), RequestTimeoutError)
            assert (await producer.send(Message("T", b"x"))).queue_offset == 2
            assert len(liar.talks) == 1

    play_warped(scenario)


@pytest.mark.parametrize(
    "ext",
    [
        {},
        {"msgId": "x", "queueId": "0"},
        {"queueId": "0", "queueOffset": "1"},
        {"msgId": "x", "queueId": "0", "queueOffset": "many"},
    ],
)
def test_stored_but_not_where(ext: dict[str, str]) -> None:
    error, _ = sent_to(lambda talk, request: talk.answer(request, ext=ext))
    assert isinstance(error, UnreadableReceiptError)
    assert error.indeterminate


@pytest.mark.parametrize(
    "data",
    [
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
        b"\xff" * 64,
        b"\x00\x00\x00\x04\x00\x00\x00\x09",  # a header longer than its frame
        b"\x00\x00\x00\x06\x00\x00\x00\x02{]",  # not JSON
        b"\x7f\xff\xff\xff",  # two gigabytes to come
        b"\x00\x00\x00\x08\x07\x00\x00\x04null",  # a serializer that nobody knows
    ],
)
def test_bytes_that_are_no_answer_end_the_connection(data: bytes) -> None:
    error, _ = sent_to(lambda talk, _request: talk.say(data))
    assert isinstance(error, ConnectionLostError)
    assert error.indeterminate


def test_a_code_that_nobody_knows() -> None:
    error, _ = sent_to(lambda talk, request: talk.answer(request, 7_777, remark="because"))
    assert isinstance(error, UnknownResponseError)
    assert "7777" in str(error)
    assert "because" in str(error)


def test_a_name_server_that_answers_nonsense() -> None:
    async def scenario() -> None:
        for nonsense in (b"", b"{", b"[]", b'{"queueDatas":7}', b"\xff\xfe"):

            class Names(Liar):
                def asked(self, talk: Talk, command: Command, nonsense: bytes = nonsense) -> None:
                    talk.answer(command, body=nonsense)

            async with (
                Names() as liar,
                Producer("pg", nameserver=liar.address, timeouts=SHORT) as producer,
            ):
                error = await failure_of(producer.send(Message("T", b"x")))
                assert not error.indeterminate, nonsense

    play_warped(scenario)


# --- refusals -------------------------------------------------------------------------------------------------------


def test_access_control_of_4_9_refuses_in_a_system_error_which_is_told_as_what_it_is_and_not_tried_again() -> (
    None
):
    remark = "org.apache.rocketmq.acl.common.AclException: No accessKey is configured"
    error, liar = sent_to(
        lambda talk, request: talk.answer(request, ResponseCode.SYSTEM_ERROR, remark=remark), retries=2
    )
    assert isinstance(error, NoPermissionError)
    assert "access key" in str(error)
    assert (error.retriable, error.indeterminate) == (False, False)
    assert len(liar.requests) == 1


def test_a_busy_broker_is_tried_again_and_then_said() -> None:
    error, liar = sent_to(lambda talk, request: talk.answer(request, ResponseCode.SYSTEM_BUSY), retries=2)
    assert isinstance(error, SystemBusyError)
    assert len(liar.requests) == 3
    ids = {request.ext["i"].split("\x02")[0] for request in liar.requests}
    assert len(ids) == 1, "all tries of a message carry the same id"


def test_what_cannot_be_mended_by_trying_again_is_tried_once() -> None:
    error, liar = sent_to(lambda talk, request: talk.answer(request, ResponseCode.MESSAGE_ILLEGAL), retries=2)
    assert not error.retriable
    assert len(liar.requests) == 1


# --- brokers and name servers that come and go ----------------------------------------------------------------------


def test_a_slow_link_delays_and_fails_nothing() -> None:
    async def scenario() -> None:
        loop = asyncio.get_running_loop()

        def slowly(talk: Talk, request: Command) -> None:
            loop.call_later(0.05, talk.stored, request)

        async with (
            Liar(slowly, queues=4) as liar,
            Producer("pg", nameserver=liar.address, timeouts=LONG) as producer,
        ):
            receipts = await producer.send_many(Message("T", b"x") for _ in range(200))
        assert {receipt.attempts for receipt in receipts} == {1}
        assert len(liar.requests) < 200, "what waited left together"

    play_warped(scenario)


def test_a_broker_that_is_gone_is_not_waited_for_when_another_one_is_there() -> None:
    async def scenario() -> None:
        async with Liar(lambda talk, request: talk.stored(request)) as liar:
            liar.brokers = {"gone": "127.0.0.1:1", "liar": liar.address}
            async with Producer("pg", nameserver=liar.address, timeouts=LONG) as producer:
                receipts = [await producer.send(Message("T", b"x")) for _ in range(50)]
            assert {receipt.queue.broker_name for receipt in receipts} == {"liar"}
            assert {receipt.attempts for receipt in receipts} <= {1, 2}

    play_warped(scenario)


def test_the_only_broker_is_waited_for_until_it_is_back() -> None:
    async def scenario() -> None:
        async with Cluster() as cluster:
            timeouts = Timeouts(send_s=30)
            async with Producer("pg", nameserver=cluster.nameserver, timeouts=timeouts) as producer:
                await producer.send(Message("orders", b"x"))
                await cluster.kill("broker-a")
                sending = asyncio.gather(
                    *(producer.send(Message("orders", b"y")) for _ in range(10)), return_exceptions=True
                )
                await asyncio.sleep(0.05)
                await cluster.restart("broker-a")
                outcomes = await sending
                for outcome in outcomes:
                    assert not isinstance(outcome, BaseException) or isinstance(outcome, TrimtabError)
                assert (await producer.send(Message("orders", b"z"))).status == "SEND_OK"

    play(scenario)


def test_known_routes_go_on_without_name_servers_and_unknown_ones_say_so() -> None:
    async def scenario() -> None:
        async with (
            Cluster(brokers=2) as cluster,
            Producer("pg", nameserver=cluster.nameserver, timeouts=SHORT) as producer,
        ):
            await producer.send(Message("orders", b"x"))
            await cluster.kill("nameserver")
            await producer._session.refresh_routes()
            assert (await producer.send(Message("orders", b"y"))).status == "SEND_OK"
            error = await failure_of(producer.send(Message("other", b"x")))
            assert isinstance(error, NoRouteError)
            assert (error.retriable, error.indeterminate) == (True, False)

    play(scenario)


def test_one_hanging_broker_of_two_costs_a_try_when_tries_are_short() -> None:
    async def scenario(cluster: AsyncCluster) -> None:
        cluster.intercept(RequestCode.SEND_MESSAGE_V2, lambda _command: DROP, server="broker-a")
        timeouts = Timeouts(send_s=30, attempt_s=0.2)
        async with Producer("pg", nameserver=cluster.nameserver, timeouts=timeouts) as producer:
            receipts = [await producer.send(Message("orders", b"x")) for _ in range(6)]
        assert {receipt.queue.broker_name for receipt in receipts} == {"broker-b"}
        assert sorted(receipt.attempts for receipt in receipts)[:-2] == [1] * 4

    async def run() -> None:
        async with Cluster(brokers=2) as cluster:
            await scenario(cluster)

    play(run)


# --- limits ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "sending",
    [Sending(waiting_messages_max=10), Sending(waiting_bytes_max=10_000)],
    ids=["messages", "bytes"],
)
def test_what_waits_is_bounded_and_one_more_waits_for_room(sending: Sending) -> None:
    async def scenario() -> None:
        held: list[tuple[Talk, Command]] = []

        async with (
            Liar(lambda talk, request: held.append((talk, request))) as liar,
            Producer("pg", nameserver=liar.address, sending=sending, timeouts=LONG) as producer,
        ):
            tasks = [asyncio.create_task(producer.send(Message("T", bytes(1_000)))) for _ in range(100)]
            while not all(task.done() for task in tasks):
                await asyncio.sleep(0.001)
                assert producer._delivery.waiting <= 10
                while held:
                    talk, request = held.pop()
                    talk.stored(request)
            assert all(task.exception() is None for task in tasks)

    play_warped(scenario)


def test_no_room_in_time_is_said_and_nothing_was_sent() -> None:
    async def scenario() -> None:
        sending = Sending(waiting_messages_max=1, retries=0)
        async with Liar(lambda _talk, _request: None) as liar:
            timeouts = Timeouts(send_s=0.3)
            async with Producer(
                "pg", nameserver=liar.address, sending=sending, timeouts=timeouts
            ) as producer:
                outcomes = await asyncio.gather(
                    *(producer.send(Message("T", b"x")) for _ in range(3)), return_exceptions=True
                )
            kinds = sorted(type(outcome).__name__ for outcome in outcomes)
            assert "RequestTimeoutError" in kinds
            assert set(kinds) <= {"RequestTimeoutError", "NotSentError"}

    play_warped(scenario)


def test_unanswered_requests_leave_nothing_behind() -> None:
    async def scenario() -> None:
        async with Liar() as liar, Liar(queues=4) as names:
            names.brokers = {"liar": liar.address}
            timeouts = Timeouts(send_s=0.2)
            async with Producer("pg", nameserver=names.address, timeouts=timeouts) as producer:
                for _ in range(3):
                    await asyncio.gather(
                        *(producer.send(Message("T", b"x")) for _ in range(50)), return_exceptions=True
                    )
                connection = producer._session.connection_now(liar.address)
                assert connection is not None
                assert connection.unanswered == 0
                assert producer._delivery.waiting == 0
                assert producer._delivery.waiting_bytes == 0

    play_warped(scenario)


def test_a_send_that_is_cancelled_before_it_left_never_leaves() -> None:
    async def scenario() -> None:
        held: list[tuple[Talk, Command]] = []
        async with (
            Liar(lambda talk, request: held.append((talk, request))) as liar,
            Producer("pg", nameserver=liar.address, timeouts=LONG) as producer,
        ):
            first = asyncio.create_task(producer.send(Message("T", b"first")))
            while not held:  # noqa: ASYNC110 - it happens in a server
                await asyncio.sleep(0.005)
            tasks = [asyncio.create_task(producer.send(Message("T", b"%d" % number))) for number in range(9)]
            await asyncio.sleep(0)
            for task in tasks[:8]:
                task.cancel()
            await asyncio.gather(*tasks[:8], return_exceptions=True)
            assert producer._delivery.waiting == 2
            held[0][0].stored(held[0][1])
            while len(held) < 2:  # noqa: ASYNC110 - it happens in a server
                await asyncio.sleep(0.005)
            assert held[1][1].body == b"8"
            held[1][0].stored(held[1][1])
            await asyncio.gather(first, tasks[8])

    play_warped(scenario)


def test_memory_stays_flat() -> None:
    async def scenario() -> None:
        async with (
            Liar(lambda talk, request: talk.stored(request), queues=8) as liar,
            Producer("pg", nameserver=liar.address, timeouts=LONG) as producer,
        ):

            async def held_after_a_round() -> int:
                await producer.send_many(Message("T", bytes(100)) for _ in range(ROUND_MESSAGES))
                liar.requests.clear()
                gc.collect()
                return tracemalloc.get_traced_memory()[0]

            await held_after_a_round()
            tracemalloc.start()
            try:
                held = [await held_after_a_round() for _ in range(8)]
            finally:
                tracemalloc.stop()
        # Whatever else this process does: if messages left something behind, every round would.
        assert min(after - before for before, after in pairwise(held)) < 5 * ROUND_MESSAGES, held

    play(scenario)


def test_a_producer_can_be_started_again() -> None:
    async def scenario() -> None:
        async with Liar(lambda talk, request: talk.stored(request)) as liar:
            producer = Producer("pg", nameserver=liar.address, timeouts=LONG)
            for _ in range(2):
                async with producer:
                    assert (await producer.send(Message("T", b"x"))).status == "SEND_OK"

    play_warped(scenario)


@pytest.mark.parametrize("policy", ["adaptive", "round-robin", "4.9.3"])
def test_a_broker_that_a_topics_order_names_and_that_has_no_master_is_passed_over(policy: str) -> None:
    class Ordered(Liar):
        def _route(self, brokers: dict[str, str]) -> TopicRouteData:
            return msgspec.structs.replace(super()._route(brokers), order_topic_conf="gone:2;liar:2")

    async def scenario() -> None:
        sending = Sending(policy=policy)
        async with (
            Ordered(lambda talk, request: talk.stored(request)) as liar,
            Producer("pg", nameserver=liar.address, timeouts=LONG, sending=sending) as producer,
        ):
            for _ in range(4):
                receipt = await producer.send(Message("T", b"x"))
                assert receipt.queue.broker_name == "liar"
            with pytest.raises(NoRouteError, match="no master of gone"):
                await producer.send(Message("T", b"x"), queue=MessageQueue("T", "gone", 0))

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("language", "version", "is_old"),
    [
        (LanguageCode.JAVA, Version.V4_9_8, True),
        (LanguageCode.JAVA, Version.V5_0_0, False),
        (LanguageCode.PYTHON, Version.V4_9_3, False),
        (LanguageCode.JAVA, 0, False),
    ],
)
def test_a_broker_that_knows_no_times_of_delivery_is_warned_of_once(
    language: LanguageCode, version: int, is_old: bool, caplog: pytest.LogCaptureFixture
) -> None:
    def say(talk: Talk, request: Command) -> None:
        ext = {"msgId": "0" * 32, "queueId": "0", "queueOffset": "0"}
        answer = Command(
            code=0, opaque=request.opaque, flag=RESPONSE_FLAG, ext=ext, language=language, version=version
        )
        talk.say(encode_command(answer))

    async def scenario() -> None:
        async with Liar(say) as liar, Producer("pg", nameserver=liar.address, timeouts=LONG) as producer:
            await producer.send(Message("T", b"x"))
            assert not caplog.records
            for _ in range(2):
                await producer.send(Message("T", b"x", deliver_at_ms=1))
        assert caplog.text.count("delivered at once") == is_old

    asyncio.run(scenario())
