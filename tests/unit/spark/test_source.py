"""The source on a real cluster, called as Spark calls it."""

import asyncio
import json
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator

import pytest
from pyspark.sql.types import BinaryType, LongType, StringType, StructField, StructType

from tests.unit.spark.engine import Stream, read_batch, source
from trimtab import Message, Producer
from trimtab.errors import TrimtabError
from trimtab.model import MessageQueue
from trimtab.spark.problems import DataLossError, OptionError
from trimtab.testing import BlockingCluster, Cluster
from trimtab.wire.codes import RequestCode, ResponseCode
from trimtab.wire.commands import Command
from trimtab.wire.headers.admin import CreateTopic, TopicOnly
from trimtab.wire.headers.base import Header, decode_ext, encode_ext
from trimtab.wire.headers.consume import OffsetResponse, QueryConsumerOffset

WAIT_S = 60


@pytest.fixture
def cluster() -> Iterator[BlockingCluster]:
    with Cluster(brokers=2) as running:
        for broker in running.brokers:
            create(running, broker, "orders", 4)
        yield running


def fill(
    cluster: BlockingCluster, bodies: list[bytes], topic: str = "orders", queue: MessageQueue | None = None
) -> None:
    async def send() -> None:
        async with Producer("tests", nameserver=cluster.nameserver) as producer:
            await asyncio.gather(
                *(
                    producer.send(
                        Message(
                            topic,
                            body,
                            tag="even" if at % 2 == 0 else "odd",
                            keys=[f"k{at}"],
                            properties={"n": str(at)},
                        ),
                        queue=queue,
                    )
                    for at, body in enumerate(bodies)
                )
            )

    asyncio.run(send())


def ask(cluster: BlockingCluster, broker: str, code: RequestCode, header: Header) -> Command:
    from trimtab.io.connection import PeerConnection

    async def asked() -> Command:
        connection = await PeerConnection.open(cluster.brokers[broker])
        command = Command(code=code, opaque=connection.next_opaque(), ext=encode_ext(header))
        answer = await connection.ask(command, timeout_s=30)
        connection.close()
        return answer

    answer = asyncio.run(asked())
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    return answer


def create(cluster: BlockingCluster, broker: str, topic: str, queues: int) -> None:
    ask(cluster, broker, RequestCode.UPDATE_AND_CREATE_TOPIC, CreateTopic(
        topic=topic, default_topic="TBW102", read_queue_nums=queues, write_queue_nums=queues, perm=6,
        topic_filter_type="SINGLE_TAG",
    ))  # fmt: skip


