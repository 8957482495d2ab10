"""Answers that wait until a change is on disk, and where that matters until the name servers know of it."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from trimtab.broker.core import BrokerCore
from trimtab.broker.requests import LATER, OK, Answer, Later, Request
from trimtab.wire.codes import ResponseCode

if TYPE_CHECKING:
    from trimtab.broker.store import StoreError
    from trimtab.broker.store.flusher import Waiter


def answer_when_saved(
    core: BrokerCore,
    request: Request[Any],
    save: Callable[["Waiter"], None],
    *,
    must_be_registered: bool = False,
) -> Later:
    """Answers when `save` calls back. Whoever was told that a topic exists finds its route, if that is asked for."""
    command, connection = request.command, request.peer.connection
    is_within_event = True

    def reply(answer: Answer) -> None:
        if not command.is_oneway:
            core.reply(connection, command.opaque, answer)
        if not is_within_event:
            core.writes.when_settled()

    def saved(failure: "StoreError | None") -> None:
        if failure is not None:
            reply(Answer(ResponseCode.SYSTEM_ERROR, remark=str(failure)))
        elif must_be_registered:
            core.when_registered(lambda: reply(OK))
        else:
            reply(OK)

    save(saved)
    is_within_event = False
    return LATER
