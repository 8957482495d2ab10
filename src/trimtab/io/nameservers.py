"""What a text that names name servers stands for.

Mostly it is what it says: `10.0.0.5:9876;10.0.0.6:9876`. A word with a colon behind it, like `embedded:`, names something that
must be started first; who can start it says so in `STARTERS`. A client may not know the broker, so the package's root,
which knows everybody, makes that entry.
"""

from collections.abc import Callable

from trimtab.errors import TrimtabError

STARTERS: dict[str, Callable[[], str]] = {}
"""By what stands before the colon: gives the address once it can be used."""


class NameserverTextError(TrimtabError):
    """A text names no name server."""


def resolve_nameserver(text: str) -> str:
    """Addresses to connect to, as `host:port`, several with `;` between them."""
    word, colon, rest = text.strip().partition(":")
    if colon and not rest and word in STARTERS:
        return STARTERS[word]()
    addresses = [address.strip() for address in text.split(";") if address.strip()]
    if not addresses or not all(map(_is_address, addresses)):
        known = " or ".join(f"{name}:" for name in sorted(STARTERS))
        raise NameserverTextError(
            f"{text!r} names no name server; write host:port, several with ; between them, or {known}"
        )
    return ";".join(addresses)


def _is_address(text: str) -> bool:
    host, _, port = text.rpartition(":")
    return bool(host) and port.isascii() and port.isdecimal() and 0 < int(port) < 65_536
