"""Options of the source and the sink: every bad one is refused with its name, its value and what is allowed."""

import pytest

from trimtab.model import MessageQueue
from trimtab.spark.options import Filter, SourceOptions, sink_options, source_options
from trimtab.spark.positions import EARLIEST, LATEST, Position
from trimtab.spark.problems import OptionError

NOW_MS = 1_763_294_400_000
BASE = {"nameserver": "127.0.0.1:9876", "topic": "t"}
ENV = {"MY_SECRET": "s3cret"}
FILES = {"/keys/secret": "from a file\n", "/keys/ca.pem": "-----BEGIN CERTIFICATE-----\n…"}


def read(*, is_stream: bool = True, base: dict[str, str] = BASE, **more: str) -> SourceOptions:
    return read_from({**base, **more}, is_stream=is_stream)


def read_from(given: dict[str, str], *, is_stream: bool = True) -> SourceOptions:
    return source_options(given, is_stream=is_stream, now_ms=NOW_MS, env=ENV.get, content=FILES.get)


def test_a_stream_begins_at_the_end_and_a_batch_at_the_beginning() -> None:
    assert read().start == Position("latest", others=LATEST)
    assert read(is_stream=False).start == Position("earliest", others=EARLIEST)
    assert read().end is None
    assert read(is_stream=False).end == Position("latest")


def test_names_may_be_written_in_any_case_and_by_their_other_names() -> None:
    options = source_options(
        {"NAMESRVADDR": "h:1;i:2", "Subscribe": "a, b"},
        is_stream=True,
        now_ms=0,
        env=ENV.get,
        content=FILES.get,
    )
    assert (options.access.nameserver, options.choice.topics) == ("h:1;i:2", ("a", "b"))


def test_the_name_server_may_stand_in_the_environment() -> None:
    env = {"NAMESRV_ADDR": "h:1"}.get
    assert (
        source_options({"topic": "t"}, is_stream=True, now_ms=0, env=env, content=env).access.nameserver
        == "h:1"
    )


@pytest.mark.parametrize(
    ("text", "at_ms"),
    [
        ("1763290000000", 1_763_290_000_000),
        ("-2h", NOW_MS - 7_200_000),
        ("-90s", NOW_MS - 90_000),
        ("-30 minutes", NOW_MS - 1_800_000),
        ("-7d", NOW_MS - 604_800_000),
        ("2026-01-01T00:00:00Z", 1_767_225_600_000),
        ("2026-01-01T01:00:00+01:00", 1_767_225_600_000),
        ("2026-01-01", 1_767_225_600_000),
        ("2026-01-01 00:00:00.250", 1_767_225_600_250),
    ],
)
def test_times_are_epochs_iso_texts_or_spans(text: str, at_ms: int) -> None:
    assert read(startingTimestamp=text).start == Position("time", at_ms=at_ms)
    assert read(is_stream=False, endingTimestamp=text).end == Position("time", at_ms=at_ms)


def test_offsets_of_single_queues() -> None:
    options = read(startingOffsets='{"t": {"broker-a": {"0": 23, "1": -2, "2": -1}}}')
    assert options.start == Position(
        "offsets",
        queues={
            MessageQueue("t", "broker-a", 0): 23,
            MessageQueue("t", "broker-a", 1): EARLIEST,
            MessageQueue("t", "broker-a", 2): LATEST,
        },
        others=LATEST,
    )


def test_limits() -> None:
    options = read(
        maxOffsetsPerTrigger="10", minOffsetsPerTrigger="5", maxTriggerDelay="2 minutes", maxBytesPerTrigger="64m",
        minPartitions="2", maxPartitions="8", maxRecordsPerPartition="100",
    )  # fmt: skip
    assert (options.trigger.offsets_max, options.trigger.offsets_min) == (10, 5)
    assert (options.trigger.delay_ms_max, options.trigger.bytes_max) == (120_000, 64 << 20)
    assert (options.tasks.partitions_min, options.tasks.partitions_max, options.tasks.records_max) == (
        2,
        8,
        100,
    )


