"""Asks a name server who is there, in RocketMQ's remoting protocol, over a plain socket.

It is written apart from `trimtab.wire` on purpose: the harness must work before, and judge, our own codec.
"""

from __future__ import annotations

import json
import socket
import struct
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

GET_ROUTE = 105
GET_CLUSTER = 106
SUCCESS = 0
PROBE_TIMEOUT_S = 5.0
# Every broker has it whatever its settings, and registers it in one request with TBW102 and all other topics.
SYSTEM_TOPIC = "SELF_TEST_TOPIC"


def endpoint(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    return host, int(port)


def accepts(address: str) -> bool:
    """Whether somebody accepts connections at `host:port`."""
    try:
        with socket.create_connection(endpoint(address), PROBE_TIMEOUT_S):
            return True
    except OSError:
        return False


def is_registered(nameserver: str, brokers: Iterable[tuple[str, str]]) -> bool:
    """Whether the name server lists each (name, address) in the cluster and in the route of a system topic."""
    try:
        cluster = ask(nameserver, GET_CLUSTER, {})
        route = ask(nameserver, GET_ROUTE, {"topic": SYSTEM_TOPIC})
    except (OSError, ValueError):
        return False
    # The bodies are fastjson with bare integer keys, which no JSON parser reads; the quoted texts are enough.
    return all(f'"{text}"'.encode() in body for pair in brokers for text in pair for body in (cluster, route))


def ask(address: str, code: int, fields: dict[str, str]) -> bytes:
    """The body of a successful answer."""
    header = {"code": code, "language": "PYTHON", "version": 399, "opaque": 1, "flag": 0, "extFields": fields}
    text = json.dumps(header).encode()
    with socket.create_connection(endpoint(address), PROBE_TIMEOUT_S) as connection:
        connection.sendall(struct.pack(">ii", 4 + len(text), len(text)) + text)
        (length,) = struct.unpack(">i", _exactly(connection, 4))
        frame = _exactly(connection, length)
    header_end = 4 + (int.from_bytes(frame[:4], "big") & 0xFFFFFF)
    answer = json.loads(frame[4:header_end])
    if answer["code"] != SUCCESS:
        raise ValueError(f"{address} answered request {code} with {answer['code']}: {answer.get('remark')}")
    return frame[header_end:]


def _exactly(connection: socket.socket, count: int) -> bytes:
    received = bytearray()
    while len(received) < count:
        piece = connection.recv(count - len(received))
        if not piece:
            raise ConnectionError(f"the connection closed after {len(received)} of {count} bytes")
        received += piece
    return bytes(received)
