"""Messages: finding them by id, by key and by place, and following what became of them."""

import asyncio

from trimtab.client.admin.offsets import Offsets
from trimtab.client.admin.rows import (
    FoundMessage,
    FoundMessages,
    HandledDirectly,
    MessageTrace,
    QueueEntries,
    QueueEntry,
    ReadMessages,
)
from trimtab.client.admin.traces import TRACE_TOPIC, steps_of
from trimtab.errors import (
    NoMessageError,
    NoRouteError,
    ProtocolError,
    QueryNotFoundError,
    error_from_response,
)
from trimtab.model import MessageQueue
from trimtab.wire.bodies import ConsumeMessageDirectlyResult, QueryConsumeQueueResponseBody
from trimtab.wire.codes import RequestCode, ResponseCode
from trimtab.wire.commands import Command
from trimtab.wire.fastjson import decode_body
from trimtab.wire.headers.admin import QueryConsumeQueue
from trimtab.wire.headers.base import decode_ext
from trimtab.wire.headers.callbacks import ConsumeMessageDirectly
from trimtab.wire.headers.consume import PullMessage, PullMessageResponse, QueryMessage, ViewMessage
from trimtab.wire.ids import born_ms_of, decode_offset_message_id
from trimtab.wire.messages import StoredMessage, decode_messages

TOOLS_GROUP = "TOOLS_CONSUMER"
"""Every broker has it; its pulls bring their own filter and commit nothing."""
FOUND_MAX = 64
END_OF_TIME_MS = 2**63 - 1
_SUSPEND_FLAG = 2
_SUBSCRIPTION_FLAG = 4
_ANSWERED = (
    ResponseCode.SUCCESS,
    ResponseCode.PULL_NOT_FOUND,
    ResponseCode.PULL_RETRY_IMMEDIATELY,
    ResponseCode.PULL_OFFSET_MOVED,
)


