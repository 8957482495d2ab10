"""Where this process is, as a seam: ids of clients and of messages say so. In a simulation every virtual process has a place of its own."""

import os
import socket
from contextvars import ContextVar
from typing import Final, NamedTuple


class Whereabouts(NamedTuple):
    """An address by which others would reach this machine, and the number of the process on it."""

    ip: str
    pid: int


TOLD: Final[ContextVar[Whereabouts]] = ContextVar("trimtab-whereabouts")
"""Set it, and what runs in the context is there."""


def whereabouts() -> Whereabouts:
    """Where the code that runs now is; the machine's own place, unless it was told another one."""
    told = TOLD.get(None)
    return Whereabouts(_local_ip(), os.getpid()) if told is None else told


def _local_ip() -> str:
    """Loopback if there is no other. Nothing is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            # Reserved for documentation: it only makes the system choose an interface.
            probe.connect(("192.0.2.1", 9))
            return str(probe.getsockname()[0])
        except OSError:
            return "127.0.0.1"
