"""What `trimtab bench rebalance` counts as a move, and as a time without a holder."""

from dataclasses import dataclass

from trimtab.client.rebalance_load import _Ledger
from trimtab.io.clock import SystemClock
from trimtab.model import MessageQueue

QUEUE = MessageQueue("orders", "broker-a", 0)


@dataclass
class ClockByHand(SystemClock):
    """Shows what it is set to."""

    now_ms: int = 0

    def monotonic_ms(self) -> int:
        return self.now_ms


def ledger_of(*story: tuple[int, str, str]) -> _Ledger:
    """At what time which member took the queue or left it."""
    clock = ClockByHand()
    ledger = _Ledger(clock, "orders")
    for clock.now_ms, member, what in story:
        (ledger.took if what == "took" else ledger.left)(member, (QUEUE,))
    return ledger


def test_a_queue_that_is_handed_over_was_with_nobody_in_between() -> None:
    ledger = ledger_of((0, "a", "took"), (1_000, "a", "left"), (1_040, "b", "took"))
    assert (ledger.moved, ledger.gap_ms_max) == (1, 40)


def test_a_queue_that_had_two_holders_was_never_with_nobody() -> None:
    ledger = ledger_of(
        (0, "a", "took"), (1_000, "b", "took"), (1_200, "a", "left"), (9_000, "c", "took"), (9_100, "b", "left")
    )  # fmt: skip
    assert (ledger.moved, ledger.gap_ms_max) == (2, 0)
