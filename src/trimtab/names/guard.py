"""Who may ask a name server what, when it asks who asks: users may look routes up, everything else is for admins."""

from typing import Final, Protocol

from trimtab.wire.codes import RequestCode
from trimtab.wire.commands import Command

OPEN_TO_USERS: Final = frozenset({
    RequestCode.GET_ROUTEINFO_BY_TOPIC,
    RequestCode.GET_BROKER_CLUSTER_INFO,
    RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER,
    RequestCode.GET_TOPICS_BY_CLUSTER,
    RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS,
    RequestCode.GET_UNIT_TOPIC_LIST,
    RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST,
    RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST,
    RequestCode.GET_KV_CONFIG,
    RequestCode.GET_KVLIST_BY_NAMESPACE,
})  # fmt: skip
"""Reads, by anybody who signs. A code that is not here is for admins, so a new one is safe until somebody thinks of it."""


class Guard(Protocol):
    """What knows the accounts; `broker.acl.Acl` is one."""

    def refusal(self, command: Command, *, admin: bool, host: str, is_secure: bool) -> tuple[int, str] | None:
        """The code and the remark of the refusal, or None for a request that may pass."""


def needs_admin(code: int) -> bool:
    """Whether a request with this code is for admins alone."""
    return code not in OPEN_TO_USERS
