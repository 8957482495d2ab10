"""Headers of the name server's requests."""

import msgspec

from trimtab.wire.headers.base import Header
from trimtab.wire.scalars import I32, I64


class GetRouteInfo(Header, frozen=True, kw_only=True):
    """GET_ROUTEINFO_BY_TOPIC (105)."""

    topic: str
    accept_standard_json_only: bool | None = None


class RegisterBroker(Header, frozen=True, kw_only=True):
    """REGISTER_BROKER (103)."""

    broker_name: str
    broker_addr: str
    cluster_name: str
    ha_server_addr: str
    broker_id: I64
    compressed: bool = False
    body_crc32: I32 = msgspec.field(name="bodyCrc32", default=0)
    heartbeat_timeout_millis: I64 | None = None
    enable_acting_master: bool | None = None


class RegisterBrokerResponse(Header, frozen=True, kw_only=True):
    """What a slave wants to know of its master."""

    ha_server_addr: str | None = None
    master_addr: str | None = None


class BrokerIdentity(Header, frozen=True, kw_only=True):
    """UNREGISTER_BROKER (104), QUERY_DATA_VERSION (322) and, in 5.x, BROKER_HEARTBEAT (904)."""

    broker_name: str
    broker_addr: str
    cluster_name: str
    broker_id: I64 | None = None
    heartbeat_timeout_mills: I64 | None = None


class QueryDataVersionResponse(Header, frozen=True, kw_only=True):
    """Has the broker something new to register?"""

    changed: bool


class PutKvConfig(Header, frozen=True, kw_only=True):
    """PUT_KV_CONFIG (100)."""

    namespace: str
    key: str
    value: str


class KvConfigKey(Header, frozen=True, kw_only=True):
    """GET_KV_CONFIG (101) and DELETE_KV_CONFIG (102)."""

    namespace: str
    key: str


class GetKvConfigResponse(Header, frozen=True, kw_only=True):
    """The value, if there is one."""

    value: str | None = None


class NamespaceOnly(Header, frozen=True, kw_only=True):
    """GET_KVLIST_BY_NAMESPACE (219)."""

    namespace: str


class ClusterOnly(Header, frozen=True, kw_only=True):
    """GET_TOPICS_BY_CLUSTER (224)."""

    cluster: str


class BrokerNameOnly(Header, frozen=True, kw_only=True):
    """WIPE_WRITE_PERM_OF_BROKER (205) and ADD_WRITE_PERM_OF_BROKER (327)."""

    broker_name: str


class WipeWritePermResponse(Header, frozen=True, kw_only=True):
    """How many topics lost their write permission."""

    wipe_topic_count: I32


class AddWritePermResponse(Header, frozen=True, kw_only=True):
    """How many topics got it back."""

    add_topic_count: I32


class DeleteTopicInNames(Header, frozen=True, kw_only=True):
    """DELETE_TOPIC_IN_NAMESRV (216)."""

    topic: str
    cluster_name: str | None = None


class RegisterTopic(Header, frozen=True, kw_only=True):
    """REGISTER_TOPIC_IN_NAMESRV (217) of 5.x."""

    topic: str


class GetBrokerMemberGroup(Header, frozen=True, kw_only=True):
    """GET_BROKER_MEMBER_GROUP (901) of 5.x."""

    cluster_name: str
    broker_name: str
