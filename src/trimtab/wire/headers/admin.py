"""Headers of the requests that tools and dashboards make to brokers."""

import msgspec

from trimtab.wire.headers.base import Header
from trimtab.wire.scalars import I32, I64


class CreateTopic(Header, frozen=True, kw_only=True):
    """UPDATE_AND_CREATE_TOPIC (17)."""

    topic: str
    default_topic: str
    read_queue_nums: I32
    write_queue_nums: I32
    perm: I32
    topic_filter_type: str
    topic_sys_flag: I32 | None = None
    order: bool = False
    attributes: str | None = None
    force: bool | None = None


class TopicOnly(Header, frozen=True, kw_only=True):
    """DELETE_TOPIC_IN_BROKER (215), GET_TOPIC_STATS_INFO (202), QUERY_TOPIC_CONSUME_BY_WHO (300)."""

    topic: str


class GetTopicConfig(Header, frozen=True, kw_only=True):
    """GET_TOPIC_CONFIG (351) of 5.x."""

    topic: str
    logical: bool | None = msgspec.field(name="lo", default=None)


class DeleteSubscriptionGroup(Header, frozen=True, kw_only=True):
    """DELETE_SUBSCRIPTIONGROUP (207): 4.9 says removeOffset, 5.x cleanOffset; either will do."""

    group_name: str
    remove_offset: bool | None = None
    clean_offset: bool | None = None


class GroupNamed(Header, frozen=True, kw_only=True):
    """GET_SUBSCRIPTIONGROUP_CONFIG (352) and QUERY_TOPICS_BY_CONSUMER (343) of 5.x."""

    group: str


class QuerySubscription(Header, frozen=True, kw_only=True):
    """QUERY_SUBSCRIPTION_BY_CONSUMER (345) of 5.x."""

    group: str
    topic: str | None = None


class ProducerGroupOnly(Header, frozen=True, kw_only=True):
    """GET_PRODUCER_CONNECTION_LIST (204)."""

    producer_group: str


class GetConsumeStats(Header, frozen=True, kw_only=True):
    """GET_CONSUME_STATS (208)."""

    consumer_group: str
    topic: str | None = None
    topic_list: str | None = None


class GetBrokerConsumeStats(Header, frozen=True, kw_only=True):
    """GET_BROKER_CONSUME_STATS (317)."""

    is_order: bool


class ResetOffset(Header, frozen=True, kw_only=True):
    """INVOKE_BROKER_TO_RESET_OFFSET (222); sent on to clients as RESET_CONSUMER_CLIENT_OFFSET (220)."""

    topic: str
    group: str
    timestamp: I64
    is_force: bool
    queue_id: I32 | None = None
    offset: I64 | None = None


class GetConsumerStatus(Header, frozen=True, kw_only=True):
    """INVOKE_BROKER_TO_GET_CONSUMER_STATUS (223), sent on as GET_CONSUMER_STATUS_FROM_CLIENT (221)."""

    topic: str
    group: str
    client_addr: str | None = None


class TopicAndGroup(Header, frozen=True, kw_only=True):
    """QUERY_CONSUME_TIME_SPAN (303)."""

    topic: str
    group: str


class QueryCorrectionOffset(Header, frozen=True, kw_only=True):
    """QUERY_CORRECTION_OFFSET (308)."""

    compare_group: str
    topic: str
    filter_groups: str | None = None


class CloneGroupOffset(Header, frozen=True, kw_only=True):
    """CLONE_GROUP_OFFSET (314)."""

    src_group: str
    dest_group: str
    topic: str | None = None
    offline: bool = False


class ViewBrokerStats(Header, frozen=True, kw_only=True):
    """VIEW_BROKER_STATS_DATA (315)."""

    stats_name: str
    stats_key: str


class QueryConsumeQueue(Header, frozen=True, kw_only=True):
    """QUERY_CONSUME_QUEUE (321)."""

    topic: str
    queue_id: I32
    index: I64
    count: I32
    consumer_group: str | None = None


class ResumeCheckHalfMessage(Header, frozen=True, kw_only=True):
    """RESUME_CHECK_HALF_MESSAGE (323)."""

    msg_id: str
    topic: str | None = None


class GetBrokerConfigResponse(Header, frozen=True, kw_only=True):
    """The data version of the settings in the body, as JSON."""

    version: str


class UpdateAclConfig(Header, frozen=True, kw_only=True):
    """UPDATE_AND_CREATE_ACL_CONFIG (50); the two lists are joined with commas."""

    access_key: str
    secret_key: str | None = None
    white_remote_address: str | None = None
    admin: bool = False
    default_topic_perm: str | None = None
    default_group_perm: str | None = None
    topic_perms: str | None = None
    group_perms: str | None = None

    def __repr__(self) -> str:
        """Without the secret, for logs."""
        return f"UpdateAclConfig(access_key={self.access_key!r}, admin={self.admin})"


class DeleteAclConfig(Header, frozen=True, kw_only=True):
    """DELETE_ACL_CONFIG (51)."""

    access_key: str


class UpdateGlobalWhiteAddrs(Header, frozen=True, kw_only=True):
    """UPDATE_GLOBAL_WHITE_ADDRS_CONFIG (53)."""

    global_white_addrs: str


class AclVersionResponse(Header, frozen=True, kw_only=True):
    """GET_BROKER_CLUSTER_ACL_INFO (52): which ACL files a broker has."""

    version: str
    broker_name: str
    broker_addr: str
    cluster_name: str
    all_acl_file_version: str | None = None
