"""trimtab: RocketMQ for Python, with load balancing that can be seen, simulated and trusted."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from trimtab import errors
from trimtab.errors import TrimtabError
from trimtab.io.nameservers import STARTERS as _STARTERS

if TYPE_CHECKING:
    from trimtab import blocking
    from trimtab.balance import strategies
    from trimtab.balance.progress import FlowLimits
    from trimtab.client.admin import Admin
    from trimtab.client.producer import Producer
    from trimtab.client.pull_consumer import PullConsumer
    from trimtab.client.push import PushConsumer
    from trimtab.client.push_outcomes import ConsumeLater
    from trimtab.client.push_settings import Consuming
    from trimtab.client.received import Received
    from trimtab.client.requests import Reply
    from trimtab.client.subscriptions import SQL
    from trimtab.client.transactions import Resolution, TransactionReceipt
    from trimtab.model import Message, MessageQueue, Receipt
    from trimtab.settings import Pulling, Sending, Timeouts
    from trimtab.wire.signing import Credentials

__version__ = "0.1.0"

__all__ = [
    "SQL",
    "Admin",
    "ConsumeLater",
    "Consuming",
    "Credentials",
    "FlowLimits",
    "Message",
    "MessageQueue",
    "Producer",
    "PullConsumer",
    "Pulling",
    "PushConsumer",
    "Receipt",
    "Received",
    "Reply",
    "Resolution",
    "Sending",
    "Timeouts",
    "TransactionReceipt",
    "TrimtabError",
    "__version__",
    "blocking",
    "errors",
    "strategies",
]

_WHERE = {
    "Admin": "trimtab.client.admin",
    "ConsumeLater": "trimtab.client.push_outcomes",
    "Consuming": "trimtab.client.push_settings",
    "FlowLimits": "trimtab.balance.progress",
    "Credentials": "trimtab.wire.signing",
    "Message": "trimtab.model",
    "MessageQueue": "trimtab.model",
    "Producer": "trimtab.client.producer",
    "PullConsumer": "trimtab.client.pull_consumer",
    "Pulling": "trimtab.settings",
    "PushConsumer": "trimtab.client.push",
    "Receipt": "trimtab.model",
    "Received": "trimtab.client.received",
    "Reply": "trimtab.client.requests",
    "Resolution": "trimtab.client.transactions",
    "SQL": "trimtab.client.subscriptions",
    "Sending": "trimtab.settings",
    "Timeouts": "trimtab.settings",
    "TransactionReceipt": "trimtab.client.transactions",
    "blocking": "trimtab.blocking",
    "strategies": "trimtab.balance.strategies",
}
"""A name is loaded when it is first used, so that the command line and a broker need not load the clients."""


def __getattr__(name: str) -> Any:
    where = _WHERE.get(name)
    if where is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if name in ("blocking", "strategies"):
        return import_module(where)
    found = globals()[name] = getattr(import_module(where), name)
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *_WHERE})


def _embedded() -> str:
    from trimtab.testing import embedded_nameserver  # noqa: PLC0415 - brokers are loaded when somebody wants one

    return embedded_nameserver()


_STARTERS["embedded"] = _embedded
