"""How our clients are told from others by their ids alone.

An id has RocketMQ's form `ip@instance`, `ip@instance@unit` with a unit name; tools read the part before the first `@`. Our clients end the
instance with a mark. Whoever reads the members of a group can so tell whether all of them keep the rules of a leased handover.
"""

MARK = "#tt"


def client_id_of(ip: str, instance: str, unit_name: str | None = None) -> str:
    """An id of ours. The same instance gives the same id: use it for a client that shall be known again after a restart."""
    return f"{ip}@{instance}{MARK}" + (f"@{unit_name}" if unit_name else "")


def is_ours(client_id: str) -> bool:
    """Whether the client with this id is one of ours."""
    parts = client_id.split("@")
    return len(parts) > 1 and parts[1].endswith(MARK)
