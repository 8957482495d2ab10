"""Headers of sending: messages, batches, replies, the end of a transaction, a message sent back."""

import msgspec

from trimtab.wire.headers.base import Header
from trimtab.wire.scalars import I32, I64


class SendMessage(Header, frozen=True, kw_only=True):
    """SEND_MESSAGE (10) and SEND_REPLY_MESSAGE (324): the long names."""

    producer_group: str
    topic: str
    default_topic: str
    default_topic_queue_nums: I32
    queue_id: I32
    sys_flag: I32
    born_timestamp: I64
    flag: I32
    properties: str | None = None
    reconsume_times: I32 | None = None
    unit_mode: bool = False
    batch: bool = False
    max_reconsume_times: I32 | None = None


class SendMessageV2(Header, frozen=True, kw_only=True):
    """SEND_MESSAGE_V2 (310), SEND_BATCH_MESSAGE (320) and SEND_REPLY_MESSAGE_V2 (325): one letter a field."""

    producer_group: str = msgspec.field(name="a")
    topic: str = msgspec.field(name="b")
    default_topic: str = msgspec.field(name="c")
    default_topic_queue_nums: I32 = msgspec.field(name="d")
    queue_id: I32 = msgspec.field(name="e")
    sys_flag: I32 = msgspec.field(name="f")
    born_timestamp: I64 = msgspec.field(name="g")
    flag: I32 = msgspec.field(name="h")
    properties: str | None = msgspec.field(name="i", default=None)
    reconsume_times: I32 | None = msgspec.field(name="j", default=None)
    unit_mode: bool = msgspec.field(name="k", default=False)
    max_reconsume_times: I32 | None = msgspec.field(name="l", default=None)
    batch: bool = msgspec.field(name="m", default=False)
    broker_name: str | None = msgspec.field(name="n", default=None)


class SendMessageResponse(Header, frozen=True, kw_only=True):
    """Where the message went. Java dereferences the first three without looking."""

    msg_id: str
    queue_id: I32
    queue_offset: I64
    transaction_id: str | None = None
    region: str | None = msgspec.field(name="MSG_REGION", default=None)
    trace_on: str | None = msgspec.field(name="TRACE_ON", default=None)
    batch_uniq_id: str | None = None
    recall_handle: str | None = None


class ConsumerSendMsgBack(Header, frozen=True, kw_only=True):
    """CONSUMER_SEND_MSG_BACK (36): try this message again later, or bury it."""

    offset: I64
    group: str
    delay_level: I32
    origin_msg_id: str | None = None
    origin_topic: str | None = None
    unit_mode: bool = False
    max_reconsume_times: I32 | None = None


class EndTransaction(Header, frozen=True, kw_only=True):
    """END_TRANSACTION (37), always one-way."""

    producer_group: str
    tran_state_table_offset: I64
    commit_log_offset: I64
    commit_or_rollback: I32
    msg_id: str
    from_transaction_check: bool = False
    transaction_id: str | None = None
    topic: str | None = None


class RecallMessage(Header, frozen=True, kw_only=True):
    """RECALL_MESSAGE (370) of 5.x: take a timer message back."""

    topic: str
    recall_handle: str
    producer_group: str | None = None


class RecallMessageResponse(Header, frozen=True, kw_only=True):
    """The id of the message taken back."""

    msg_id: str
