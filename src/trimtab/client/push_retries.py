"""Messages that come again: sent back to their broker, or sent anew to the group's retry topic where that cannot be done."""

import logging

from trimtab.client.push_outcomes import DEAD_LETTER
from trimtab.client.received import Received
from trimtab.client.session import Session
from trimtab.errors import NoRouteError, TrimtabError
from trimtab.io.chance import Chance
from trimtab.wire import properties as names
from trimtab.wire.codes import RequestCode
from trimtab.wire.compression import COMPRESSED_FLAG, TYPE_MASK
from trimtab.wire.headers.send import ConsumerSendMsgBack, SendMessageV2
from trimtab.wire.properties import encode_properties
from trimtab.wire.resources import DEFAULT_TOPIC, RETRY_PREFIX

_log = logging.getLogger(__name__)

SEND_BACK_S = 5.0
FIRST_RETRY_LEVEL = 3


class Retries:
    """Gives messages of one group back."""

    def __init__(self, session: Session, group: str, reconsume_times_max: int, chance: Chance) -> None:
        self._session = session
        self._group = group
        self._reconsume_times_max = reconsume_times_max
        self._chance = chance

    async def give_back(self, message: Received, delay_level: int) -> bool:
        """Whether the broker took it, to deliver it again after a while or to bury it."""
        try:
            await self._send_back(message, delay_level)
        except TrimtabError as error:
            _log.warning("%s could not be sent back (%s); it is sent anew", message, error)
        else:
            return True
        return await self.send_anew(message, message.reconsume_times + 1)

    async def bury(self, message: Received) -> bool:
        """Whether the broker made a dead letter of it at once."""
        try:
            await self._send_back(message, DEAD_LETTER)
        except TrimtabError as error:
            _log.warning("%s did not become a dead letter: %s", message, error)
            return False
        return True

    async def send_anew(self, message: Received, reconsume_times: int) -> bool:
        """Whether a broker took a copy into the group's retry topic. One whose tries are over goes to the dead letters."""
        try:
            await self._send_copy(message, reconsume_times)
        except TrimtabError as error:
            _log.warning("%s could not be sent to the retry topic of %s: %s", message, self._group, error)
            return False
        return True

    async def _send_back(self, message: Received, delay_level: int) -> None:
        address = await self._session.master_of(message.queue)
        header = ConsumerSendMsgBack(
            offset=message.stored.physical_offset,
            group=self._group,
            delay_level=delay_level,
            origin_msg_id=message.message_id,
            origin_topic=_topic_on_wire(message),
            max_reconsume_times=self._reconsume_times_max,
        )
        await self._session.ask(
            address, RequestCode.CONSUMER_SEND_MSG_BACK, header, asked=f"send back {message}", timeout_s=SEND_BACK_S
        )  # fmt: skip

    async def _send_copy(self, message: Received, reconsume_times: int) -> None:
        topic = RETRY_PREFIX + self._group
        route = await self._session.route(topic)
        queues = route.writable.queues
        if not queues:
            raise NoRouteError(f"the retry topic {topic!r} has no writable queue")
        queue = queues[self._chance.randrange(len(queues))]
        address = await self._session.master_of(queue)
        stored = message.stored
        header = SendMessageV2(
            producer_group=self._group, topic=topic, default_topic=DEFAULT_TOPIC, default_topic_queue_nums=1,
            queue_id=queue.queue_id, sys_flag=stored.sys_flag & (COMPRESSED_FLAG | TYPE_MASK), born_timestamp=stored.born_timestamp, flag=stored.flag,
            properties=_properties_of(message, reconsume_times), reconsume_times=reconsume_times, unit_mode=False,
            max_reconsume_times=self._reconsume_times_max, batch=False,
        )  # fmt: skip
        await self._session.ask(
            address, RequestCode.SEND_MESSAGE_V2, header, stored.stored_body, asked=f"send {message} anew", timeout_s=SEND_BACK_S
        )  # fmt: skip


def _properties_of(message: Received, reconsume_times: int) -> str:
    properties = dict(message.properties)
    properties.setdefault(names.ORIGIN_MESSAGE_ID, message.message_id)
    properties[names.RETRY_TOPIC] = _topic_on_wire(message)
    properties[names.DELAY] = str(FIRST_RETRY_LEVEL + reconsume_times - 1)
    for name in (names.TRANSACTION_PREPARED, names.RECONSUME_TIME, names.MAX_RECONSUME_TIMES):
        properties.pop(name, None)
    return encode_properties(properties).decode()


def _topic_on_wire(message: Received) -> str:
    """The topic it was first sent to, its namespace before it."""
    topic = message.queue.topic
    if topic.startswith(RETRY_PREFIX):
        return message.properties.get(names.RETRY_TOPIC) or topic
    return topic


def once_more(message: Received) -> Received:
    """The same message, one try older: for tries in this process, of which the broker does not know."""
    return Received(message.queue, message.stored.tried(message.reconsume_times + 1))
