"""S2: every code against every kind of caller, compared with a table that is kept by hand.

A code that is not in the table fails the test, so nobody adds a handler without saying here who may call it. The request of each
code is about the topic `orders` and the group `billing`: the reader may consume them, the writer may publish to the topic.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec
import pytest

from tests.raw import RawConnection
from tests.security.accounts import ADMIN, BILLING, FORGER, ORDERS, READER, STRANGER, WRITER, acl_in
from tests.security.live import running
from trimtab.broker.requests import HANDLERS
from trimtab.broker.server import BrokerPlan
from trimtab.model import MessageQueue
from trimtab.names.handlers import HANDLERS as NAMES_HANDLERS
from trimtab.wire.bodies import (
    CheckClientRequestBody,
    ConsumerData,
    HeartbeatData,
    LockBatchRequestBody,
    SubscriptionData,
    SubscriptionGroupConfig,
)
from trimtab.wire.codes import RequestCode, ResponseCode
from trimtab.wire.commands import Command, encode_command
from trimtab.wire.fastjson_writer import encode_body
from trimtab.wire.headers.base import Header
from trimtab.wire.signing import Credentials

CALLERS: Final[Mapping[str, Credentials | None]] = {
    "anonymous": None,
    "forger": FORGER,
    "stranger": STRANGER,
    "writer": WRITER,
    "reader": READER,
    "admin": ADMIN,
}

ADMINS: Final = frozenset({"admin"})
READERS: Final = frozenset({"reader", "admin"})
WRITERS: Final = frozenset({"writer", "admin"})
USERS: Final = frozenset({"stranger", "writer", "reader", "admin"})

BROKER_TABLE: Final[Mapping[int, frozenset[str]]] = {
    10: WRITERS,  # SEND_MESSAGE
    11: READERS,  # PULL_MESSAGE
    12: READERS,  # QUERY_MESSAGE
    14: READERS,  # QUERY_CONSUMER_OFFSET
    15: READERS,  # UPDATE_CONSUMER_OFFSET
    17: ADMINS,  # UPDATE_AND_CREATE_TOPIC
    21: ADMINS,  # GET_ALL_TOPIC_CONFIG
    25: ADMINS,  # UPDATE_BROKER_CONFIG
    26: ADMINS,  # GET_BROKER_CONFIG
    28: ADMINS,  # GET_BROKER_RUNTIME_INFO
    29: READERS,  # SEARCH_OFFSET_BY_TIMESTAMP
    30: READERS,  # GET_MAX_OFFSET
    31: READERS,  # GET_MIN_OFFSET
    32: READERS,  # GET_EARLIEST_MSG_STORETIME
    33: READERS,  # VIEW_MESSAGE_BY_ID
    34: READERS,  # HEART_BEAT of a consumer
    35: READERS,  # UNREGISTER_CLIENT of a consumer
    36: READERS,  # CONSUMER_SEND_MSG_BACK
    37: WRITERS,  # END_TRANSACTION
    38: READERS,  # GET_CONSUMER_LIST_BY_GROUP
    41: READERS,  # LOCK_BATCH_MQ
    42: READERS,  # UNLOCK_BATCH_MQ
    43: ADMINS,  # GET_ALL_CONSUMER_OFFSET
    45: ADMINS,  # GET_ALL_DELAY_OFFSET
    46: READERS,  # CHECK_CLIENT_CONFIG
    50: ADMINS,  # UPDATE_AND_CREATE_ACL_CONFIG
    51: ADMINS,  # DELETE_ACL_CONFIG
    52: ADMINS,  # GET_BROKER_CLUSTER_ACL_INFO
    53: ADMINS,  # UPDATE_GLOBAL_WHITE_ADDRS_CONFIG
    54: ADMINS,  # GET_BROKER_CLUSTER_ACL_CONFIG
    200: ADMINS,  # UPDATE_AND_CREATE_SUBSCRIPTIONGROUP
    201: ADMINS,  # GET_ALL_SUBSCRIPTIONGROUP_CONFIG
    202: READERS,  # GET_TOPIC_STATS_INFO
    203: READERS,  # GET_CONSUMER_CONNECTION_LIST
    204: ADMINS,  # GET_PRODUCER_CONNECTION_LIST
    207: ADMINS,  # DELETE_SUBSCRIPTIONGROUP
    208: READERS,  # GET_CONSUME_STATS
    215: ADMINS,  # DELETE_TOPIC_IN_BROKER
    222: ADMINS,  # INVOKE_BROKER_TO_RESET_OFFSET
    223: READERS,  # INVOKE_BROKER_TO_GET_CONSUMER_STATUS
    300: READERS,  # QUERY_TOPIC_CONSUME_BY_WHO
    303: READERS,  # QUERY_CONSUME_TIME_SPAN
    305: ADMINS,  # GET_SYSTEM_TOPIC_LIST_FROM_BROKER
    306: ADMINS,  # CLEAN_EXPIRED_CONSUMEQUEUE
    307: READERS,  # GET_CONSUMER_RUNNING_INFO
    308: READERS,  # QUERY_CORRECTION_OFFSET
    309: ADMINS,  # CONSUME_MESSAGE_DIRECTLY
    310: WRITERS,  # SEND_MESSAGE_V2
    314: ADMINS,  # CLONE_GROUP_OFFSET
    315: ADMINS,  # VIEW_BROKER_STATS_DATA
    316: ADMINS,  # CLEAN_UNUSED_TOPIC
    317: ADMINS,  # GET_BROKER_CONSUME_STATS
    320: WRITERS,  # SEND_BATCH_MESSAGE
    321: READERS,  # QUERY_CONSUME_QUEUE
    323: ADMINS,  # RESUME_CHECK_HALF_MESSAGE
    324: WRITERS,  # SEND_REPLY_MESSAGE
    325: WRITERS,  # SEND_REPLY_MESSAGE_V2
    328: ADMINS,  # GET_ALL_PRODUCER_INFO
    329: ADMINS,  # DELETE_EXPIRED_COMMITLOG
    343: READERS,  # QUERY_TOPICS_BY_CONSUMER
    345: READERS,  # QUERY_SUBSCRIPTION_BY_CONSUMER
    351: READERS,  # GET_TOPIC_CONFIG
    352: READERS,  # GET_SUBSCRIPTIONGROUP_CONFIG
    361: READERS,  # LITE_PULL_MESSAGE
    370: WRITERS,  # RECALL_MESSAGE
}

NAMES_TABLE: Final[Mapping[int, frozenset[str]]] = {
    100: ADMINS,  # PUT_KV_CONFIG
    101: USERS,  # GET_KV_CONFIG
    102: ADMINS,  # DELETE_KV_CONFIG
    103: ADMINS,  # REGISTER_BROKER
    104: ADMINS,  # UNREGISTER_BROKER
    105: USERS,  # GET_ROUTEINFO_BY_TOPIC
    106: USERS,  # GET_BROKER_CLUSTER_INFO
    205: ADMINS,  # WIPE_WRITE_PERM_OF_BROKER
    206: USERS,  # GET_ALL_TOPIC_LIST_FROM_NAMESERVER
    216: ADMINS,  # DELETE_TOPIC_IN_NAMESRV
    217: ADMINS,  # REGISTER_TOPIC_IN_NAMESRV
    219: USERS,  # GET_KVLIST_BY_NAMESPACE
    224: USERS,  # GET_TOPICS_BY_CLUSTER
    304: USERS,  # GET_SYSTEM_TOPIC_LIST_FROM_NS
    311: USERS,  # GET_UNIT_TOPIC_LIST
    312: USERS,  # GET_HAS_UNIT_SUB_TOPIC_LIST
    313: USERS,  # GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST
    318: ADMINS,  # UPDATE_NAMESRV_CONFIG
    319: ADMINS,  # GET_NAMESRV_CONFIG
    322: ADMINS,  # QUERY_DATA_VERSION
    327: ADMINS,  # ADD_WRITE_PERM_OF_BROKER
    901: ADMINS,  # GET_BROKER_MEMBER_GROUP
    904: ADMINS,  # BROKER_HEARTBEAT
}

SUBSCRIPTION = SubscriptionData(topic=ORDERS, sub_string="*")
LOCK = encode_body(
    LockBatchRequestBody(consumer_group=BILLING, client_id="c", mq_set=(MessageQueue(ORDERS, "broker-a", 0),))
)
BODIES: Final[Mapping[int, bytes]] = {
    RequestCode.HEART_BEAT: encode_body(
        HeartbeatData(
            client_id="c",
            consumer_data_set=(ConsumerData(group_name=BILLING, subscription_data_set=(SUBSCRIPTION,)),),
        )
    ),
    RequestCode.LOCK_BATCH_MQ: LOCK,
    RequestCode.UNLOCK_BATCH_MQ: LOCK,
    RequestCode.CHECK_CLIENT_CONFIG: encode_body(
        CheckClientRequestBody(client_id="c", group=BILLING, subscription_data=SUBSCRIPTION)
    ),
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: encode_body(SubscriptionGroupConfig(group_name=BILLING)),
}
GROUP_FIELDS = frozenset(
    {"consumer_group", "group", "group_name", "compare_group", "src_group", "dest_group"}
)
TOPIC_FIELDS = frozenset({"topic", "origin_topic"})
OTHERS = {"default_topic": "TBW102", "default_topic_queue_nums": "4"}
ALWAYS_GIVEN = frozenset({"consumer_group", "group", "origin_topic"})
"""Fields that a header may lack, but that every client gives."""


def fields_of(header_type: type[Header]) -> dict[str, str]:
    """The least that a request of this kind says."""
    found = {}
    for field in msgspec.structs.fields(header_type):
        if not field.required and field.name not in ALWAYS_GIVEN:
            continue
        if field.name in GROUP_FIELDS:
            found[field.encode_name] = BILLING
        elif field.name in TOPIC_FIELDS:
            found[field.encode_name] = ORDERS
        elif field.name in OTHERS:
            found[field.encode_name] = OTHERS[field.name]
        elif field.type is bool:
            found[field.encode_name] = "false"
        else:
            found[field.encode_name] = "x-or-whatever" if field.type is str else "0"
    return found


def is_refused(answer: Command) -> bool:
    return "AclException" in (answer.remark or "")


def half_message_fields() -> dict[str, str]:
    send = fields_of(HANDLERS[RequestCode.SEND_MESSAGE_V2].header_type)
    return send | {"i": "TRAN_MSG\x01true\x02PGROUP\x01x-or-whatever\x02", "f": "4"}


def let_through(address: str, code: int, fields: dict[str, str], who: Credentials | None) -> bool:
    """Whether the request came past the ACL; what it does there is of no interest here."""
    with RawConnection(address, who) as caller:
        command = caller.request(code, fields, BODIES.get(code, b""))
        probe = caller.request(9_999)
        caller.send(encode_command(command) + encode_command(probe))
        try:
            while (answer := caller.receive()).opaque != probe.opaque:
                if answer.is_response and is_refused(answer):
                    return False
        except ConnectionError:  # an empty body, for instance: the handler looked at it
            pass
        return True


@pytest.mark.parametrize("code", sorted(HANDLERS), ids=lambda code: RequestCode(code).name)
def test_the_broker_lets_exactly_these_callers_through(code: int, tmp_path: Path) -> None:
    expected = BROKER_TABLE[code]
    acl = acl_in(tmp_path)
    with running(BrokerPlan(acl=acl), guard=acl) as servers:
        fields = fields_of(HANDLERS[code].header_type)
        with RawConnection(servers.broker_address, ADMIN) as admin:
            send = (
                half_message_fields()
                if code == RequestCode.END_TRANSACTION
                else fields_of(HANDLERS[RequestCode.SEND_MESSAGE_V2].header_type)
            )
            stored = admin.ask(RequestCode.SEND_MESSAGE_V2, send, b"x")
            assert stored.code == ResponseCode.SUCCESS
        place = str(int(stored.ext["msgId"][16:], 16))
        if code in (RequestCode.VIEW_MESSAGE_BY_ID, RequestCode.CONSUMER_SEND_MSG_BACK):
            fields["offset"] = place
        if code == RequestCode.END_TRANSACTION:
            fields |= {
                "commitLogOffset": place, "tranStateTableOffset": stored.ext["queueOffset"], "commitOrRollback": "8",
            }  # fmt: skip
        passed = {
            who for who, keys in CALLERS.items() if let_through(servers.broker_address, code, fields, keys)
        }
    assert passed == expected


@pytest.mark.parametrize("code", [RequestCode.VIEW_MESSAGE_BY_ID, RequestCode.CONSUMER_SEND_MSG_BACK])
@pytest.mark.parametrize("properties", ["", "TRAN_MSG\x01true\x02PGROUP\x01g\x02", "DELAY\x0118\x02"])
def test_a_message_of_a_foreign_topic_cannot_be_had_by_its_place(
    code: int, properties: str, tmp_path: Path
) -> None:
    """Sent back, it would become a message of the reader's own group, and readable."""
    acl = acl_in(tmp_path)
    with running(BrokerPlan(acl=acl), guard=acl) as servers:
        send = fields_of(HANDLERS[RequestCode.SEND_MESSAGE_V2].header_type) | {
            "b": "secrets",
            "i": properties,
        }
        with RawConnection(servers.broker_address, ADMIN) as admin:
            stored = admin.ask(RequestCode.SEND_MESSAGE_V2, send, b"top secret")
            assert stored.code == ResponseCode.SUCCESS
        fields = fields_of(HANDLERS[code].header_type) | {"offset": str(int(stored.ext["msgId"][16:], 16))}
        with RawConnection(servers.broker_address, READER) as reader:
            answer = reader.ask(code, fields)
        assert answer.code != ResponseCode.SUCCESS
        assert b"top secret" not in answer.body
        assert servers.look(lambda: servers.broker.core.store.max_offset(f"%RETRY%{BILLING}", 0)) == 0


