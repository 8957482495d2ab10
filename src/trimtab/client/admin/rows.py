"""What `Admin` answers: frozen values with names that stay, since `--json` shows them."""

from typing import Literal

import msgspec

from trimtab.client.producer_standings import Standing
from trimtab.model import MessageQueue

Perm = Literal["rw", "r", "w", "none"]


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """Base of all answers. Times are milliseconds since 1970; what cannot be known is None."""


class BrokerFailure(Row, frozen=True):
    """A server that did not answer, or refused. The others' answers stand beside it."""

    broker: str
    address: str
    error: str
    unreachable: bool


# --- topics -----------------------------------------------------------------------------------------------------


class TopicOnBroker(Row, frozen=True):
    """A topic as one broker keeps it."""

    broker: str
    read_queues: int
    write_queues: int
    perm: Perm
    order: bool = False
    sys_flag: int = 0
    attributes: dict[str, str] = {}


class TopicSettings(Row, frozen=True):
    """A topic as its brokers keep it."""

    topic: str
    brokers: tuple[TopicOnBroker, ...]
    failures: tuple[BrokerFailure, ...] = ()


class BrokerPlace(Row, frozen=True):
    """A broker and its addresses by id; 0 is the master."""

    broker: str
    cluster: str
    addresses: dict[int, str]

    @property
    def master(self) -> str | None:
        """The master's address, if one is registered."""
        return self.addresses.get(0)

    @property
    def any_address(self) -> str:
        """The master's, else that of the lowest id."""
        return self.addresses[min(self.addresses)]


class TopicRoute(Row, frozen=True):
    """What name servers tell clients of a topic."""

    topic: str
    queues: tuple[TopicOnBroker, ...]
    brokers: tuple[BrokerPlace, ...]
    order_conf: str | None = None


class QueueRange(Row, frozen=True):
    """What lies in a queue: offsets from `min_offset` up to, but not including, `max_offset`."""

    topic: str
    broker: str
    queue_id: int
    min_offset: int
    max_offset: int
    oldest_ms: int | None = None
    newest_ms: int | None = None

    @property
    def queue(self) -> MessageQueue:
        """As a value."""
        return MessageQueue(self.topic, self.broker, self.queue_id)


class TopicQueues(Row, frozen=True):
    """All queues of a topic."""

    topic: str
    queues: tuple[QueueRange, ...]
    failures: tuple[BrokerFailure, ...] = ()

    @property
    def messages(self) -> int:
        """How many lie in them."""
        return sum(row.max_offset - row.min_offset for row in self.queues)


# --- groups -----------------------------------------------------------------------------------------------------


class GroupOnBroker(Row, frozen=True):
    """A group of consumers as one broker keeps it."""

    broker: str
    enabled: bool
    broadcast_enabled: bool
    retry_queues: int
    retries_max: int
    notify_members: bool


class GroupSettings(Row, frozen=True):
    """A group as its brokers keep it."""

    group: str
    brokers: tuple[GroupOnBroker, ...]
    failures: tuple[BrokerFailure, ...] = ()


class Names(Row, frozen=True):
    """Names, sorted."""

    names: tuple[str, ...]
    failures: tuple[BrokerFailure, ...] = ()


class Subscription(Row, frozen=True):
    """What a group wants of a topic."""

    topic: str
    expression: str
    kind: str = "TAG"
    version: int = 0


class Member(Row, frozen=True):
    """A client as a broker sees it."""

    client_id: str
    address: str
    language: str
    version: int


class BrokerView(Row, frozen=True):
    """A group as one broker sees it now."""

    broker: str
    members: tuple[Member, ...]
    subscriptions: tuple[Subscription, ...]
    consume_type: str
    message_model: str
    consume_from: str
    tells_leases: bool = False
    """Whether members learn from this broker who holds what, as from those of ours."""


class GroupMembers(Row, frozen=True):
    """Who is there, as each broker sees it. A group that no broker sees has no views."""

    group: str
    views: tuple[BrokerView, ...]
    failures: tuple[BrokerFailure, ...] = ()

    @property
    def client_ids(self) -> tuple[str, ...]:
        """All members, each once."""
        return tuple(sorted({member.client_id for view in self.views for member in view.members}))

    @property
    def knows_holders(self) -> bool:
        """Whether members in leased mode know who holds what."""
        return bool(self.views) and all(view.tells_leases for view in self.views)


class QueueProgress(Row, frozen=True, gc=False):
    """How far a group has come in a queue."""

    topic: str
    broker: str
    queue_id: int
    offset: int
    max_offset: int
    consumed_ms: int | None = None
    """Store time of the last message that was consumed."""

    @property
    def lag(self) -> int:
        """Messages that wait."""
        return self.max_offset - self.offset

    def lag_ms(self, now_ms: int) -> int | None:
        """How old the last consumed message is while others wait; 0 if none waits."""
        if self.lag <= 0:
            return 0
        return None if self.consumed_ms is None else max(0, now_ms - self.consumed_ms)

    @property
    def queue(self) -> MessageQueue:
        """As a value."""
        return MessageQueue(self.topic, self.broker, self.queue_id)


