"""Servers that go away and come back while a stream runs."""

import logging
import threading
from collections.abc import Iterator
from functools import partial

import pytest

from tests.unit.spark.engine import Stream
from tests.unit.spark.test_source import ask, create, fill, numbered, options, until
from trimtab.model import MessageQueue
from trimtab.spark.problems import OutageError
from trimtab.spark.reminders import EVERY_MS, Reminders
from trimtab.testing import NAMESERVER, BlockingCluster, Cluster
from trimtab.wire.codes import RequestCode, ResponseCode
from trimtab.wire.commands import Command
from trimtab.wire.headers.base import decode_ext
from trimtab.wire.headers.consume import OffsetResponse, QueryConsumerOffset


@pytest.fixture
def cluster() -> Iterator[BlockingCluster]:
    with Cluster(brokers=2) as running:
        for broker in running.brokers:
            create(running, broker, "orders", 2)
        yield running


def running_stream(cluster: BlockingCluster, **more: str) -> Stream:
    impatient = {"requestTimeoutMs": "500", "numRetries": "0", "retryIntervalMs": "10"}
    stream = Stream(**options(cluster, startingOffsets="earliest", **impatient, **more))
    fill(cluster, numbered(40))
    stream.run_until_idle()
    assert len(stream.rows) == 40
    return stream


def test_a_stream_goes_on_while_no_name_server_answers(cluster: BlockingCluster) -> None:
    stream = running_stream(cluster)
    cluster.pause(NAMESERVER)
    stream.trigger()
    cluster.kill(NAMESERVER)
    stream.trigger()
    cluster.restart(NAMESERVER)
    fill(cluster, numbered(20, "c"))
    stream.run_until_idle()
    assert stream.bodies() == numbered(40) + numbered(20, "c")


def test_new_messages_are_read_without_a_name_server(cluster: BlockingCluster) -> None:
    stream = running_stream(cluster)
    fill(cluster, numbered(20, "c"), queue=MessageQueue("orders", "broker-a", 0))
    cluster.kill(NAMESERVER)
    stream.run_until_idle()
    assert stream.bodies() == numbered(40) + numbered(20, "c")


def test_a_broker_that_restarts_in_the_middle_of_a_batch_is_waited_for(cluster: BlockingCluster) -> None:
    stream = running_stream(cluster, outageTimeoutMs="60s")
    fill(cluster, numbered(20, "c"), queue=MessageQueue("orders", "broker-a", 0))
    timers: list[threading.Timer] = []

    def die_after_the_look(_request: Command) -> None:
        """What is the end of the queue is answered; then the broker is away for a moment."""
        if not timers:
            timers.append(threading.Timer(0.0, cluster.restart, ["broker-a"]))
            timers[0].start()

    stop = cluster.intercept(RequestCode.GET_MAX_OFFSET, die_after_the_look, server="broker-a")
    until(lambda: stream.trigger() > 0 or len(stream.rows) == 60)
    stop()
    timers[0].join()
    assert stream.bodies() == numbered(40) + numbered(20, "c")


def test_an_outage_that_lasts_too_long_is_an_error_that_says_so(cluster: BlockingCluster) -> None:
    stream = running_stream(cluster, outageTimeoutMs="300ms")
    fill(cluster, numbered(20, "c"), queue=MessageQueue("orders", "broker-a", 0))
    refusal = Command(code=ResponseCode.SYSTEM_BUSY, opaque=0, remark="not now")
    stop = cluster.intercept(RequestCode.GET_MIN_OFFSET, lambda _request: refusal)
    with pytest.raises(
        OutageError, match=r"planning a batch.*300 ms.*outageTimeoutMs.*nothing is lost.*not now"
    ):
        until(lambda: stream.trigger() > 0)
    stop()
    stream.start()
    stream.run_until_idle()
    assert stream.bodies() == numbered(40) + numbered(20, "c")


def test_a_broker_that_comes_back_between_two_answers_has_lost_nothing(cluster: BlockingCluster) -> None:
    stream = running_stream(cluster)
    unknown = Command(code=ResponseCode.TOPIC_NOT_EXIST, opaque=0, remark="No topic route info")
    asked = 0

    def not_yet(_request: Command) -> Command | None:
        """The route is asked for before the brokers have registered, and the list of brokers after it."""
        nonlocal asked
        asked += 1
        return unknown if asked == 1 else None

    stop = cluster.intercept(RequestCode.GET_ROUTEINFO_BY_TOPIC, not_yet, server=NAMESERVER)
    fill(cluster, numbered(5, "d"), queue=MessageQueue("orders", "broker-b", 0))
    asked = 0
    until(lambda: bool(stream.trigger()) or len(stream.rows) == 45)
    stop()
    assert stream.bodies() == numbered(40) + numbered(5, "d")


