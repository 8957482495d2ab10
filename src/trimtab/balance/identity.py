"""Ids that our clients make for themselves, and how to tell them from those that users chose.

An id has RocketMQ's form `ip@instance`, `ip@instance@unit` with a unit name; tools read the part before the first `@`. Our clients end the
instance with a mark. One with the mark is never seen again after its client has gone; one without it may come back after a restart.
Whether a member keeps leases is not in its id, which may be the user's: heartbeats say it (`wire.codes.LEASED_VERSION`).
"""

MARK = "#tt"


def client_id_of(ip: str, instance: str, unit_name: str | None = None) -> str:
    """An id with the mark. The same instance gives the same id: use it for a client that shall be known again after a restart."""
    return f"{ip}@{instance}{MARK}" + (f"@{unit_name}" if unit_name else "")


def is_ours(client_id: str) -> bool:
    """Whether a client of ours made this id for itself."""
    parts = client_id.split("@")
    return len(parts) > 1 and parts[1].endswith(MARK)
