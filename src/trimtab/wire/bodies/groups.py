"""Groups as a broker keeps them, and who is connected."""

from msgspec import field

from trimtab.wire.bodies.base import Body
from trimtab.wire.bodies.enums import ConsumeFromWhere, ConsumeType, MessageModel, RetryPolicyType
from trimtab.wire.bodies.heartbeat import SubscriptionData
from trimtab.wire.bodies.topics import DataVersion
from trimtab.wire.codes import LanguageCode
from trimtab.wire.scalars import I32, I64


class ExponentialRetryPolicy(Body, frozen=True, kw_only=True):
    initial: I64 = 5_000
    max: I64 = 7_200_000
    multiplier: I64 = 2


class CustomizedRetryPolicy(Body, frozen=True, kw_only=True):
    next: tuple[I64, ...] = (
        *(1_000, 5_000, 10_000, 30_000),
        *(60_000, 120_000, 180_000, 240_000, 300_000, 360_000, 420_000, 480_000, 540_000, 600_000),
        *(1_200_000, 1_800_000, 3_600_000, 7_200_000),
    )


class GroupRetryPolicy(Body, frozen=True, kw_only=True):
    type: RetryPolicyType | None = RetryPolicyType.CUSTOMIZED
    exponential_retry_policy: ExponentialRetryPolicy | None = None
    customized_retry_policy: CustomizedRetryPolicy | None = None


class SimpleSubscriptionData(Body, frozen=True, kw_only=True):
    topic: str
    expression_type: str | None = None
    expression: str | None = None
    version: I64 = 0


class SubscriptionGroupConfig(Body, frozen=True, kw_only=True):
    group_name: str
    consume_enable: bool = True
    consume_from_min_enable: bool = True
    consume_broadcast_enable: bool = True
    retry_queue_nums: I32 = 1
    retry_max_times: I32 = 16
    broker_id: I64 = 0
    which_broker_when_consume_slowly: I64 = 1
    notify_consumer_ids_changed_enable: bool = True
    consume_message_orderly: bool | None = None
    group_retry_policy: GroupRetryPolicy | None = None
    group_sys_flag: I32 | None = None
    consume_timeout_minute: I32 | None = None
    subscription_data_set: tuple[SimpleSubscriptionData, ...] | None = None
    attributes: dict[str, str] | None = None


class SubscriptionGroupWrapper(Body, frozen=True, kw_only=True):
    subscription_group_table: dict[str, SubscriptionGroupConfig] = field(default_factory=dict)
    data_version: DataVersion = DataVersion()
    forbidden_table: dict[str, dict[str, I32]] | None = None


class Connection(Body, frozen=True, kw_only=True):
    client_id: str | None = None
    client_addr: str | None = None
    language: LanguageCode | None = None
    version: I32 = 0


class ConsumerConnection(Body, frozen=True, kw_only=True):
    connection_set: tuple[Connection, ...] = ()
    subscription_table: dict[str, SubscriptionData] = field(default_factory=dict)
    consume_type: ConsumeType | None = None
    message_model: MessageModel | None = None
    consume_from_where: ConsumeFromWhere | None = None


class LeasesOf(Body, frozen=True, kw_only=True):
    """The queues of one topic at the answering broker that one member has a lease on."""

    client_id: str
    topic: str
    queue_ids: tuple[I32, ...]


class ConsumerConnectionAndLeases(ConsumerConnection, frozen=True, kw_only=True):
    """The same with who holds what, for a member that asked for it. Stock brokers do not have these fields."""

    leases: tuple[LeasesOf, ...] | None = None
    lease_memory_ms: I64 | None = None
    """For how long the broker has known of every lease that it gave."""


class ProducerConnection(Body, frozen=True, kw_only=True):
    connection_set: tuple[Connection, ...] = ()


class ProducerInfo(Body, frozen=True, kw_only=True):
    client_id: str | None = None
    remote_ip: str | None = field(name="remoteIP", default=None)
    language: LanguageCode | None = None
    version: I32 = 0
    last_update_timestamp: I64 = 0


class ProducerTableInfo(Body, frozen=True, kw_only=True):
    data: dict[str, tuple[ProducerInfo, ...]] = field(default_factory=dict)
