"""A real `trimtab up` under load, killed with SIGKILL again and again, always on the same folder.

Four producers send over connections of their own, several messages at a time, and note what was acknowledged and where. Four
consumers note what they were shown meanwhile. At a moment that chance picks the process is killed; sometimes the next one is
killed while it starts. After each start everything is read back by pulls and held against the notes: nothing acknowledged is
lost, nothing is there that was not sent, no message is there twice, offsets have no gaps, and what was shown once, to a consumer
or after a start, is shown again.
"""

import asyncio
import os
import random
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.crash.lives import Life, lives
from tests.peers import Peer, pull_header, send_header
from trimtab.broker.store.scrub import verify
from trimtab.errors import ConnectionLostError, ServerUnreachableError
from trimtab.io.disk import RealDisk
from trimtab.wire.codes import RequestCode, ResponseCode
from trimtab.wire.headers.base import decode_ext
from trimtab.wire.headers.send import SendMessageResponse
from trimtab.wire.hot import encode_send_request
from trimtab.wire.messages import decode_messages

ROUNDS = int(os.environ.get("TRIMTAB_KILL_ROUNDS", "100"))
PRODUCERS = 4
IN_FLIGHT = 8
QUEUES = 4
ACKS_MAX = 300
ROUNDS_PER_TOPIC = 5
KILL_DURING_START = 0.2
START_S = 0.1
"""About how long a start takes; if it is longer, kills come early in it."""

Place = tuple[str, int, int]
"""Topic, queue, offset."""
Found = dict[tuple[str, int], list[tuple[int, bytes]]]
"""By topic and queue: offsets and bodies as pulls gave them."""


class History:
    """What was sent, what was acknowledged, and what a start has shown."""

    def __init__(self) -> None:
        self.sent: set[bytes] = set()
        self.acked: dict[Place, bytes] = {}
        self.shown: dict[Place, bytes] = {}
        self.topics: dict[str, None] = {}
        self._enough = 0
        self._when_enough: asyncio.Future[None] | None = None

    def when_acked(self, count: int) -> "asyncio.Future[None]":
        """Is done once so many messages are acknowledged."""
        self._enough = count
        self._when_enough = asyncio.get_running_loop().create_future()
        self._look_at_count()
        return self._when_enough

    def note(self, place: Place, body: bytes) -> None:
        """A message was acknowledged."""
        assert place not in self.acked, (
            f"{place} was given to {self.acked[place][:20]!r} and to {body[:20]!r}"
        )
        self.acked[place] = body
        self._look_at_count()

    def _look_at_count(self) -> None:
        if self._when_enough is not None and not self._when_enough.done() and len(self.acked) >= self._enough:
            self._when_enough.set_result(None)

    def complaints(self, found: Found) -> list[str]:
        """Everything that is wrong with what was found; then that is what must stay."""
        wrong = []
        there: dict[Place, bytes] = {}
        places: dict[bytes, Place] = {}
        for (topic, queue), messages in found.items():
            if [offset for offset, _ in messages] != list(range(len(messages))):
                wrong.append(f"{topic}:{queue} has gaps: {[offset for offset, _ in messages][:20]}")
            for offset, body in messages:
                place = (topic, queue, offset)
                there[place] = body
                if body not in self.sent:
                    wrong.append(f"phantom: {body[:20]!r} at {place} was never sent")
                if places.setdefault(body, place) != place:
                    wrong.append(f"twice: {body[:20]!r} is at {places[body]} and at {place}")
        for kind, expected in (("lost", self.acked), ("forgotten", self.shown)):
            for place, body in expected.items():
                if there.get(place) != body:
                    wrong.append(
                        f"{kind}: {body[:20]!r} at {place}, there is {there.get(place, b'nothing')[:20]!r}"
                    )
        self.shown = there
        return wrong


async def produce(address: str, topic: str, history: History, name: str, chance: random.Random) -> None:
    """Sends until the connection breaks."""
    broker = await Peer.open(address)
    waiting: dict[asyncio.Future[Any], bytes] = {}
    numbers = iter(range(1_000_000))
    try:
        while True:
            while len(waiting) < IN_FLIGHT:
                body = f"{name}-{next(numbers)}:".encode() + chance.randbytes(
                    chance.choice((0, 10, 100, 3_000))
                )
                opaque = broker.connection.next_opaque()
                header = send_header(topic, chance.randrange(QUEUES), queues=QUEUES)
                frame = encode_send_request(RequestCode.SEND_MESSAGE_V2, header, opaque=opaque, body=body)
                history.sent.add(body)
                waiting[broker.connection.ask_soon(opaque, frame)] = body
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            for future in [future for future in waiting if future.done()]:
                note_answer(history, topic, waiting.pop(future), future.result())
    except ConnectionLostError:
        for future, body in waiting.items():
            if future.done() and future.exception() is None:
                note_answer(history, topic, body, future.result())
    finally:
        broker.connection.close()


async def consume(address: str, topic: str, queue: int, history: History) -> None:
    """Pulls until the connection breaks; whatever a consumer saw must be there for ever."""
    broker = await Peer.open(address)
    offset = 0
    try:
        while True:
            header = pull_header(topic, queue, offset, waits_ms=1_000)
            answer = await broker.ask(RequestCode.PULL_MESSAGE, header)
            if answer.code == ResponseCode.TOPIC_NOT_EXIST:
                await asyncio.sleep(0.01)  # the first send will make it
            for message in decode_messages(answer.body):
                history.shown[topic, queue, message.queue_offset] = message.body
                offset = message.queue_offset + 1
    except ConnectionLostError:
        return
    finally:
        broker.connection.close()


