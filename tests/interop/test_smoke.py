"""Route, heartbeat, send and pull against each Apache version, with raw wire values over a socket."""

import itertools
import uuid

import pytest

from tests.apache.cluster import ApacheCluster
from tests.raw import RawConnection
from trimtab.model import MessageQueue
from trimtab.wire.batch import BatchEntry, encode_batch
from trimtab.wire.bodies import (
    ConsumeFromWhere,
    ConsumerData,
    ConsumerIdList,
    ConsumeType,
    HeartbeatData,
    LockBatchRequestBody,
    LockBatchResponseBody,
    MessageModel,
    SubscriptionData,
    TopicRouteData,
)
from trimtab.wire.codes import RequestCode, ResponseCode
from trimtab.wire.commands import Command
from trimtab.wire.fastjson import decode_body
from trimtab.wire.fastjson_writer import encode_body
from trimtab.wire.frames import BINARY_HEADER, JSON_HEADER
from trimtab.wire.headers.admin import CreateTopic
from trimtab.wire.headers.base import Header, decode_ext, encode_ext
from trimtab.wire.headers.consume import (
    GetMaxOffset,
    GroupOnly,
    OffsetResponse,
    PullMessage,
    PullMessageResponse,
    ViewMessage,
)
from trimtab.wire.headers.names import GetRouteInfo
from trimtab.wire.headers.send import SendMessageResponse, SendMessageV2
from trimtab.wire.hot import encode_pull_request, encode_send_request
from trimtab.wire.ids import decode_offset_message_id
from trimtab.wire.messages import StoredMessage, decode_messages
from trimtab.wire.properties import encode_properties

opaques = itertools.count(1)


def command(
    code: RequestCode, header: Header | None = None, body: bytes = b"", serializer: int = JSON_HEADER
) -> Command:
    ext = {} if header is None else encode_ext(header)
    return Command(code=code, opaque=next(opaques), ext=ext, body=body, serializer=serializer)


@pytest.fixture
def topic(apache_cluster: ApacheCluster) -> str:
    name = f"smoke-{uuid.uuid4().hex[:12]}"
    header = CreateTopic(
        topic=name, default_topic="TBW102", read_queue_nums=2, write_queue_nums=2, perm=6, topic_filter_type="SINGLE_TAG"
    )  # fmt: skip
    with RawConnection(apache_cluster.brokers[0].address) as broker:
        made = broker.exchange(command(RequestCode.UPDATE_AND_CREATE_TOPIC, header))
    assert made.code == ResponseCode.SUCCESS, made.remark
    return name


def route_of(cluster: ApacheCluster, topic: str) -> TopicRouteData:
    with RawConnection(cluster.nameserver) as names:
        answer = names.exchange(command(RequestCode.GET_ROUTEINFO_BY_TOPIC, GetRouteInfo(topic=topic)))
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    return decode_body(TopicRouteData, answer.body)


def send_header(topic: str, properties: dict[str, str], *, batch: bool = False) -> SendMessageV2:
    return SendMessageV2(
        producer_group="smoke", topic=topic, default_topic="TBW102", default_topic_queue_nums=4, queue_id=1,
        sys_flag=0, born_timestamp=1_700_000_000_123, flag=7, properties=encode_properties(properties).decode(),
        reconsume_times=0, batch=batch,
    )  # fmt: skip


def send(broker: RawConnection, topic: str, body: bytes, properties: dict[str, str]) -> SendMessageResponse:
    opaque = next(opaques)
    header = send_header(topic, properties)
    answer = broker.exchange(
        encode_send_request(RequestCode.SEND_MESSAGE_V2, header, opaque=opaque, body=body), opaque
    )
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    return decode_ext(SendMessageResponse, answer.ext)


def pull(broker: RawConnection, topic: str, offset: int) -> tuple[Command, PullMessageResponse]:
    opaque = next(opaques)
    header = PullMessage(
        consumer_group="TOOLS_CONSUMER", topic=topic, queue_id=1, queue_offset=offset, max_msg_nums=32, sys_flag=6,
        commit_offset=0, suspend_timeout_millis=1_000, sub_version=0, subscription="*", expression_type="TAG",
    )  # fmt: skip
    answer = broker.exchange(encode_pull_request(header, opaque=opaque), opaque)
    return answer, decode_ext(PullMessageResponse, answer.ext)


def pulled(broker: RawConnection, topic: str, count: int) -> list[StoredMessage]:
    messages: list[StoredMessage] = []
    while len(messages) < count:
        answer, found = pull(broker, topic, len(messages))
        assert answer.code in (ResponseCode.SUCCESS, ResponseCode.PULL_NOT_FOUND), answer.remark
        assert found.min_offset == 0
        messages += decode_messages(answer.body)
    return messages


def test_the_route_of_a_topic(apache_cluster: ApacheCluster, topic: str) -> None:
    route = route_of(apache_cluster, topic)
    broker = apache_cluster.brokers[0]
    assert [(queues.broker_name, queues.read_queue_nums) for queues in route.queue_datas] == [
        (broker.name, 2)
    ]
    assert [found.broker_addrs for found in route.broker_datas] == [{0: broker.address}]


def test_an_unknown_topic_has_no_route(apache_cluster: ApacheCluster) -> None:
    with RawConnection(apache_cluster.nameserver) as names:
        answer = names.exchange(
            command(RequestCode.GET_ROUTEINFO_BY_TOPIC, GetRouteInfo(topic="nobody-made-this"))
        )
    assert answer.code == ResponseCode.TOPIC_NOT_EXIST


