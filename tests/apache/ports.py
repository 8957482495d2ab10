"""Free ports on loopback.

RocketMQ derives ports from one another: a broker listening on P also takes P-2 (its VIP channel) and P+1
(replication). Our ports lie below the range the kernel hands out to outgoing connections, so that a broker
finds its own free again when it restarts, and each of the test processes that run side by side has a range of its own.
"""

from __future__ import annotations

import os
import random
import socket

LOOPBACK = "127.0.0.1"
PORT_MIN = 15_000
PORT_MAX = 32_000
RANGES = 4
ATTEMPTS_MAX = 1000
BROKER_OFFSETS = (-2, 0, 1)

_chance = random.SystemRandom()


def nameserver_port() -> int:
    return _free_base((0,))


def broker_port() -> int:
    return _free_base(BROKER_OFFSETS)


def own_range() -> range:
    """The ports of this process: pytest-xdist numbers its workers gw0, gw1 and so on; alone, a process is the last."""
    worker = os.environ.get("PYTEST_XDIST_WORKER", f"gw{RANGES - 1}")
    width = (PORT_MAX - PORT_MIN) // RANGES
    begin = PORT_MIN + int(worker.removeprefix("gw")) % RANGES * width
    return range(begin, begin + width)


def _free_base(offsets: tuple[int, ...]) -> int:
    """A port P such that all P + offset are free now; somebody may still take one before its server does."""
    mine = own_range()
    for _ in range(ATTEMPTS_MAX):
        base = _chance.choice(mine)
        if all(_is_free(base + offset) for offset in offsets):
            return base
    raise OSError(f"no free ports in {mine}; end some servers on this machine")


def _is_free(port: int) -> bool:
    with socket.socket() as candidate:
        candidate.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            candidate.bind(("", port))  # 4.9 listens on all interfaces
        except OSError:
            return False
    return True
