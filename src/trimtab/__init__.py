"""trimtab: RocketMQ for Python, with load balancing that can be seen, simulated and trusted."""

from trimtab import errors
from trimtab.client.producer import Producer
from trimtab.errors import TrimtabError
from trimtab.io.nameservers import STARTERS as _STARTERS
from trimtab.model import Message, MessageQueue, Receipt
from trimtab.settings import Sending, Timeouts

__version__ = "0.1.0"

__all__ = [
    "Message",
    "MessageQueue",
    "Producer",
    "Receipt",
    "Sending",
    "Timeouts",
    "TrimtabError",
    "__version__",
    "errors",
]


def _embedded() -> str:
    from trimtab.testing import embedded_nameserver  # noqa: PLC0415 - brokers are loaded when somebody wants one

    return embedded_nameserver()


_STARTERS["embedded"] = _embedded
