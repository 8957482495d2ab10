"""Sending messages that are there already once more, and reading what may not be pulled.

A copy keeps body, tag, keys, the user's own properties and the id that the producer gave; what brokers wrote into the properties is
left out. A dead letter goes to the retry topic of its group, so that this group alone gets it again.
"""

from trimtab.client.admin.cluster import ClusterPart
from trimtab.client.admin.messages import message_row
from trimtab.client.admin.rows import (
    DeadLetterGroup,
    DeadLetterGroups,
    FoundMessage,
    ReadMessages,
    ResentMessage,
    TopicQueues,
    TopicRoute,
)
from trimtab.errors import NoMessageError, NoPermissionError, NoRouteError, SystemFailureError
from trimtab.model import MessageQueue
from trimtab.wire import properties as names
from trimtab.wire.bodies import QueryConsumeQueueResponseBody
from trimtab.wire.codes import RequestCode
from trimtab.wire.fastjson import decode_body
from trimtab.wire.headers.admin import QueryConsumeQueue
from trimtab.wire.headers.base import decode_ext
from trimtab.wire.headers.consume import ViewMessage
from trimtab.wire.headers.send import SendMessageResponse, SendMessageV2
from trimtab.wire.messages import decode_messages
from trimtab.wire.properties import encode_properties
from trimtab.wire.resources import DEFAULT_TOPIC, RETRY_PREFIX

DLQ_PREFIX = "%DLQ%"
TOOLS_PRODUCER = "TOOLS_PRODUCER"
_KEPT = {names.KEYS, names.TAGS, names.UNIQ_KEY, names.SHARDING_KEY, names.WAIT}
_KEPT_FOR_RETRY = {names.RETRY_TOPIC, names.ORIGIN_MESSAGE_ID}


class Letters(ClusterPart):
    """See the module's own words; `Admin` is the public face."""

    async def resend(self, message: FoundMessage, *, topic: str | None = None) -> ResentMessage:
        """Sends a copy to the message's own topic, or to another one."""
        return await self._copy(message, topic or origin_of(message), _KEPT)

    async def replay_dead_letter(self, group: str, message: FoundMessage) -> ResentMessage:
        """Lets a group try a dead letter again; no other group sees it."""
        return await self._copy(message, RETRY_PREFIX + group, _KEPT | _KEPT_FOR_RETRY)

    async def _copy(self, message: FoundMessage, topic: str, kept: set[str]) -> ResentMessage:
        route = await self.topic_route(topic)
        queue, address = _queue_for(message, route)
        properties = {
            name: value
            for name, value in message.properties.items()
            if name in kept or name not in names.RESERVED
        }
        if names.RETRY_TOPIC in kept:
            properties[names.RETRY_TOPIC] = origin_of(message)
        header = SendMessageV2(
            producer_group=TOOLS_PRODUCER,
            topic=topic,
            default_topic=DEFAULT_TOPIC,
            default_topic_queue_nums=1,
            queue_id=queue.queue_id,
            sys_flag=0,
            born_timestamp=message.born_timestamp,
            flag=0,
            properties=encode_properties(properties).decode(),
            reconsume_times=0,
        )
        answer = await self._ask(
            address,
            RequestCode.SEND_MESSAGE_V2,
            header,
            message.body,
            asked=f"copy of {message.message_id} to {queue}",
        )
        told = decode_ext(SendMessageResponse, answer.ext)
        return ResentMessage(
            message_id=message.message_id,
            offset_message_id=told.msg_id,
            topic=topic,
            broker=queue.broker_name,
            queue_id=told.queue_id,
            queue_offset=told.queue_offset,
        )

    async def dead_letter_groups(self) -> DeadLetterGroups:
        """Every group that has a topic of dead letters, with how many lie there; most first."""
        topics = [name for name in (await self.topics()).names if name.startswith(DLQ_PREFIX)]

        async def count(topic: str, _address: str) -> TopicQueues:
            return await self.topic_queues(topic)

        told = await self._each("dead letters", dict.fromkeys(topics, ""), count)
        rows = [
            DeadLetterGroup(
                group=topic.removeprefix(DLQ_PREFIX),
                messages=found.messages,
                newest_ms=max((row.newest_ms for row in found.queues if row.newest_ms), default=None),
            )
            for topic, found in told.found.items()
        ]
        failures = {
            one.broker: one
            for one in (*told.failures, *(one for found in told.found.values() for one in found.failures))
        }
        rows.sort(key=lambda row: (-row.messages, row.group))
        return DeadLetterGroups(groups=tuple(rows), failures=tuple(failures.values()))

    async def read_anyway(self, queue: MessageQueue, offset: int, max_messages: int = 32) -> ReadMessages:
        """Messages of a queue, also where nobody may pull: 4.9 makes topics of dead letters so that they are only written."""
        try:
            return await self.read(queue, offset, max_messages=max_messages)
        except NoPermissionError:
            return await self._read_by_index(queue, offset, max_messages)

    async def _read_by_index(self, queue: MessageQueue, offset: int, max_messages: int) -> ReadMessages:
        address = (await self._brokers_of(queue.topic))[queue.broker_name]
        asked = f"messages of {queue} from {offset}"
        header = QueryConsumeQueue(
            topic=queue.topic, queue_id=queue.queue_id, index=offset, count=max_messages
        )
        try:
            answer = await self._ask(address, RequestCode.QUERY_CONSUME_QUEUE, header, asked=asked)
        except SystemFailureError:  # the queue was never written to
            return ReadMessages(messages=(), next_offset=offset, min_offset=0, max_offset=0)
        body = decode_body(QueryConsumeQueueResponseBody, answer.body)
        rows = []
        entries = body.queue_data or ()
        for entry in entries:
            try:
                view = ViewMessage(offset=entry.physic_offset)
                found = await self._ask_for_message(address, view, asked)
            except NoMessageError:  # cleaned away meanwhile
                continue
            rows += [message_row(queue.broker_name, one) for one in decode_messages(found.body)]
        return ReadMessages(
            messages=tuple(rows),
            next_offset=offset + len(entries),
            min_offset=body.min_queue_index,
            max_offset=body.max_queue_index,
        )


def origin_of(message: FoundMessage) -> str:
    """The topic that a message was first sent to, also if it lies among retries or dead letters."""
    if not message.topic.startswith((RETRY_PREFIX, DLQ_PREFIX)):
        return message.topic
    properties = message.properties
    return properties.get(names.DLQ_ORIGIN_TOPIC) or properties.get(names.RETRY_TOPIC) or message.topic


def _queue_for(message: FoundMessage, route: TopicRoute) -> tuple[MessageQueue, str]:
    """The queue with the same number at the same broker where that exists, else the first that can be written to."""
    masters = {place.broker: place.master for place in route.brokers if place.master is not None}
    writable = [one for one in route.queues if "w" in one.perm and one.write_queues and one.broker in masters]
    writable.sort(key=lambda one: one.broker != message.broker_name)
    if not writable:
        raise NoRouteError(f"topic {route.topic!r} has no queue that can be written to: check its permission")
    chosen = writable[0]
    queue = MessageQueue(route.topic, chosen.broker, message.queue_id % chosen.write_queues)
    return queue, masters[chosen.broker]