def note_answer(history: History, topic: str, body: bytes, answer: Any) -> None:
    assert answer.code == ResponseCode.SUCCESS, f"{answer.code}: {answer.remark}"
    header = decode_ext(SendMessageResponse, answer.ext)
    history.note((topic, header.queue_id, header.queue_offset), body)


async def load_until_killed(
    life: Life, address: str, history: History, number: int, chance: random.Random
) -> None:
    topic = f"orders-{number // ROUNDS_PER_TOPIC}"
    history.topics[topic] = None
    enough = history.when_acked(len(history.acked) + chance.randrange(ACKS_MAX))
    producers = [
        asyncio.create_task(
            produce(address, topic, history, f"{number}-{name}", random.Random(chance.random()))
        )
        for name in range(PRODUCERS)
    ]
    consumers = [asyncio.create_task(consume(address, topic, queue, history)) for queue in range(QUEUES)]
    await asyncio.wait([*producers, enough], return_when=asyncio.FIRST_COMPLETED)
    life.signal(signal.SIGKILL)
    for outcome in await asyncio.gather(*producers, *consumers, return_exceptions=True):
        # One that came too late to connect is fine, anything else is not.
        if outcome is not None and not isinstance(outcome, ServerUnreachableError):
            raise outcome


async def read_back(address: str, history: History) -> Found:
    found: Found = {}
    async with await Peer.open(address) as broker:
        for topic in history.topics:
            first = await broker.ask(RequestCode.PULL_MESSAGE, pull_header(topic, 0, 0))
            if first.code == ResponseCode.TOPIC_NOT_EXIST:
                continue  # nothing of it is there; whether that is right, the notes know
            for queue in range(QUEUES):
                messages = await broker.read_all(topic, queue)
                found[topic, queue] = [(message.queue_offset, message.body) for message in messages]
    return found


async def live(
    folder: Path, rounds: int, history: History, chance: random.Random, *storage: str
) -> list[str]:
    """Some lives of one broker; gives what was wrong after one of them, or nothing."""
    async with lives(folder, *storage) as started:
        for number in range(rounds):
            if chance.random() < KILL_DURING_START:
                async with started.one():
                    await asyncio.sleep(chance.random() * START_S)
            async with started.one() as life:
                address = await life.address()
                wrong = history.complaints(await read_back(address, history))
                if wrong:
                    return [f"after {number} rounds", *wrong[:20]]
                await load_until_killed(life, address, history, number, chance)
        async with started.one() as life:
            wrong = history.complaints(await read_back(await life.address(), history))
            life.signal(signal.SIGTERM)
            assert await life.wait() == 0
    return wrong


def seeded(request: pytest.FixtureRequest) -> random.Random:
    seed = int(os.environ.get("TRIMTAB_SEED") or random.SystemRandom().randrange(1 << 32))
    request.node.add_report_section("setup", "seed", f"TRIMTAB_SEED={seed}")
    return random.Random(seed)


def test_nothing_acknowledged_is_lost_and_nothing_else_appears(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    history = History()
    assert asyncio.run(live(tmp_path, ROUNDS, history, seeded(request), "--data", "data")) == []
    assert len(history.acked) > ROUNDS
    assert [one for one in verify(RealDisk(tmp_path / "data" / "broker-a")) if not one.harmless] == []


def test_the_check_finds_a_broker_that_forgets(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    history, chance = History(), seeded(request)
    wrong: list[str] = []
    while not wrong and not history.acked:  # a kill before the first acknowledgement proves nothing
        wrong = asyncio.run(live(tmp_path, 1, history, chance, "--memory"))
    assert any("lost: " in one for one in wrong)


@pytest.mark.parametrize(
    ("found", "word"),
    [
        ([(0, b"a"), (1, b"b"), (2, b"c")], None),
        ([(0, b"a"), (1, b"b")], None),  # c was not acknowledged
        ([(0, b"a")], "lost"),
        ([(0, b"a"), (1, b"c")], "lost"),
        ([(0, b"a"), (1, b"b"), (2, b"x")], "phantom"),
        ([(0, b"a"), (1, b"b"), (2, b"a")], "twice"),
        ([(0, b"a"), (1, b"b"), (3, b"c")], "gaps"),
        ([(1, b"b"), (0, b"a")], "gaps"),
        ([], "lost"),
    ],
)
def test_the_check_can_fail(found: list[tuple[int, bytes]], word: str | None) -> None:
    history = History()
    history.sent = {b"a", b"b", b"c"}
    history.acked = {("t", 0, 0): b"a", ("t", 0, 1): b"b"}
    wrong = history.complaints({("t", 0): found})
    assert bool(wrong) == (word is not None)
    assert word is None or any(word in one for one in wrong)


def test_what_was_shown_once_must_be_shown_again() -> None:
    history = History()
    history.sent = {b"a"}
    assert history.complaints({("t", 0): [(0, b"a")]}) == []
    assert "forgotten" in history.complaints({("t", 0): []})[0]
