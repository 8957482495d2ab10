"""What brokers ask of a pull consumer, and what it tells: tools show it beside push consumers (mqadmin's consumerStatus does)."""

from collections.abc import Callable, Mapping

from trimtab.balance.progress import MIB
from trimtab.balance.start import StartRule
from trimtab.client.holdings import PROPERTY as HOLDINGS
from trimtab.client.holdings import Holding, holdings_text
from trimtab.client.pull_consumer_reading import Reading
from trimtab.client.pull_consumer_shelf import Shelved
from trimtab.client.push_running import CLIENT_VERSION, stacks
from trimtab.client.session import Session
from trimtab.model import MessageQueue
from trimtab.wire.bodies import ConsumerRunningInfo, ConsumeType, ProcessQueueInfo, SubscriptionData


class Answers:
    """Who is asked, for `BrokerRequests`. A message cannot be handled directly: there is no handler."""

    is_ordered = False

    def __init__(
        self,
        session: Session,
        reading: Reading,
        *,
        group: str,
        properties: Mapping[str, str],
        subscriptions: Callable[[], tuple[SubscriptionData, ...]],
        rebalance_soon: Callable[[], None],
    ) -> None:
        self.group_on_wire = group
        self._session = session
        self._reading = reading
        self._properties = properties
        self._subscriptions = subscriptions
        self._rebalance_soon = rebalance_soon

    def rebalance_soon(self) -> None:
        """Somebody joined or left."""
        self._rebalance_soon()

    async def reset_offsets(self, offsets: dict[MessageQueue, int]) -> None:
        """Goes on where an operator says; the broker leaves it to the members to store that."""
        queues = self._reading.shelf.queues
        moved = {queues[queue]: offset for queue, offset in offsets.items() if queue in queues}
        for shelved, offset in moved.items():
            self._reading.go_to(shelved, offset)
        await self._reading.commit_quietly(moved)

    def offsets_of(self, topic: str) -> dict[MessageQueue, int]:
        """How far the queues of a topic have come."""
        shelved = self._reading.shelf.queues.items()
        return {queue: one.done for queue, one in shelved if topic in ("", queue.topic)}

    def running_info(self, *, with_stacks: bool) -> ConsumerRunningInfo:
        """What this member tells tools about itself. Java's lite pull tells nothing of its queues; nobody minds that we do."""
        clock = self._session.clock
        lag_to_wall_ms = clock.wall_ms() - clock.monotonic_ms()
        return ConsumerRunningInfo(
            properties={**self._properties, HOLDINGS: self._held()},
            subscription_set=self._subscriptions(),
            mq_table={
                queue: _queue_info(one, lag_to_wall_ms) for queue, one in self._reading.shelf.queues.items()
            },
            jstack=stacks() if with_stacks else None,
        )

    def holdings_info(self) -> ConsumerRunningInfo:
        """What this member holds and nothing else, for other members."""
        return ConsumerRunningInfo(properties={HOLDINGS: self._held()})

    def _held(self) -> str:
        return holdings_text(map(_holding, self._reading.shelf.queues.values()))


def _holding(shelved: Shelved) -> Holding:
    queue = shelved.queue
    return Holding(
        topic=queue.topic, broker=queue.broker_name, queue_id=queue.queue_id, since_ms=shelved.since_wall_ms,
        lease_age_ms=None, in_flight=shelved.handed - shelved.done,
    )  # fmt: skip


def _queue_info(shelved: Shelved, lag_to_wall_ms: int) -> ProcessQueueInfo:
    """Nothing is decoded for it: offsets count for messages, also where a filter passed over some."""
    waiting = sum(pulled.next_offset - pulled.offset for pulled in shelved.answers)
    return ProcessQueueInfo(
        commit_offset=shelved.done,
        cached_msg_min_offset=shelved.answers[0].offset if waiting else 0,
        cached_msg_max_offset=shelved.answers[-1].next_offset - 1 if waiting else 0,
        cached_msg_count=waiting,
        cached_msg_size_in_mib=shelved.shelved_bytes // MIB,
        transaction_msg_count=shelved.handed - shelved.done,
        last_pull_timestamp=shelved.pulls.last_pull_ms + lag_to_wall_ms if shelved.pulls is not None else 0,
    )


def properties_of(
    *, nameserver: str, group: str, rule: StartRule, strategy: str, started_wall_ms: int
) -> dict[str, str]:
    """The options under Java's names; mqadmin parses the first ones and fails without them. PURE."""
    return {
        "PROP_NAMESERVER_ADDR": f"{nameserver};",
        "PROP_CONSUME_TYPE": ConsumeType.CONSUME_ACTIVELY.value,
        "PROP_CLIENT_VERSION": CLIENT_VERSION,
        "PROP_CONSUMER_START_TIMESTAMP": str(started_wall_ms),
        "PROP_CONSUMEORDERLY": "false",
        "PROP_THREADPOOL_CORE_SIZE": "0",
        "consumerGroup": group,
        "messageModel": "CLUSTERING",
        "consumeFromWhere": rule.where.value,
        "allocateMessageQueueStrategy": strategy,
        "client": "trimtab",
    }
