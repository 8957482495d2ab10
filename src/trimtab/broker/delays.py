"""The levels by which a message can be delayed: `1s 5s 10s … 2h`, counted from 1."""

from trimtab.errors import TrimtabError

_UNITS_MS = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


class DelayLevelsError(TrimtabError):
    """A list of levels that cannot be read."""


class DelayLevels:
    """The levels of one broker."""

    def __init__(self, text: str) -> None:
        self._delays_ms = [_milliseconds(word) for word in text.split()]
        if not self._delays_ms:
            raise DelayLevelsError("a broker needs at least one delay level, such as '1s'")

    def __len__(self) -> int:
        return len(self._delays_ms)

    def delay_ms(self, level: int) -> int:
        """How long a message of this level waits; a level beyond the last is the last."""
        return self._delays_ms[min(level, len(self._delays_ms)) - 1]


def _milliseconds(word: str) -> int:
    number, unit = word[:-1], word[-1:]
    if unit not in _UNITS_MS or not number.isdecimal():
        raise DelayLevelsError(f"delay level {word!r} is not a number with s, m, h or d")
    return int(number) * _UNITS_MS[unit]
