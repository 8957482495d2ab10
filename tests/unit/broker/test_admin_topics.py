"""Topics: making, altering, deleting and listing them."""

from typing import Any

import pytest

from tests.unit.broker.admin_core import Bench, topic_header
from trimtab.broker.settings import BrokerSettings
from trimtab.wire.bodies import (
    GroupList,
    TopicConfig,
    TopicConfigAndMapping,
    TopicConfigSerializeWrapper,
    TopicList,
    TopicStatsTable,
)
from trimtab.wire.codes import ONEWAY_FLAG, RequestCode, ResponseCode
from trimtab.wire.headers.admin import GetTopicConfig, TopicOnly
from trimtab.wire.headers.base import encode_ext

CREATE = RequestCode.UPDATE_AND_CREATE_TOPIC
DELETE = RequestCode.DELETE_TOPIC_IN_BROKER


def all_topics(bench: Bench) -> dict[str, TopicConfig]:
    return bench.body(TopicConfigSerializeWrapper, RequestCode.GET_ALL_TOPIC_CONFIG).topic_config_table


def test_a_topic_is_made_altered_and_there_after_a_restart() -> None:
    bench = Bench()
    bench.good(CREATE, topic_header("orders", queues=4))
    bench.good(CREATE, topic_header("orders", queues=8, perm=4, order=True))
    found = all_topics(bench.restarted())["orders"]
    assert (found.read_queue_nums, found.write_queue_nums, found.perm, found.order) == (8, 8, 4, True)


def test_a_topic_is_answered_when_it_is_on_disk_and_the_name_servers_know() -> None:
    bench = Bench()
    told: list[Any] = []
    bench.core.when_registered = told.append
    assert bench.tell(CREATE, topic_header("orders")) == []
    (then,) = told
    then()
    (answer,) = bench.heard()
    assert answer.code == ResponseCode.SUCCESS


def test_a_topic_that_could_not_be_saved_is_answered_so() -> None:
    bench = Bench()
    bench.store.close()
    bench.disk.open = _broken  # type: ignore[method-assign, assignment]
    code, remark = bench.refusal(CREATE, topic_header("orders"))
    assert code == ResponseCode.SYSTEM_ERROR
    assert "topics could not be saved" in remark


def _broken(name: str, *, create: bool = False) -> None:
    raise OSError(28, "no room")


def test_a_oneway_request_is_obeyed_and_not_answered() -> None:
    bench = Bench()
    assert bench.tell(CREATE, topic_header("orders"), flag=ONEWAY_FLAG) == []
    assert "orders" in all_topics(bench)


def test_name_servers_hear_of_a_change_once() -> None:
    bench = Bench()
    bench.make_topic("orders")
    version = bench.core.topics.version
    bench.name_servers_know()
    bench.make_topic("orders")
    assert bench.core.topics.version == version
    assert bench.core.changed_routes == {"orders"}


@pytest.mark.parametrize(
    "name", ["", " ", "a/b", "..", "a b", "x" * 128, "naïve", "a\x00b", "TBW102", "rmq_sys_x", "broker-a"]
)
def test_bad_names_and_system_topics_are_refused(name: str) -> None:
    bench = Bench()
    before = all_topics(bench)
    assert bench.refusal(CREATE, topic_header(name))[0] == ResponseCode.SYSTEM_ERROR
    assert bench.refusal(DELETE, TopicOnly(topic=name))[0] == ResponseCode.SYSTEM_ERROR
    assert all_topics(bench) == before


@pytest.mark.parametrize(
    "wrong",
    [
        {"readQueueNums": "-1"}, {"writeQueueNums": "-1"}, {"writeQueueNums": "1025"}, {"perm": "16"},
        {"perm": "-1"}, {"topicFilterType": "NO_TAG"}, {"readQueueNums": "x"}, {"perm": "99999999999"},
        {"attributes": "message.type=FIFO"}, {"attributes": "+a"}, {"attributes": "-a=1"}, {"attributes": "+=1"},
        {"attributes": ",".join(f"+a{number}=1" for number in range(65))}, {"attributes": "+a=" + "x" * 5_000},
    ],
)  # fmt: skip
def test_bad_values_are_refused(wrong: dict[str, str]) -> None:
    bench = Bench()
    answer = bench.ask(CREATE, ext={**encode_ext(topic_header("orders")), **wrong})
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert "orders" not in all_topics(bench)


def test_there_is_a_limit_to_the_number_of_topics() -> None:
    bench = Bench(BrokerSettings(topics_max=14))
    refused = [bench.ask(CREATE, topic_header(f"t{number}")).code for number in range(4)]
    assert ResponseCode.SYSTEM_ERROR in refused
    assert len(all_topics(bench)) == 14


def test_attributes_are_added_and_taken_away() -> None:
    bench = Bench()
    bench.good(CREATE, topic_header("orders", attributes="+message.type=FIFO,+a=1"))
    bench.good(CREATE, topic_header("orders", attributes="-a"))
    assert all_topics(bench)["orders"].attributes == {"message.type": "FIFO"}
    bench.good(CREATE, topic_header("orders"))
    assert all_topics(bench)["orders"].attributes == {"message.type": "FIFO"}


