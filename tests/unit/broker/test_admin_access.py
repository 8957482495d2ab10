"""Who may ask for what: a table kept by hand, so that a permission that changes is noticed."""

import contextlib

import pytest

from tests.unit.broker.admin_core import Bench
from trimtab.broker.requests import HANDLERS, Access
from trimtab.errors import ProtocolError
from trimtab.wire.codes import RequestCode as Code

ADMIN = Access(admin=True)
TOPIC = Access(consume_topic="topic")

TABLE = {
    Code.UPDATE_AND_CREATE_TOPIC: ADMIN,
    Code.DELETE_TOPIC_IN_BROKER: ADMIN,
    Code.GET_ALL_TOPIC_CONFIG: ADMIN,
    Code.GET_TOPIC_CONFIG: TOPIC,
    Code.GET_SYSTEM_TOPIC_LIST_FROM_BROKER: ADMIN,
    Code.CLEAN_EXPIRED_CONSUMEQUEUE: ADMIN,
    Code.CLEAN_UNUSED_TOPIC: ADMIN,
    Code.DELETE_EXPIRED_COMMITLOG: ADMIN,
    Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: ADMIN,
    Code.DELETE_SUBSCRIPTIONGROUP: ADMIN,
    Code.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: ADMIN,
    Code.GET_SUBSCRIPTIONGROUP_CONFIG: Access(consume_group="group"),
    Code.QUERY_TOPICS_BY_CONSUMER: Access(consume_group="group"),
    Code.QUERY_SUBSCRIPTION_BY_CONSUMER: Access(consume_group="group"),
    Code.VIEW_MESSAGE_BY_ID: Access(judged_by_handler=True),
    Code.QUERY_MESSAGE: TOPIC,
    Code.QUERY_CONSUME_QUEUE: TOPIC,
    Code.QUERY_CONSUME_TIME_SPAN: Access(consume_topic="topic", consume_group="group"),
    Code.GET_TOPIC_STATS_INFO: TOPIC,
    Code.GET_CONSUME_STATS: Access(consume_group="consumer_group"),
    Code.GET_BROKER_CONSUME_STATS: ADMIN,
    Code.VIEW_BROKER_STATS_DATA: ADMIN,
    Code.GET_BROKER_RUNTIME_INFO: ADMIN,
    Code.QUERY_TOPIC_CONSUME_BY_WHO: TOPIC,
    Code.QUERY_CORRECTION_OFFSET: Access(consume_topic="topic", consume_group="compare_group"),
    Code.CLONE_GROUP_OFFSET: ADMIN,
    Code.GET_BROKER_CONFIG: ADMIN,
    Code.UPDATE_BROKER_CONFIG: ADMIN,
    Code.GET_ALL_CONSUMER_OFFSET: ADMIN,
    Code.GET_ALL_DELAY_OFFSET: ADMIN,
}


@pytest.mark.parametrize("code", TABLE)
def test_access_is_as_the_table_says(code: Code) -> None:
    assert HANDLERS[code].access == TABLE[code]


@pytest.mark.parametrize("code", TABLE)
def test_an_empty_request_is_answered_and_breaks_nothing(code: Code) -> None:
    """Whatever is missing: one answer, and no defect of ours."""
    bench = Bench()
    for body in (b"", b"{}", b"{", b"\xff"):
        with contextlib.suppress(ProtocolError):  # then the connection is closed
            bench.ask(code, body=body)
    bench.good(Code.GET_BROKER_RUNTIME_INFO)
