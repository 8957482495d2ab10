"""Every exception that trimtab raises on purpose.

A caller decides by two questions, both answered by attributes and never by parsing a text:

- `retriable`: may the same request be sent again, as it is, with some hope?
- `indeterminate`: might it have taken effect although a failure is reported?

A broker or name server that refuses answers with a response code. `RESPONSE_ERRORS` is the one table
from code to class; `error_from_response` makes the exception.
"""

from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trimtab.model import Receipt

ERRORS_SHOWN_MAX = 3
"""In the text of a failure that has many parts."""


class TrimtabError(Exception):
    """Root of everything this package raises on purpose."""

    retriable: ClassVar[bool] = False
    indeterminate: ClassVar[bool] = False


class ProtocolError(TrimtabError):
    """The peer sent bytes that are not RocketMQ remoting, or that break a limit. The connection is finished."""


class BadHeaderError(ProtocolError):
    """A frame is whole but the fields of its header do not fit the request. The connection may go on."""


class InvalidMessageError(TrimtabError):
    """A message, topic or group breaks a rule of the protocol and was not sent."""


class SettingsError(TrimtabError):
    """An option, or two of them together, make no sense."""


class AllocationError(TrimtabError):
    """Queues were to be shared in a view that makes no sense, or a strategy gave something impossible."""


class NoRouteError(TrimtabError):
    """No name server knows a broker for the topic."""

    retriable = True


class ClosedError(TrimtabError):
    """The client was closed."""


class ClientIdTakenError(TrimtabError):
    """A live member of the group has the client id already. Brokers could not tell the two apart."""


class NotSentError(TrimtabError):
    """A message waited behind others until its time was over, and never left."""

    retriable = True


class ServerUnreachableError(TrimtabError):
    """No connection could be made. Nothing was sent."""

    retriable = True


class ConnectionLostError(TrimtabError):
    """The connection ended before the answer came; the request may have been carried out."""

    retriable = True
    indeterminate = True


class RequestTimeoutError(TrimtabError):
    """No answer came in time; the request may have been carried out, or may yet be."""

    retriable = True
    indeterminate = True


class MaybeStoredError(TrimtabError):
    """The last try of a send stored nothing for sure, but an `earlier` one, left without a word, may have. `last` is what ended it."""

    indeterminate = True

    def __init__(self, earlier: Exception, last: Exception) -> None:
        super().__init__(f"{last}; an earlier try may have been stored: {earlier}")
        self.earlier = earlier
        self.last = last

    @property
    def retriable(self) -> bool:  # type: ignore[override]
        """As the last try says."""
        return bool(getattr(self.last, "retriable", False))


class RangeGoneError(TrimtabError):
    """A part of a queue that was to be read is not there, most likely because retention took it; nothing was passed over."""

    def __init__(self, text: str, *, asked: int, min_offset: int, max_offset: int) -> None:
        super().__init__(
            f"{text}; begin at {min_offset} or later, and keep messages longer if they were needed"
        )
        self.asked = asked
        self.min_offset = min_offset
        self.max_offset = max_offset


class RangeUnreachableError(TrimtabError):
    """A part of a queue could not be read in time; everything before `next_offset` was."""

    retriable = True

    def __init__(self, text: str, *, next_offset: int) -> None:
        super().__init__(text)
        self.next_offset = next_offset


class PartlySentError(TrimtabError):
    """Some messages of many were not sent, or may not have been. `outcomes` has a receipt or an error for each, in their order."""

    def __init__(self, outcomes: "Sequence[Receipt | Exception]") -> None:
        self.outcomes = tuple(outcomes)
        self.errors = {
            number: outcome for number, outcome in enumerate(outcomes) if isinstance(outcome, Exception)
        }
        """By the message's number, from 0."""
        self.receipts = {
            number: outcome for number, outcome in enumerate(outcomes) if not isinstance(outcome, Exception)
        }
        super().__init__(self._text())

    @property
    def retriable(self) -> bool:  # type: ignore[override]
        """Whether each of those that failed may be sent again."""
        return all(getattr(error, "retriable", False) for error in self.errors.values())

    @property
    def indeterminate(self) -> bool:  # type: ignore[override]
        """Whether any of those that failed may have been stored all the same."""
        return any(getattr(error, "indeterminate", False) for error in self.errors.values())

    def _text(self) -> str:
        shown = "; ".join(
            f"message {number}: {error}" for number, error in list(self.errors.items())[:ERRORS_SHOWN_MAX]
        )
        more = "; and others" if len(self.errors) > ERRORS_SHOWN_MAX else ""
        return (
            f"{len(self.errors)} of {len(self.outcomes)} messages have no receipt ({shown}{more});"
            " .errors has all of them by number, .receipts the rest"
        )


