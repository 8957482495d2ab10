"""A canary that was ordered for a whole group by one command: the text that name servers keep of it, and members read. PURE."""

from typing import Final

import msgspec

from trimtab.balance.order import sorted_queues
from trimtab.balance.strategies.canary import CanarySetting
from trimtab.errors import SettingsError
from trimtab.model import MessageQueue

NAMESPACE: Final = "TRIMTAB_CANARY"
"""Of the values that name servers keep; the key is the group."""
TEXT_CHARS_MAX: Final = 100_000


class _Order(msgspec.Struct, frozen=True, omit_defaults=True):
    members: list[str]
    part: float | None = None
    queues: list[MessageQueue] | None = None


def order_text(setting: CanarySetting) -> str:
    """What name servers keep of it."""
    queues = setting.queues
    order = _Order(
        members=sorted(setting.members),
        part=setting.part,
        queues=None if queues is None else [*sorted_queues(queues)],
    )
    return msgspec.json.encode(order).decode()


def read_order(text: str) -> CanarySetting:
    """The setting; SettingsError if it is none."""
    if len(text) > TEXT_CHARS_MAX:
        raise SettingsError(f"the canary's order has {len(text)} characters; at most {TEXT_CHARS_MAX}")
    try:
        order = msgspec.json.decode(text, type=_Order)
    except msgspec.DecodeError as error:
        raise SettingsError(f"the canary's order cannot be read: {error}") from error
    queues = None if order.queues is None else frozenset(order.queues)
    return CanarySetting(frozenset(order.members), order.part, queues)
