"""Handles by which a sender takes a timer message back, as 5.x has them."""

import base64
import binascii
from typing import NamedTuple

from trimtab.broker import names
from trimtab.broker.placing import TIMER_DEL_UNIQKEY, TIMER_OUT_MS, Placed
from trimtab.broker.requests import Refused
from trimtab.wire import properties as keys
from trimtab.wire.codes import ResponseCode

_VERSION = "v1"


class RecallHandle(NamedTuple):
    """What a sender of a timer message is given to take it back with."""

    topic: str
    broker_name: str
    deliver_ms: int
    unique_id: str

    def encode(self) -> str:
        """Text for the wire."""
        text = f"{_VERSION} {self.topic} {self.broker_name} {self.deliver_ms} {self.unique_id}"
        return base64.urlsafe_b64encode(text.encode()).decode()


def decode_recall_handle(text: str) -> RecallHandle:
    """The parts of a handle, which may come from anywhere."""
    try:
        words = base64.b64decode(text.encode(), altchars=b"-_", validate=True).decode().split(" ")
    except (binascii.Error, UnicodeError):
        words = []
    if (
        len(words) < 5
        or words[0] != _VERSION
        or not (words[3].isascii() and words[3].isdigit())
        or len(words[3]) > 18
    ):
        raise Refused(ResponseCode.ILLEGAL_OPERATION, "recall handle is invalid")
    return RecallHandle(words[1], words[2], int(words[3]), words[4])


def recall_handle_of(placed: Placed, broker_name: str) -> str | None:
    """The handle of a message that was just placed, if it can be taken back."""
    if placed.topic != names.TIMER_TOPIC:
        return None
    properties = keys.decode_properties(placed.message.properties)
    out_ms, unique = properties.get(TIMER_OUT_MS), properties.get(keys.UNIQ_KEY)
    if out_ms is None or unique is None or TIMER_DEL_UNIQKEY in properties:
        return None
    # One more than the second's beginning, so that it lies in the same second again.
    return RecallHandle(properties[keys.REAL_TOPIC], broker_name, int(out_ms) + 1, unique).encode()
