"""A member of a group that does and says what a test tells it, at the level of the wire."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from trimtab.io.connection import PeerConnection
from trimtab.model import MessageQueue
from trimtab.wire.bodies import (
    ConsumeFromWhere,
    ConsumeMessageDirectlyResult,
    ConsumerData,
    ConsumeResult,
    ConsumerRunningInfo,
    ConsumeType,
    HeartbeatData,
    MessageModel,
    ProcessQueueInfo,
    ResetOffsetBody,
    SubscriptionData,
)
from trimtab.wire.codes import RESPONSE_FLAG, LanguageCode, RequestCode, ResponseCode
from trimtab.wire.commands import Command, encode_command
from trimtab.wire.fastjson import decode_body
from trimtab.wire.fastjson_writer import encode_body

ANSWER_S_MAX = 30.0


@dataclass
class ScriptedMember:
    group: str
    client_id: str
    subscriptions: dict[str, str]
    queues: dict[MessageQueue, ProcessQueueInfo] = field(default_factory=dict)
    properties: dict[str, str] = field(default_factory=dict)
    language: LanguageCode = LanguageCode.JAVA
    version: int = 399
    is_silent: bool = False
    """Does not answer when a broker asks."""
    resets: list[dict[MessageQueue, int]] = field(default_factory=list)
    was_reset: asyncio.Event = field(default_factory=asyncio.Event)

    def heartbeat(self) -> bytes:
        subscriptions = [
            SubscriptionData(topic=topic, sub_string=expression, sub_version=1)
            for topic, expression in self.subscriptions.items()
        ]
        consumer = ConsumerData(
            group_name=self.group,
            consume_type=ConsumeType.CONSUME_PASSIVELY,
            message_model=MessageModel.CLUSTERING,
            consume_from_where=ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET,
            subscription_data_set=tuple(subscriptions),
        )
        return encode_body(HeartbeatData(client_id=self.client_id, consumer_data_set=(consumer,)))

    def asked(self, connection: PeerConnection, command: Command) -> None:
        if command.code == RequestCode.RESET_CONSUMER_CLIENT_OFFSET:
            self.resets.append(decode_body(ResetOffsetBody, command.body).offset_table)
            self.was_reset.set()
        elif self.is_silent or command.is_oneway:
            return
        elif command.code == RequestCode.GET_CONSUMER_RUNNING_INFO:
            jstack = "main: working" if command.ext.get("jstackEnable") == "true" else None
            info = ConsumerRunningInfo(properties=self.properties, mq_table=self.queues, jstack=jstack)
            self._answer(connection, command, encode_body(info))
        elif command.code == RequestCode.CONSUME_MESSAGE_DIRECTLY:
            result = ConsumeMessageDirectlyResult(consume_result=ConsumeResult.CR_SUCCESS, spent_time_mills=7)
            self._answer(connection, command, encode_body(result))

    def _answer(self, connection: PeerConnection, command: Command, body: bytes) -> None:
        connection.send(
            encode_command(
                Command(code=ResponseCode.SUCCESS, opaque=command.opaque, flag=RESPONSE_FLAG, body=body)
            )
        )


@asynccontextmanager
async def connected(member: ScriptedMember, addresses: Iterable[str]) -> AsyncIterator[ScriptedMember]:
    """The member is known to these brokers."""
    connections = []
    try:
        for address in addresses:
            connection = await PeerConnection.open(address, on_request=member.asked)
            connections.append(connection)
            beat = Command(
                code=RequestCode.HEART_BEAT,
                opaque=connection.next_opaque(),
                body=member.heartbeat(),
                language=member.language,
                version=member.version,
            )
            answer = await connection.ask(beat, timeout_s=ANSWER_S_MAX)
            assert answer.code == ResponseCode.SUCCESS, answer.remark
        yield member
    finally:
        for connection in connections:
            connection.close()
