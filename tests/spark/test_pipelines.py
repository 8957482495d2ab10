"""Balance report and dead letters on real Spark."""

import asyncio
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException

from trimtab import blocking
from trimtab.errors import SettingsError
from trimtab.pipelines.balance import balance_report, latency, spans, twice
from trimtab.pipelines.compaction import compact
from trimtab.pipelines.letters import analysis, chosen, dead_letters, replay, retries
from trimtab.pipelines.samples import GROUP, TOPIC, fail_some, send_orders, trace_changes
from trimtab.pipelines.streams import archive, archived_hours, dedup, mirror
from trimtab.spark import drop_replays
from trimtab.testing import Cluster
from trimtab.wire.codes import RequestCode, ResponseCode
from trimtab.wire.commands import Command

pytestmark = pytest.mark.filterwarnings("default")  # pyspark has warnings of its own

WAIT_S = 300
_COLUMNS = (
    "`group` string, member string, topic string, broker string, queue int, offset long, message_id string, retries int,"
    " born_ms long, stored_ms long, began_ms long, ended_ms long"
)


def delivery(member: str, offset: int, at_ms: int, *, retries: int = 0) -> tuple[Any, ...]:
    return (
        "g",
        member,
        "orders",
        "broker-a",
        0,
        offset,
        f"m{offset}",
        retries,
        0,
        at_ms - 5,
        at_ms,
        at_ms + 10,
    )


def test_spans_tell_a_member_that_never_let_go_from_one_that_came_back(spark: Any) -> None:
    came_back = [
        *(delivery("a", at, at * 100) for at in range(5)),
        *(delivery("b", at, at * 100) for at in range(5, 10)),
        *(delivery("a", at, at * 100) for at in range(10, 15)),
    ]
    found = spans(spark.createDataFrame(came_back, _COLUMNS)).orderBy("from_ms").collect()
    assert [(row.member, row.from_ms, row.until_ms, row.messages) for row in found] == [
        ("a", 0, 410, 5),
        ("b", 500, 910, 5),
        ("a", 1_000, 1_410, 5),
    ]
    both = [
        delivery(member, at, at * 100 + shift) for at in range(10) for member, shift in (("a", 0), ("b", 50))
    ]
    delivered = spark.createDataFrame([*both, delivery("a", 3, 5_000, retries=1)], _COLUMNS)
    found = spans(delivered).orderBy("from_ms").collect()
    assert [(row.member, row.from_ms, row.until_ms) for row in found] == [("a", 0, 910), ("b", 50, 960)]
    assert [(row.times, row.members) for row in twice(delivered).collect()] == [(2, ["a", "b"])] * 10
    waits = {row.what: (row.messages, row.p50, row.max) for row in latency(delivered).collect()}
    assert waits["queueing"] == (20, 5, 5)
    assert waits["handling"] == (20, 10, 10)


def test_a_balance_report_of_a_group_that_changes(spark: Any, tmp_path: Path) -> None:
    with Cluster(brokers=2) as cluster:
        sent = asyncio.run(trace_changes(cluster.nameserver, per_second=100, step_s=0.5))
        report = balance_report(spark, tmp_path, options={"nameserver": cluster.nameserver})
    [facts] = report.groups
    delivered = spark.read.parquet(str(tmp_path / "deliveries.parquet"))
    assert facts.group == GROUP
    assert delivered.where("queue IS NULL").isEmpty()
    assert delivered.select("message_id").distinct().count() == sent
    again = [row.times for row in spark.read.parquet(str(tmp_path / "twice.parquet")).collect()]
    assert (facts.deliveries, facts.twice) == (sent + sum(times - 1 for times in again), len(again))
    assert facts.members >= 2
    assert facts.moves == len(report.moves) > 0
    assert report.recorded == ()
    assert "Inferred from deliveries" in report.page.read_text(encoding="utf-8")
    assert {row["what"] for row in report.latency} == {"queueing", "handling", "end to end"}
    assert "<svg" in report.page.read_text(encoding="utf-8")


