"""What waits for its time is kept, however short the store keeps other messages."""

from typing import Any

import pytest

from tests.unit.broker.driver import Driver
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
def test_with_nothing_that_waits_old_messages_go(settings: StoreSettings) -> None:
    broker = Driver(store_settings=settings)
    talk_for(broker, 6)
    assert broker.core.store.stats().log_start > 0
