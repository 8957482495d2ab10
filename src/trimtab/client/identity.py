"""Who a client is to brokers: its address, its process, its ids."""

import socket

from trimtab.balance.identity import client_id_of
from trimtab.io.chance import Chance
from trimtab.io.clock import Clock
from trimtab.io.whereabouts import whereabouts
from trimtab.wire.ids import UniqueIds


def local_ip() -> str:
    """The address by which others would reach this machine; loopback if there is none."""
    return whereabouts().ip


def new_client_id(chance: Chance, unit_name: str | None = None) -> str:
    """An id that no other client has, and that says it is ours."""
    ip, pid = whereabouts()
    return client_id_of(ip, f"{pid}#{chance.randrange(2**48):012x}", unit_name)


def unique_ids(clock: Clock, chance: Chance) -> UniqueIds:
    """A source of message ids for this process."""
    ip, pid = whereabouts()
    return UniqueIds(socket.inet_aton(ip), pid & 0xFFFF, chance.randrange(2**31), clock.month_ms)