def test_how_queues_are_cut_and_how_long_a_pull_may_take() -> None:
    assert (read().tasks.splits_queues, read().pull_ms) == (True, 30_000)
    options = read(splitQueues="false", pullTimeoutMs="5s")
    assert (options.tasks.splits_queues, options.pull_ms) == (False, 5_000)


def test_single_queues_may_end_at_times() -> None:
    options = read(is_stream=False, endingOffsetsByTimestamp='{"t": {"broker-a": {"0": 1763290000000}}}')
    assert options.end is not None
    assert options.end.kind == "times"
    assert options.end.queues == {MessageQueue("t", "broker-a", 0): 1_763_290_000_000}


def test_kafkas_words_for_latest_and_earliest_are_no_times() -> None:
    text = '{"t": {"broker-a": {"0": -2, "1": -1, "2": "-2h", "3": "-1"}}}'
    start = read(startingOffsetsByTimestamp=text).start
    assert start.queues is not None
    assert [start.queues[MessageQueue("t", "broker-a", at)] for at in range(4)] == [
        EARLIEST, LATEST, NOW_MS - 7_200_000, LATEST,
    ]  # fmt: skip
    end = read(endingOffsetsByTimestamp='{"t": {"broker-a": {"0": -1}}}').end
    assert end is not None
    assert end.queues == {MessageQueue("t", "broker-a", 0): LATEST}
    for long_ago in ("-9000w", "1969-12-31T23:59:59.999Z"):
        assert read(startingTimestamp=long_ago).start.at_ms == 0, "and not -1, which is latest"


def test_filters() -> None:
    assert read().filter == Filter("TAG", "*")
    assert read(tag="a || b").filter == Filter("TAG", "a || b")
    assert read(sql="n > 3").filter == Filter("SQL92", "n > 3")


@pytest.mark.parametrize(
    ("word", "policy"),
    [("true", "fail"), ("false", "warn"), ("fail", "fail"), ("WARN", "warn"), ("earliest", "earliest")],
)
def test_three_ways_with_lost_messages(word: str, policy: str) -> None:
    assert read(failOnDataLoss=word).loss == policy


def test_a_group_commits_in_streams_unless_told_otherwise() -> None:
    assert not read().commits
    assert read(group="g").commits
    assert not read(group="g", commitOffsets="false").commits
    assert not read(is_stream=False, group="g").commits
    with pytest.raises(OptionError, match=r"'commitOffsets' is 'true'.*only streams commit"):
        read(is_stream=False, group="g", commitOffsets="true")


def test_patterns_leave_out_what_belongs_to_brokers() -> None:
    choice = read(base={"nameserver": "h:1"}, topicPattern=".*").choice
    assert choice.wants_topic("orders")
    assert not choice.wants_topic("%RETRY%billing")
    assert not choice.wants_topic("RMQ_SYS_TRACE_TOPIC")
    assert read(base={"nameserver": "h:1"}, subscribePattern=".*").choice == choice
    choice = read(base={"nameserver": "h:1"}, topicPattern="%DLQ%.*", includeSystemTopics="true").choice
    assert choice.wants_topic("%DLQ%billing")


def test_secrets_come_from_the_environment_or_files_and_show_nowhere() -> None:
    options = read(accessKey="me", secretKey="${env:MY_SECRET}")
    assert options.access.secret_key == "s3cret"
    options = read(accessKey="me", secretKeyFile="/keys/secret")
    assert options.access.secret_key == "from a file"
    assert read(accessKeyFile="/keys/secret", secretKey="s").access.access_key == "from a file"
    assert "from a file" not in repr(options)
    assert "'me'" not in repr(options)