class GroupProgress(Row, frozen=True):
    """How far a group has come."""

    group: str
    queues: tuple[QueueProgress, ...]
    consumed_per_s: float = 0.0
    failures: tuple[BrokerFailure, ...] = ()

    @property
    def lag(self) -> int:
        """Messages that wait, in all queues."""
        return sum(queue.lag for queue in self.queues)


class GroupLine(Row, frozen=True):
    """A group at a glance."""

    group: str
    members: int | None
    """None: no broker that answered sees one, and not all answered."""
    lag: int
    consumed_per_s: float
    same_ids: tuple[str, ...] = ()
    """Client ids that a broker sees more than once."""


class GroupLines(Row, frozen=True):
    """All groups at a glance."""

    groups: tuple[GroupLine, ...]
    failures: tuple[BrokerFailure, ...] = ()


class HeldQueue(Row, frozen=True, gc=False):
    """A queue that a member works on, as the member says."""

    topic: str
    broker: str
    queue_id: int
    committed: int
    cached: int
    cached_mib: int
    locked: bool
    dropped: bool
    last_pull_ms: int | None
    last_consume_ms: int | None
    last_lock_ms: int | None
    since_ms: int | None = None
    """When it took the queue, if it says so: members of ours do."""
    lease_age_ms: int | None = None
    """How long ago its lease was renewed, if it has one and says so."""

    @property
    def queue(self) -> MessageQueue:
        """As a value."""
        return MessageQueue(self.topic, self.broker, self.queue_id)


class QueueLine(Row, frozen=True, gc=False):
    """A queue of a group as it is shown: who holds it, and how far it is. What cannot be known is None."""

    topic: str
    broker: str
    queue_id: int
    holders: tuple[str, ...]
    lease: str | None
    lease_age_ms: int | None
    """How long ago the holder renewed its lease."""
    since_ms: int | None
    """Since when the holder has it, where that was recorded."""
    offset: int | None = None
    """None, as the three after it: held, and nothing was committed yet."""
    max_offset: int | None = None
    lag: int | None = None
    lag_ms: int | None = None
    per_s: float | None = None
    eta_ms: int | None = None


class TopicPace(Row, frozen=True):
    """How fast a member works on a topic: per second, and milliseconds."""

    topic: str
    pulled_per_s: float
    consumed_per_s: float
    failed_per_s: float
    pull_ms: float
    consume_ms: float
    failed_last_hour: int


class MemberState(Row, frozen=True):
    """What a member says of itself."""

    client_id: str
    properties: dict[str, str]
    subscriptions: tuple[Subscription, ...]
    queues: tuple[HeldQueue, ...]
    pace: tuple[TopicPace, ...]
    extra: dict[str, str] = {}
    jstack: str | None = None


class MemberStates(Row, frozen=True):
    """What the members of a group say; who does not answer is among the failures, by client id."""

    group: str
    members: tuple[MemberState, ...]
    failures: tuple[BrokerFailure, ...] = ()


class QueueMove(Row, frozen=True):
    """A queue before and after a change of offsets. `before` is None for a queue that has no offset yet."""

    topic: str
    broker: str
    queue_id: int
    before: int | None
    after: int
    min_offset: int
    max_offset: int


class OffsetChange(Row, frozen=True):
    """What a change of offsets does, queue by queue, and how it was or would be done."""

    group: str
    topic: str
    moves: tuple[QueueMove, ...]
    through: Literal["members", "broker", "nothing"]
    """`members`: they are told and commit the new offsets; `broker`: set there, nobody is connected."""


class GroupOffset(Row, frozen=True):
    """What a group committed in a queue; None if nothing."""

    topic: str
    broker: str
    queue_id: int
    offset: int | None


class MemberOffset(Row, frozen=True):
    """How far a member says that it is in a queue; behind what it holds in memory, and ahead of what it has committed."""

    client_id: str
    topic: str
    broker: str
    queue_id: int
    offset: int


class MemberOffsets(Row, frozen=True):
    """What the members of a group say of a topic's queues."""

    offsets: tuple[MemberOffset, ...]
    failures: tuple[BrokerFailure, ...] = ()


# --- messages ---------------------------------------------------------------------------------------------------


class FoundMessage(Row, frozen=True):
    """A message as a broker keeps it."""

    topic: str
    broker_name: str
    queue_id: int
    queue_offset: int
    body: bytes
    tag: str | None
    keys: tuple[str, ...]
    properties: dict[str, str]
    message_id: str
    offset_message_id: str
    born_timestamp: int
    store_timestamp: int
    reconsume_times: int
    born_host: str
    store_host: str
    stored_size: int

    @property
    def queue(self) -> MessageQueue:
        """Where it lies."""
        return MessageQueue(self.topic, self.broker_name, self.queue_id)


class FoundMessages(Row, frozen=True):
    """Messages, oldest first."""

    messages: tuple[FoundMessage, ...]
    failures: tuple[BrokerFailure, ...] = ()


