"""Conversations as they were recorded: one honest request of each kind, in the bytes that a client sends."""

from trimtab.model import MessageQueue
from trimtab.wire.batch import BatchEntry, encode_batch
from trimtab.wire.bodies import (
    CheckClientRequestBody,
    ConsumerData,
    HeartbeatData,
    LockBatchRequestBody,
    ProducerData,
    SubscriptionData,
    SubscriptionGroupConfig,
)
from trimtab.wire.codes import RequestCode
from trimtab.wire.commands import Command, encode_command
from trimtab.wire.fastjson_writer import encode_body
from trimtab.wire.frames import BINARY_HEADER

TOPIC = "TopicTest"
GROUP = "g"

_SEND = {
    "a": "pg",
    "b": "Sent",
    "c": "TBW102",
    "d": "4",
    "e": "0",
    "f": "0",
    "g": "1",
    "h": "0",
    "i": "TAGS\1eu\2KEYS\1k\2",
}
_PULL = {
    "consumerGroup": GROUP, "topic": TOPIC, "queueId": "0", "queueOffset": "0", "maxMsgNums": "32", "sysFlag": "4",
    "commitOffset": "0", "suspendTimeoutMillis": "0", "subVersion": "1", "subscription": "*", "expressionType": "TAG",
}  # fmt: skip
_QUEUE = {"topic": TOPIC, "queueId": "0"}
_SUBSCRIPTION = SubscriptionData(topic=TOPIC, sub_string="*", sub_version=1)
_LOCK = encode_body(
    LockBatchRequestBody(consumer_group=GROUP, client_id="c", mq_set=(MessageQueue(TOPIC, "broker-a", 0),))
)
_BEAT = encode_body(
    HeartbeatData(
        client_id="c",
        producer_data_set=(ProducerData(group_name="pg"),),
        consumer_data_set=(ConsumerData(group_name=GROUP, subscription_data_set=(_SUBSCRIPTION,)),),
    )
)
_COMMIT = {"consumerGroup": GROUP, "topic": TOPIC, "queueId": "0", "commitOffset": "1"}

BROKER: list[tuple[RequestCode, dict[str, str], bytes]] = [
    (RequestCode.HEART_BEAT, {}, _BEAT),
    (RequestCode.SEND_MESSAGE_V2, _SEND, b"hello"),
    (RequestCode.SEND_BATCH_MESSAGE, _SEND | {"m": "true"}, encode_batch([BatchEntry(b"one", b""), BatchEntry(b"two", b"")])),
    (RequestCode.PULL_MESSAGE, _PULL, b""),
    (RequestCode.GET_MAX_OFFSET, _QUEUE, b""),
    (RequestCode.GET_MIN_OFFSET, _QUEUE, b""),
    (RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, _QUEUE | {"timestamp": "0"}, b""),
    (RequestCode.UPDATE_CONSUMER_OFFSET, _COMMIT, b""),
    (RequestCode.QUERY_CONSUMER_OFFSET, _QUEUE | {"consumerGroup": GROUP}, b""),
    (RequestCode.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": GROUP}, b""),
    (RequestCode.LOCK_BATCH_MQ, {}, _LOCK),
    (RequestCode.UNLOCK_BATCH_MQ, {}, _LOCK),
    (RequestCode.CHECK_CLIENT_CONFIG, {}, encode_body(CheckClientRequestBody(client_id="c", group=GROUP, subscription_data=_SUBSCRIPTION))),
    (RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, encode_body(SubscriptionGroupConfig(group_name=GROUP))),
]  # fmt: skip

NAMES: list[tuple[RequestCode, dict[str, str], bytes]] = [
    (RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "TBW102"}, b""),
    (RequestCode.GET_BROKER_CLUSTER_INFO, {}, b""),
    (RequestCode.PUT_KV_CONFIG, {"namespace": "n", "key": "k", "value": "v"}, b""),
    (RequestCode.GET_KV_CONFIG, {"namespace": "n", "key": "k"}, b""),
]


def frames(requests: list[tuple[RequestCode, dict[str, str], bytes]]) -> list[bytes]:
    """Their frames, with JSON headers and with binary ones."""
    found = []
    for number, (code, ext, body) in enumerate(requests):
        command = Command(code=code, opaque=number, ext=ext, body=body)
        found.append(encode_command(command))
        found.append(
            encode_command(
                Command(code=code, opaque=1_000 + number, ext=ext, body=body, serializer=BINARY_HEADER)
            )
        )
    return found
