"""Addresses inside messages and ids: 4 or 16 address bytes and a 32-bit port, shown as `ip:port`."""

from functools import lru_cache
from ipaddress import AddressValueError, IPv4Address, IPv6Address
from struct import Struct

from trimtab.errors import InvalidMessageError

HOST_V4_BYTES = 8
HOST_V6_BYTES = 20

_PORT = Struct(">i")
_V4 = Struct(">4Bi")


@lru_cache(maxsize=1024)
def host_text(host: bytes) -> str:
    """`10.0.0.1:10911` or `[2001:db8::1]:10911`; an IPv4 address inside an IPv6 one is shown as what it is, as Java does."""
    if len(host) == HOST_V4_BYTES:
        return "{}.{}.{}.{}:{}".format(*_V4.unpack(host))
    address = IPv6Address(host[:-4])
    port = _PORT.unpack_from(host, 16)[0]
    if address.ipv4_mapped is not None:
        return f"{address.ipv4_mapped}:{port}"
    return f"[{address}]:{port}"


def host_bytes(text: str) -> bytes:
    """The bytes of `ip:port`; names are not looked up."""
    address, colon, port = text.rpartition(":")
    if not colon or not (port.isascii() and port.isdecimal()) or int(port) > 65535:
        raise InvalidMessageError(f"{text!r} is not ip:port; write 10.0.0.1:10911 or [2001:db8::1]:10911")
    is_v6 = address.startswith("[") and address.endswith("]")
    try:
        packed = IPv6Address(address[1:-1]).packed if is_v6 else IPv4Address(address).packed
    except AddressValueError as exc:
        raise InvalidMessageError(f"{text!r} is not ip:port: {exc}") from exc
    return packed + _PORT.pack(int(port))
