"""Queues as keys, decoded the quick way: it says what the way that forgives says, or leaves it to that."""

import msgspec
import pytest

from trimtab.model import MessageQueue
from trimtab.wire.bodies import (
    Body,
    ConsumerRunningInfo,
    ConsumeStats,
    ConsumeStatsList,
    GetConsumerStatusBody,
    OffsetWrapper,
    PopProcessQueueInfo,
    ProcessQueueInfo,
    ResetOffsetBody,
    TopicList,
    decode_body,
    encode_body,
)
from trimtab.wire.queue_keys import queue_key_decoder

QUEUES = [MessageQueue("T", "b", number) for number in range(3)]
STATS = ConsumeStats(
    offset_table={queue: OffsetWrapper(broker_offset=9) for queue in QUEUES}, consume_tps=1.5
)
TABLE = dict.fromkeys(QUEUES, 7)


@pytest.mark.parametrize(
    "body",
    [
        STATS,
        ConsumeStats(),
        ConsumeStatsList(consume_stats_list=({"g": (STATS, STATS)}, {}), total_diff=5),
        ConsumerRunningInfo(
            properties={"a": "{1:2}"},
            mq_table={queue: ProcessQueueInfo(locked=True, commit_offset=3) for queue in QUEUES},
            mq_pop_table={QUEUES[0]: PopProcessQueueInfo(wait_ack_count=1)},
        ),
        ConsumerRunningInfo(mq_table={QUEUES[0]: ProcessQueueInfo()}),
        GetConsumerStatusBody(message_queue_table=TABLE, consumer_table={"c": TABLE, "d": {}}),
    ],
    ids=lambda body: type(body).__name__,
)
def test_what_is_usual_is_decoded_quickly(body: Body) -> None:
    quickly = queue_key_decoder(type(body))
    assert quickly is not None
    assert quickly(encode_body(body)) == body


def test_types_without_queues_as_keys_have_no_quick_way() -> None:
    assert queue_key_decoder(TopicList) is None


@pytest.mark.parametrize(
    "text",
    [
        '{"topic":"T","brokerName":"b","queueId":0}:5',
        '{"brokerName":"b","queueId":0,"topic":"\\u0054"}:5',
        '{"brokerName":"b","queueId":"0","topic":"T"}:5',
        '{"brokerName":"b","queueId":0,"topic":"T"}:"5"',
        '{"brokerName":"b","queueId":1,"topic":"T"}:null,{"brokerName":"b","queueId":0,"topic":"T"} : 5',
        '{"brokerName":"b","queueId":0,"topic":"T"}:4,{"brokerName":"b","topic":"T","queueId":0}:5',
    ],
)
def test_other_ways_to_write_the_same_come_to_the_same(text: str) -> None:
    data = f'{{"offsetTable":{{{text}}}}}'.encode()
    assert decode_body(ResetOffsetBody, data) == ResetOffsetBody(offset_table={QUEUES[0]: 5})


def test_a_text_that_looks_like_a_key_stays_a_text() -> None:
    looks = '{"brokerName":"b","queueId":0,"topic":"T"}:'
    body = ConsumerRunningInfo(properties={looks: looks}, mq_table={QUEUES[0]: ProcessQueueInfo()})
    assert decode_body(ConsumerRunningInfo, encode_body(body)) == body


@pytest.mark.parametrize(
    "key", ["5", '{"queueId":0,"topic":"T"}', '{"brokerName":1,"queueId":0,"topic":"T"}']
)
def test_what_is_no_queue_is_refused_here(key: str) -> None:
    quickly = queue_key_decoder(ResetOffsetBody)
    assert quickly is not None
    with pytest.raises(msgspec.DecodeError):
        quickly(f'{{"offsetTable":{{{key}:5}}}}'.encode())
