"""Writes of one queue's offset go one after the other: a late one cannot overtake, and the group never goes back by accident."""

import asyncio
from pathlib import Path

import pytest

from tests.unit.client.liar import BROKER, Liar, Talk
from trimtab.client.pull_consumer_offsets import QueueOffsets
from trimtab.client.push_offsets import BrokerOffsets, FileOffsets
from trimtab.client.sessions import acquire_session, connection_options, release_session
from trimtab.model import MessageQueue
from trimtab.wire.codes import RequestCode, ResponseCode
from trimtab.wire.commands import Command

QUEUE = MessageQueue("orders", BROKER, 0)
OTHER = MessageQueue("orders", BROKER, 1)


class SlowBroker:
    """Answers commits when it is told to, and knows how many of a queue were on their way at once."""

    def __init__(self) -> None:
        self.unanswered: list[tuple[Talk, Command]] = []
        self.together_max = 0
        self.arrived: list[int] = []
        self._news = asyncio.Event()

    def __call__(self, talk: Talk, command: Command) -> None:
        if command.code == RequestCode.QUERY_CONSUMER_OFFSET:
            talk.answer(command, ext={"offset": "1"})
            return
        assert command.code == RequestCode.UPDATE_CONSUMER_OFFSET
        self.unanswered.append((talk, command))
        self.arrived.append(int(command.ext["commitOffset"]))
        queues = [one.ext["queueId"] for _, one in self.unanswered]
        self.together_max = max(self.together_max, *(queues.count(queue) for queue in queues))
        self._news.set()

    async def has(self, count: int) -> None:
        while len(self.unanswered) < count:
            self._news.clear()
            await asyncio.wait_for(self._news.wait(), 30)

    def answer(self, code: int = ResponseCode.SUCCESS) -> None:
        talk, command = self.unanswered.pop(0)
        talk.answer(command, code)


@pytest.mark.parametrize("kind", [BrokerOffsets, QueueOffsets])
def test_two_writes_of_one_queue_never_overlap_and_a_late_one_cannot_overtake(
    kind: type[BrokerOffsets] | type[QueueOffsets],
) -> None:
    async def scenario() -> None:
        broker = SlowBroker()
        async with Liar(broker, queues=2) as liar:
            session = acquire_session(connection_options(liar.address))
            await session.start()
            offsets = kind(session, "g")
            write = offsets.write if isinstance(offsets, BrokerOffsets) else offsets.commit
            await (offsets.read if isinstance(offsets, BrokerOffsets) else offsets.committed)(QUEUE)
            first = asyncio.create_task(write(QUEUE, 10))
            await broker.has(1)
            later = [asyncio.create_task(write(QUEUE, 20)), asyncio.create_task(write(QUEUE, 30))]
            elsewhere = asyncio.create_task(write(OTHER, 5))
            await broker.has(2)
            assert broker.arrived == [10, 5], "another queue does not wait, this one does"
            first.cancel()  # who asked has lost patience; the request is on its way all the same
            await asyncio.gather(first, return_exceptions=True)
            await asyncio.sleep(0)
            assert broker.arrived == [10, 5]
            broker.answer(ResponseCode.SYSTEM_ERROR)  # one that fails keeps nobody from going on
            broker.answer()
            for _ in later:
                await broker.has(1)
                broker.answer()
            await asyncio.gather(*later, elsewhere)
            assert broker.arrived == [10, 5, 20, 30]
            assert broker.together_max == 1
            await release_session(session)

    asyncio.run(scenario())


def test_offsets_in_a_file_are_written_one_after_the_other(tmp_path: Path) -> None:
    async def scenario() -> None:
        offsets = FileOffsets(tmp_path, "c", "g")
        queues = [MessageQueue("orders", "broker-a", number) for number in range(40)]
        await offsets.write_all(dict.fromkeys(queues[:20], 1))
        await asyncio.gather(*(offsets.write(queue, 7) for queue in queues))
        assert offsets.load() == dict.fromkeys(queues, 7)

    asyncio.run(scenario())
