"""Who a client is to brokers: its address, its process, its ids."""

import os
import socket

from trimtab.balance.identity import client_id_of
from trimtab.io.chance import Chance
from trimtab.io.clock import Clock
from trimtab.wire.ids import UniqueIds


def local_ip() -> str:
    """The address by which others would reach this machine; loopback if there is none. Nothing is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            # Reserved for documentation: it only makes the system choose an interface.
            probe.connect(("192.0.2.1", 9))
            return str(probe.getsockname()[0])
        except OSError:
            return "127.0.0.1"


def new_client_id(chance: Chance, unit_name: str | None = None) -> str:
    """An id that no other client has, and that says it is ours."""
    return client_id_of(local_ip(), f"{os.getpid()}#{chance.randrange(2**48):012x}", unit_name)


def unique_ids(clock: Clock, chance: Chance) -> UniqueIds:
    """A source of message ids for this process."""
    return UniqueIds(
        socket.inet_aton(local_ip()), os.getpid() & 0xFFFF, chance.randrange(2**31), clock.month_ms
    )
