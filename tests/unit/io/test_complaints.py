"""One line a minute for each address, and none is lost uncounted."""

import logging

import pytest

from trimtab.io.complaints import ADDRESSES_MAX, EVERY_MS, Complaints

LOG = logging.getLogger("test.complaints")


@pytest.fixture
def complaints(caplog: pytest.LogCaptureFixture) -> Complaints:
    caplog.set_level(logging.INFO, logger=LOG.name)
    return Complaints(LOG)


def test_the_first_is_logged_and_the_next_ones_are_counted(
    complaints: Complaints, caplog: pytest.LogCaptureFixture
) -> None:
    for number in range(100):
        complaints.about("10.0.0.1", number, logging.WARNING, "%s is refused", f"10.0.0.1:{number}")
    assert caplog.messages == ["10.0.0.1:0 is refused"]
    complaints.about("10.0.0.1", EVERY_MS, logging.WARNING, "%s is refused", "10.0.0.1:7")
    assert caplog.messages[1:] == ["10.0.0.1:7 is refused (99 more from 10.0.0.1 were left out)"]
    complaints.about("10.0.0.1", 3 * EVERY_MS, logging.WARNING, "%s is refused", "10.0.0.1:8")
    assert caplog.messages[2:] == ["10.0.0.1:8 is refused"]


def test_addresses_do_not_hide_each_other(complaints: Complaints, caplog: pytest.LogCaptureFixture) -> None:
    complaints.about("10.0.0.1", 0, logging.INFO, "one")
    complaints.about("10.0.0.2", 0, logging.INFO, "two")
    assert caplog.messages == ["one", "two"]


def test_the_memory_of_addresses_is_bounded(complaints: Complaints, caplog: pytest.LogCaptureFixture) -> None:
    for number in range(ADDRESSES_MAX + 1):
        complaints.about(str(number), 0, logging.INFO, "again")
    complaints.about("0", 1, logging.INFO, "forgotten, so logged again")
    complaints.about(str(ADDRESSES_MAX), 1, logging.INFO, "not logged")
    assert len(caplog.messages) == ADDRESSES_MAX + 2
    assert caplog.messages[-1] == "forgotten, so logged again"
