"""A large cluster from nothing: what brokers of ours would have kept of many topics and groups is put into their stores."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.unit.cli.verbs import online
from tests.unit.client.admin_member import ScriptedMember
from trimtab.broker.states import GROUPS, OFFSETS, TOPICS
from trimtab.broker.store import Store
from trimtab.io.disk import RealDisk
from trimtab.model import MessageQueue
from trimtab.testing import BlockingCluster, Cluster
from trimtab.wire.bodies import (
    ConsumerOffsets,
    ProcessQueueInfo,
    SubscriptionGroupConfig,
    SubscriptionGroupWrapper,
    TopicConfig,
    TopicConfigSerializeWrapper,
)
from trimtab.wire.fastjson_writer import encode_body

BROKERS = ("broker-a", "broker-b")
WIDE = "wide"
"""The group that consumes all topics."""


@dataclass(frozen=True)
class Size:
    topics: int = 2_000
    wide_topics: int = 1_000
    """Those that the wide group consumes: a heartbeat may not name more. The others have one queue at each broker."""
    groups: int = 1_000
    queues: int = 10
    """Of each topic of the wide group, at each broker."""
    members: int = 10
    """Of the wide group."""
    dead: int = 500
    """Groups with a topic of dead letters."""

    @property
    def wide_queues(self) -> int:
        return self.wide_topics * self.queues * len(BROKERS)

    @property
    def topic_names(self) -> list[str]:
        return [f"topic-{number:04}" for number in range(self.topics)]

    @property
    def group_names(self) -> list[str]:
        return [WIDE, *(f"group-{number:04}" for number in range(self.groups - 1))]


def put_in_place(directory: Path, size: Size) -> None:
    """Every group has offsets in one topic, the wide one in a thousand."""
    names, groups = size.topic_names, size.group_names
    counts = {name: size.queues if at < size.wide_topics else 1 for at, name in enumerate(names)} | {
        f"%RETRY%{WIDE}": 1
    }
    counts |= {f"%DLQ%{group}": 1 for group in groups[1 : size.dead + 1]}
    topics = {
        name: TopicConfig(topic_name=name, read_queue_nums=count, write_queue_nums=count)
        for name, count in counts.items()
    }
    offsets = {f"{name}@{WIDE}": dict.fromkeys(range(counts[name]), 0) for name in names[: size.wide_topics]}
    for name, group in zip(names, groups[1:], strict=False):
        offsets[f"{name}@{group}"] = dict.fromkeys(range(counts[name]), 0)
    table = {name: SubscriptionGroupConfig(group_name=name) for name in groups}
    for broker in BROKERS:
        store = Store.open(RealDisk(directory / broker))
        store.save_state(TOPICS, encode_body(TopicConfigSerializeWrapper(topic_config_table=topics)))
        store.save_state(GROUPS, encode_body(SubscriptionGroupWrapper(subscription_group_table=table)))
        store.save_state(OFFSETS, encode_body(ConsumerOffsets(offset_table=offsets)))
        store.close()


def wide_members(size: Size) -> list[ScriptedMember]:
    """Each holds its part of all queues."""
    queues = [
        MessageQueue(name, broker, number)
        for name in size.topic_names[: size.wide_topics]
        for broker in BROKERS
        for number in range(size.queues)
    ]
    wanted = dict.fromkeys(size.topic_names[: size.wide_topics], "*")
    return [
        ScriptedMember(
            WIDE,
            f"c-{at}",
            wanted,
            {queue: ProcessQueueInfo(last_pull_timestamp=1) for queue in queues[at :: size.members]},
        )
        for at in range(size.members)
    ]


@contextmanager
def large_cluster(directory: Path, size: Size | None = None) -> Iterator[BlockingCluster]:
    """It runs, and the wide group's members are there."""
    size = size or Size()
    put_in_place(directory, size)
    with (
        Cluster(brokers=len(BROKERS), directory=directory, flush="async") as cluster,
        online(wide_members(size), list(cluster.brokers.values())),
    ):
        yield cluster
