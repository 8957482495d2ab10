"""How many files this process may have open: asked for once at the start, and shared out among those who need them."""

import resource

OPEN_FILES_WANTED = 65_536
_SPARE = 128
"""For what is neither a connection nor a store's: the loop, logs, libraries, syncs on their way."""


def raise_open_files_limit(wanted: int = OPEN_FILES_WANTED) -> int:
    """Raises the soft limit as far as wanted and allowed; gives the limit that holds now."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return wanted
    possible = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    if soft < possible:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (possible, hard))
        except (OSError, ValueError):  # the system has a lower limit than it says
            return soft
        return possible
    return soft


def connections_within(open_files_max: int, *, servers: int, kept_by_stores: int) -> int:
    """How many connections each of some servers may have, so that the stores can always open their files."""
    return max(1, (open_files_max - _SPARE - kept_by_stores) // servers)
