"""Names in a namespace: `orders` is `prod%orders` on the wire, `%RETRY%billing` is `%RETRY%prod%billing`. PURE. The rules are Java's."""

from trimtab.wire.resources import DEFAULT_TOPIC, RETRY_PREFIX

DLQ_PREFIX = "%DLQ%"
_SEPARATOR = "%"
_SYSTEM_PREFIXES = ("rmq_sys_", "CID_RMQ_SYS_")
_SYSTEM_TOPICS = frozenset({
    DEFAULT_TOPIC, "SCHEDULE_TOPIC_XXXX", "BenchmarkTest", "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRACE_TOPIC",
    "RMQ_SYS_TRANS_OP_HALF_TOPIC", "TRANS_CHECK_MAX_TIME_TOPIC", "SELF_TEST_TOPIC", "OFFSET_MOVED_EVENT",
})  # fmt: skip


def with_namespace(namespace: str | None, name: str) -> str:
    """A topic or group as it goes on the wire; those of the system belong to no namespace."""
    if not namespace or not name or is_system(name):
        return name
    prefix, bare = _split(name)
    return name if bare.startswith(namespace + _SEPARATOR) else f"{prefix}{namespace}{_SEPARATOR}{bare}"


def without_namespace(namespace: str | None, name: str) -> str:
    """A topic or group as its user calls it; names of other namespaces stay as they are."""
    if not namespace or not name:
        return name
    prefix, bare = _split(name)
    return prefix + bare.removeprefix(namespace + _SEPARATOR)


def is_system(name: str) -> bool:
    """Whether a topic or group is the brokers' own."""
    return name in _SYSTEM_TOPICS or name.startswith(_SYSTEM_PREFIXES)


def _split(name: str) -> tuple[str, str]:
    for prefix in (RETRY_PREFIX, DLQ_PREFIX):
        if name.startswith(prefix):
            return prefix, name[len(prefix) :]
    return "", name