class MissingExtraError(TrimtabError):
    """A feature needs an optional dependency that is not installed."""


class JavaNotFoundError(TrimtabError):
    """Spark needs Java 17 or later and none was found."""


RESPONSE_ERRORS: dict[int, type["ResponseError"]] = {}
ACL_REFUSAL = "AclException"
"""Brokers of 4.9 say so in the remark of a system error when the access control refuses."""
SIZE_REFUSAL = "size exceeded"
"""Apache's brokers say so in the remark of a system error when a batch is too long as it would be stored; nothing of it is."""


class ResponseError(TrimtabError):
    """A broker or name server refused a request; `code` and `remark` are its own words."""

    code: ClassVar[int] = -1
    advice: ClassVar[str] = ""

    def __init_subclass__(
        cls, *, code: int | None = None, advice: str, retriable: bool = False, indeterminate: bool = False
    ) -> None:
        cls.advice = advice
        cls.retriable = retriable
        cls.indeterminate = indeterminate
        if code is None:
            return
        if code in RESPONSE_ERRORS:
            raise TypeError(
                f"response code {code} has two classes: {cls.__name__} and {RESPONSE_ERRORS[code].__name__}"
            )
        cls.code = code
        cls.__doc__ = f"Response code {code}: {advice}."
        RESPONSE_ERRORS[code] = cls

    def __init__(self, *, asked: str, peer: str, remark: str = "", code: int | None = None) -> None:
        self.asked = asked
        self.peer = peer
        self.remark = remark
        self.response_code = type(self).code if code is None else code
        super().__init__(self._text())

    def _text(self) -> str:
        text = f"{self.asked}: {self.peer} answered {self.response_code} {type(self).__name__.removesuffix('Error')}"
        if self.remark:
            text += f" ({self.remark})"
        return f"{text}; {self.advice}" if self.advice else text


class UnknownResponseError(
    ResponseError, advice="this client does not know the code; the server's log may say more"
):
    """A response code that this version does not know."""


# "retriable" means: the very same request may be sent again, to this server or (a send) to another one.
# "indeterminate" follows the store: a reply that a message was kept but not yet flushed or replicated.
class SystemFailureError(
    ResponseError,
    code=1,
    advice="the server failed inside; its log says why",
    retriable=True,
    indeterminate=True,
):
    pass


class SystemBusyError(
    ResponseError, code=2, advice="the server sheds load; wait a moment and try again", retriable=True
):
    pass


class RequestCodeNotSupportedError(
    ResponseError, code=3, advice="this server version does not know the request"
):
    pass


class TransactionFailedError(ResponseError, code=4, advice="the transaction could not be stored"):
    pass


class FlushDiskTimeoutError(
    ResponseError,
    code=10,
    advice="stored, but not known to be on disk; sending again may duplicate",
    indeterminate=True,
):
    pass


class SlaveNotAvailableError(
    ResponseError,
    code=11,
    advice="stored on the master only; sending again may duplicate",
    indeterminate=True,
):
    pass


class FlushSlaveTimeoutError(
    ResponseError,
    code=12,
    advice="stored, but not known to be replicated; sending again may duplicate",
    indeterminate=True,
):
    pass


class MessageIllegalError(
    ResponseError,
    code=13,
    advice="the broker says what it does not take; if it is the size, make the message smaller or raise maxMessageSize",
):
    pass


class ServiceNotAvailableError(
    ResponseError,
    code=14,
    advice="the broker does not take writes now (stopping, slave, or disk full)",
    retriable=True,
):
    pass


class VersionNotSupportedError(ResponseError, code=15, advice="client and server versions do not fit"):
    pass


class NoPermissionError(
    ResponseError,
    code=16,
    advice="check the permission of broker, topic and group, and with ACL the access key, its secret and what it may do",
):
    pass


class TopicNotFoundError(
    ResponseError, code=17, advice="create the topic, or let the broker create topics (autoCreateTopicEnable)"
):
    pass


