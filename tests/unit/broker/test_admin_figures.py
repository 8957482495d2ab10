"""Figures for administrators."""

import pytest

from tests.unit.broker.admin_core import Bench
from trimtab.broker.handlers import figures
from trimtab.model import MessageQueue
from trimtab.wire.bodies import BrokerStatsData, ConsumeStats, ConsumeStatsList, DelayOffsets, KVTable
from trimtab.wire.codes import RequestCode, ResponseCode
from trimtab.wire.headers.admin import GetBrokerConsumeStats, GetConsumeStats, TopicOnly, ViewBrokerStats

NAMES_OF_4_9_3 = """\
bootTimestamp runtime putTps getTotalTps getFoundTps getMissTps getTransferedTps putMessageTimesTotal putMessageFailedTimes
putMessageSizeTotal putMessageAverageSize putMessageEntireTimeMax putMessageDistributeTime getMessageEntireTimeMax
dispatchMaxBuffer commitLogDiskRatio consumeQueueDiskRatio commitLogMinOffset commitLogMaxOffset brokerVersionDesc
brokerVersion msgPutTotalYesterdayMorning msgPutTotalTodayMorning msgPutTotalTodayNow msgGetTotalYesterdayMorning
msgGetTotalTodayMorning msgGetTotalTodayNow sendThreadPoolQueueSize sendThreadPoolQueueCapacity pullThreadPoolQueueSize
pullThreadPoolQueueCapacity queryThreadPoolQueueSize queryThreadPoolQueueCapacity EndTransactionQueueSize
EndTransactionThreadPoolQueueCapacity dispatchBehindBytes pageCacheLockTimeMills sendThreadPoolQueueHeadWaitTimeMills
pullThreadPoolQueueHeadWaitTimeMills queryThreadPoolQueueHeadWaitTimeMills earliestMessageTimeStamp
startAcceptSendRequestTimeStamp remainTransientStoreBufferNumbs remainHowManyDataToFlush commitLogDirCapacity"""
NAMES_OF_5 = "brokerActive getTransferredTps ackThreadPoolQueueSize timerReadBehind timerEnqueueTps"


@pytest.fixture
def bench() -> Bench:
    bench = Bench()
    bench.make_topic("orders", queues=2)
    return bench


def consume_stats(
    bench: Bench, group: str, topic: str | None = None, topics: str | None = None, version: int = 399
) -> ConsumeStats:
    header = GetConsumeStats(consumer_group=group, topic=topic, topic_list=topics)
    return bench.body(ConsumeStats, RequestCode.GET_CONSUME_STATS, header, version=version)


def test_progress_of_a_group(bench: Bench) -> None:
    for _ in range(3):
        bench.send("orders")
    bench.commit("orders", "billing", 0, 1)
    table = consume_stats(bench, "billing").offset_table
    first = table[MessageQueue("orders", "broker-a", 0)]
    assert (first.broker_offset, first.consumer_offset, first.last_timestamp) == (3, 1, bench.now.wall_ms)
    assert first.pull_offset is None
    second = table[MessageQueue("orders", "broker-a", 1)]
    assert (second.broker_offset, second.consumer_offset, second.last_timestamp) == (0, 0, 0)
    assert consume_stats(bench, "billing", version=473).offset_table[
        MessageQueue("orders", "broker-a", 0)
    ].pull_offset == 1  # fmt: skip


def test_progress_of_a_group_in_chosen_topics(bench: Bench) -> None:
    bench.make_topic("other", queues=1)
    bench.commit("orders", "billing", 0, 0)
    bench.commit("other", "billing", 0, 0)

    def topics(stats: ConsumeStats) -> set[str]:
        return {queue.topic for queue in stats.offset_table}

    assert topics(consume_stats(bench, "billing")) == {"orders", "other"}
    assert topics(consume_stats(bench, "billing", topic="other")) == {"other"}
    assert topics(consume_stats(bench, "billing", topics="orders;other;gone;")) == {"orders", "other"}
    assert topics(consume_stats(bench, "nobody")) == set()
    bench.join("billing", "other")
    assert topics(consume_stats(bench, "billing")) == {"other"}


def test_how_fast_a_group_consumes(bench: Bench) -> None:
    for _ in range(10):
        bench.send("orders")
    bench.pull("orders", "billing")
    bench.commit("orders", "billing", 0, 10)
    bench.pass_time(10_000)
    assert consume_stats(bench, "billing").consume_tps == pytest.approx(1.0)


def all_stats(bench: Bench, *, is_order: bool = False) -> ConsumeStatsList:
    header = GetBrokerConsumeStats(is_order=is_order)
    return bench.body(ConsumeStatsList, RequestCode.GET_BROKER_CONSUME_STATS, header)


