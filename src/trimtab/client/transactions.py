"""Messages whose fate hangs on a local transaction.

A half message is stored where nobody reads it. Then the local transaction runs. What became of it is told to the broker one way; if
that gets lost, or the outcome was unknown, brokers ask any producer of the group that is connected, and its `check` answers.
"""

import asyncio
import enum
import inspect
import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeAlias, TypeVar

import msgspec

from trimtab.client.received import Received
from trimtab.errors import InvalidMessageError, ProtocolError, TrimtabError
from trimtab.model import Message, MessageQueue, Receipt
from trimtab.wire import properties as names
from trimtab.wire.codes import ONEWAY_FLAG, RequestCode
from trimtab.wire.headers.base import decode_ext
from trimtab.wire.headers.callbacks import CheckTransactionState
from trimtab.wire.headers.send import EndTransaction
from trimtab.wire.ids import decode_offset_message_id
from trimtab.wire.messages import TRANSACTION_COMMIT, TRANSACTION_ROLLBACK, decode_messages

if TYPE_CHECKING:
    from trimtab.client.session import Session
    from trimtab.client.tracing import Tracer
    from trimtab.io.connection import PeerConnection
    from trimtab.wire.commands import Command

_log = logging.getLogger(__name__)

CHECKS_MAX = 64
"""How many checks run at once; brokers ask again for those that find no room."""
CHECK_S_MAX = 60.0
"""How long a local transaction or a check may take; after that its outcome is unknown, and brokers ask."""


class Resolution(enum.Enum):
    """What became of a local transaction; the values are what travels."""

    COMMIT = TRANSACTION_COMMIT
    ROLLBACK = TRANSACTION_ROLLBACK
    UNKNOWN = 0


class TransactionReceipt(msgspec.Struct, frozen=True):
    """The receipt of the half message, and what the local transaction said."""

    receipt: Receipt
    resolution: Resolution
    error: BaseException | None = None
    """What the local transaction raised; the outcome is unknown then."""


Said: TypeAlias = Resolution | Awaitable[Resolution]
Execute: TypeAlias = Callable[[Message, str], Said]
"""The local transaction: gets the message and the transaction's id."""
Check: TypeAlias = Callable[[Received], Said]
"""Looks up what became of a local transaction, by the message of it."""

A = TypeVar("A")


class Transactions:
    """The transactions of one producer."""

    def __init__(
        self,
        session: "Session",
        group: str,
        check: Check | None,
        namespace: str | None,
        tracer: "Tracer | None",
    ) -> None:
        self._session = session
        self._group = group
        self._check = check
        self._namespace = namespace
        self._tracer = tracer
        self._checks: set[asyncio.Task[None]] = set()
        self._stop_listening = session.listen(RequestCode.CHECK_TRANSACTION_STATE, self._asked)

    async def close(self) -> None:
        """Ends the checks that run; brokers will ask again."""
        self._stop_listening()
        checks = list(self._checks)
        for task in checks:
            task.cancel()
        await asyncio.gather(*checks, return_exceptions=True)

    async def finish(
        self, message: Message, receipt: Receipt, topic: str, address: str, execute: Execute
    ) -> TransactionReceipt:
        """Runs the local transaction of a stored half message and tells the broker what became of it."""
        error: Exception | None = None
        resolution = Resolution.ROLLBACK  # what is not stored for good is not begun, as in Java
        if receipt.status == "SEND_OK":
            resolution, error = await _said_by(execute, message, receipt.message_id)
        header = EndTransaction(
            producer_group=self._group,
            tran_state_table_offset=receipt.queue_offset,
            commit_log_offset=decode_offset_message_id(receipt.offset_message_id).physical_offset,
            commit_or_rollback=resolution.value,
            msg_id=receipt.message_id,
            transaction_id=receipt.message_id,
            topic=topic,
        )
        try:
            await self._session.tell(address, RequestCode.END_TRANSACTION, header)
        except TrimtabError as failure:
            _log.warning(
                "%s of %s not told, %s will ask: %s", resolution, receipt.message_id, address, failure
            )
        if self._tracer is not None:
            self._tracer.ended(message, receipt.message_id, address, resolution.name, from_check=False)
        return TransactionReceipt(receipt, resolution, error)

    def _asked(self, connection: "PeerConnection", request: "Command") -> bool:
        """A broker asks; whether this producer will answer. Another one of the group may, if it does not."""
        try:
            header = decode_ext(CheckTransactionState, request.ext)
            (stored,) = decode_messages(request.body)
        except (ProtocolError, ValueError) as error:
            _log.warning(
                "%s asked for a transaction in words that cannot be read: %s", connection.address, error
            )
            return False
        if stored.properties.get(names.PRODUCER_GROUP) != self._group:
            return False
        if self._check is None:
            _log.warning(
                "%s asks for a transaction of %s, and this producer has no check",
                connection.address,
                self._group,
            )
            return False
        if len(self._checks) >= CHECKS_MAX:
            _log.warning("%d checks run already; %s must ask again", CHECKS_MAX, connection.address)
            return False
        broker_name = self._session.broker_addresses().get(connection.address, "")
        received = Received(MessageQueue(stored.topic, broker_name, stored.queue_id), stored)
        task = asyncio.create_task(self._answer(self._check, connection, header, received))
        self._checks.add(task)
        task.add_done_callback(self._checks.discard)
        return True

    async def _answer(
        self, check: Check, connection: "PeerConnection", header: CheckTransactionState, message: Received
    ) -> None:
        resolution, _ = await _said_by(check, message)
        end = EndTransaction(
            producer_group=self._group,
            tran_state_table_offset=header.tran_state_table_offset,
            commit_log_offset=header.commit_log_offset,
            commit_or_rollback=resolution.value,
            msg_id=message.message_id,
            from_transaction_check=True,
            transaction_id=header.transaction_id or message.message_id,
            topic=message.queue.topic,
        )
        if not connection.is_open:
            return
        opaque = connection.next_opaque()
        connection.send(
            self._session.frame(RequestCode.END_TRANSACTION, end, opaque=opaque, flag=ONEWAY_FLAG)
        )
        if self._tracer is not None:
            sent = Message(message.topic, b"-", tag=message.tag, keys=message.keys)
            self._tracer.ended(sent, message.message_id, connection.address, resolution.name, from_check=True)


def _called(function: Callable[..., Said], *arguments: object) -> Said:
    try:
        return function(*arguments)
    except StopIteration as error:
        # No future takes it: whoever waits would wait until the time is over.
        raise RuntimeError(f"{function!r} raised StopIteration") from error


async def _said_by(function: Callable[..., Said], *arguments: object) -> tuple[Resolution, Exception | None]:
    """What a user's function says; a plain one runs in a thread. One that raises, or says nothing known, leaves the outcome unknown."""
    try:
        async with asyncio.timeout(CHECK_S_MAX):
            said = (
                function(*arguments)
                if inspect.iscoroutinefunction(function)
                else await asyncio.to_thread(_called, function, *arguments)
            )
            if inspect.isawaitable(said):
                said = await said
    except Exception as error:  # noqa: BLE001 - it is the user's own code
        _log.warning("a local transaction raised, its outcome is unknown", exc_info=error)
        return Resolution.UNKNOWN, error
    if not isinstance(said, Resolution):
        mistake = InvalidMessageError(f"a local transaction gave {said!r}; give a Resolution")
        _log.warning("%s", mistake)
        return Resolution.UNKNOWN, mistake
    return said, None
