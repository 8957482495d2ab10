"""Point C10: where to start, every branch, for push and for lite pull."""

import pytest

from trimtab.balance.start import (
    NOT_STORED,
    UNKNOWN,
    At,
    AtEnd,
    AtTime,
    From,
    NotNow,
    Start,
    StartRule,
    stored_for_pull,
    where_to_start,
)

RETRY = "%RETRY%g"
AT_MS = 1_700_000_000_000


@pytest.mark.parametrize("where", From)
@pytest.mark.parametrize("topic", ["orders", RETRY])
@pytest.mark.parametrize("stored", [0, 1, 2**40])
def test_c10_a_stored_offset_wins(where: From, topic: str, stored: int) -> None:
    assert where_to_start(StartRule(where, AT_MS), topic, stored) == At(stored)


@pytest.mark.parametrize(
    ("where", "topic", "expected"),
    [
        (From.LAST, "orders", AtEnd()),
        (From.LAST, RETRY, At(0)),
        (From.FIRST, "orders", At(0)),
        (From.FIRST, RETRY, At(0)),
        (From.TIMESTAMP, "orders", AtTime(AT_MS)),
        (From.TIMESTAMP, RETRY, AtEnd()),
    ],
)
def test_c10_without_a_stored_offset_the_group_chooses(where: From, topic: str, expected: Start) -> None:
    assert where_to_start(StartRule(where, AT_MS), topic, NOT_STORED) == expected


@pytest.mark.parametrize("where", From)
@pytest.mark.parametrize("topic", ["orders", RETRY])
@pytest.mark.parametrize("stored", [UNKNOWN, -3])
def test_c10_an_offset_that_could_not_be_read_is_no_reason_to_guess(
    where: From, topic: str, stored: int
) -> None:
    assert where_to_start(StartRule(where, AT_MS), topic, stored) == NotNow()


def test_c10_lite_pull_looks_into_its_memory_first() -> None:
    assert stored_for_pull(7, 3) == 7
    assert stored_for_pull(None, 3) == 3
    assert stored_for_pull(None, NOT_STORED) == NOT_STORED
