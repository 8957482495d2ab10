"""The clients without await: the same names, the same arguments, methods that wait.

    with trimtab.blocking.Producer("orders", nameserver="127.0.0.1:9876") as producer:
        receipt = producer.send(trimtab.Message("orders", b"..."))

`trimtab.client.blocking` tells how it works and how a client gets its face here.
"""

import asyncio
import inspect
from collections.abc import Callable, Coroutine, Iterable, Iterator
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from trimtab.client import admin as _admin
from trimtab.client import producer as _producer
from trimtab.client import pull_consumer as _pull
from trimtab.client import push as _push
from trimtab.client.blocking import Face, shown, stop, told, waits
from trimtab.client.pull_consumer_offsets import Where
from trimtab.client.received import Received
from trimtab.client.subscriptions import Expression
from trimtab.model import MessageQueue

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Admin", "Producer", "PullConsumer", "PushConsumer", "stop"]

CALLBACKS = ("on_assigned", "on_revoked", "on_lost")


class Producer(Face[_producer.Producer]):
    """`trimtab.Producer` without await. A function for `send_in_transaction` may be a plain one; it runs in a thread of its own."""

    made = _producer.Producer
    group = shown(lambda client: str(client.group))
    client_id = shown(lambda client: str(client.client_id))
    brokers = told(_producer.Producer.brokers)
    send = waits(_producer.Producer.send)
    send_many = waits(_producer.Producer.send_many)
    send_batch = waits(_producer.Producer.send_batch)
    send_oneway = waits(_producer.Producer.send_oneway)
    send_in_transaction = waits(_producer.Producer.send_in_transaction)
    request = waits(_producer.Producer.request)
    reply = waits(_producer.Producer.reply)


class Admin(Face[_admin.Admin]):
    """`trimtab.Admin` without await."""

    made = _admin.Admin
    nameservers = shown(lambda client: client.nameservers)
    topics = waits(_admin.Admin.topics)
    create_topic = waits(_admin.Admin.create_topic)
    alter_topic = waits(_admin.Admin.alter_topic)
    delete_topic = waits(_admin.Admin.delete_topic)
    topic_route = waits(_admin.Admin.topic_route)
    topic_routes = waits(_admin.Admin.topic_routes)
    topic_settings = waits(_admin.Admin.topic_settings)
    topic_queues = waits(_admin.Admin.topic_queues)
    offset_at = waits(_admin.Admin.offset_at)
    topic_groups = waits(_admin.Admin.topic_groups)
    groups = waits(_admin.Admin.groups)
    group_lines = waits(_admin.Admin.group_lines)
    group_settings = waits(_admin.Admin.group_settings)
    create_group = waits(_admin.Admin.create_group)
    alter_group = waits(_admin.Admin.alter_group)
    delete_group = waits(_admin.Admin.delete_group)
    members = waits(_admin.Admin.members)
    member_state = waits(_admin.Admin.member_state)
    member_states = waits(_admin.Admin.member_states)
    progress = waits(_admin.Admin.progress)
    group_offsets = waits(_admin.Admin.group_offsets)
    member_offsets = waits(_admin.Admin.member_offsets)
    set_offset = waits(_admin.Admin.set_offset)
    reset_offsets = waits(_admin.Admin.reset_offsets)
    clone_offsets = waits(_admin.Admin.clone_offsets)
    message = waits(_admin.Admin.message)
    message_at = waits(_admin.Admin.message_at)
    messages_by_id = waits(_admin.Admin.messages_by_id)
    messages_by_key = waits(_admin.Admin.messages_by_key)
    read = waits(_admin.Admin.read)
    queue_entries = waits(_admin.Admin.queue_entries)
    handle_directly = waits(_admin.Admin.handle_directly)
    message_trace = waits(_admin.Admin.message_trace)
    cluster = waits(_admin.Admin.cluster)
    broker_states = waits(_admin.Admin.broker_states)
    broker_settings = waits(_admin.Admin.broker_settings)
    change_broker_settings = waits(_admin.Admin.change_broker_settings)
    clean_queues = waits(_admin.Admin.clean_queues)
    clean_topics = waits(_admin.Admin.clean_topics)
    broker_rates = waits(_admin.Admin.broker_rates)
    producers = waits(_admin.Admin.producers)
    producer_choices = waits(_admin.Admin.producer_choices)
    producer_groups = waits(_admin.Admin.producer_groups)
    nameserver_settings = waits(_admin.Admin.nameserver_settings)
    change_nameserver_settings = waits(_admin.Admin.change_nameserver_settings)
    put_kv = waits(_admin.Admin.put_kv)
    delete_kv = waits(_admin.Admin.delete_kv)
    get_kv = waits(_admin.Admin.get_kv)
    list_kv = waits(_admin.Admin.list_kv)
    wipe_write_perm = waits(_admin.Admin.wipe_write_perm)
    add_write_perm = waits(_admin.Admin.add_write_perm)
    accounts = waits(_admin.Admin.accounts)
    put_account = waits(_admin.Admin.put_account)
    delete_account = waits(_admin.Admin.delete_account)
    set_white_addresses = waits(_admin.Admin.set_white_addresses)
    resend = waits(_admin.Admin.resend)
    replay_dead_letter = waits(_admin.Admin.replay_dead_letter)
    dead_letter_groups = waits(_admin.Admin.dead_letter_groups)
    read_anyway = waits(_admin.Admin.read_anyway)


