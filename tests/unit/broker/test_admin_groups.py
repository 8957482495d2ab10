"""Groups as they are configured, and their offsets as a whole."""

import pytest

from tests.unit.broker.admin_core import Bench
from trimtab.broker.settings import BrokerSettings
from trimtab.model import MessageQueue
from trimtab.wire.bodies import (
    ConsumerOffsets,
    QueryCorrectionOffsetBody,
    QuerySubscriptionResponseBody,
    SubscriptionGroupConfig,
    SubscriptionGroupWrapper,
    TopicList,
)
from trimtab.wire.codes import RequestCode, ResponseCode
from trimtab.wire.fastjson_writer import encode_body
from trimtab.wire.headers.admin import (
    CloneGroupOffset,
    DeleteSubscriptionGroup,
    GroupNamed,
    QueryCorrectionOffset,
    QuerySubscription,
)

CREATE = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP
DELETE = RequestCode.DELETE_SUBSCRIPTIONGROUP


def all_groups(bench: Bench) -> dict[str, SubscriptionGroupConfig]:
    wrapper = bench.body(SubscriptionGroupWrapper, RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)
    return wrapper.subscription_group_table


def make(bench: Bench, group: SubscriptionGroupConfig) -> None:
    bench.good(CREATE, body=encode_body(group))


def test_a_group_is_made_altered_and_there_after_a_restart() -> None:
    bench = Bench()
    make(bench, SubscriptionGroupConfig(group_name="billing"))
    make(bench, SubscriptionGroupConfig(group_name="billing", retry_max_times=3, consume_enable=False))
    found = all_groups(bench.restarted())["billing"]
    assert (found.retry_max_times, found.consume_enable) == (3, False)


@pytest.mark.parametrize(
    "group",
    [
        SubscriptionGroupConfig(group_name=""),
        SubscriptionGroupConfig(group_name="a/b"),
        SubscriptionGroupConfig(group_name="x" * 256),
        SubscriptionGroupConfig(group_name="g", retry_queue_nums=-1),
        SubscriptionGroupConfig(group_name="g", retry_queue_nums=1_025),
        SubscriptionGroupConfig(group_name="g", retry_max_times=-2),
    ],
)
def test_bad_groups_are_refused(group: SubscriptionGroupConfig) -> None:
    bench = Bench()
    before = all_groups(bench)
    assert bench.refusal(CREATE, body=encode_body(group))[0] == ResponseCode.SYSTEM_ERROR
    assert all_groups(bench) == before


def test_there_is_a_limit_to_the_number_of_groups() -> None:
    bench = Bench(BrokerSettings(groups_max=8))
    make(bench, SubscriptionGroupConfig(group_name="g0"))
    body = encode_body(SubscriptionGroupConfig(group_name="g1"))
    assert bench.refusal(CREATE, body=body)[0] == ResponseCode.SYSTEM_ERROR


def test_one_group_is_shown_and_asking_makes_none() -> None:
    bench = Bench()
    make(bench, SubscriptionGroupConfig(group_name="billing", retry_max_times=5))
    code = RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG
    assert bench.body(SubscriptionGroupConfig, code, GroupNamed(group="billing")).retry_max_times == 5
    assert bench.refusal(code, GroupNamed(group="x"))[0] == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
    assert "x" not in all_groups(bench)


@pytest.mark.parametrize("clean", [{"remove_offset": True}, {"clean_offset": True}])
def test_a_group_is_deleted_with_its_offsets_and_leases(clean: dict[str, bool]) -> None:
    bench = Bench()
    make(bench, SubscriptionGroupConfig(group_name="billing"))
    bench.make_topic("orders")
    bench.commit("orders", "billing", 0, 7)
    bench.commit("orders", "other", 0, 7)
    queue = MessageQueue("orders", "broker-a", 0)
    bench.core.leases.lock("billing", "c1", 1, [queue], bench.now.monotonic_ms)
    bench.good(DELETE, DeleteSubscriptionGroup(group_name="billing", **clean))
    assert "billing" not in all_groups(bench)
    assert bench.core.leases.holder("billing", queue, bench.now.monotonic_ms) is None
    again = bench.restarted()
    assert "billing" not in all_groups(again)
    assert again.core.offsets.groups_of("orders") == ["other"]


def test_a_group_is_deleted_and_its_offsets_stay_unless_told_otherwise() -> None:
    bench = Bench()
    bench.make_topic("orders")
    bench.commit("orders", "billing", 0, 7)
    bench.good(DELETE, DeleteSubscriptionGroup(group_name="billing"))
    bench.good(DELETE, DeleteSubscriptionGroup(group_name="never-made"))
    assert bench.core.offsets.get("billing", "orders", 0) == 7


def test_topics_and_subscription_of_a_group() -> None:
    bench = Bench()
    bench.make_topic("orders")
    bench.commit("orders", "billing", 0, 1)
    listed = bench.body(TopicList, RequestCode.QUERY_TOPICS_BY_CONSUMER, GroupNamed(group="billing"))
    assert (listed.topic_list, listed.broker_addr) == (("orders",), bench.core.address)
    asked = QuerySubscription(group="billing", topic="orders")
    code = RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER
    assert bench.body(QuerySubscriptionResponseBody, code, asked).subscription_data is None
    bench.join("billing", "orders")
    found = bench.body(QuerySubscriptionResponseBody, code, asked).subscription_data
    assert found is not None
    assert found.sub_string == "*"


def test_all_offsets_are_listed() -> None:
    bench = Bench()
    bench.commit("orders", "billing", 1, 5)
    table = bench.body(ConsumerOffsets, RequestCode.GET_ALL_CONSUMER_OFFSET).offset_table
    assert table == {"orders@billing": {1: 5}}


def clone(bench: Bench, topic: str | None, *, offline: bool = False) -> dict[int, int]:
    header = CloneGroupOffset(src_group="from", dest_group="to", topic=topic, offline=offline)
    bench.good(RequestCode.CLONE_GROUP_OFFSET, header)
    return dict(bench.core.offsets.of("to", "orders"))


def test_offsets_are_cloned_for_one_topic_or_for_all() -> None:
    for topic in ("orders", None, ""):
        bench = Bench()
        bench.make_topic("orders")
        bench.commit("orders", "from", 0, 3)
        bench.commit("gone", "from", 0, 3)
        assert clone(bench, topic) == {0: 3}
        assert bench.core.offsets.topics_of("to") == ["orders"]


def test_offsets_of_a_topic_that_the_group_left_are_cloned_only_offline() -> None:
    bench = Bench()
    bench.make_topic("orders")
    bench.make_topic("new")
    bench.commit("orders", "from", 0, 3)
    bench.join("from", "new")
    assert clone(bench, "orders") == {}
    assert clone(bench, "orders", offline=True) == {0: 3}


def correction(bench: Bench, filter_groups: str | None = None) -> dict[int, int]:
    header = QueryCorrectionOffset(compare_group="mine", topic="orders", filter_groups=filter_groups)
    return bench.body(
        QueryCorrectionOffsetBody, RequestCode.QUERY_CORRECTION_OFFSET, header
    ).correction_offsets


def test_correction_offsets_are_the_lowest_of_all_groups() -> None:
    bench = Bench()
    bench.make_topic("orders")
    bench.commit("orders", "a", 0, 5)
    bench.commit("orders", "b", 0, 9)
    assert correction(bench) == {0: 5}
    assert correction(bench, "a") == {0: 9}
    bench.commit("orders", "mine", 0, 7)
    assert correction(bench) == {0: 5}
    assert correction(bench, "a,mine") == {0: (1 << 63) - 1}  # 4.9.3 fails here
