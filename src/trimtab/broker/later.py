"""Answers that wait until what they speak of is stored."""

from typing import TYPE_CHECKING, Any

from trimtab.broker.requests import Answer, Request
from trimtab.wire.codes import ResponseCode

if TYPE_CHECKING:
    from trimtab.broker.core import BrokerCore
    from trimtab.broker.store import StoreError
    from trimtab.model import Now


def reply(core: "BrokerCore", request: Request[Any], answer: Answer) -> None:
    """Answers a request that was left for later; nobody waits for the answer to a one-way one."""
    if not request.command.is_oneway:
        core.reply(request.peer.connection, request.command.opaque, answer)


def reply_when_visible(core: "BrokerCore", request: Request[Any], end: int, answer: Answer) -> None:
    """Answers when the log is visible up to `end`, or says why it never will be."""

    def settled(failure: "StoreError | None", _now: "Now") -> None:
        if failure is None:
            reply(core, request, answer)
        else:
            reply(core, request, Answer(ResponseCode.SERVICE_NOT_AVAILABLE, remark=str(failure)))

    core.writes.then(end, settled)