class ReadMessages(Row, frozen=True):
    """What was read from a queue, and where to go on."""

    messages: tuple[FoundMessage, ...]
    next_offset: int
    min_offset: int
    max_offset: int


class ResentMessage(Row, frozen=True):
    """Where a copy of a message went."""

    message_id: str
    offset_message_id: str
    topic: str
    broker: str
    queue_id: int
    queue_offset: int


class HandledDirectly(Row, frozen=True):
    """What came of a message that a member was told to handle."""

    result: str
    spent_ms: int
    ordered: bool
    remark: str | None = None


class TraceStep(Row, frozen=True):
    """One thing that happened to a message."""

    what: Literal["sent", "received", "handled", "transaction-ended"]
    at_ms: int
    group: str
    ok: bool
    cost_ms: int | None = None
    topic: str | None = None
    host: str | None = None
    retries: int | None = None
    detail: str | None = None


class MessageTrace(Row, frozen=True):
    """What is recorded of a message, in the order of time."""

    message_id: str
    steps: tuple[TraceStep, ...]
    failures: tuple[BrokerFailure, ...] = ()


# --- the cluster ------------------------------------------------------------------------------------------------


class ClusterView(Row, frozen=True):
    """All brokers that the name server knows."""

    brokers: tuple[BrokerPlace, ...]

    @property
    def clusters(self) -> tuple[str, ...]:
        """Their clusters, each once."""
        return tuple(sorted({place.cluster for place in self.brokers}))


class BrokerState(Row, frozen=True):
    """What a broker says of itself; `facts` has everything, in its own names."""

    broker: str
    broker_id: int
    address: str
    cluster: str
    version: str | None
    put_per_s: float | None
    get_per_s: float | None
    disk_used: float | None
    """The share of the disk that is in use, 0 to 1."""
    started_ms: int | None
    facts: dict[str, str]


class BrokerStates(Row, frozen=True):
    """All brokers."""

    brokers: tuple[BrokerState, ...]
    failures: tuple[BrokerFailure, ...] = ()


class QueueEntry(Row, frozen=True, gc=False):
    """Where a message of a queue lies in its broker's log, and the hash of its tag."""

    queue_offset: int
    physical_offset: int
    stored_size: int
    tag_hash: int


class QueueEntries(Row, frozen=True):
    """Entries of a queue, and from where to where the queue reaches."""

    entries: tuple[QueueEntry, ...]
    min_offset: int
    max_offset: int


class BrokerTexts(Row, frozen=True):
    """Settings of brokers or of name servers: name to value, by server."""

    settings: dict[str, dict[str, str]]
    failures: tuple[BrokerFailure, ...] = ()


class Rate(Row, frozen=True):
    """A figure that a broker keeps: over the last minute, hour and day."""

    broker: str
    per_s_minute: float
    per_s_hour: float
    per_s_day: float
    sum_minute: int
    sum_hour: int
    sum_day: int


class Rates(Row, frozen=True):
    """A figure at each broker."""

    name: str
    key: str
    rates: tuple[Rate, ...]
    failures: tuple[BrokerFailure, ...] = ()


class DeadLetterGroup(Row, frozen=True):
    """A group with dead letters."""

    group: str
    messages: int
    newest_ms: int | None


class DeadLetterGroups(Row, frozen=True):
    """All of them, and who did not answer."""

    groups: tuple[DeadLetterGroup, ...]
    failures: tuple[BrokerFailure, ...] = ()


class ProducerView(Row, frozen=True):
    """Producers of a group, each once."""

    group: str
    members: tuple[Member, ...]
    failures: tuple[BrokerFailure, ...] = ()


class ProducerChoices(Row, frozen=True):
    """How a producer sees the brokers, in its own words."""

    client_id: str
    policy: str
    brokers: tuple[Standing, ...]


class ProducersChoices(Row, frozen=True):
    """How the producers of a group see the brokers."""

    group: str
    producers: tuple[ProducerChoices, ...]
    untold: tuple[str, ...] = ()
    """Client ids of those that do not tell: other SDKs, and all behind stock brokers."""


class ProducerGroup(Row, frozen=True):
    """A group of producers, and how many of them are connected."""

    group: str
    members: int


class ProducerGroups(Row, frozen=True):
    """Groups of producers that are connected."""

    groups: tuple[ProducerGroup, ...]
    untold: tuple[str, ...] = ()
    """Brokers that have no such list: Apache's before 4.9.4."""
    failures: tuple[BrokerFailure, ...] = ()


class Account(Row, frozen=True):
    """An account of a broker with ACL; its secret is not shown."""

    access_key: str
    admin: bool
    white_remote_address: str | None
    default_topic_perm: str | None
    default_group_perm: str | None
    topic_perms: tuple[str, ...]
    group_perms: tuple[str, ...]


class Accounts(Row, frozen=True):
    """The accounts of a broker."""

    broker: str
    accounts: tuple[Account, ...]
    global_white_addresses: tuple[str, ...]


class RouteOfNameserver(Row, frozen=True):
    """What one name server says of a topic; None: it does not know it."""

    nameserver: str
    route: TopicRoute | None