@pytest.mark.parametrize("serializer", [JSON_HEADER, BINARY_HEADER])
def test_a_heartbeat_makes_a_member(apache_cluster: ApacheCluster, topic: str, serializer: int) -> None:
    group = f"smoke-group-{serializer}-{topic}"
    subscription = SubscriptionData(topic=topic, sub_string="*", sub_version=1)
    consumer = ConsumerData(
        group_name=group, consume_type=ConsumeType.CONSUME_PASSIVELY, message_model=MessageModel.CLUSTERING,
        consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET, subscription_data_set=(subscription,),
    )  # fmt: skip
    heartbeat = HeartbeatData(client_id="127.0.0.1@smoke", consumer_data_set=(consumer,))
    with RawConnection(apache_cluster.brokers[0].address) as broker:
        beat = broker.exchange(
            command(RequestCode.HEART_BEAT, body=encode_body(heartbeat), serializer=serializer)
        )
        assert beat.code == ResponseCode.SUCCESS, beat.remark
        members = broker.exchange(
            command(
                RequestCode.GET_CONSUMER_LIST_BY_GROUP, GroupOnly(consumer_group=group), serializer=serializer
            )
        )
        assert members.code == ResponseCode.SUCCESS, members.remark
        assert decode_body(ConsumerIdList, members.body).consumer_id_list == ("127.0.0.1@smoke",)


def test_what_is_sent_is_pulled_field_by_field(apache_cluster: ApacheCluster, topic: str) -> None:
    properties = {
        "TAGS": "eu",
        "KEYS": "k1 k2",
        "UNIQ_KEY": "7F000001000018B4AAC27E32C6E70000",
        "user": "Grüße 🚀",
    }
    with RawConnection(apache_cluster.brokers[0].address) as broker:
        receipts = [send(broker, topic, b"body %d" % number, properties) for number in range(40)]
        assert [receipt.queue_offset for receipt in receipts] == list(range(40))
        messages = pulled(broker, topic, 40)
    for number, (message, receipt) in enumerate(zip(messages, receipts, strict=True)):
        assert message.body == b"body %d" % number
        assert message.crc_matches
        assert (message.topic, message.queue_id, message.queue_offset) == (topic, 1, number)
        assert (message.flag, message.born_timestamp, message.reconsume_times) == (7, 1_700_000_000_123, 0)
        assert (message.tag, message.keys, message.unique_id) == ("eu", ("k1", "k2"), properties["UNIQ_KEY"])
        assert message.properties["user"] == "Grüße 🚀"
        assert message.offset_message_id == receipt.msg_id
        assert decode_offset_message_id(receipt.msg_id).address == apache_cluster.brokers[0].address


def test_a_batch_is_stored_as_single_messages(apache_cluster: ApacheCluster, topic: str) -> None:
    entries = [
        BatchEntry(b"b%d" % number, encode_properties({"TAGS": "t", "n": str(number)})) for number in range(5)
    ]
    header = send_header(topic, {"WAIT": "true"}, batch=True)
    opaque = next(opaques)
    with RawConnection(apache_cluster.brokers[0].address) as broker:
        frame = encode_send_request(
            RequestCode.SEND_BATCH_MESSAGE, header, opaque=opaque, body=encode_batch(entries)
        )
        answer = broker.exchange(frame, opaque)
        assert answer.code == ResponseCode.SUCCESS, answer.remark
        ids = decode_ext(SendMessageResponse, answer.ext).msg_id.split(",")
        messages = pulled(broker, topic, 5)
    assert [message.body for message in messages] == [b"b0", b"b1", b"b2", b"b3", b"b4"]
    assert [message.properties["n"] for message in messages] == ["0", "1", "2", "3", "4"]
    assert [message.offset_message_id for message in messages] == ids


def test_a_message_is_found_by_its_id_and_the_offset_grows(apache_cluster: ApacheCluster, topic: str) -> None:
    with RawConnection(apache_cluster.brokers[0].address) as broker:
        receipt = send(broker, topic, b"find me", {"TAGS": "x"})
        at = decode_offset_message_id(receipt.msg_id).physical_offset
        viewed = broker.exchange(command(RequestCode.VIEW_MESSAGE_BY_ID, ViewMessage(offset=at)))
        assert [message.body for message in decode_messages(viewed.body)] == [b"find me"]
        pulled(broker, topic, 1)
        end = broker.exchange(command(RequestCode.GET_MAX_OFFSET, GetMaxOffset(topic=topic, queue_id=1)))
        assert decode_ext(OffsetResponse, end.ext).offset == 1


def test_a_queue_is_leased_to_one_client(apache_cluster: ApacheCluster, topic: str) -> None:
    queue = MessageQueue(topic, apache_cluster.brokers[0].name, 0)
    group = f"lease-{topic}"

    def lock(client: str) -> tuple[MessageQueue, ...]:
        body = encode_body(LockBatchRequestBody(consumer_group=group, client_id=client, mq_set=(queue,)))
        answer = broker.exchange(command(RequestCode.LOCK_BATCH_MQ, body=body))
        assert answer.code == ResponseCode.SUCCESS, answer.remark
        return decode_body(LockBatchResponseBody, answer.body).lock_ok_mq_set

    with RawConnection(apache_cluster.brokers[0].address) as broker:
        assert lock("a") == (queue,)
        assert lock("b") == ()
        assert lock("a") == (queue,)
