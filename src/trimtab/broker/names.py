"""Names that the protocol reserves, and which characters a topic or a group may have."""

from typing import Final

from trimtab.wire import resources
from trimtab.wire.resources import GROUP_LENGTH_MAX, NAME, TOPIC_LENGTH_MAX

RETRY_PREFIX: Final = resources.RETRY_PREFIX
DLQ_PREFIX: Final = "%DLQ%"

DEFAULT_TOPIC: Final = resources.DEFAULT_TOPIC
SCHEDULE_TOPIC: Final = "SCHEDULE_TOPIC_XXXX"
HALF_TOPIC: Final = "RMQ_SYS_TRANS_HALF_TOPIC"
OP_HALF_TOPIC: Final = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
CHECK_MAX_TOPIC: Final = "TRANS_CHECK_MAX_TIME_TOPIC"
TRACE_TOPIC: Final = "RMQ_SYS_TRACE_TOPIC"
TIMER_TOPIC: Final = "rmq_sys_wheel_timer"
SELF_TEST_TOPIC: Final = "SELF_TEST_TOPIC"
OFFSET_MOVED_TOPIC: Final = "OFFSET_MOVED_EVENT"
BENCHMARK_TOPIC: Final = "BenchmarkTest"

SYSTEM_TOPIC_PREFIX: Final = "rmq_sys_"
SYSTEM_GROUP_PREFIX: Final = "CID_RMQ_SYS_"

SYSTEM_TOPICS: Final = frozenset({
    DEFAULT_TOPIC, SCHEDULE_TOPIC, HALF_TOPIC, OP_HALF_TOPIC, CHECK_MAX_TOPIC, TRACE_TOPIC, SELF_TEST_TOPIC,
    OFFSET_MOVED_TOPIC, BENCHMARK_TOPIC,
})  # fmt: skip

NO_CLIENT_SENDS_TO: Final = frozenset(
    {SCHEDULE_TOPIC, HALF_TOPIC, OP_HALF_TOPIC, CHECK_MAX_TOPIC, TIMER_TOPIC}
)

SYSTEM_GROUPS: Final = (
    "TOOLS_CONSUMER", "FILTERSRV_CONSUMER", "SELF_TEST_C_GROUP", "CID_ONS-HTTP-PROXY", "CID_ONSAPI_PULL",
    "CID_ONSAPI_PERMISSION", "CID_ONSAPI_OWNER",
)  # fmt: skip


CLIENT_ID_LENGTH_MAX: Final = 1_024
BROKER_NAME_LENGTH_MAX: Final = 255

PERM_INHERIT: Final = 1
PERM_WRITE: Final = 2
PERM_READ: Final = 4
PERM_PRIORITY: Final = 8
"""Kept for tools that set it; nothing looks at it, as at Apache's."""
PERM_READ_WRITE: Final = PERM_READ | PERM_WRITE


def retry_topic(group: str) -> str:
    """Where messages of a group wait to be tried again."""
    return RETRY_PREFIX + group


def dlq_topic(group: str) -> str:
    """Where messages of a group end that nobody could handle."""
    return DLQ_PREFIX + group


def topic_complaint(topic: str) -> str | None:
    """What is wrong with a topic's name, if anything."""
    return _complaint("topic", topic, TOPIC_LENGTH_MAX)


def group_complaint(group: str) -> str | None:
    """What is wrong with a group's name, if anything."""
    return _complaint("group", group, GROUP_LENGTH_MAX)


def address_complaint(topic: str) -> str | None:
    """What is wrong with a topic that a client speaks of, which may be the retry or dead-letter topic of a long group."""
    for prefix in (RETRY_PREFIX, DLQ_PREFIX):
        if topic.startswith(prefix):
            return group_complaint(topic.removeprefix(prefix))
    return topic_complaint(topic)


def plain_complaint(what: str, name: str, length_max: int) -> str | None:
    """What is wrong with a name that Apache's brokers take as it is. It is kept in tables, so it has a bound here; who prints it escapes it."""
    if len(name) > length_max:
        return f"The specified {what} is longer than {length_max} characters"
    return None


def _complaint(what: str, name: str, length_max: int) -> str | None:
    if not name.strip():
        return f"The specified {what} is blank"
    if len(name) > length_max:
        return f"The specified {what} is longer than {length_max} characters"
    if not NAME.fullmatch(name):
        return f"The specified {what}[{name!r}] contains illegal characters, allowing only ^[%|a-zA-Z0-9_-]+$"
    return None
