"""Address patterns as plain_acl.yml writes them: `10.1.2.3`, `10.1.2.*`, `10.1.2-9.*`, `10.1.2.{3,4}`, `10.1.2.3,10.1.2.4`, `*`, and IPv6 alike."""

import ipaddress
import re
from dataclasses import dataclass

_EVERY = frozenset({"*", "*.*.*.*", "*:*:*:*:*:*:*:*"})
_DECIMAL = re.compile(r"[0-9]{1,3}")
_HEXADECIMAL = re.compile(r"[0-9a-fA-F]{1,4}")

_Range = tuple[int, int]


@dataclass(frozen=True, slots=True)
class AddressPattern:
    """Some addresses. `alternatives` hold a range for each part of an address; None stands for every address."""

    text: str
    alternatives: tuple[tuple[_Range, ...], ...] | None

    def matches(self, host: str) -> bool:
        """Whether this address is meant; something that is no address never is."""
        numbers = _numbers_of(host)
        if numbers is None:
            return False
        return self.alternatives is None or any(
            len(ranges) == len(numbers)
            and all(low <= number <= high for (low, high), number in zip(ranges, numbers, strict=True))
            for ranges in self.alternatives
        )


def parse_pattern(text: str) -> AddressPattern:
    """The pattern that is written so; `ValueError` if none is."""
    text = text.strip()
    if text in _EVERY:
        return AddressPattern(text, None)
    return AddressPattern(text, tuple(_ranges(part.strip()) for part in _spelled_out(text)))


def is_loopback(host: str) -> bool:
    """Whether what comes from there never left this machine."""
    address = _address_of(host)
    return address is not None and address.is_loopback


def _spelled_out(text: str) -> list[str]:
    if text.endswith("}"):
        front, brace, choices = text[:-1].partition("{")
        if not brace or not front.endswith((".", ":")):
            raise ValueError(f"{text!r}: braces may stand for the last part only, as in 10.1.2.{{3,4}}")
        return [front + choice.strip() for choice in choices.split(",")]
    return text.split(",")


def _ranges(text: str) -> tuple[_Range, ...]:
    if ":" in text:
        return tuple(_range(text, part, 0xFFFF) for part in _groups(text))
    parts = text.split(".")
    if len(parts) != 4:
        raise ValueError(f"{text!r} has not the four parts of an address")
    return tuple(_range(text, part, 255) for part in parts)


def _groups(text: str) -> list[str]:
    head, gap, tail = text.partition("::")
    before, after = head.split(":") if head else [], tail.split(":") if tail else []
    missing = 8 - len(before) - len(after)
    if missing < 1 if gap else missing:
        raise ValueError(f"{text!r} has not the eight groups of an IPv6 address")
    return before + ["0"] * missing + after


def _range(text: str, part: str, most: int) -> _Range:
    if part == "*":
        return 0, most
    digits, base = (_DECIMAL, 10) if most == 255 else (_HEXADECIMAL, 16)
    first, _, last = part.partition("-")
    last = last or first
    if not (digits.fullmatch(first) and digits.fullmatch(last)) or part.endswith("-"):
        raise ValueError(f"{text!r}: {part!r} is no number, range or *")
    low, high = int(first, base), int(last, base)
    if not low <= high <= most:
        raise ValueError(f"{text!r}: {part!r} is not within 0..{most}")
    return low, high


def _numbers_of(host: str) -> tuple[int, ...] | None:
    address = _address_of(host)
    if address is None:
        return None
    raw = address.packed
    if len(raw) == 4:
        return tuple(raw)
    return tuple(int.from_bytes(raw[at : at + 2], "big") for at in range(0, 16, 2))


def _address_of(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        address = ipaddress.ip_address(host.partition("%")[0].strip("[]"))
    except ValueError:
        return None
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        return address.ipv4_mapped
    return address
