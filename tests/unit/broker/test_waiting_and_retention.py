"""What waits for its time is kept, however short the store keeps other messages."""

from typing import Any

import pytest

from tests.unit.broker.driver import Driver
from tests.unit.broker.test_transactions import COMMIT, end, half
from trimtab.broker.settings import BrokerSettings
from trimtab.broker.store import StoreSettings

MINUTE_MS = 60_000
SHORT = StoreSettings(
    segment_bytes=1 << 10, checkpoint_bytes=1 << 10, retention_ms=MINUTE_MS, disk_free_bytes_min=0
)
FEW = StoreSettings(
    segment_bytes=1 << 10, checkpoint_bytes=1 << 10, retention_bytes=4 << 10, disk_free_bytes_min=0
)


def talk_for(broker: Driver, minutes: int) -> None:
    client = broker.connect()
    for _ in range(minutes):
        for _ in range(5):
            client.send("chatter", bytes(300))
        broker.advance(MINUTE_MS, step_ms=10_000)
    client.close()


@pytest.mark.parametrize("settings", [SHORT, FEW], ids=["by time", "by size"])
@pytest.mark.parametrize("wish", [{"DELAY": "14"}, {"TIMER_DELAY_SEC": "600"}], ids=["level", "timer"])
def test_a_message_that_waits_outlives_the_retention(settings: StoreSettings, wish: dict[str, Any]) -> None:
    broker = Driver(store_settings=settings)
    client = broker.connect()
    client.send("T", b"later", **wish)
    talk_for(broker, 9)
    assert broker.core.store.stats().log_start == 0
    talk_for(broker, 2)
    assert [message.body for message in client.pull("T")] == [b"later"]
    talk_for(broker, 6)
    assert broker.core.store.stats().log_start > 0


@pytest.mark.parametrize("settings", [SHORT, FEW], ids=["by time", "by size"])
def test_a_half_message_outlives_the_retention(settings: StoreSettings) -> None:
    broker = Driver(store_settings=settings)
    client = broker.connect()
    receipt = half(client, b"half", CHECK_IMMUNITY_TIME_IN_SECONDS="3600")
    talk_for(broker, 9)
    broker.restart()
    client = broker.connect()
    end(client, receipt, COMMIT)
    assert [message.body for message in client.pull("T")] == [b"half"]
    talk_for(broker, 6)
    assert broker.core.store.stats().log_start > 0


def test_a_transaction_that_would_wait_for_years_is_given_up_and_lets_the_log_go() -> None:
    broker = Driver(BrokerSettings(transaction_ms_max=5 * MINUTE_MS), store_settings=SHORT)
    client = broker.connect()
    half(client, b"half", CHECK_IMMUNITY_TIME_IN_SECONDS="99999999999")
    talk_for(broker, 3)
    assert broker.core.store.stats().log_start == 0
    talk_for(broker, 9)
    assert broker.core.store.stats().log_start > 0


@pytest.mark.parametrize("settings", [SHORT, FEW], ids=["by time", "by size"])
def test_with_nothing_that_waits_old_messages_go(settings: StoreSettings) -> None:
    broker = Driver(store_settings=settings)
    talk_for(broker, 6)
    assert broker.core.store.stats().log_start > 0
