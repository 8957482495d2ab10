"""A route as a client uses it: where to write, where to read, whom to call. PURE."""

from dataclasses import dataclass
from functools import cached_property

import msgspec

from trimtab.balance.pick import Writable
from trimtab.model import MessageQueue
from trimtab.wire.bodies import TopicRouteData

MASTER = 0
_READ = 4
_WRITE = 2


@dataclass(frozen=True)
class Route:
    """What a name server said of a topic."""

    topic: str
    data: TopicRouteData

    @cached_property
    def addresses(self) -> dict[str, dict[int, str]]:
        """Broker name to its addresses by id; 0 is the master."""
        return {broker.broker_name: dict(broker.broker_addrs) for broker in self.data.broker_datas}

    @cached_property
    def writable(self) -> Writable:
        """The queues that a producer may choose from: writable ones, of brokers that have a master."""
        if self.data.order_topic_conf:
            return Writable(self.topic, tuple(_ordered_queues(self.topic, self.data.order_topic_conf)))
        queues = [
            MessageQueue(self.topic, data.broker_name, number)
            for data in sorted(self.data.queue_datas, key=lambda data: data.broker_name)
            if data.perm & _WRITE and MASTER in self.addresses.get(data.broker_name, {})
            for number in range(data.write_queue_nums)
        ]
        return Writable(self.topic, tuple(queues))

    @cached_property
    def has_several_brokers(self) -> bool:
        """Whether a message that one broker does not take can go to another one."""
        return len({queue.broker_name for queue in self.writable.queues}) > 1

    @cached_property
    def readable(self) -> tuple[MessageQueue, ...]:
        """The queues that a group shares."""
        return tuple(
            MessageQueue(self.topic, data.broker_name, number)
            for data in sorted(self.data.queue_datas, key=lambda data: data.broker_name)
            if data.perm & _READ
            for number in range(data.read_queue_nums)
        )

    def master_of(self, broker_name: str) -> str | None:
        """The address of a broker's master."""
        return self.addresses.get(broker_name, {}).get(MASTER)


def as_new_topic(route: TopicRouteData, queues: int) -> TopicRouteData:
    """The default topic's route, for a topic that sending will create: no more queues than asked for."""
    clamped = [
        msgspec.structs.replace(data, read_queue_nums=count, write_queue_nums=count)
        for data in route.queue_datas
        for count in (min(queues, data.read_queue_nums),)
    ]
    return msgspec.structs.replace(route, queue_datas=tuple(clamped))


def _ordered_queues(topic: str, conf: str) -> list[MessageQueue]:
    """`broker-a:4;broker-b:4`, the order configuration of a topic."""
    queues = []
    for part in conf.split(";"):
        name, _, count = part.partition(":")
        if count.isdecimal():
            queues += [MessageQueue(topic, name, number) for number in range(int(count))]
    return queues