def test_a_query_that_is_started_again_while_servers_restart_waits_for_them(cluster: BlockingCluster) -> None:
    """A new process knows nobody; that the query was somewhere is in its checkpoint."""
    stream = running_stream(cluster, outageTimeoutMs="60s", group="spark-again")
    fill(cluster, numbered(20, "c"))
    cluster.kill(NAMESERVER)
    stream.start()
    timer = threading.Timer(1.0, cluster.restart, [NAMESERVER])
    timer.start()
    stream.run_until_idle()
    timer.join()
    fill(cluster, numbered(20, "d"))
    stream.trigger(dies=True)
    cluster.kill(NAMESERVER)
    timer = threading.Timer(1.0, cluster.restart, [NAMESERVER])
    timer.start()
    stream.run_until_idle()
    timer.join()
    assert stream.bodies() == numbered(40) + numbered(20, "c") + numbered(20, "d")


class FreshNames:
    """Name servers that were started anew, as Apache's are: they know no broker and no topic until brokers register."""

    def __init__(self, cluster: BlockingCluster, answers: int) -> None:
        self._left = answers
        unknown = Command(code=ResponseCode.TOPIC_NOT_EXIST, opaque=0, remark="No topic route info")
        nobody = Command(
            code=ResponseCode.SUCCESS, opaque=0, body=b'{"brokerAddrTable":{},"clusterAddrTable":{}}'
        )
        self._stops = [
            cluster.intercept(code, partial(self._answer, answer), server=NAMESERVER)
            for code, answer in (
                (RequestCode.GET_ROUTEINFO_BY_TOPIC, unknown),
                (RequestCode.GET_BROKER_CLUSTER_INFO, nobody),
            )
        ]

    def _answer(self, answer: Command, _request: Command) -> Command | None:
        self._left -= 1
        return answer if self._left >= 0 else None

    def stop(self) -> None:
        for stop in self._stops:
            stop()


@pytest.mark.parametrize("answers", range(1, 12))
def test_name_servers_that_know_nothing_yet_are_no_loss(cluster: BlockingCluster, answers: int) -> None:
    """Wherever in the questions of a new process, or of a running one, they begin to know again."""
    stream = running_stream(cluster, outageTimeoutMs="60s")
    fill(cluster, numbered(20, "c"), queue=MessageQueue("orders", "broker-a", 0))
    fresh = FreshNames(cluster, answers)
    until(lambda: bool(stream.trigger()) or len(stream.rows) == 60)
    fresh.stop()
    fill(cluster, numbered(20, "d"), queue=MessageQueue("orders", "broker-b", 0))
    stream.start(available_now=True)
    fresh = FreshNames(cluster, answers)
    stream.run_until_idle()
    fresh.stop()
    assert stream.bodies() == numbered(40) + numbered(20, "c") + numbered(20, "d")


def test_an_offset_that_was_not_taken_is_committed_again(cluster: BlockingCluster) -> None:
    refusal = Command(code=ResponseCode.SYSTEM_BUSY, opaque=0, remark="busy")
    stop = cluster.intercept(RequestCode.UPDATE_CONSUMER_OFFSET, lambda _request: refusal, server="broker-a")
    stream = running_stream(cluster, group="spark-commits")
    stream.trigger()
    stop()
    stream.trigger()
    committed = 0
    for broker in cluster.brokers:
        for queue_id in range(2):
            header = QueryConsumerOffset(consumer_group="spark-commits", topic="orders", queue_id=queue_id)
            answer = ask(cluster, broker, RequestCode.QUERY_CONSUMER_OFFSET, header)
            committed += decode_ext(OffsetResponse, answer.ext).offset
    assert committed == 40


def test_what_stays_true_is_said_once_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    reminders = Reminders(logging.getLogger("reminded"))
    for now_ms in (0, 1, EVERY_MS - 1, EVERY_MS, EVERY_MS + 1):
        reminders.say("broker-a", f"away at {now_ms}", now_ms)
    reminders.say("broker-b", "away too", EVERY_MS + 2)
    assert [record.getMessage() for record in caplog.records] == [
        "away at 0",
        f"away at {EVERY_MS}",
        "away too",
    ]