def test_a_deleted_topic_leaves_nothing() -> None:
    bench = Bench()
    bench.make_topic("orders")
    bench.send("orders")
    bench.commit("orders", "billing", 0, 1)
    bench.good(DELETE, TopicOnly(topic="orders"))
    assert "orders" not in all_topics(bench)
    assert bench.core.offsets.topics_of("billing") == []
    assert bench.store.topics() == []
    again = bench.restarted()
    assert "orders" not in all_topics(again)
    assert again.core.offsets.topics_of("billing") == []
    again.make_topic("orders")
    stats = again.body(TopicStatsTable, RequestCode.GET_TOPIC_STATS_INFO, TopicOnly(topic="orders"))
    assert {offset.max_offset for offset in stats.offset_table.values()} == {0}


def test_deleting_what_is_not_there_is_fine() -> None:
    Bench().good(DELETE, TopicOnly(topic="never-made"))


def test_one_topic_is_shown_for_5x_tools() -> None:
    bench = Bench()
    bench.make_topic("orders", queues=3)
    shown = bench.body(TopicConfigAndMapping, RequestCode.GET_TOPIC_CONFIG, GetTopicConfig(topic="orders"))
    assert (shown.topic_name, shown.read_queue_nums, shown.mapping_detail) == ("orders", 3, None)
    assert (
        bench.refusal(RequestCode.GET_TOPIC_CONFIG, GetTopicConfig(topic="x"))[0]
        == ResponseCode.TOPIC_NOT_EXIST
    )


def test_system_topics_are_listed() -> None:
    bench = Bench()
    bench.make_topic("orders")
    listed = bench.body(TopicList, RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER).topic_list
    assert {"TBW102", "SCHEDULE_TOPIC_XXXX", "DefaultCluster", "broker-a"} <= set(listed)
    assert "orders" not in listed


def test_topic_stats_show_every_queue() -> None:
    bench = Bench()
    bench.make_topic("orders", queues=2)
    bench.send("orders", queue_id=1)
    bench.send("orders", queue_id=1)
    table = bench.body(
        TopicStatsTable, RequestCode.GET_TOPIC_STATS_INFO, TopicOnly(topic="orders")
    ).offset_table
    shown = {
        queue.queue_id: (offset.min_offset, offset.max_offset, offset.last_update_timestamp)
        for queue, offset in table.items()
    }
    assert shown == {0: (0, 0, 0), 1: (0, 2, bench.now.wall_ms)}
    assert (
        bench.refusal(RequestCode.GET_TOPIC_STATS_INFO, TopicOnly(topic="x"))[0]
        == ResponseCode.TOPIC_NOT_EXIST
    )


def test_topic_stats_tell_5x_how_fast_it_grows() -> None:
    bench = Bench()
    bench.make_topic("orders")
    for _ in range(20):
        bench.send("orders")
    bench.pass_time(10_000)
    header = TopicOnly(topic="orders")
    assert bench.body(TopicStatsTable, RequestCode.GET_TOPIC_STATS_INFO, header).topic_put_tps is None
    shown = bench.body(TopicStatsTable, RequestCode.GET_TOPIC_STATS_INFO, header, version=473)
    assert shown.topic_put_tps == pytest.approx(2.0)


def test_who_consumes_a_topic_is_who_is_online_or_ever_was() -> None:
    bench = Bench()
    bench.make_topic("orders")
    bench.commit("orders", "past", 0, 1)
    bench.join("present", "orders")
    bench.commit("orders", "present", 0, 1)
    listed = bench.body(
        GroupList, RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, TopicOnly(topic="orders")
    ).group_list
    assert sorted(listed) == ["past", "present"]


def test_topics_without_a_name_are_cleaned_from_the_store() -> None:
    bench = Bench()
    bench.make_topic("orders")
    bench.make_topic("kept")
    bench.send("orders")
    bench.send("kept")
    bench.core.topics.remove("orders", bench.store.written_end, bench.now)
    bench.good(RequestCode.CLEAN_UNUSED_TOPIC)
    assert bench.store.topics() == ["kept"]


def test_cleaning_answers_even_where_there_is_nothing_to_clean() -> None:
    bench = Bench()
    bench.good(RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE)
    bench.good(RequestCode.DELETE_EXPIRED_COMMITLOG)


@pytest.mark.parametrize("which", [{"readQueueNums": "0"}, {"writeQueueNums": "0"}, {"perm": "14"}])
def test_what_apaches_tools_may_set_can_be_set(which: dict[str, str]) -> None:
    bench = Bench()
    answer = bench.ask(CREATE, ext={**encode_ext(topic_header("orders")), **which})
    assert answer.code == ResponseCode.SUCCESS


def test_name_servers_hear_of_a_deletion_from_whoever_deletes() -> None:
    bench = Bench()
    bench.make_topic("orders")
    bench.name_servers_know()
    bench.good(DELETE, TopicOnly(topic="orders"))
    assert bench.core.changed_routes == set()
