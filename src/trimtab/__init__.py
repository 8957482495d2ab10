"""trimtab: RocketMQ for Python, with load balancing that can be seen, simulated and trusted."""

from trimtab import errors
from trimtab.errors import TrimtabError
from trimtab.model import MessageQueue

__version__ = "0.1.0"

__all__ = ["MessageQueue", "TrimtabError", "__version__", "errors"]
