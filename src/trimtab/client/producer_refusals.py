"""Which failures of a send are worth another try, and which of them an old route may be the cause of. PURE."""

from trimtab.errors import (
    ACL_REFUSAL,
    ConnectionLostError,
    MessageIllegalError,
    RequestCodeNotSupportedError,
    RequestTimeoutError,
    ResponseError,
    ServerUnreachableError,
    TrimtabError,
)
from trimtab.wire.codes import ResponseCode

RETRIED_CODES = frozenset({
    ResponseCode.TOPIC_NOT_EXIST, ResponseCode.SERVICE_NOT_AVAILABLE, ResponseCode.SYSTEM_ERROR, ResponseCode.SYSTEM_BUSY,
    ResponseCode.NO_PERMISSION, ResponseCode.NO_BUYER_ID, ResponseCode.NOT_IN_CURRENT_UNIT, ResponseCode.GO_AWAY,
    ResponseCode.FLOW_CONTROL,
})  # fmt: skip
"""Answers after which another broker is tried, as Java's producer does. All others are the message's own fault."""

ROUTE_CODES = frozenset({ResponseCode.TOPIC_NOT_EXIST, ResponseCode.NO_PERMISSION})
"""Answers of a broker that no longer has the topic, or no longer takes messages for it."""


def may_be_tried_again(error: Exception) -> bool:
    """Whether another broker may take what this one did not."""
    if isinstance(error, MessageIllegalError):
        return False
    if isinstance(error, ResponseError):
        return error.response_code in RETRIED_CODES and ACL_REFUSAL not in error.remark
    return isinstance(error, TrimtabError) and error.retriable


def may_go_in_smaller_loads(error: Exception) -> bool:
    """Whether the load may have been refused for what it is, not for any of its messages: too long in all, or a batch at all. Nothing of it is stored."""
    return isinstance(error, MessageIllegalError | RequestCodeNotSupportedError)


def may_come_from_an_old_route(error: Exception) -> bool:
    """Whether name servers should be asked again before the next send."""
    if isinstance(error, ResponseError):
        return error.response_code in ROUTE_CODES and ACL_REFUSAL not in error.remark
    return isinstance(error, ServerUnreachableError | ConnectionLostError | RequestTimeoutError)