def test_a_balance_report_takes_holders_from_flight_recorders_where_members_publish_them(
    spark: Any, tmp_path: Path
) -> None:
    with Cluster(brokers=2) as cluster:
        asyncio.run(
            trace_changes(cluster.nameserver, per_second=100, step_s=0.5, record_to="trimtab-flights")
        )
        report = balance_report(spark, tmp_path, options={"nameserver": cluster.nameserver})
    assert report.recorded == (GROUP,)
    flights = spark.read.parquet(str(tmp_path / "flights.parquet"))
    kinds = {row.kind for row in flights.select("kind").distinct().collect()}
    assert {"joined", "left", "acquired", "dropped"} <= kinds
    members = {row.client_id for row in flights.select("client_id").distinct().collect()}
    assert len(members) >= 4  # one that joins late may have the id of one that left
    assert {name for move in report.moves for name in (move.before, move.after)} <= members
    assert report.groups[0].moves == len(report.moves) > 0
    page = report.page.read_text(encoding="utf-8")
    assert (
        "what the members&#x27; flight recorders say" in page
        or "what the members' flight recorders say" in page
    )
    assert "Rebalances and their causes" in page


def test_dead_letters_have_causes_and_go_to_their_topic_again(spark: Any) -> None:
    with Cluster() as cluster:
        dead = asyncio.run(fail_some(cluster.nameserver, 20))
        options = {"nameserver": cluster.nameserver}
        letters = dead_letters(spark, GROUP, options=options)
        counted = {(row.origin, row.cause, row.tag): row.messages for row in analysis(letters).collect()}
        assert set(counted) == {(TOPIC, "EXCEPTION", "eu"), (TOPIC, "FAILED", "us")}
        assert sum(counted.values()) == dead
        orders = spark.read.format("rocketmq").options(**options, topic=TOPIC)
        before = orders.load().count()
        again = replay(chosen(letters, "cause = 'FAILED'"), options=options)
        after = orders.load()
        assert again == counted[TOPIC, "FAILED", "us"]
        assert after.count() == before + again
        assert after.where("tag = 'us'").count() == 2 * again
        with pytest.raises(Exception, match="cannot be chosen by 'colour = 1'"):
            chosen(letters, "colour = 1")


def test_dead_letters_are_read_where_nobody_was_ever_traced(
    spark: Any, caplog: pytest.LogCaptureFixture
) -> None:
    with Cluster() as cluster:
        unknown = Command(code=ResponseCode.TOPIC_NOT_EXIST, opaque=0, remark="No topic route info")
        traced = {"topic": "RMQ_SYS_TRACE_TOPIC"}
        cluster.intercept(
            RequestCode.GET_ROUTEINFO_BY_TOPIC,
            lambda request: unknown if traced.items() <= request.ext.items() else None,
        )
        asyncio.run(send_orders(cluster.nameserver, 5, topic=f"%DLQ%{GROUP}"))
        letters = dead_letters(spark, GROUP, options={"nameserver": cluster.nameserver})
        assert {(row.cause, row.state) for row in analysis(letters).collect()} == {("not traced", "dead")}
        assert "there is no topic RMQ_SYS_TRACE_TOPIC: causes are not known" in caplog.text


