"""A member's flight recorder, published on a topic while it goes on. Best effort: consuming never waits for it.

Events gather for a moment and leave together, by a producer that shares the consumer's session where it can. When the topic cannot be
written, or too many events wait, events are dropped and counted; the numbers in the lines show where.
"""

import asyncio
import logging
from contextlib import suppress

from trimtab.balance.flights import TAG, bodies_of, line_of
from trimtab.balance.recorder import Event
from trimtab.client.checks import check_topic
from trimtab.client.producer import Producer
from trimtab.model import Message

_log = logging.getLogger(__name__)

FLIGHTS_GROUP = "trimtab-flights"
WAITING_EVENTS_MAX = 2_048
GATHERING_S = 0.2
CLOSE_S_MAX = 3.0


class FlightPublisher:
    """Publishes the events of one member by a producer of its own, which it starts and closes."""

    def __init__(self, producer: Producer, topic: str, group: str, client_id: str) -> None:
        check_topic(topic)
        self._producer = producer
        self._topic = topic
        self._group = group
        self._client_id = client_id
        self._waiting: list[bytes] = []
        self._number = 0
        self._publishing: asyncio.Task[None] | None = None
        self._may_rest = asyncio.Event()
        self._is_closed = False
        self._has_complained = False
        self.dropped = 0
        """How many events are not on the topic: there was no room, or they could not be sent."""

    def tell(self, event: Event) -> None:
        """Takes an event; it leaves soon, with others."""
        self._number += 1
        if self._is_closed or len(self._waiting) >= WAITING_EVENTS_MAX:
            self.dropped += 1
            return
        self._waiting.append(line_of(self._group, self._client_id, self._number, event))
        if self._publishing is None or self._publishing.done():
            self._publishing = asyncio.get_running_loop().create_task(self._publish())

    async def close(self) -> None:
        """Publishes what is left, within a short time; takes no more."""
        self._is_closed = True
        self._may_rest.set()
        if self._publishing is not None:
            await asyncio.wait([self._publishing], timeout=CLOSE_S_MAX)
            if not self._publishing.done():
                self._publishing.cancel()
                await asyncio.gather(self._publishing, return_exceptions=True)
        self.dropped += len(self._waiting)
        self._waiting.clear()
        await self._producer.close()
        if self.dropped:
            _log.warning(
                "%d events of %s in group %s are not on topic %s",
                self.dropped, self._client_id, self._group, self._topic,
            )  # fmt: skip

    async def _publish(self) -> None:
        while self._waiting:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._may_rest.wait(), GATHERING_S)
            lines, self._waiting = self._waiting, []
            for body, count in bodies_of(lines):
                await self._send(body, count)

    async def _send(self, body: bytes, count: int) -> None:
        self.dropped += count  # until it is known to be stored
        try:
            await self._producer.start()
            await self._producer.send(Message(self._topic, body, tag=TAG, keys=(self._group,)))
        except Exception as error:  # noqa: BLE001 - publishing must never be in the way of consuming
            if not self._has_complained:
                self._has_complained = True
                _log.warning(
                    "events of group %s were not published on topic %s: %s; consuming goes on",
                    self._group, self._topic, error,
                )  # fmt: skip
        else:
            self.dropped -= count
            self._has_complained = False