BAD = [
    ({"topci": "x"}, "topci", "x", "did you mean 'topic'"),
    ({"topic": ""}, "topic", "", "exactly one of topic, topicPattern, queues and assign"),
    ({"topicPattern": "a.*"}, "topicPattern", "topic and topicPattern", "exactly one of"),
    ({"topic": "", "topicPattern": "a("}, "topicPattern", "a(", "a regular expression"),
    ({"topic": "", "queues": '{"t": [1]}'}, "queues", '{"t": [1]}', "queue id"),
    ({"startingOffsets": "sometime"}, "startingOffsets", "sometime", "earliest, latest, group, or JSON"),
    ({"startingOffsets": "{nonsense"}, "startingOffsets", "{nonsense", "this is not JSON"),
    ({"startingOffsets": '{"t": {"0": 5}}'}, "startingOffsets", '{"t": {"0": 5}}', "broker's name stands between"),
    ({"startingOffsets": '{"t": {"b": {"0": -3}}}'}, "startingOffsets", '{"t": {"b": {"0": -3}}}', "-2 for earliest"),
    ({"startingOffsets": '{"t": {"b": {"0": "x"}}}'}, "startingOffsets", '{"t": {"b": {"0": "x"}}}', "offset"),
    ({"startingOffsets": "group"}, "startingOffsets", "group", "together with the option group"),
    ({"startingTimestamp": "yesterday"}, "startingTimestamp", "yesterday", "ISO 8601"),
    ({"startingTimestamp": "-1"}, "startingTimestamp", "-1", "a span with its unit: -1ms, -1s, -1m, -1h; latest and earliest are no times"),
    ({"startingTimestamp": "-90"}, "startingTimestamp", "-90", "a span with its unit"),
    ({"startingTimestamp": "9" * 5_000}, "startingTimestamp", "9" * 5_000, "the year 9999"),
    ({"startingTimestamp": "253402300800000"}, "startingTimestamp", "253402300800000", "up to 253402300799999"),
    ({"endingOffsetsByTimestamp": '{"t": {"b": {"0": -2}}}'}, "endingOffsetsByTimestamp", '{"t": {"b": {"0": -2}}}', "nothing ends at earliest"),
    ({"startingOffsetsByTimestamp": '{"t": {"b": {"0": -3}}}'}, "startingOffsetsByTimestamp", "-3", "a span with its unit"),
    ({"requestTimeoutMs": "9" * 25}, "requestTimeoutMs", "9" * 25, "a length of time"),
    ({"outageTimeoutMs": "400d"}, "outageTimeoutMs", "400d", "a length of time up to 31622400000 ms, which is a year"),
    ({"tag": "||"}, "tag", "||", "a tag, several with || between them"),
    ({"tag": " || || "}, "tag", "|| ||", "or * for all messages"),
    ({"startingTimestamp": "-2 fortnights"}, "startingTimestamp", "-2 fortnights", "-2h"),
    ({"startingTimestamp": "-1h", "startingOffsets": "earliest"}, "startingTimestamp", "-1h", "nothing beside startingOffsets"),
    ({"endingOffsets": "earliest"}, "endingOffsets", "earliest", "latest, or JSON"),
    ({"endingOffsets": '{"t": {"b": {"0": -2}}}'}, "endingOffsets", '{"t": {"b": {"0": -2}}}', "nothing ends at earliest"),
    ({"maxOffsetsPerTrigger": "0"}, "maxOffsetsPerTrigger", "0", "a whole number of 1 or more"),
    ({"maxOffsetsPerTrigger": "many"}, "maxOffsetsPerTrigger", "many", "a whole number"),
    ({"maxOffsetsPerTrigger": "5", "minOffsetsPerTrigger": "6"}, "minOffsetsPerTrigger", "6", "at most maxOffsetsPerTrigger"),
    ({"maxBytesPerTrigger": "64 parsecs"}, "maxBytesPerTrigger", "64 parsecs", "64m"),
    ({"maxTriggerDelay": "soon"}, "maxTriggerDelay", "soon", "15 minutes"),
    ({"minPartitions": "4", "maxPartitions": "2"}, "minPartitions", "4", "at most maxPartitions"),
    ({"failOnDataLoss": "maybe"}, "failOnDataLoss", "maybe", "true, false, fail, warn, earliest"),
    ({"schemaMode": "pulsar"}, "schemaMode", "pulsar", "rocketmq, kafka"),
    ({"bodyAs": "json"}, "bodyAs", "json", "binary, string"),
    ({"tag": "a", "sql": "b > 1"}, "sql", "b > 1", "only one of tag and sql"),
    ({"commitOffsets": "true"}, "commitOffsets", "true", "together with the option group"),
    ({"accessKey": "me"}, "secretKey", "", "both accessKey and secretKey"),
    ({"accessKey": "me", "secretKey": "${env:NOT_SET}"}, "secretKey", "${env:NOT_SET}", "'NOT_SET' is not"),
    ({"accessKey": "me", "secretKeyFile": "/nowhere"}, "secretKeyFile", "/nowhere", "a file that this process can read"),
    ({"tls": "perhaps"}, "tls", "perhaps", "true, false"),
    ({"requestTimeoutMs": "0"}, "requestTimeoutMs", "0", "1 ms or more"),
    ({"numRetries": "-1"}, "numRetries", "-1", "0 or more"),
    ({"nameserver": "a:1", "namesrvAddr": "b:1"}, "namesrvAddr", "b:1", "the same as nameserver"),
    ({"nameserver": "localhost"}, "nameserver", "localhost", "host:port"),
    ({"nameserver": "h:1;h:99999"}, "nameserver", "h:1;h:99999", "host:port"),
    ({"nameserver": "http://h:80"}, "nameserver", "http://h:80", "host:port"),
    ({"sql": "n <"}, "sql", "n <", "a condition such as"),
    ({"topic": "a b c!"}, "topic", "a b c!", "the name of a topic: up to 127"),
    ({"topic": "x" * 128}, "topic", "x" * 128, "up to 127"),
    ({"subscribe": "other"}, "subscribe", "other", "the same as topic"),
    ({"group": "my group"}, "group", "my group", "the name of a group: up to 255"),
    ({"tag": "a\x01b"}, "tag", "a\x01b", "without control characters"),
    ({"securityToken": "hunter2"}, "securityToken", "***", "together with accessKey and secretKey"),
    ({"tls": "false", "tlsCaFile": "/keys/ca.pem"}, "tlsCaFile", "/keys/ca.pem", "tls, which is false"),
    ({"tlsCaFile": "/nowhere"}, "tlsCaFile", "/nowhere", "a PEM file that this process can read"),
    ({"tlsCaFile": "/keys/secret"}, "tlsCaFile", "/keys/secret", "with certificates in it"),
    ({"batchBytes": "1k"}, "batchBytes", "1k", "from 65536 to 268435456"),
    ({"batchBytes": "1g"}, "batchBytes", "1g", "from 65536 to 268435456"),
    ({"topic": "", "assign": '{"t": [0]}'}, "assign", '{"t": [0]}', "unless schemaMode is kafka"),
    ({"topic": "", "schemaMode": "kafka", "assign": '{"t": {"0": 1}}'}, "assign", '{"t": {"0": 1}}', "[partition, …]"),
    ({"kafka.session.timeout.ms": "1"}, "kafka.session.timeout.ms", "1", "kafka.bootstrap.servers"),
    ({"startingOffsetsByTimestampStrategy": "x"}, "startingOffsetsByTimestampStrategy", "x", "latest, error"),
]  # fmt: skip