def test_progress_of_all_groups(bench: Bench) -> None:
    bench.join("billing", "orders")
    for _ in range(5):
        bench.send("orders")
    bench.commit("orders", "billing", 0, 2)
    shown = all_stats(bench)
    assert (shown.broker_addr, shown.total_diff) == (bench.core.address, 3)
    (stats,) = [table["billing"] for table in shown.consume_stats_list if "billing" in table]
    assert len(stats[0].offset_table) == 2
    assert all_stats(bench, is_order=True).total_diff == 0
    bench.make_topic("orders", order=True)
    assert all_stats(bench, is_order=True).total_diff == 3


def test_looking_at_too_many_queues_is_refused(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(figures, "QUEUES_LOOKED_AT_MAX", 1)
    bench.join("billing", "orders")
    bench.commit("orders", "billing", 0, 0)
    code, remark = bench.refusal(RequestCode.GET_CONSUME_STATS, GetConsumeStats(consumer_group="billing"))
    assert code == ResponseCode.SYSTEM_ERROR
    assert "ask for one group and topic" in remark
    header = GetBrokerConsumeStats(is_order=False)
    assert bench.refusal(RequestCode.GET_BROKER_CONSUME_STATS, header)[0] == ResponseCode.SYSTEM_ERROR


def test_stats_by_name(bench: Bench) -> None:
    code = RequestCode.VIEW_BROKER_STATS_DATA
    header = ViewBrokerStats(stats_name="TOPIC_PUT_NUMS", stats_key="orders")
    assert bench.refusal(code, header) == (1, "The stats <TOPIC_PUT_NUMS> <orders> not exist")
    for _ in range(30):
        bench.send("orders")
    bench.pull("orders", "billing")
    bench.pass_time(10_000)
    shown = bench.body(BrokerStatsData, code, header)
    assert shown.stats_minute is not None
    assert (shown.stats_minute.sum, shown.stats_minute.tps) == (30, 3.0)
    assert shown.stats_hour is not None
    assert shown.stats_day is not None
    pulled = ViewBrokerStats(stats_name="GROUP_GET_NUMS", stats_key="orders@billing")
    assert bench.body(BrokerStatsData, code, pulled).stats_minute.sum == 30  # type: ignore[union-attr]
    broker = ViewBrokerStats(stats_name="BROKER_PUT_NUMS", stats_key="DefaultCluster")
    assert bench.body(BrokerStatsData, code, broker).stats_minute.sum == 30  # type: ignore[union-attr]
    bench.good(RequestCode.DELETE_TOPIC_IN_BROKER, TopicOnly(topic="orders"))
    assert bench.refusal(code, header)[0] == ResponseCode.SYSTEM_ERROR


def runtime(bench: Bench) -> dict[str, str]:
    return bench.body(KVTable, RequestCode.GET_BROKER_RUNTIME_INFO).table


def test_runtime_info_has_all_names(bench: Bench) -> None:
    table = runtime(bench)
    assert [name for name in f"{NAMES_OF_4_9_3} {NAMES_OF_5}".split() if name not in table] == []
    assert table["brokerVersionDesc"] == "V4_9_3"
    assert table["earliestMessageTimeStamp"] == "-1"
    assert 0 <= float(table["commitLogDiskRatio"]) <= 1
    assert not [value for value in table.values() if "/" in value]


def test_runtime_info_counts(bench: Bench) -> None:
    bench.pass_time(1_000)
    started_ms = bench.now.wall_ms
    for _ in range(10):
        bench.send("orders", b"x")
    bench.pull("orders", "billing")
    bench.pull("orders", "billing", offset=10)
    bench.pass_time(10_000)
    table = runtime(bench)
    assert table["putTps"] == "1.0 1.0 1.0"
    assert table["getTotalTps"] == "0.2 0.2 0.2"
    assert table["getTransferedTps"] == table["getTransferredTps"] == "1.0 1.0 1.0"
    assert (table["msgPutTotalTodayNow"], table["msgGetTotalTodayNow"]) == ("10", "10")
    assert table["putMessageTimesTotal"] == "10"
    assert float(table["putMessageAverageSize"]) > 100
    assert table["earliestMessageTimeStamp"] == str(started_ms)
    assert int(table["commitLogMaxOffset"]) > 1_000
    assert table["runtime"] == "[ 0 days, 0 hours, 0 minutes, 11 seconds ]"


def test_progress_of_delayed_messages_is_shown(bench: Bench) -> None:
    def shown() -> dict[int, int]:
        return bench.body(DelayOffsets, RequestCode.GET_ALL_DELAY_OFFSET).offset_table

    assert shown() == {}
    for _ in range(2):
        bench.send("orders", properties={"DELAY": "1"})
    bench.pass_time(3_000)
    assert shown() == {1: 2}
    assert runtime(bench)["scheduleMessageOffset_1"] == "2,2"


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 B"), (1_023, "1023 B"), (1_024, "1.0 KiB"), (3 << 29, "1.5 GiB"), (1 << 70, "1024.0 EiB")],
)
def test_sizes_are_for_people(count: int, text: str) -> None:
    assert figures._bytes_text(count) == text
