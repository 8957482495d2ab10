"""How long a query waits for servers that do not answer."""

from hypothesis import given
from hypothesis import strategies as st

from trimtab.model import MessageQueue
from trimtab.spark.decisions import away_and_gone
from trimtab.spark.patience import ASKED_AGAIN_MS_MAX, Patience

SHORT = Patience(outage_ms=120_000, retry_ms=200)


def test_a_stranger_is_refused_at_once_and_an_old_acquaintance_waits() -> None:
    assert SHORT.verdict(is_retriable=True, is_acquainted=False, waited_ms=0) == "refused"
    assert SHORT.verdict(is_retriable=True, is_acquainted=True, waited_ms=0) == "again"
    assert SHORT.verdict(is_retriable=True, is_acquainted=True, waited_ms=119_999) == "again"
    assert SHORT.verdict(is_retriable=True, is_acquainted=True, waited_ms=120_000) == "outage"
    assert SHORT.verdict(is_retriable=False, is_acquainted=True, waited_ms=0) == "refused"


@given(st.integers(1, 600_000), st.integers(1, 10_000), st.integers(0, 2_000))
def test_nobody_gives_up_before_the_time_is_over_and_nobody_waits_for_long_after_it(
    outage_ms: int, retry_ms: int, answer_ms: int
) -> None:
    """However long a try takes, the last one begins when the time is over, and not one pause later."""
    patience = Patience(outage_ms, retry_ms)
    waited_ms = tries = 0
    while True:
        began_ms = waited_ms
        waited_ms += answer_ms
        if patience.verdict(is_retriable=True, is_acquainted=True, waited_ms=waited_ms) == "outage":
            break
        pause_ms = patience.pause_ms(tries, waited_ms)
        assert 1 <= pause_ms <= ASKED_AGAIN_MS_MAX
        waited_ms += pause_ms
        tries += 1
    assert waited_ms >= outage_ms
    assert began_ms <= outage_ms


def test_a_queue_is_gone_only_where_its_broker_is_there() -> None:
    here, there = MessageQueue("t", "broker-a", 0), MessageQueue("t", "broker-b", 0)
    assert away_and_gone([here, there], {"broker-a"}) == (frozenset({there}), frozenset({here}))
    assert away_and_gone([here, there], ()) == (frozenset({here, there}), frozenset())