def test_a_group_that_never_failed_has_no_letters(
    spark: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with Cluster() as cluster:
        asyncio.run(send_orders(cluster.nameserver, 1))
        options = {"nameserver": cluster.nameserver}
        for letters in (
            dead_letters(spark, "healthy", options=options),
            retries(spark, "healthy", options=options),
        ):
            analysis(chosen(letters, "cause = 'FAILED'")).write.parquet(str(tmp_path), mode="overwrite")
            assert spark.read.parquet(str(tmp_path)).count() == 0
        assert "there is no topic %DLQ%healthy: nothing was ever put there" in caplog.text
        assert replay(dead_letters(spark, "healthy", options=options), options=options) == 0


def test_a_letter_goes_to_the_queue_of_its_key_again(spark: Any) -> None:
    kinds = "msgId string, body string, origin string, tag string, keys array<string>, properties map<string,string>, flag int"
    with Cluster() as cluster:
        asyncio.run(send_orders(cluster.nameserver, 1))
        rows = [
            (f"m{at}", f"again {at}", TOPIC, None, None, {"__SHARDINGKEY": "user-7"}, 0) for at in range(6)
        ]
        rows.append(("m6", "again 6", TOPIC, None, None, {"n": "6"}, 0))
        options = {"nameserver": cluster.nameserver}
        assert replay(spark.createDataFrame(rows, kinds), options=options) == 7
        found = (
            spark.read.format("rocketmq").options(**options, topic=TOPIC).load().where("body LIKE 'again%'")
        )
        places = {(row.properties.get("__SHARDINGKEY"), row.queueId) for row in found.collect()}
        assert len([key for key, _ in places if key == "user-7"]) == 1
        assert {key for key, _ in places} == {"user-7", None}


def test_an_empty_topic_is_archived_and_another_source_is_refused_its_checkpoint(
    spark: Any, tmp_path: Path
) -> None:
    folder = str(tmp_path / "archive")
    with Cluster() as cluster, blocking.Admin(nameserver=cluster.nameserver) as admin:
        for topic in ("empty", "bills"):
            admin.create_topic(topic, queues=2)
        options = {"nameserver": cluster.nameserver}
        with pytest.raises(StreamingQueryException, match="'topic' is 'emptyy'"):
            archive(spark, folder, options={**options, "topic": "emptyy"}).awaitTermination(WAIT_S)
        for _ in range(2):  # the misspelt one has claimed nothing, and its own source may go on
            assert archive(spark, folder, options={**options, "topic": "empty"}).awaitTermination(WAIT_S)
            assert archived_hours(spark, folder) == []
        with pytest.raises(
            SettingsError, match=r"_checkpoint was made for empty at .*, and this is bills at"
        ):
            archive(spark, folder, options={**options, "topic": "bills"})
        mirrored, copies = {**options, "topic": "empty"}, {**options, "topic": "copies"}
        place = str(tmp_path / "mirror")
        assert mirror(spark, source=mirrored, sink=copies, checkpoint=place).awaitTermination(WAIT_S)
        with pytest.raises(SettingsError, match=r"was made for copies at .*, and this is bills at"):
            mirror(spark, source=mirrored, sink={**options, "topic": "bills"}, checkpoint=place)


def test_of_messages_that_are_the_same_the_first_that_was_stored_is_kept(spark: Any) -> None:
    kinds = (
        "msgId string, keys array<string>, properties map<string,string>, storeTimestamp timestamp, topic string, brokerName string,"
        " queueId int, queueOffset bigint"
    )
    order = [5, 3, 0, 7, 1, 6, 4, 2]
    rows = [
        (
            f"m{at}",
            ["k"],
            {"SPARK_ROW": "q:1:0:x"},
            datetime(2026, 1, 1, 0, 0, at // 2, tzinfo=UTC),
            "t",
            "a",
            0,
            at,
        )
        for at in order
    ]
    df = spark.createDataFrame(rows, kinds).repartition(4)
    assert [row.msgId for row in dedup(df).collect()] == ["m0"]
    assert [row.msgId for row in drop_replays(df).collect()] == ["m0"]
    assert [row.msgId for row in drop_replays(df.drop("storeTimestamp")).collect()] == ["m0"]
    with pytest.raises(SettingsError, match="needs the columns storeTimestamp, queueOffset as well"):
        dedup(df.drop("storeTimestamp", "queueOffset"))


def test_an_archive_of_many_files_becomes_one_of_few(spark: Any, tmp_path: Path) -> None:
    small, large = str(tmp_path / "small"), str(tmp_path / "large")
    with Cluster() as cluster:
        asyncio.run(send_orders(cluster.nameserver, 20))
        options = {"nameserver": cluster.nameserver, "topic": TOPIC, "maxOffsetsPerTrigger": "8"}
        assert archive(spark, small, options=options).awaitTermination(WAIT_S)
    assert sum(messages for _, _, messages in archived_hours(spark, small)) == 22
    for _ in range(2):
        done = compact(spark, small, large)
        assert done.rows == spark.read.parquet(large).count() == 22
        assert done.files_before > done.files_after == done.hours
