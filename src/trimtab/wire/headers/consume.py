"""Headers of consuming: pulls, offsets, membership, looking messages up."""

import msgspec

from trimtab.wire.headers.base import Header
from trimtab.wire.scalars import I32, I64


class PullMessage(Header, frozen=True, kw_only=True):
    """PULL_MESSAGE (11) and LITE_PULL_MESSAGE (361)."""

    consumer_group: str
    topic: str
    queue_id: I32
    queue_offset: I64
    max_msg_nums: I32
    sys_flag: I32
    commit_offset: I64
    suspend_timeout_millis: I64
    sub_version: I64
    subscription: str | None = None
    expression_type: str | None = None
    max_msg_bytes: I32 | None = None
    request_source: I32 | None = None
    # Java spells it so.
    proxy_froward_client_id: str | None = None
    lease_epoch: I64 | None = None
    """Ours alone: the lease under which `commit_offset` was reached."""


class PullMessageResponse(Header, frozen=True, kw_only=True):
    """Every answer to a pull carries the first four, found or not."""

    suggest_which_broker_id: I64
    next_begin_offset: I64
    min_offset: I64
    max_offset: I64
    offset_delta: I64 | None = None
    topic_sys_flag: I32 | None = None
    group_sys_flag: I32 | None = None
    forbidden_type: I32 | None = None


class QueueOnly(Header, frozen=True, kw_only=True):
    """A queue and nothing else: GET_MIN_OFFSET (31) and GET_EARLIEST_MSG_STORETIME (32)."""

    topic: str
    queue_id: I32


class GetMaxOffset(Header, frozen=True, kw_only=True):
    """GET_MAX_OFFSET (30)."""

    topic: str
    queue_id: I32
    committed: bool | None = None


class SearchOffset(Header, frozen=True, kw_only=True):
    """SEARCH_OFFSET_BY_TIMESTAMP (29); 5.x may add which side of a gap is meant."""

    topic: str
    queue_id: I32
    timestamp: I64
    boundary_type: str | None = None


class QueryConsumerOffset(Header, frozen=True, kw_only=True):
    """QUERY_CONSUMER_OFFSET (14)."""

    consumer_group: str
    topic: str
    queue_id: I32
    set_zero_if_not_found: bool | None = None


class UpdateConsumerOffset(Header, frozen=True, kw_only=True):
    """UPDATE_CONSUMER_OFFSET (15)."""

    consumer_group: str
    topic: str
    queue_id: I32
    commit_offset: I64
    lease_epoch: I64 | None = None
    """Ours alone: the lease under which this was reached. A broker of ours refuses it if the queue was leased anew since."""


class OffsetResponse(Header, frozen=True, kw_only=True):
    """One offset: the answer to 14, 29, 30 and 31."""

    offset: I64


class TimestampResponse(Header, frozen=True, kw_only=True):
    """One time in milliseconds: the answer to 32."""

    timestamp: I64


class ViewMessage(Header, frozen=True, kw_only=True):
    """VIEW_MESSAGE_BY_ID (33): by its place in the commit log."""

    offset: I64
    topic: str | None = None


class QueryMessage(Header, frozen=True, kw_only=True):
    """QUERY_MESSAGE (12): by key within a time range."""

    topic: str
    key: str
    max_num: I32
    begin_timestamp: I64
    end_timestamp: I64
    unique_key_query: bool | None = msgspec.field(name="_UNIQUE_KEY_QUERY", default=None)


class QueryMessageResponse(Header, frozen=True, kw_only=True):
    """How fresh the index is."""

    index_last_update_timestamp: I64
    index_last_update_phyoffset: I64


class GroupOnly(Header, frozen=True, kw_only=True):
    """GET_CONSUMER_LIST_BY_GROUP (38), NOTIFY_CONSUMER_IDS_CHANGED (40), GET_CONSUMER_CONNECTION_LIST (203)."""

    consumer_group: str


class GroupAndLeases(GroupOnly, frozen=True, kw_only=True):
    """GET_CONSUMER_CONNECTION_LIST (203), asked by a member of ours; only a broker of ours looks at the flag."""

    with_leases: bool | None = None


class UnregisterClient(Header, frozen=True, kw_only=True):
    """UNREGISTER_CLIENT (35)."""

    client_id: str | None = msgspec.field(name="clientID", default=None)
    producer_group: str | None = None
    consumer_group: str | None = None


class HeartbeatResponse(Header, frozen=True, kw_only=True):
    """What a 5.x broker adds to the answer of a heartbeat."""

    supports_v2: bool | None = msgspec.field(name="IS_SUPPORT_HEART_BEAT_V2", default=None)
    subscription_changed: bool | None = msgspec.field(name="IS_SUB_CHANGE", default=None)
