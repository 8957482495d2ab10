"""The flight recorder on a topic: everything is there after the end, and consuming never waits for it."""

import asyncio

import pytest

from tests.unit.client.pushing import TOPIC, Inbox, consumer, eventually, numbered, play, send
from trimtab.balance.flights import FlightLine, lines_of
from trimtab.balance.recorder import Event, Kind
from trimtab.client import push_flights
from trimtab.client.admin import Admin
from trimtab.client.producer import Producer
from trimtab.client.push_flights import FlightPublisher
from trimtab.client.push_settings import Consuming
from trimtab.errors import TrimtabError
from trimtab.testing import AsyncCluster

FLIGHTS = "trimtab-flights"


async def published(cluster: AsyncCluster, count: int) -> list[FlightLine]:
    """The lines on the topic, in the order of their numbers."""
    inbox = Inbox()
    async with consumer(cluster, inbox, group="readers", subscribe={FLIGHTS: "flights"}):
        await eventually(
            lambda: sum(len(lines_of(body).lines) for body in inbox.bodies) >= count, "all is published"
        )
    lines = [line for body in inbox.bodies for line in lines_of(body).lines]
    return sorted(lines, key=lambda line: (line.client_id, line.number))


@pytest.mark.parametrize("mode", ["leased", "classic"])
def test_every_event_up_to_the_last_is_on_the_topic(mode: str) -> None:
    async def scenario(cluster: AsyncCluster) -> None:
        await send(cluster, numbered(8))
        inbox = Inbox()
        member = consumer(cluster, inbox, mode=mode, consuming=Consuming(record_to=FLIGHTS))
        async with member:
            await eventually(lambda: len(inbox.messages) == 8, "all came")
        events = member.recorder.events
        lines = await published(cluster, len(events))
        assert [line.number for line in lines] == list(range(1, len(events) + 1))
        assert [line.kind for line in lines] == [event.kind for event in events]
        assert [line.message_queue for line in lines] == [event.queue for event in events]
        assert {line.client_id for line in lines} == {member.client_id}
        assert lines[-1].kind == Kind.LEFT
        assert TOPIC in {line.topic for line in lines}
        assert member.events_dropped == 0

    play(scenario)


def test_a_topic_that_cannot_be_written_does_not_disturb_consuming(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(cluster: AsyncCluster) -> None:
        await send(cluster, numbered(8))
        inbox = Inbox()
        async with Admin(nameserver=cluster.nameserver) as admin:
            await admin.create_topic(FLIGHTS, perm="r")
        member = consumer(cluster, inbox, consuming=Consuming(record_to=FLIGHTS))
        async with member:
            await eventually(lambda: len(inbox.messages) == 8, "all came")
        assert member.events_dropped == len(member.recorder.events)

    play(scenario)
    assert sum("were not published" in line for line in caplog.messages) == 1
    assert any(f"are not on topic {FLIGHTS}" in line for line in caplog.messages)


def test_events_beyond_the_room_are_dropped_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(push_flights, "WAITING_EVENTS_MAX", 10)

    async def scenario(cluster: AsyncCluster) -> None:
        publisher = FlightPublisher(Producer("p", nameserver=cluster.nameserver), FLIGHTS, "g", "me")
        for number in range(25):
            publisher.tell(Event(at_ms=number, kind="view"))
        assert publisher.dropped == 15
        await publisher.close()
        assert publisher.dropped == 15
        assert [line.number for line in await published(cluster, 10)] == list(range(1, 11))
        publisher.tell(Event(at_ms=99, kind="view"))
        assert publisher.dropped == 16

    play(scenario)


def test_a_topic_of_an_impossible_name_is_refused_at_once() -> None:
    with pytest.raises(TrimtabError, match="may only have letters"):
        Consuming(record_to="no spaces")


def test_closing_ends_although_nobody_answers() -> None:
    async def scenario() -> None:
        publisher = FlightPublisher(Producer("p", nameserver="127.0.0.1:1"), FLIGHTS, "g", "me")
        publisher.tell(Event(at_ms=1, kind="view"))
        async with asyncio.timeout(30):
            await publisher.close()
        assert publisher.dropped == 1

    asyncio.run(scenario())
