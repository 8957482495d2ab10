"""Topics as a broker keeps them."""

from msgspec import field
from msgspec.structs import replace

from trimtab.wire.bodies.base import Body
from trimtab.wire.bodies.enums import TopicFilterType
from trimtab.wire.scalars import I32, I64


class DataVersion(Body, frozen=True, kw_only=True):
    """Changes whenever what it stands beside changes. Java's default timestamp is the present, ours is 0."""

    timestamp: I64 = 0
    counter: I64 = 0
    state_version: I64 | None = None

    def next(self, now_ms: int) -> "DataVersion":
        """The version after a change."""
        return replace(self, timestamp=now_ms, counter=self.counter + 1)


class TopicConfig(Body, frozen=True, kw_only=True):
    topic_name: str
    read_queue_nums: I32 = 16
    write_queue_nums: I32 = 16
    perm: I32 = 6
    topic_filter_type: TopicFilterType | None = TopicFilterType.SINGLE_TAG
    topic_sys_flag: I32 = 0
    order: bool = False
    attributes: dict[str, str] | None = None


class TopicConfigSerializeWrapper(Body, frozen=True, kw_only=True):
    topic_config_table: dict[str, TopicConfig] = field(default_factory=dict)
    data_version: DataVersion = DataVersion()


class LogicQueueMappingItem(Body, frozen=True, kw_only=True):
    gen: I32 = 0
    queue_id: I32 = 0
    bname: str | None = None
    logic_offset: I64 = 0
    start_offset: I64 = 0
    end_offset: I64 = -1
    time_of_start: I64 = -1
    time_of_end: I64 = -1


class TopicQueueMappingInfo(Body, frozen=True, kw_only=True):
    """Which queues of a static topic (5.x) lie on the broker `bname`."""

    topic: str | None = None
    scope: str = "__global__"
    total_queues: I32 = 0
    bname: str | None = None
    epoch: I64 = 0
    dirty: bool = False
    curr_id_map: dict[I32, I32] = field(default_factory=dict)


class TopicQueueMappingDetail(TopicQueueMappingInfo, frozen=True, kw_only=True):
    hosted_queues: dict[I32, tuple[LogicQueueMappingItem, ...]] = field(default_factory=dict)


class TopicConfigAndMapping(TopicConfig, frozen=True, kw_only=True):
    mapping_detail: TopicQueueMappingDetail | None = None
