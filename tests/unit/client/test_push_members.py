"""What a member reads out of what brokers tell of themselves."""

import pytest

from trimtab.client.push_members import up_ms


@pytest.mark.parametrize(
    ("runtime", "expected_ms"),
    [
        ("[ 0 days, 0 hours, 0 minutes, 7 seconds ]", 7_000),
        ("[ 2 days, 3 hours, 4 minutes, 5 seconds ]", ((2 * 24 + 3) * 60 + 4) * 60_000 + 5_000),
        ("soon", 0),
        ("", 0),
    ],
)
def test_how_long_a_broker_has_been_up_is_read_from_its_runtime(runtime: str, expected_ms: int) -> None:
    assert up_ms({"runtime": runtime}) == expected_ms


def test_a_broker_that_does_not_tell_counts_as_just_started() -> None:
    assert up_ms({}) == 0