@pytest.mark.parametrize(("more", "option", "value", "allowed"), BAD)
def test_a_bad_option_is_named_with_what_is_allowed(
    more: dict[str, str], option: str, value: str, allowed: str
) -> None:
    with pytest.raises(OptionError) as caught:
        read_from({**BASE, **more})
    assert (caught.value.option, caught.value.value) == (option, value)
    assert allowed in caught.value.allowed
    assert repr(option) in str(caught.value)


@pytest.mark.parametrize("option", ["maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxBytesPerTrigger"])
def test_limits_of_triggers_mean_nothing_in_a_batch(option: str) -> None:
    with pytest.raises(OptionError, match="belongs to readStream"):
        read_from({**BASE, option: "5"}, is_stream=False)


def test_a_batch_cannot_begin_at_the_end() -> None:
    with pytest.raises(OptionError, match="from latest on there is nothing"):
        read(is_stream=False, startingOffsets="latest")


def test_a_table_is_refused_because_spark_would_forget_its_options() -> None:
    as_spark_gives_them = {"owner": "me", "provider": "rocketmq", **BASE}
    assert read_from(as_spark_gives_them).choice == read().choice
    table = {**as_spark_gives_them, "option.secretkey": "hunter2"}
    with pytest.raises(OptionError, match=r"'option.secretkey' is '\*\*\*'.*CREATE TEMPORARY VIEW"):
        read_from(table)


