"""Headers of what a broker asks its clients."""

from trimtab.wire.headers.base import Header
from trimtab.wire.scalars import I32, I64


class CheckTransactionState(Header, frozen=True, kw_only=True):
    """CHECK_TRANSACTION_STATE (39): what became of this half message?"""

    tran_state_table_offset: I64
    commit_log_offset: I64
    msg_id: str | None = None
    transaction_id: str | None = None
    offset_msg_id: str | None = None
    topic: str | None = None


class GetConsumerRunningInfo(Header, frozen=True, kw_only=True):
    """GET_CONSUMER_RUNNING_INFO (307), by a tool to the broker and by the broker to the client."""

    consumer_group: str
    client_id: str
    jstack_enable: bool = False


class GetHoldings(GetConsumerRunningInfo, frozen=True, kw_only=True):
    """The same between members of ours: brokers pass the flag on, and the answer tells nothing but what is held."""

    holdings_only: bool | None = None


class GetInfoOfOurs(GetHoldings, frozen=True, kw_only=True):
    """The same of a producer: brokers of ours pass it on, stock ones look for a consumer."""

    of_producer: bool | None = None


class ConsumeMessageDirectly(Header, frozen=True, kw_only=True):
    """CONSUME_MESSAGE_DIRECTLY (309): run the handler on this message, now."""

    consumer_group: str
    client_id: str | None = None
    msg_id: str | None = None
    broker_name: str | None = None
    topic: str | None = None
    topic_sys_flag: I32 | None = None
    group_sys_flag: I32 | None = None


class PushReplyMessage(Header, frozen=True, kw_only=True):
    """PUSH_REPLY_MESSAGE_TO_CLIENT (326): the answer to a request of yours."""

    topic: str
    queue_id: I32
    sys_flag: I32
    born_timestamp: I64
    flag: I32
    born_host: str
    store_host: str
    store_timestamp: I64
    producer_group: str | None = None
    default_topic: str | None = None
    default_topic_queue_nums: I32 | None = None
    properties: str | None = None
    reconsume_times: I32 | None = None
    unit_mode: bool = False
