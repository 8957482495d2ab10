"""Where topics are: what a name server knows."""

from msgspec import field

from trimtab.wire.bodies.base import Body
from trimtab.wire.bodies.topics import TopicQueueMappingInfo
from trimtab.wire.scalars import I32, I64


class QueueData(Body, frozen=True, kw_only=True):
    broker_name: str
    read_queue_nums: I32 = 0
    write_queue_nums: I32 = 0
    perm: I32 = 0
    topic_sys_flag: I32 = 0


class BrokerData(Body, frozen=True, kw_only=True):
    cluster: str | None = None
    broker_name: str
    broker_addrs: dict[I64, str] = field(default_factory=dict)
    """Broker id to address; 0 is the master."""
    zone_name: str | None = None
    enable_acting_master: bool | None = None


class TopicRouteData(Body, frozen=True, kw_only=True):
    order_topic_conf: str | None = None
    """`broker-a:4;broker-b:4`, for ordered topics that are configured so."""
    queue_datas: tuple[QueueData, ...] = ()
    broker_datas: tuple[BrokerData, ...] = ()
    filter_server_table: dict[str, tuple[str, ...]] = field(default_factory=dict)
    topic_queue_mapping_by_broker: dict[str, TopicQueueMappingInfo] | None = None


class ClusterInfo(Body, frozen=True, kw_only=True):
    broker_addr_table: dict[str, BrokerData] = field(default_factory=dict)
    cluster_addr_table: dict[str, tuple[str, ...]] = field(default_factory=dict)
