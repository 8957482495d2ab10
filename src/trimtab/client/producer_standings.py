"""What a producer of ours tells of how its policy sees the brokers, and whoever asks reads again (a property of its running info).

A broker of ours passes the question on to producers as it does to consumers; stock brokers know consumers only and refuse it.
Of several producers of a group in one process the one that started first answers.
"""

from collections.abc import Iterable

import msgspec

from trimtab.balance.pick import BrokerStanding

PROPERTY = "trimtab.brokers"
TOLD_BROKERS_MAX = 1_000


class Standing(msgspec.Struct, frozen=True, kw_only=True):
    """One broker."""

    broker: str
    available: bool
    isolated_ms: int
    """For how long yet nothing is sent to it, if there are others; 0 while it is available."""
    latency_ms: float
    weight: float
    """Beside those of the others; always 1 with policies that have no weights."""
    in_flight: int


class Choices(msgspec.Struct, frozen=True, kw_only=True):
    """A policy and its brokers, best first. Brokers that nothing was sent to are not among them."""

    policy: str
    brokers: tuple[Standing, ...]


def choices_text(policy: str, brokers: Iterable[BrokerStanding], now_ms: int) -> str:
    """As JSON; what is beyond the limit is left out."""
    told = [
        Standing(
            broker=one.broker_name,
            available=one.is_available,
            isolated_ms=0 if one.is_available else max(0, one.until_ms - now_ms),
            latency_ms=round(one.latency_ms, 1),
            weight=round(one.weight, 4),
            in_flight=one.in_flight,
        )
        for one in brokers
    ]
    return msgspec.json.encode(Choices(policy=policy, brokers=tuple(told[:TOLD_BROKERS_MAX]))).decode()


def read_choices(text: str | None) -> Choices | None:
    """What a producer told; None of one that tells nothing, or what nobody can read."""
    if text is None:
        return None
    try:
        return msgspec.json.decode(text, type=Choices)
    except msgspec.DecodeError:
        return None