class PushConsumer(Face[_push.PushConsumer]):
    """`trimtab.PushConsumer` without await. A plain handler and plain callbacks are called in threads, where they may wait and use
    other blocking clients. `close` waits for handlers at work, so a handler that wants the end tells another thread.
    """

    made = _push.PushConsumer
    group = shown(lambda client: str(client.group))
    client_id = shown(lambda client: str(client.client_id))
    mode = shown(lambda client: str(client.mode))
    recorder = shown(lambda client: client.recorder)
    subscribe = waits(_push.PushConsumer.subscribe)
    unsubscribe = waits(_push.PushConsumer.unsubscribe)
    pause = told(_push.PushConsumer.pause)
    resume = told(_push.PushConsumer.resume)
    holdings = told(_push.PushConsumer.holdings)
    tallies = told(_push.PushConsumer.tallies)

    def __init__(self, *args: Any, **options: Any) -> None:
        """Takes what the asyncio client takes."""
        threaded = {name: _in_thread(options[name]) for name in CALLBACKS if options.get(name) is not None}
        super().__init__(*args, **options | threaded)

    def wait(self, timeout_s: float | None = None) -> bool:
        """Until somebody closes the consumer, or the time is over; whether it is closed."""

        async def closed() -> bool:
            try:
                async with asyncio.timeout(timeout_s):
                    await self.client.wait()
            except TimeoutError:
                return False
            return True

        return self.run(closed())


def _in_thread(
    callback: Callable[[tuple[MessageQueue, ...]], Any],
) -> Callable[[tuple[MessageQueue, ...]], Coroutine[Any, Any, None]]:
    """A plain callback would hold up the loop of all clients, so it gets a thread; an async one is awaited in the loop."""

    async def told_of(queues: tuple[MessageQueue, ...]) -> None:
        if inspect.iscoroutinefunction(callback):
            await callback(queues)
        else:
            await asyncio.to_thread(callback, queues)

    return told_of


class PullConsumer(Face[_pull.PullConsumer]):
    """`trimtab.PullConsumer` without await: `for message in consumer`, `poll`, and Arrow batches by `pull_columns`."""

    made = _pull.PullConsumer
    group = shown(lambda client: str(client.group))
    client_id = shown(lambda client: str(client.client_id))
    queues = waits(_pull.PullConsumer.queues)
    assign = waits(_pull.PullConsumer.assign)
    subscribe = waits(_pull.PullConsumer.subscribe)
    unsubscribe = waits(_pull.PullConsumer.unsubscribe)
    poll = waits(_pull.PullConsumer.poll)
    seek = waits(_pull.PullConsumer.seek)
    position = told(_pull.PullConsumer.position)
    offset_of = waits(_pull.PullConsumer.offset_of)
    committed = waits(_pull.PullConsumer.committed)
    commit = waits(_pull.PullConsumer.commit)
    pause = told(_pull.PullConsumer.pause)
    resume = told(_pull.PullConsumer.resume)
    tallies = told(_pull.PullConsumer.tallies)

    @property
    def assigned(self) -> tuple[MessageQueue, ...]:
        """The queues that are read now."""
        return self.client.assigned

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # What was being worked on when something went wrong was not done: the client itself tells that apart.
        self.run(self.client.__aexit__(kind, error, trace))
        self.close()

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Received:
        async def one() -> Received | None:
            return await anext(self.client, None)

        message = self.run(one())
        if message is None:
            raise StopIteration
        return message

    def pull_columns(
        self,
        queue: MessageQueue,
        start: Where = "begin",
        end: Where = "end",
        *,
        columns: Iterable[str] | None = None,
        expression: Expression = "*",
    ) -> "Iterator[pa.RecordBatch]":
        """A part of any queue as Arrow record batches; positions and commits are not touched. Needs the extra `spark`."""
        batches = self.client.pull_columns(queue, start, end, columns=columns, expression=expression)

        async def one() -> "pa.RecordBatch | None":
            return await anext(batches, None)

        try:
            while (batch := self.run(one())) is not None:
                yield batch
        finally:
            self.run(batches.aclose())