@pytest.mark.parametrize("code", sorted(NAMES_HANDLERS), ids=lambda code: RequestCode(code).name)
def test_the_name_server_lets_exactly_these_callers_through(code: int, tmp_path: Path) -> None:
    expected = NAMES_TABLE[code]
    acl = acl_in(tmp_path)
    with running(BrokerPlan(acl=acl), guard=acl) as servers:
        fields = fields_of(NAMES_HANDLERS[code].header_type)
        passed = {
            who for who, keys in CALLERS.items() if let_through(servers.names_address, code, fields, keys)
        }
    assert passed == expected


def test_a_code_that_nobody_handles_is_refused_to_who_is_not_known(tmp_path: Path) -> None:
    acl = acl_in(tmp_path)
    unknown = [*sorted(set(RequestCode) - set(HANDLERS)), -1, 0, 1, 9_999, 200_050]
    with running(BrokerPlan(acl=acl), guard=acl) as servers:
        with RawConnection(servers.broker_address) as anonymous:
            assert all(is_refused(anonymous.ask(code)) for code in unknown)
        with RawConnection(servers.names_address) as anonymous:
            assert all(is_refused(anonymous.ask(code)) for code in unknown)
        with RawConnection(servers.broker_address, STRANGER) as stranger:
            answers = {stranger.ask(code).code for code in unknown}
    assert answers == {ResponseCode.REQUEST_CODE_NOT_SUPPORTED}


@pytest.mark.parametrize("code", sorted(HANDLERS), ids=lambda code: RequestCode(code).name)
def test_every_handler_declares_something(code: int) -> None:
    access = HANDLERS[code].access
    declared = [getattr(access, name) for name in access.__slots__]
    assert any(declared)
    for name in (access.publish_topic, access.consume_topic, access.consume_group):
        assert name is None or name in HANDLERS[code].header_type.__struct_fields__