def until(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_S
    while not true():
        assert time.monotonic() < deadline, "it did not become true"
        time.sleep(0.02)


def numbered(count: int, word: str = "b") -> list[bytes]:
    return [b"%s%05d" % (word.encode(), at) for at in range(count)]


def options(cluster: BlockingCluster, **more: str) -> dict[str, str]:
    return {
        "nameserver": cluster.nameserver,
        "topic": "orders",
        "routeRefreshMs": "1",
        "offsetRefreshMs": "1",
        **more,
    }


def test_a_stream_that_is_given_fewer_queues_is_told_so(cluster: BlockingCluster) -> None:
    chosen = {**options(cluster, startingOffsets="earliest"), "topic": ""}
    stream = Stream(**chosen, queues='{"orders": {"broker-a": [0, 1]}}')
    for number in (0, 1):
        fill(cluster, numbered(5), queue=MessageQueue("orders", "broker-a", number))
    stream.run_until_idle()
    fewer = Stream(**chosen, queues='{"orders": {"broker-a": [0]}}')
    fewer.offsets, fewer.commits = stream.offsets, stream.commits
    with pytest.raises(DataLossError, match=r"orders@broker-a:1 was read up to offset 5, .* name it again"):
        fewer.trigger()


def test_a_batch_reads_every_message_with_all_its_columns(cluster: BlockingCluster) -> None:
    fill(cluster, numbered(500))
    rows = read_batch(**options(cluster, minPartitions="3"))
    assert sorted(row["body"] for row in rows) == numbered(500)
    row = next(row for row in rows if row["body"] == b"b00004")
    assert (row["topic"], row["tag"], row["keys"]) == ("orders", "even", ["k4"])
    assert dict(row["properties"])["n"] == "4"
    assert row["msgId"] == dict(row["properties"])["UNIQ_KEY"]
    assert row["storeTimestamp"] >= row["bornTimestamp"]
    assert (row["reconsumeTimes"], row["flag"], row["transactionId"], row["deliverTimestamp"]) == (
        0,
        0,
        None,
        None,
    )
    places = Counter((row["brokerName"], row["queueId"], row["queueOffset"]) for row in rows)
    assert len(places) == 500


def test_projection_by_columns_and_by_schema(cluster: BlockingCluster) -> None:
    fill(cluster, numbered(10))
    rows = read_batch(**options(cluster, columns="queueOffset, BODY", bodyAs="string"))
    assert [list(row) for row in rows[:1]] == [["queueOffset", "body"]]
    assert sorted(row["body"] for row in rows) == [body.decode() for body in numbered(10)]
    mine = StructType(
        [StructField("Body", StringType()), StructField("queueoffset", LongType(), nullable=False)]
    )
    assert sorted(row["Body"] for row in read_batch(mine, **options(cluster))) == [
        b.decode() for b in numbered(10)
    ]
    with pytest.raises(OptionError, match="'bodyy' is none of them"):
        read_batch(StructType([StructField("bodyy", BinaryType())]), **options(cluster))
    with pytest.raises(OptionError, match="queueId as int"):
        read_batch(StructType([StructField("queueId", LongType())]), **options(cluster))
    twice = StructType([StructField("body", BinaryType()), StructField("BODY", StringType())])
    with pytest.raises(OptionError, match=r"'schema' is 'BODY:string'.*each column once"):
        read_batch(twice, **options(cluster))
    with pytest.raises(OptionError, match="'nonsense' is none of them"):
        source(**options(cluster, columns="nonsense")).schema()
    assert len(read_batch(mine, **options(cluster, columns="queueOffset,body"))) == 10
    with pytest.raises(OptionError, match="'nonsense' is none of them"):
        read_batch(mine, **options(cluster, columns="nonsense"))
    with pytest.raises(OptionError, match=r"'columns' is 'tag'.*which are body, queueOffset; or one of both"):
        read_batch(mine, **options(cluster, columns="tag"))
    with pytest.raises(OptionError, match="each column once"):
        source(**options(cluster, columns="body,Body")).schema()


def test_the_columns_of_kafka(cluster: BlockingCluster) -> None:
    fill(cluster, numbered(40))
    rows = read_batch(**options(cluster, schemaMode="kafka", includeHeaders="true"))
    names = ["key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers"]
    assert list(rows[0]) == names
    row = next(row for row in rows if row["value"] == b"b00007")
    assert (row["key"], row["topic"], row["timestampType"]) == (b"k7", "orders", 1)
    assert {"key": "n", "value": b"7"} in row["headers"]
    assert len({(row["partition"], row["offset"]) for row in rows}) == 40
    assert "headers" not in read_batch(**options(cluster, schemaMode="kafka"))[0]


def test_partitions_are_named_as_a_kafka_notebook_does(cluster: BlockingCluster) -> None:
    create(cluster, "broker-a", "few", 2)
    for number in range(2):
        fill(cluster, numbered(20, f"{number}-"), "few", queue=MessageQueue("few", "broker-a", number))
    kafka = {"kafka.bootstrap.servers": cluster.nameserver, "schemaMode": "kafka"}
    rows = read_batch(**kafka, subscribe="few", startingOffsets='{"few": {"0": 5, "1": -2}}')
    assert sorted(row["value"] for row in rows) == numbered(20, "0-")[5:] + numbered(20, "1-")
    assert sorted(row["value"] for row in read_batch(**kafka, assign='{"few": [1]}')) == numbered(20, "1-")
    partition = next(row["partition"] for row in rows if row["value"].startswith(b"1-"))
    exact = read_batch(**kafka, assign=json.dumps({"few": [partition]}))
    assert sorted(row["value"] for row in exact) == numbered(20, "1-")
    with pytest.raises(
        OptionError, match=r"'assign' is 'few 7'.*partitions that there are: \d+ \(few@broker-a:0\)"
    ):
        read_batch(**kafka, assign='{"few": [7]}')
    with pytest.raises(
        OptionError, match=r"'startingOffsets' is 'orders 0'.*orders@broker-a:0.*orders@broker-b:0"
    ):
        read_batch(**kafka, subscribe="orders", startingOffsets='{"orders": {"0": 5}}')


def test_filters_are_the_brokers_work(cluster: BlockingCluster) -> None:
    fill(cluster, numbered(200))
    assert len(read_batch(**options(cluster, tag="even"))) == 100
    assert len(read_batch(**options(cluster, tag="even || odd"))) == 200
    assert len(read_batch(**options(cluster, tag="nobody"))) == 0
    assert len(read_batch(**options(cluster, sql="n < 20"))) == 20


def test_ranges_of_a_batch(cluster: BlockingCluster) -> None:
    queue = MessageQueue("orders", "broker-a", 1)
    fill(cluster, numbered(100), queue=queue)
    place = '{"orders": {"broker-a": {"1": %d}}}'
    chosen = {**options(cluster), "topic": "", "queues": '{"orders": {"broker-a": [1]}}'}
    end = len(read_batch(**chosen))
    rows = read_batch(**chosen, startingOffsets=place % (end - 30), endingOffsets=place % (end - 10))
    assert [row["body"] for row in rows] == numbered(100)[70:90]
    with pytest.raises(DataLossError, match=f"ends at {end}"):
        read_batch(**chosen, endingOffsets=place % (end + 1))
    assert len(read_batch(**chosen, endingOffsets=place % (end + 1), failOnDataLoss="warn")) == end
    assert read_batch(**chosen, startingOffsets=place % end) == []
    with pytest.raises(DataLossError, match=f"offsets from {end + 5} on .* ends at {end}"):
        read_batch(**chosen, startingOffsets=place % (end + 5))
    beyond = {**chosen, "startingOffsets": place % (end + 5)}
    assert read_batch(**beyond, failOnDataLoss="warn") == []
    assert len(read_batch(**beyond, failOnDataLoss="earliest")) == end
    assert len(read_batch(**beyond, failOnDataLoss="earliest", endingOffsets=place % 10)) == 10
    with pytest.raises(OptionError, match="queues that the topic has"):
        read_batch(**{**chosen, "queues": '{"orders": {"broker-a": [9]}}'})


def test_times_are_found_exactly(cluster: BlockingCluster) -> None:
    fill(cluster, numbered(60))
    rows = read_batch(**options(cluster, columns="body,storeTimestamp"))
    times = sorted(int(row["storeTimestamp"].timestamp() * 1000 + 0.5) for row in rows)
    for at_ms in {times[0] - 5, times[0], times[30], times[-1], times[-1] + 1, times[-1] + 60_000}:
        later = sum(time_ms >= at_ms for time_ms in times)
        assert len(read_batch(**options(cluster, startingTimestamp=str(at_ms)))) == later
        assert len(read_batch(**options(cluster, endingTimestamp=str(at_ms)))) == 60 - later
    with pytest.raises(OptionError, match=r"TimestampStrategy.*an earlier time"):
        read_batch(
            **options(
                cluster, startingTimestamp=str(times[-1] + 9), startingOffsetsByTimestampStrategy="error"
            )
        )
    assert len(read_batch(**options(cluster, startingTimestamp="-1h"))) == 60


def test_times_of_single_queues_name_queues_that_there_are(cluster: BlockingCluster) -> None:
    queues = [MessageQueue("orders", "broker-a", number) for number in range(3)]
    for queue in queues:
        fill(cluster, numbered(10, f"{queue.queue_id}-"), queue=queue)
    in_an_hour = int(time.time() * 1000) + 3_600_000
    places = {"orders": {"broker-a": {"0": -2, "1": -1, "2": in_an_hour}}}
    rows = read_batch(**options(cluster, startingOffsetsByTimestamp=json.dumps(places)))
    assert sorted(row["body"] for row in rows) == numbered(10, "0-")
    unknown = json.dumps({"orders": {"broker-a": {"9": 0}, "broker-z": {"0": 0}}})
    for option in ("startingOffsetsByTimestamp", "endingOffsetsByTimestamp"):
        refusal = rf"'{option}' is 'orders@broker-a:9'.*queues that there are: orders@broker-a:0"
        with pytest.raises(OptionError, match=refusal):
            source(**options(cluster, **{option: unknown})).reader(
                source(**options(cluster)).schema()
            ).partitions()
        with pytest.raises(OptionError, match=refusal):
            Stream(**options(cluster, **{option: unknown})).trigger()


def test_a_stream_ends_at_the_latest_where_a_queue_is_to_end_so(cluster: BlockingCluster) -> None:
    queue = MessageQueue("orders", "broker-a", 0)
    fill(cluster, numbered(10), queue=queue)
    ends = '{"orders": {"broker-a": {"0": -1}}}'
    stream = Stream(**options(cluster, startingOffsets="earliest", endingOffsetsByTimestamp=ends))
    stream.run_until_idle()
    fill(cluster, numbered(10, "later"), queue=queue)
    stream.run_until_idle()
    assert stream.bodies() == numbered(10)


def test_topics_by_pattern_and_topics_that_are_not_there(cluster: BlockingCluster) -> None:
    fill(cluster, numbered(5), "orders-eu")
    fill(cluster, numbered(7), "orders-us")
    fill(cluster, numbered(9), "payments")
    chosen = {**options(cluster), "topic": ""}
    assert len(read_batch(**chosen, topicPattern="orders-.*")) == 12
    assert len(read_batch(**{**chosen, "topic": "orders-eu, payments"})) == 14
    with pytest.raises(OptionError, match=r"'topic' is 'nobody'.*a topic that exists"):
        read_batch(**{**chosen, "topic": "nobody"})
    assert read_batch(**chosen, topicPattern="nobody.*") == []


def test_nobody_at_the_name_servers_address_is_an_error_in_time(cluster: BlockingCluster) -> None:
    dead = {
        **options(cluster, requestTimeoutMs="200", numRetries="1", retryIntervalMs="10"),
        "nameserver": "127.0.0.1:1",
    }
    with pytest.raises(TrimtabError, match=r"127\.0\.0\.1:1"):
        read_batch(**dead)
    cluster.pause("nameserver")
    hung = options(cluster, requestTimeoutMs="300", numRetries="1", retryIntervalMs="10")
    with pytest.raises(TrimtabError, match="no name server answered"):
        read_batch(**hung)
    cluster.resume("nameserver")


def test_a_stream_reads_everything_once_through_crashes(cluster: BlockingCluster) -> None:
    fill(cluster, numbered(300))
    stream = Stream(**options(cluster, startingOffsets="earliest", maxOffsetsPerTrigger="100"))
    stream.trigger(dies=True)
    stream.trigger()
    fill(cluster, numbered(50, "c"))
    stream.trigger(dies=True)
    stream.run_until_idle()
    stream.start()
    stream.run_until_idle()
    assert stream.bodies() == numbered(300) + numbered(50, "c")


def test_latest_loses_nothing_when_the_first_batch_is_run_again(cluster: BlockingCluster) -> None:
    fill(cluster, numbered(10))
    stream = Stream(**options(cluster))
    stream.reader.initialOffset()
    fill(cluster, numbered(20, "c"))
    stream.trigger(dies=True)
    fill(cluster, numbered(30, "d"))
    stream.run_until_idle()
    assert stream.bodies() == numbered(20, "c") + numbered(30, "d")


def test_available_now_ends_and_commits_all_it_read(cluster: BlockingCluster) -> None:
    fill(cluster, numbered(100))
    stream = Stream(
        **options(
            cluster,
            startingOffsets="earliest",
            group="spark-group",
            maxOffsetsPerTrigger="40",
            minOffsetsPerTrigger="30",
        )
    )
    stream.start(available_now=True)
    assert stream.trigger()
    fill(cluster, numbered(100, "late"))
    stream.run_until_idle()
    assert stream.bodies() == numbered(100)
    committed = 0
    for broker in cluster.brokers:
        for queue_id in range(4):
            header = QueryConsumerOffset(consumer_group="spark-group", topic="orders", queue_id=queue_id)
            committed += decode_ext(
                OffsetResponse, ask(cluster, broker, RequestCode.QUERY_CONSUMER_OFFSET, header).ext
            ).offset
    assert committed == 100
    resumed = Stream(**options(cluster, startingOffsets="group", group="spark-group"))
    resumed.run_until_idle()
    assert resumed.bodies() == numbered(100, "late")


def test_a_trigger_that_runs_once_has_no_limit(cluster: BlockingCluster) -> None:
    fill(cluster, numbered(90))
    stream = Stream(**options(cluster, startingOffsets="earliest", maxOffsetsPerTrigger="10"))
    assert stream.trigger(once=True) == 90


def test_limits_by_offsets_and_by_bytes(cluster: BlockingCluster) -> None:
    fill(cluster, [body * 200 for body in numbered(80)])
    stream = Stream(**options(cluster, startingOffsets="earliest", maxOffsetsPerTrigger="16"))
    assert 8 <= stream.trigger() <= 16
    stream = Stream(**options(cluster, startingOffsets="earliest", maxBytesPerTrigger="30k"))
    first = stream.trigger()
    assert 8 <= first < 40, "messages of 1,200 bytes and more"
    reported = stream.reader.reportLatestOffset()
    assert reported is not None
    assert reported["since"], "how long what was left waits"
    stream.run_until_idle()
    assert len(stream.rows) == 80


def test_messages_that_grow_do_not_burst_the_limit_of_bytes(cluster: BlockingCluster) -> None:
    queue = MessageQueue("orders", "broker-a", 0)
    fill(cluster, numbered(100), queue=queue)
    fill(cluster, [body * 2_000 for body in numbered(100, "large-")], queue=queue)
    stream = Stream(**options(cluster, startingOffsets="earliest", maxBytesPerTrigger="300k"))
    biggest = 0
    while len(stream.rows) < 200:
        before = len(stream.rows)
        assert stream.trigger()
        biggest = max(biggest, sum(len(row["body"]) for row in stream.rows[before:]))
    assert biggest <= 600_000, "sizes are samples, and none is off by more than that"


def test_a_stream_may_have_an_end(cluster: BlockingCluster) -> None:
    queue = MessageQueue("orders", "broker-b", 2)
    fill(cluster, numbered(50), queue=queue)
    place = {"orders": {"broker-b": {"2": 20}}}
    chosen = {**options(cluster), "topic": "", "queues": '{"orders": {"broker-b": [2]}}'}
    stream = Stream(**chosen, startingOffsets="earliest", endingOffsets=json.dumps(place))
    stream.run_until_idle()
    assert len(stream.rows) == 20


def test_an_end_in_the_future_is_not_the_end_of_today(cluster: BlockingCluster) -> None:
    fill(cluster, numbered(20))
    ends_ms = int(time.time() * 1000) + 3_600_000
    stream = Stream(**options(cluster, startingOffsets="earliest", endingTimestamp=str(ends_ms)))
    stream.run_until_idle()
    assert stream.bodies() == numbered(20)
    fill(cluster, numbered(10, "c"))
    create(cluster, "broker-a", "orders", 5)
    fill(cluster, numbered(10, "d"), queue=MessageQueue("orders", "broker-a", 4))
    until(lambda: stream.trigger() >= 0 and len(stream.rows) == 40)
    assert stream.bodies() == numbered(20) + numbered(10, "c") + numbered(10, "d")


def test_a_time_is_the_end_of_a_stream_once_messages_have_reached_it(cluster: BlockingCluster) -> None:
    queue = MessageQueue("orders", "broker-a", 1)
    fill(cluster, numbered(20), queue=queue)
    rows = read_batch(**options(cluster, columns="body,storeTimestamp"))
    ends_ms = int(max(row["storeTimestamp"] for row in rows).timestamp() * 1000 + 0.5) + 1
    stream = Stream(**options(cluster, startingOffsets="earliest", endingTimestamp=str(ends_ms)))
    stream.run_until_idle()
    assert stream.bodies() == numbered(20)
    until(lambda: int(time.time() * 1000) > ends_ms)
    for word in ("c", "d"):
        fill(cluster, numbered(10, word), queue=queue)
        stream.run_until_idle()
    assert stream.bodies() == numbered(20)


def test_queues_that_are_added_are_read_from_their_beginning(cluster: BlockingCluster) -> None:
    create(cluster, "broker-a", "few", 2)
    fill(cluster, numbered(10), "few")
    stream = Stream(**options(cluster, topic="few", startingOffsets="earliest"))
    stream.run_until_idle()
    create(cluster, "broker-a", "few", 4)
    fill(cluster, numbered(10, "c"), "few", queue=MessageQueue("few", "broker-a", 3))
    create(cluster, "broker-b", "few", 1)
    fill(cluster, numbered(10, "d"), "few", queue=MessageQueue("few", "broker-b", 0))
    until(lambda: bool(stream.trigger(dies=True) or stream.trigger()) and len(stream.rows) == 30)
    assert stream.bodies() == numbered(10) + numbered(10, "c") + numbered(10, "d")


def test_a_broker_that_is_away_is_waited_for(cluster: BlockingCluster) -> None:
    fill(cluster, numbered(80))
    chosen = options(cluster, startingOffsets="earliest", requestTimeoutMs="500", numRetries="0")
    stream = Stream(**chosen)
    stream.run_until_idle()
    cluster.kill("broker-b")
    for queue_id in range(4):
        fill(cluster, numbered(5, "c"), queue=MessageQueue("orders", "broker-a", queue_id))
    stream.run_until_idle()
    assert len(stream.rows) == 100
    cluster.restart("broker-b")
    fill(cluster, numbered(5, "d"), queue=MessageQueue("orders", "broker-b", 0))
    until(lambda: bool(stream.trigger()) or len(stream.rows) == 105)
    assert len(stream.rows) == 105


def test_a_topic_that_was_removed_is_told_apart_from_a_broker_that_is_away(cluster: BlockingCluster) -> None:
    create(cluster, "broker-a", "few", 2)
    fill(cluster, numbered(20), "few")
    stream = Stream(**options(cluster, topic="few", startingOffsets="earliest"))
    stream.run_until_idle()
    ask(cluster, "broker-a", RequestCode.DELETE_TOPIC_IN_BROKER, TopicOnly(topic="few"))
    from trimtab.io.connection import PeerConnection
    from trimtab.wire.headers.names import DeleteTopicInNames

    async def forget() -> None:
        connection = await PeerConnection.open(cluster.nameserver)
        header = DeleteTopicInNames(topic="few")
        command = Command(
            code=RequestCode.DELETE_TOPIC_IN_NAMESRV, opaque=connection.next_opaque(), ext=encode_ext(header)
        )
        await connection.ask(command, timeout_s=30)
        connection.close()

    asyncio.run(forget())
    with pytest.raises(DataLossError, match="no such queue any more"):
        until(lambda: bool(stream.trigger()))
    # Made anew: the old numbers mean nothing.
    create(cluster, "broker-a", "few", 2)
    fill(cluster, numbered(3, "c"), "few", queue=MessageQueue("few", "broker-a", 0))
    tolerant = Stream(**{**stream.options, "failOnDataLoss": "earliest"})
    tolerant.offsets, tolerant.commits = stream.offsets, stream.commits
    tolerant.run_until_idle()
    assert tolerant.bodies() == numbered(3, "c")


def test_messages_that_vanish_between_planning_and_reading(cluster: BlockingCluster) -> None:
    fill(cluster, numbered(40))
    chosen = options(cluster, startingOffsets="earliest")
    moved = Command(
        code=ResponseCode.PULL_OFFSET_MOVED, opaque=0, remark="gone",
        ext={"suggestWhichBrokerId": "0", "nextBeginOffset": "5", "minOffset": "5", "maxOffset": "5"},
    )  # fmt: skip
    stop = cluster.intercept(RequestCode.PULL_MESSAGE, lambda _request: moved, server="broker-a")
    with pytest.raises(DataLossError, match="5 messages were removed before they were read"):
        Stream(**chosen).trigger()
    warned = Stream(**chosen, failOnDataLoss="warn")
    assert warned.trigger() == 20
    stop()


def test_what_was_read_before_messages_vanished_is_kept(cluster: BlockingCluster) -> None:
    queue = MessageQueue("orders", "broker-a", 1)
    filler = random.Random(1).randbytes(8_000)  # nothing that can be compressed
    bodies = [body + filler for body in numbered(600)]
    fill(cluster, bodies, queue=queue)
    gone, kept = 400, 500

    def moved(request: Command) -> Command | None:
        """Retention takes the messages before 500 when some of the first 400 were given out."""
        if not 0 < int(request.ext["queueOffset"]) < kept:
            return None
        return Command(
            code=ResponseCode.PULL_OFFSET_MOVED, opaque=0, remark="gone",
            ext={"suggestWhichBrokerId": "0", "nextBeginOffset": str(kept), "minOffset": str(kept), "maxOffset": "600"},
        )  # fmt: skip

    stop = cluster.intercept(RequestCode.PULL_MESSAGE, moved)
    for word in ("warn", "earliest"):
        stream = Stream(**options(cluster, startingOffsets="earliest", failOnDataLoss=word))
        stream.trigger()
        found = stream.bodies()
        before = [body for body in found if body < bodies[gone]]
        assert before, "what the first pull gave"
        assert before == bodies[: len(before)]
        assert found[len(before) :] == bodies[kept:]
    stop()


def test_a_broker_that_contradicts_itself_is_no_reason_to_pass_messages_over(
    cluster: BlockingCluster,
) -> None:
    fill(cluster, numbered(40), queue=MessageQueue("orders", "broker-a", 1))
    moved = Command(
        code=ResponseCode.PULL_OFFSET_MOVED, opaque=0, remark="gone",
        ext={"suggestWhichBrokerId": "0", "nextBeginOffset": "0", "minOffset": "0", "maxOffset": "40"},
    )  # fmt: skip
    stop = cluster.intercept(RequestCode.PULL_MESSAGE, lambda _request: moved)
    with pytest.raises(TrimtabError, match="offset 0 is not there, the broker has 0 to 40"):
        Stream(**options(cluster, startingOffsets="earliest", failOnDataLoss="warn")).trigger()
    stop()


def test_what_a_worker_gets_holds_no_secret_in_its_representation(cluster: BlockingCluster) -> None:
    reader = source(**options(cluster, accessKey="me", secretKey="hunter2")).streamReader(
        source(**options(cluster)).schema()
    )
    reader.getDefaultReadLimit()
    assert "hunter2" not in repr(reader) + repr(reader._parsed)