class TopicExistsError(ResponseError, code=18, advice="the topic is there already"):
    pass


class PullNotFoundError(ResponseError, code=19, advice="there is no newer message yet", retriable=True):
    pass


class PullRetryImmediatelyError(
    ResponseError, code=20, advice="nothing matched; pull on from nextBeginOffset", retriable=True
):
    pass


class PullOffsetMovedError(ResponseError, code=21, advice="the offset is gone; go on from nextBeginOffset"):
    pass


class QueryNotFoundError(ResponseError, code=22, advice="nothing is stored under that name"):
    pass


class SubscriptionParseFailedError(ResponseError, code=23, advice="mend the filter expression"):
    pass


class SubscriptionNotFoundError(
    ResponseError,
    code=24,
    advice="the broker has no subscription of this group yet; heartbeat first",
    retriable=True,
):
    pass


class SubscriptionNotLatestError(
    ResponseError, code=25, advice="the broker knows an older subscription; heartbeat first", retriable=True
):
    pass


class SubscriptionGroupNotFoundError(
    ResponseError,
    code=26,
    advice="create the group, or let the broker create groups (autoCreateSubscriptionGroup)",
):
    pass


class FilterDataNotFoundError(
    ResponseError, code=27, advice="the broker has no compiled filter yet; heartbeat first", retriable=True
):
    pass


class FilterDataNotLatestError(
    ResponseError, code=28, advice="the broker has an older filter; heartbeat first", retriable=True
):
    pass


class InvalidParameterError(ResponseError, code=29, advice="mend the request"):
    pass


class TransactionShouldCommitError(ResponseError, code=200, advice="commit the transaction"):
    pass


class TransactionShouldRollbackError(ResponseError, code=201, advice="roll the transaction back"):
    pass


class TransactionStateUnknownError(
    ResponseError, code=202, advice="the outcome is not known; the broker will check back", indeterminate=True
):
    pass


class TransactionGroupWrongError(ResponseError, code=203, advice="use the group that began it"):
    pass


class NoBuyerIdError(ResponseError, code=204, advice="the unit's router wants a buyer id", retriable=True):
    pass


class NotInCurrentUnitError(ResponseError, code=205, advice="this unit does not serve it", retriable=True):
    pass


class ConsumerNotOnlineError(ResponseError, code=206, advice="no consumer of the group is connected"):
    pass


class ConsumeTimeoutError(
    ResponseError, code=207, advice="the consumer did not answer in time", retriable=True, indeterminate=True
):
    pass


class NoMessageError(ResponseError, code=208, advice="there is no such message"):
    pass


class PollingFullError(
    ResponseError, code=209, advice="the server holds no further poll now", retriable=True
):
    pass


class PollingTimeoutError(
    ResponseError, code=210, advice="nothing came while the poll was held", retriable=True
):
    pass


class BrokerNotFoundError(ResponseError, code=211, advice="no such broker is registered"):
    pass


class DispatchNotCompleteError(
    ResponseError, code=212, advice="the broker still builds its indexes; try again", retriable=True
):
    pass


class BroadcastConsumptionError(ResponseError, code=213, advice="the group broadcasts: offsets are local"):
    pass


class FlowControlError(ResponseError, code=215, advice="slow down and try again", retriable=True):
    pass


class NotLeaderForQueueError(ResponseError, code=501, advice="refresh the route", retriable=True):
    pass


class IllegalOperationError(ResponseError, code=604, advice="the operation came too late or is not allowed"):
    pass


class GoAwayError(
    ResponseError, code=1500, advice="the server is leaving; use another connection", retriable=True
):
    pass


class UserNotFoundError(ResponseError, code=3001, advice="create the user"):
    pass


class PolicyNotFoundError(ResponseError, code=3002, advice="create the policy"):
    pass


def error_from_response(code: int, *, asked: str, peer: str, remark: str = "") -> ResponseError:
    """The exception for a response code; a code nobody knows becomes `UnknownResponseError`."""
    if code == SystemFailureError.code and ACL_REFUSAL in remark:
        return NoPermissionError(asked=asked, peer=peer, remark=remark, code=code)
    if code == SystemFailureError.code and SIZE_REFUSAL in remark:
        return MessageIllegalError(asked=asked, peer=peer, remark=remark, code=code)
    return RESPONSE_ERRORS.get(code, UnknownResponseError)(asked=asked, peer=peer, remark=remark, code=code)
