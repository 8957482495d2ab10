"""What brokers ask of a consumer: look at the group again, set offsets, tell how you are, handle this message now."""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any, Protocol

from trimtab.client.push_outcomes import Call, ConsumeLater
from trimtab.client.received import Received
from trimtab.client.session import Session
from trimtab.client.session_roles import Listener, guarded
from trimtab.errors import TrimtabError
from trimtab.io.connection import PeerConnection
from trimtab.model import MessageQueue
from trimtab.wire.bodies import (
    Body,
    ConsumeMessageDirectlyResult,
    ConsumeResult,
    ConsumerRunningInfo,
    GetConsumerStatusBody,
    ResetOffsetBody,
    ResetOffsetBodyForC,
)
from trimtab.wire.codes import RequestCode, ResponseCode
from trimtab.wire.commands import Command
from trimtab.wire.fastjson import decode_body
from trimtab.wire.fastjson_writer import encode_body
from trimtab.wire.headers.admin import GetConsumerStatus, ResetOffset
from trimtab.wire.headers.base import decode_ext
from trimtab.wire.headers.callbacks import ConsumeMessageDirectly, GetInfoOfOurs
from trimtab.wire.messages import decode_messages

_log = logging.getLogger(__name__)

DIRECTLY_S_MAX = 9.0
"""The broker that asks waits for 10 s."""


class Asked(Protocol):
    """Who is asked."""

    @property
    def group_on_wire(self) -> str: ...

    @property
    def is_ordered(self) -> bool: ...

    def rebalance_soon(self) -> None: ...

    async def reset_offsets(self, offsets: dict[MessageQueue, int]) -> None: ...

    def offsets_of(self, topic: str) -> dict[MessageQueue, int]: ...

    def running_info(self, *, with_stacks: bool) -> ConsumerRunningInfo: ...

    def holdings_info(self) -> ConsumerRunningInfo: ...


class BrokerRequests:
    """Listens to a session's brokers for one consumer."""

    def __init__(self, session: Session, asked: Asked, call: Call | None) -> None:
        """Without `call` there is no handler, and nothing can be handled directly."""
        self._session = session
        self._asked = asked
        self._call = call
        self._doing: set[asyncio.Task[None]] = set()
        self._ends: list[Callable[[], None]] = []

    def listen(self) -> None:
        """Begins."""
        takers: dict[RequestCode, Listener] = {
            RequestCode.NOTIFY_CONSUMER_IDS_CHANGED: self._ids_changed,
            RequestCode.RESET_CONSUMER_CLIENT_OFFSET: self._reset_offset,
            RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT: self._status,
            RequestCode.GET_CONSUMER_RUNNING_INFO: self._running_info,
        }
        if self._call is not None:
            takers[RequestCode.CONSUME_MESSAGE_DIRECTLY] = self._consume_directly
        self._ends = [self._session.listen(code, guarded(taker)) for code, taker in takers.items()]

    async def close(self) -> None:
        """Ends, and what is being done with it."""
        for end in self._ends:
            end()
        doing = list(self._doing)
        for task in doing:
            task.cancel()
        await asyncio.gather(*doing, return_exceptions=True)

    def _ids_changed(self, _connection: PeerConnection, _command: Command) -> bool:
        # As in Java, a notice for one group wakes every group of the process: it costs a round, and views never lie.
        self._asked.rebalance_soon()
        return True

    def _reset_offset(self, _connection: PeerConnection, command: Command) -> bool:
        header = decode_ext(ResetOffset, command.ext)
        if header.group != self._asked.group_on_wire:
            return False
        offsets = _reset_table(command.body)
        wanted = {queue: offset for queue, offset in offsets.items() if queue.topic == header.topic}
        _log.warning(
            "an operator sets the offsets of %s in %s: %d queue(s)", header.group, header.topic, len(wanted)
        )
        self._do(self._asked.reset_offsets(wanted))
        return True

    def _status(self, connection: PeerConnection, command: Command) -> bool:
        header = decode_ext(GetConsumerStatus, command.ext)
        if header.group != self._asked.group_on_wire:
            return False
        body = GetConsumerStatusBody(message_queue_table=self._asked.offsets_of(header.topic))
        self._answer(connection, command, body)
        return True

    def _running_info(self, connection: PeerConnection, command: Command) -> bool:
        header = decode_ext(GetInfoOfOurs, command.ext)
        if header.of_producer or header.consumer_group != self._asked.group_on_wire:
            return False
        if header.holdings_only:
            self._answer(connection, command, self._asked.holdings_info())
            return True
        self._answer(connection, command, self._asked.running_info(with_stacks=header.jstack_enable))
        return True

    def _consume_directly(self, connection: PeerConnection, command: Command) -> bool:
        header = decode_ext(ConsumeMessageDirectly, command.ext)
        if header.consumer_group != self._asked.group_on_wire or self._call is None:
            return False
        self._do(self._handle_now(self._call, connection, command, header.broker_name or ""))
        return True

    async def _handle_now(
        self, call: Call, connection: PeerConnection, command: Command, broker_name: str
    ) -> None:
        clock = self._session.clock
        began_ms = clock.monotonic_ms()
        result, remark = ConsumeResult.CR_SUCCESS, None
        limit = asyncio.timeout(DIRECTLY_S_MAX)
        try:
            (stored,) = decode_messages(command.body)
            queue = MessageQueue(stored.topic, broker_name, stored.queue_id)
            async with limit:
                await call([Received(queue, stored)])
        except ConsumeLater:
            result = ConsumeResult.CR_LATER
        except (Exception, asyncio.CancelledError) as error:  # whatever the handler raises is the answer
            if _is_cancelled(error):
                raise
            result, remark = ConsumeResult.CR_THROW_EXCEPTION, f"{type(error).__name__}: {error}"
            if limit.expired():
                remark = f"the handler did not end within {DIRECTLY_S_MAX:g} s and was cancelled"
        body = ConsumeMessageDirectlyResult(
            order=self._asked.is_ordered,
            consume_result=result,
            remark=remark,
            spent_time_mills=clock.monotonic_ms() - began_ms,
        )
        self._answer(connection, command, body)

    def _answer(self, connection: PeerConnection, command: Command, body: Body) -> None:
        self._session.answer(connection, command, code=ResponseCode.SUCCESS, body=encode_body(body))

    def _do(self, doing: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(doing)
        self._doing.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: "asyncio.Task[None]") -> None:
        self._doing.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("what a broker asked for failed: %s", error, exc_info=error)


def _is_cancelled(error: BaseException) -> bool:
    """Whether this task is to end; else a handler says of itself that it was cancelled."""
    task = asyncio.current_task()
    return isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling() > 0


def _reset_table(body: bytes) -> dict[MessageQueue, int]:
    """Both forms: brokers use the plain one when the operator's tool says it is written in C++."""
    try:
        return dict(decode_body(ResetOffsetBody, body).offset_table)
    except TrimtabError:
        entries = decode_body(ResetOffsetBodyForC, body).offset_table
        return {MessageQueue(one.topic, one.broker_name, one.queue_id): one.offset for one in entries}