class Messages(Offsets):
    """See the module's own words; `Admin` is the public face."""

    async def message(self, message_id: str, topic: str | None = None) -> FoundMessage:
        """A message by either of its ids: the broker's own, or with its topic the producer's."""
        if topic is not None:
            found = await self.messages_by_id(topic, message_id)
            if found.messages:
                return found.messages[0]
        try:
            return await self.message_at(message_id)
        except (NoMessageError, ProtocolError):
            where = "; say its topic too if the producer gave the id" if topic is None else ""
            raise NoMessageError(
                asked=f"message {message_id}", peer="no broker has it", remark=f"there is none{where}"
            ) from None

    async def message_at(self, offset_message_id: str) -> FoundMessage:
        """A message by the id that its broker gave: the address and the place are in it."""
        place = decode_offset_message_id(offset_message_id)
        known = {address: one.broker for one in await self._places() for address in one.addresses.values()}
        asked = f"message {offset_message_id}"
        if place.address not in known:
            raise NoMessageError(asked=asked, peer=place.address, remark="no such broker is registered")
        header = ViewMessage(offset=place.physical_offset)
        answer = await self._ask_for_message(place.address, header, asked)
        messages = decode_messages(answer.body)
        if not messages:
            raise NoMessageError(asked=asked, peer=place.address)
        return message_row(known[place.address], messages[0])

    async def _ask_for_message(self, address: str, header: ViewMessage, asked: str) -> Command:
        connection = await self._session.connection(address)
        opaque = connection.next_opaque()
        frame = self._session.frame(RequestCode.VIEW_MESSAGE_BY_ID, header, opaque=opaque)
        deadline = asyncio.get_running_loop().time() + self._session.timeouts.request_s
        answer = await connection.answer_to(opaque, frame, deadline=deadline, asked=asked)
        if answer.code == ResponseCode.SYSTEM_ERROR:  # what brokers say when nothing lies there
            raise NoMessageError(asked=asked, peer=address, remark=answer.remark or "")
        if answer.code != ResponseCode.SUCCESS:
            raise error_from_response(answer.code, asked=asked, peer=address, remark=answer.remark or "")
        return answer

    async def messages_by_id(self, topic: str, message_id: str) -> FoundMessages:
        """Messages with the id that their producer gave; a message that was sent twice is there twice."""
        begin_ms = 0
        try:
            clock = self._session.clock
            begin_ms = born_ms_of(message_id, clock.wall_ms(), clock.month_ms) - 1_000
        except ProtocolError:
            pass  # no Java id: then all of the index
        found = await self._query(topic, message_id, FOUND_MAX, begin_ms, END_OF_TIME_MS, unique=True)
        if not found.messages and begin_ms:
            found = await self._query(topic, message_id, FOUND_MAX, 0, END_OF_TIME_MS, unique=True)
        return found

    async def messages_by_key(
        self,
        topic: str,
        key: str,
        *,
        max_messages: int = FOUND_MAX,
        begin_ms: int = 0,
        end_ms: int = END_OF_TIME_MS,
    ) -> FoundMessages:
        """Messages with a key, at most so many of each broker."""
        return await self._query(topic, key, max_messages, begin_ms, end_ms, unique=False)

    async def _query(
        self, topic: str, key: str, count: int, begin_ms: int, end_ms: int, *, unique: bool
    ) -> FoundMessages:
        asked = f"messages of topic {topic!r} with {'id' if unique else 'key'} {key!r}"
        header = QueryMessage(
            topic=topic,
            key=key,
            max_num=count,
            begin_timestamp=begin_ms,
            end_timestamp=end_ms,
            unique_key_query=unique,
        )

        async def query(broker: str, address: str) -> list[FoundMessage]:
            try:
                answer = await self._ask(
                    address, RequestCode.QUERY_MESSAGE, header, asked=asked, timeout_s=self._slow_s
                )
            except QueryNotFoundError:
                return []
            rows = [message_row(broker, one) for one in decode_messages(answer.body)]
            # The index knows hashes: what only looks alike is sorted out here.
            return [row for row in rows if (row.message_id == key if unique else key in row.keys)]

        told = (await self._each(asked, await self._brokers_of(topic), query)).or_raise()
        by_place = {row.offset_message_id: row for rows in told.found.values() for row in rows}
        rows = sorted(by_place.values(), key=lambda row: (row.store_timestamp, row.queue_offset))
        return FoundMessages(messages=tuple(rows), failures=told.failures)

    async def read(
        self,
        queue: MessageQueue,
        offset: int,
        *,
        max_messages: int = 32,
        expression: str = "*",
        expression_type: str = "TAG",
        wait_ms: int = 0,
        address: str | None = None,
    ) -> ReadMessages:
        """Messages of a queue from an offset on, for nobody's account: no group, no commit. Waits up to `wait_ms` for the first."""
        address = address or (await self._brokers_of(queue.topic)).get(queue.broker_name)
        if address is None:
            raise NoRouteError(f"{queue}: the topic has no queue at {queue.broker_name}")
        header = PullMessage(
            consumer_group=TOOLS_GROUP,
            topic=queue.topic,
            queue_id=queue.queue_id,
            queue_offset=offset,
            max_msg_nums=max_messages,
            sys_flag=_SUBSCRIPTION_FLAG | (_SUSPEND_FLAG if wait_ms else 0),
            commit_offset=0,
            suspend_timeout_millis=wait_ms,
            sub_version=0,
            subscription=expression,
            expression_type=expression_type,
        )
        asked = f"messages of {queue} from {offset}"
        connection = await self._session.connection(address)
        opaque = connection.next_opaque()
        frame = self._session.frame(RequestCode.PULL_MESSAGE, header, opaque=opaque)
        deadline = asyncio.get_running_loop().time() + self._session.timeouts.request_s + wait_ms / 1000
        answer = await connection.answer_to(opaque, frame, deadline=deadline, asked=asked)
        if answer.code not in _ANSWERED:
            raise error_from_response(answer.code, asked=asked, peer=address, remark=answer.remark or "")
        told = decode_ext(PullMessageResponse, answer.ext)
        messages = decode_messages(answer.body) if answer.code == ResponseCode.SUCCESS else []
        wanted = tag_set(expression) if expression_type == "TAG" else None
        rows = [message_row(queue.broker_name, one) for one in messages]
        return ReadMessages(
            messages=tuple(row for row in rows if wanted is None or row.tag in wanted),
            next_offset=told.next_begin_offset,
            min_offset=told.min_offset,
            max_offset=told.max_offset,
        )

    async def queue_entries(self, queue: MessageQueue, offset: int, count: int = 16) -> QueueEntries:
        """What a queue's index says, message for message, without the messages: for looking into what is broken."""
        address = (await self._brokers_of(queue.topic)).get(queue.broker_name)
        if address is None:
            raise NoRouteError(f"{queue}: the topic has no queue at {queue.broker_name}")
        header = QueryConsumeQueue(topic=queue.topic, queue_id=queue.queue_id, index=offset, count=count)
        asked = f"entries of {queue} from {offset}"
        answer = await self._ask(address, RequestCode.QUERY_CONSUME_QUEUE, header, asked=asked)
        body = decode_body(QueryConsumeQueueResponseBody, answer.body)
        first = max(offset, body.min_queue_index)
        entries = [
            QueueEntry(
                queue_offset=first + at, physical_offset=one.physic_offset, stored_size=one.physic_size, tag_hash=one.tags_code
            )
            for at, one in enumerate(body.queue_data or ())
        ]  # fmt: skip
        return QueueEntries(
            entries=tuple(entries), min_offset=body.min_queue_index, max_offset=body.max_queue_index
        )

    async def handle_directly(self, group: str, client_id: str, offset_message_id: str) -> HandledDirectly:
        """Lets a member handle a message now, whatever its offsets say, and tells what came of it."""
        place = decode_offset_message_id(offset_message_id)
        header = ConsumeMessageDirectly(consumer_group=group, client_id=client_id, msg_id=offset_message_id)
        answer = await self._ask(
            place.address,
            RequestCode.CONSUME_MESSAGE_DIRECTLY,
            header,
            asked=f"message {offset_message_id} for {client_id!r} of group {group!r}",
            timeout_s=self._slow_s,
        )
        body = decode_body(ConsumeMessageDirectlyResult, answer.body)
        return HandledDirectly(
            result=body.consume_result or "",
            spent_ms=body.spent_time_mills,
            ordered=body.order,
            remark=body.remark,
        )

    async def message_trace(self, message_id: str, *, trace_topic: str = TRACE_TOPIC) -> MessageTrace:
        """What clients recorded of a message; they do so only if told to."""
        found = await self._query_traces(trace_topic, message_id)
        steps = steps_of(message_id, [row.body for row in found.messages])
        return MessageTrace(message_id=message_id, steps=steps, failures=found.failures)

    async def _query_traces(self, topic: str, message_id: str) -> FoundMessages:
        return await self._query(topic, message_id, FOUND_MAX, 0, END_OF_TIME_MS, unique=False)


def tag_set(expression: str) -> frozenset[str] | None:
    """The tags of `a || b`; None for all. Brokers compare hashes, so whoever reads compares the texts."""
    text = expression.strip()
    if text in ("", "*"):
        return None
    return frozenset(tag.strip() for tag in text.split("||") if tag.strip())


def message_row(broker: str, stored: StoredMessage) -> FoundMessage:
    """A stored message as a row."""
    return FoundMessage(
        topic=stored.topic,
        broker_name=broker,
        queue_id=stored.queue_id,
        queue_offset=stored.queue_offset,
        body=stored.body,
        tag=stored.tag,
        keys=stored.keys,
        properties=dict(stored.properties),
        message_id=stored.message_id,
        offset_message_id=stored.offset_message_id,
        born_timestamp=stored.born_timestamp,
        store_timestamp=stored.store_timestamp,
        reconsume_times=stored.reconsume_times,
        born_host=stored.born_host,
        store_host=stored.store_host,
        stored_size=stored.stored_size,
    )
