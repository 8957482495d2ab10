"""What a handler is, and how one is declared.

A handler is a function of (core, request) that gives an `Answer`, or `LATER` when the answer comes by another event (a held
pull, a write that is not yet durable, a question passed on to a client). It is declared with its code, its header type and
what the caller must be allowed; without the last it does not register.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Generic, NamedTuple, TypeVar

import msgspec

from trimtab.errors import TrimtabError
from trimtab.model import Now
from trimtab.wire.codes import RequestCode, ResponseCode
from trimtab.wire.commands import Command
from trimtab.wire.headers.base import Header

if TYPE_CHECKING:
    from trimtab.broker.core import BrokerCore

H = TypeVar("H", bound=Header)

BODY_BYTES_MAX = 1 << 20
"""Of a request whose body is JSON: no honest heartbeat comes near it."""


class NoHeader(Header, frozen=True, kw_only=True):
    """A request without fields."""


@dataclass(slots=True)
class Peer:
    """A connection as the core knows it."""

    connection: int
    address: str
    host: bytes
    """The address as a stored message carries it."""
    is_secure: bool = False


class Request(msgspec.Struct, Generic[H], frozen=True, gc=False):
    """One request with its typed header."""

    peer: Peer
    command: Command
    header: H
    now: Now


class Answer(msgspec.Struct, frozen=True, gc=False):
    """What goes back to the asker."""

    code: int = ResponseCode.SUCCESS
    header: Header | None = None
    body: bytes = b""
    remark: str | None = None


class Later:
    """The answer comes by another event."""


LATER: Final = Later()
OK: Final = Answer()


class Refused(TrimtabError):  # noqa: N818 - it is an answer, not a failure
    """The request is answered with this code and remark."""

    def __init__(self, code: int, remark: str) -> None:
        super().__init__(remark)
        self.code = code
        self.remark = remark


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """What the caller must be allowed; the names are attributes of the header that hold a topic or a group."""

    admin: bool = False
    anyone: bool = False
    publish_topic: str | None = None
    consume_topic: str | None = None
    consume_group: str | None = None
    judged_by_handler: bool = False


@dataclass(frozen=True, slots=True)
class Handler:
    """A declared handler."""

    code: RequestCode
    header_type: type[Header]
    access: Access
    run: Callable[["BrokerCore", Request[Any]], Answer | Later]


HANDLERS: Final[dict[int, Handler]] = {}

HotRun = Callable[["BrokerCore", Peer, Any, bytes, Now], None]

HOT_HANDLERS: Final[dict[type, HotRun]] = {}
"""Handlers of requests that come decoded by `wire.hot`; they answer by themselves and raise `Refused` like the others."""

Gathered = list[tuple[Any, bytes]]
"""Hot requests of one kind and one peer that came one behind the other, each with its body."""


class Together(NamedTuple):
    """How several hot requests of a wake-up are handled at one go."""

    split: Callable[[Gathered], list[Gathered]]
    """Into groups between which there is no order to keep."""
    take: Callable[["BrokerCore", Peer, Gathered, Now], bool]
    """Handles a group; False if its requests are to be handled one by one. The answers are promised last and in one step: where
    it fails, nobody of the group was promised one, so that nobody hears two."""


TOGETHER_HANDLERS: Final[dict[type, Together]] = {}

Run = Callable[["BrokerCore", Request[H]], Answer | Later]


def handles(*codes: RequestCode, header: type[H], access: Access) -> Callable[[Run[H]], Run[H]]:
    """Registers a function as the handler of these codes."""

    def declare(run: Run[H]) -> Run[H]:
        for code in codes:
            if code in HANDLERS:
                raise TypeError(
                    f"{code.name} has two handlers: {HANDLERS[code].run.__name__} and {run.__name__}"
                )
            HANDLERS[code] = Handler(code, header, access, run)
        return run

    return declare


def handles_hot(*request_types: type) -> Callable[[HotRun], HotRun]:
    """Registers a function as the handler of these hot requests."""

    def declare(run: HotRun) -> HotRun:
        for request_type in request_types:
            HOT_HANDLERS[request_type] = run
        return run

    return declare


def handles_together(request_type: type, together: Together) -> None:
    """Registers how several of these hot requests are handled at one go."""
    TOGETHER_HANDLERS[request_type] = together
