"""The options of the source and the sink: read once, checked together, before anything is asked of a broker. PURE.

Relative times are resolved against the time that the caller gives. Secrets never appear in a representation.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from trimtab.broker.sql92_nodes import FilterSyntaxError
from trimtab.broker.sql92_parser import parse
from trimtab.model import MessageQueue
from trimtab.spark.access import CONNECTION_OPTIONS, Access, Lookup, access_options
from trimtab.spark.limits import TaskLimits, TriggerLimits
from trimtab.spark.losses import LossPolicy
from trimtab.spark.option_reading import OptionReader, refuse_name
from trimtab.spark.positions import (
    EARLIEST,
    LATEST,
    Position,
    Words,
    partition_list,
    position_of,
    queue_list,
    time_ms,
    times_of,
)
from trimtab.spark.problems import OptionError
from trimtab.wire.resources import GROUP_LENGTH_MAX, TOPIC_LENGTH_MAX

SchemaMode = Literal["rocketmq", "kafka"]
BodyAs = Literal["binary", "string"]

SOURCE_OPTIONS = (
    *CONNECTION_OPTIONS, "topic", "subscribe", "topicPattern", "subscribePattern", "queues", "includeSystemTopics",
    "startingOffsets", "startingTimestamp", "startingOffsetsByTimestamp", "startingOffsetsByTimestampStrategy",
    "endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp", "group", "commitOffsets", "tag", "sql",
    "maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay", "maxBytesPerTrigger", "minPartitions", "maxPartitions",
    "maxRecordsPerPartition", "splitQueues", "failOnDataLoss", "columns", "schemaMode", "includeHeaders", "bodyAs", "pullTimeoutMs",
    "batchBytes", "routeRefreshMs", "offsetRefreshMs", "outageTimeoutMs", "assign", "groupIdPrefix", "kafka.group.id",
    "fetchOffset.numRetries", "fetchOffset.retryIntervalMs", "kafkaConsumer.pollTimeoutMs",
)  # fmt: skip
SINK_OPTIONS = (
    *CONNECTION_OPTIONS, "topic", "createTopic", "producerGroup", "tag", "sendTimeoutMs", "retries", "maxInFlight", "batchBytes",
    "compression", "compressBodyOver", "stampReplays", "includeHeaders", "schemaMode",
)  # fmt: skip

_SYSTEM_TOPICS = re.compile(
    r"%RETRY%.*|%DLQ%.*|RMQ_SYS_.*|rmq_sys_.*|SCHEDULE_TOPIC_XXXX|TBW102|SELF_TEST_TOPIC|OFFSET_MOVED_EVENT"
    r"|BenchmarkTest|DefaultHeartBeatSyncerTopic|CHECKPOINT_TOPIC|.*_REPLY_TOPIC"
)


@dataclass(frozen=True, slots=True)
class Choice:
    """Which queues: of these topics, of topics that match, or exactly these."""

    topics: tuple[str, ...] = ()
    pattern: str | None = None
    queues: frozenset[MessageQueue] | None = None
    """A queue whose broker has no name is meant by its number alone: see `positions`."""
    with_system_topics: bool = False

    def wants_topic(self, topic: str) -> bool:
        """Whether a topic that a name server lists matches the pattern."""
        if self.pattern is None or (not self.with_system_topics and _SYSTEM_TOPICS.fullmatch(topic)):
            return False
        return re.fullmatch(self.pattern, topic) is not None


@dataclass(frozen=True, slots=True)
class Filter:
    """Which messages, as the broker is told."""

    kind: Literal["TAG", "SQL92"] = "TAG"
    expression: str = "*"


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """All that a query says about its source."""

    access: Access
    choice: Choice
    start: Position
    end: Position | None
    time_after_end: Literal["latest", "error"]
    group: str | None
    commits: bool
    filter: Filter
    trigger: TriggerLimits
    tasks: TaskLimits
    loss: LossPolicy
    columns: tuple[str, ...]
    schema_mode: SchemaMode
    with_headers: bool
    body_as: BodyAs
    pull_ms: int
    batch_bytes: int
    route_refresh_ms: int
    offset_refresh_ms: int
    outage_ms: int


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """All that a query says about its sink."""

    access: Access
    topic: str | None
    topic_queues: int | None
    """With how many queues at each broker the topic is made if it is not there; None: it is not made."""
    producer_group: str
    tag: str | None
    send_ms: int
    retries: int | None
    """None: as often as `send_ms` allows."""
    in_flight_max: int
    batch_bytes: int
    compression: str
    compress_from_bytes: int
    stamps: bool


def source_options(
    options: Mapping[str, str], *, is_stream: bool, now_ms: int, env: Lookup, content: Lookup
) -> SourceOptions:
    """Checks everything that can be checked without a broker."""
    reader = OptionReader(options, SOURCE_OPTIONS)
    group = reader.name("group", "kafka.group.id", what="group", length_max=GROUP_LENGTH_MAX)
    schema_mode = reader.choice("schemaMode", "rocketmq", _SCHEMA_MODES)
    names_brokers = schema_mode == "rocketmq"
    trigger = _trigger(reader, is_stream=is_stream)
    tasks = TaskLimits(
        reader.count("minPartitions"),
        reader.count("maxPartitions"),
        reader.count("maxRecordsPerPartition"),
        reader.flag("splitQueues", default=True),
    )
    if tasks.partitions_min and tasks.partitions_max and tasks.partitions_min > tasks.partitions_max:
        raise OptionError(
            "minPartitions",
            str(tasks.partitions_min),
            f"at most maxPartitions, which is {tasks.partitions_max}",
        )
    return SourceOptions(
        access=access_options(reader, env, content),
        choice=_choice(reader, names_brokers=names_brokers),
        start=_start(reader, is_stream=is_stream, now_ms=now_ms, group=group, names_brokers=names_brokers),
        end=_end(reader, is_stream=is_stream, now_ms=now_ms, names_brokers=names_brokers),
        time_after_end=reader.choice(
            "startingOffsetsByTimestampStrategy", "latest", {"latest": "latest", "error": "error"}
        ),
        group=group,
        commits=_commits(reader, group, is_stream=is_stream),
        filter=_filter(reader),
        trigger=trigger,
        tasks=tasks,
        loss=reader.choice("failOnDataLoss", "fail", _LOSS_WORDS),
        columns=reader.names("columns"),
        schema_mode=schema_mode,
        with_headers=reader.flag("includeHeaders", default=False),
        body_as=reader.choice("bodyAs", "binary", {"binary": "binary", "string": "string"}),
        pull_ms=reader.span_ms("pullTimeoutMs", 30_000, "kafkaConsumer.pollTimeoutMs"),
        batch_bytes=reader.size("batchBytes", 64 << 10, 256 << 20) or 4 << 20,
        route_refresh_ms=reader.span_ms("routeRefreshMs", 30_000),
        offset_refresh_ms=reader.span_ms("offsetRefreshMs", 200),
        outage_ms=reader.span_ms("outageTimeoutMs", 120_000),
    )


_SCHEMA_MODES: Mapping[str, SchemaMode] = {"rocketmq": "rocketmq", "kafka": "kafka"}
_LOSS_WORDS: Mapping[str, LossPolicy] = {
    "true": "fail",
    "false": "warn",
    "fail": "fail",
    "warn": "warn",
    "earliest": "earliest",
}


def sink_options(options: Mapping[str, str], *, env: Lookup, content: Lookup) -> SinkOptions:
    """Checks everything that can be checked without a broker and without the columns."""
    reader = OptionReader(options, SINK_OPTIONS)
    compress_from = reader.size("compressBodyOver")
    words = ("zlib", "lz4", "zstd", "none")
    # Columns say all that these two say to a source: notebooks give both the same options.
    reader.choice("schemaMode", "rocketmq", _SCHEMA_MODES)
    reader.flag("includeHeaders", default=False)
    topic = reader.name("topic", what="topic", length_max=TOPIC_LENGTH_MAX)
    topic_queues = reader.count("createTopic")
    if topic_queues is not None and topic is None:
        raise OptionError(
            "createTopic", str(topic_queues), "a number of queues together with the option topic"
        )
    return SinkOptions(
        access=access_options(reader, env, content),
        topic=topic,
        topic_queues=topic_queues,
        producer_group=reader.name("producerGroup", what="group", length_max=GROUP_LENGTH_MAX)
        or "trimtab-spark",
        tag=_printable(reader, "tag"),
        send_ms=reader.span_ms("sendTimeoutMs", 120_000),
        retries=reader.count("retries", least=0),
        in_flight_max=reader.count("maxInFlight") or 20_000,
        batch_bytes=reader.size("batchBytes", 1 << 10, 4 << 20) or 1 << 20,
        compression=reader.choice("compression", "none", {word: word for word in words}),
        compress_from_bytes=4_096 if compress_from is None else compress_from,
        stamps=reader.flag("stampReplays", default=True),
    )


def _printable(reader: OptionReader, name: str) -> str | None:
    text = reader.text(name)
    if text is not None and not text.isprintable():
        raise OptionError(name, text, "a text without control characters")
    return text


def _choice(reader: OptionReader, *, names_brokers: bool) -> Choice:
    topics = reader.names("topic", "subscribe")
    pattern = reader.text("topicPattern", "subscribePattern")
    queues, assigned = reader.text("queues"), reader.text("assign")
    ways = (("topic", topics), ("topicPattern", pattern), ("queues", queues), ("assign", assigned))
    given = [name for name, value in ways if value]
    if len(given) != 1:
        value = " and ".join(given)
        raise OptionError(
            given[1] if given else "topic", value, "exactly one of topic, topicPattern, queues and assign"
        )
    for topic in topics:
        refuse_name("topic", topic, "topic", TOPIC_LENGTH_MAX)
    if pattern is not None:
        try:
            re.compile(pattern)
        except re.error as error:
            raise OptionError(
                "topicPattern", pattern, f"a regular expression; this one is none: {error}"
            ) from None
    chosen = None if queues is None else queue_list("queues", queues)
    if assigned is not None:
        if names_brokers:
            raise OptionError("assign", assigned, "queues, unless schemaMode is kafka")
        chosen = partition_list("assign", assigned)
    return Choice(
        topics=topics if chosen is None else tuple(sorted({queue.topic for queue in chosen})),
        pattern=pattern,
        queues=chosen,
        with_system_topics=reader.flag("includeSystemTopics", default=False),
    )


def _start(
    reader: OptionReader, *, is_stream: bool, now_ms: int, group: str | None, names_brokers: bool
) -> Position:
    names = ("startingOffsets", "startingTimestamp", "startingOffsetsByTimestamp")
    _only_one(reader, names)
    others = LATEST if is_stream else EARLIEST
    if text := reader.text("startingTimestamp"):
        return Position("time", at_ms=time_ms("startingTimestamp", text, now_ms))
    if text := reader.text("startingOffsetsByTimestamp"):
        return times_of("startingOffsetsByTimestamp", text, now_ms, others, names_brokers=names_brokers)
    text = reader.text("startingOffsets") or ("latest" if is_stream else "earliest")
    words: tuple[Words, ...] = ("earliest", "latest", "group")
    if not is_stream and text.strip().lower() == "latest":
        raise OptionError(
            "startingOffsets", text, "earliest, group or JSON in a batch: from latest on there is nothing"
        )
    position = position_of("startingOffsets", text, words, others, names_brokers=names_brokers)
    if position.kind == "group" and group is None:
        raise OptionError("startingOffsets", text, "group only together with the option group")
    return position


def _end(reader: OptionReader, *, is_stream: bool, now_ms: int, names_brokers: bool) -> Position | None:
    _only_one(reader, ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp"))
    if text := reader.text("endingTimestamp"):
        return Position("time", at_ms=time_ms("endingTimestamp", text, now_ms))
    if text := reader.text("endingOffsetsByTimestamp"):
        position = times_of("endingOffsetsByTimestamp", text, now_ms, LATEST, names_brokers=names_brokers)
        if EARLIEST in (position.queues or {}).values():
            raise OptionError(
                "endingOffsetsByTimestamp", text, "times, or -1 for latest: nothing ends at earliest"
            )
        return position
    text = reader.text("endingOffsets")
    if text is None:
        return None if is_stream else Position("latest")
    position = position_of("endingOffsets", text, ("latest",), LATEST, names_brokers=names_brokers)
    if position.queues and EARLIEST in position.queues.values():
        raise OptionError("endingOffsets", text, "offsets, or -1 for latest: nothing ends at earliest")
    return None if is_stream and position.kind == "latest" else position


def _only_one(reader: OptionReader, names: tuple[str, ...]) -> None:
    given = [name for name in names if reader.text(name) is not None]
    if len(given) > 1:
        raise OptionError(given[1], reader.text(given[1]) or "", f"nothing beside {given[0]}")


def _commits(reader: OptionReader, group: str | None, *, is_stream: bool) -> bool:
    # Kafka's source has a group for its rights and commits nothing.
    commits = reader.flag("commitOffsets", default=reader.text("group") is not None and is_stream)
    if commits and not is_stream:
        raise OptionError("commitOffsets", "true", "false in a batch: only streams commit")
    if commits and group is None:
        raise OptionError("commitOffsets", "true", "true only together with the option group")
    return commits


def _filter(reader: OptionReader) -> Filter:
    tag, sql = _printable(reader, "tag"), reader.text("sql")
    if tag is not None and sql is not None:
        raise OptionError("sql", sql, "only one of tag and sql")
    if sql is not None:
        try:
            parse(sql)
        except FilterSyntaxError as error:
            raise OptionError(
                "sql", sql, f"a condition such as n > 3 AND region = 'eu'; here is {error}"
            ) from None
        return Filter("SQL92", sql)
    if tag is not None and not any(part.strip() for part in tag.split("||")):
        raise OptionError("tag", tag, "a tag, several with || between them, or * for all messages")
    return Filter("TAG", tag or "*")


_STREAM_ONLY = ("maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxBytesPerTrigger", "maxTriggerDelay")


def _trigger(reader: OptionReader, *, is_stream: bool) -> TriggerLimits:
    for name in _STREAM_ONLY:
        text = reader.text(name)
        if text is not None and not is_stream:
            raise OptionError(name, text, "nothing in a batch: it belongs to readStream")
    limits = TriggerLimits(
        offsets_max=reader.count("maxOffsetsPerTrigger"),
        bytes_max=reader.size("maxBytesPerTrigger"),
        offsets_min=reader.count("minOffsetsPerTrigger"),
        delay_ms_max=reader.span_ms("maxTriggerDelay", 15 * 60_000),
    )
    if limits.offsets_max and limits.offsets_min and limits.offsets_min > limits.offsets_max:
        raise OptionError(
            "minOffsetsPerTrigger",
            str(limits.offsets_min),
            f"at most maxOffsetsPerTrigger, which is {limits.offsets_max}",
        )
    return limits