def test_errors_do_not_show_secrets() -> None:
    with pytest.raises(OptionError) as caught:
        read(sercetKeyy="hunter2", accessKeyy="hunter3")
    assert "hunter" not in str(caught.value) or "sercet" in caught.value.option
    with pytest.raises(OptionError) as caught:
        read(secretKeyy="hunter2")
    assert "hunter" not in str(caught.value)


@pytest.mark.parametrize(
    ("more", "option", "allowed"),
    [
        ({"retries": "x"}, "retries", "0 or more"),
        ({"compression": "gzip"}, "compression", "zlib, lz4, zstd, none"),
        ({"sendTimeoutMs": "never"}, "sendTimeoutMs", "a length of time"),
        ({"batchBytes": "0"}, "batchBytes", "a number of bytes"),
        ({"batchBytes": "100"}, "batchBytes", "from 1024 to 4194304"),
        ({"batchBytes": "8m"}, "batchBytes", "from 1024 to 4194304"),
        ({"producerGroup": "a b"}, "producerGroup", "the name of a group"),
        ({"topic": "a b"}, "topic", "the name of a topic"),
        ({"tag": "a\nb"}, "tag", "without control characters"),
        ({"startingOffsets": "earliest"}, "startingoffsets", "producerGroup"),
        ({"stampReplays": "2"}, "stampReplays", "true, false"),
        ({"schemaMode": "pulsar"}, "schemaMode", "rocketmq, kafka"),
        ({"includeHeaders": "2"}, "includeHeaders", "true, false"),
        ({"createTopic": "yes"}, "createTopic", "a whole number of 1 or more"),
        ({"createTopic": "8", "topic": ""}, "createTopic", "together with the option topic"),
    ],
)
def test_bad_options_of_the_sink(more: dict[str, str], option: str, allowed: str) -> None:
    with pytest.raises(OptionError) as caught:
        sink_options({**BASE, **more}, env=ENV.get, content=FILES.get)
    assert caught.value.option == option
    assert allowed in caught.value.allowed


def test_a_kafka_notebooks_options_are_taken() -> None:
    options = read_from({
        "kafka.bootstrap.servers": "a:9092,b:9092", "subscribe": "t", "schemaMode": "kafka", "kafka.group.id": "g",
        "kafka.security.protocol": "SSL", "kafka.session.timeout.ms": "10000", "groupIdPrefix": "spark",
        "fetchOffset.numRetries": "5", "fetchOffset.retryIntervalMs": "50", "kafkaConsumer.pollTimeoutMs": "9000",
        "startingOffsets": '{"t": {"0": 5, "1": -2}}', "endingOffsets": "latest", "failOnDataLoss": "false", "minPartitions": "4",
    })  # fmt: skip
    assert options.access.nameserver == "a:9092;b:9092"
    assert (options.access.tls, options.access.retries, options.access.retry_ms) == (True, 5, 50)
    assert (options.group, options.commits, options.pull_ms) == ("g", False, 9_000)
    assert options.start.queues == {MessageQueue("t", "", 0): 5, MessageQueue("t", "", 1): EARLIEST}
    assigned = read_from({"kafka.bootstrap.servers": "a:1", "assign": '{"t": [0, 2]}', "schemaMode": "kafka"})
    assert assigned.choice.queues == frozenset({MessageQueue("t", "", 0), MessageQueue("t", "", 2)})
    sasl = {"kafka.bootstrap.servers": "a:1", "subscribe": "t", "kafka.sasl.jaas.config": "password=hunter2"}
    with pytest.raises(OptionError, match=r"kafka\.sasl\.jaas\.config") as caught:
        read_from(sasl)
    assert "hunter2" not in str(caught.value)
