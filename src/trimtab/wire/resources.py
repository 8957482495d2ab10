"""The rules for names of topics and groups that clients and brokers share."""

import re
from typing import Final

TOPIC_LENGTH_MAX: Final = 127
GROUP_LENGTH_MAX: Final = 255
NAME: Final = re.compile(r"[%|a-zA-Z0-9_-]+")

DEFAULT_TOPIC: Final = "TBW102"
"""Its route is the one of a topic that sending creates."""
RETRY_PREFIX: Final = "%RETRY%"
