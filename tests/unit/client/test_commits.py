"""What a broker acknowledged is kept, also where several first offsets of a group make a table each, as at Apache's brokers."""

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable

from tests.unit.client.liar import BROKER, Liar, Talk
from trimtab.client.commits import WRITTEN_AGAIN_MAX
from trimtab.client.push_offsets import BrokerOffsets
from trimtab.client.session import Session
from trimtab.client.sessions import acquire_session, connection_options, release_session
from trimtab.model import MessageQueue
from trimtab.wire.codes import RequestCode, ResponseCode
from trimtab.wire.commands import Command
from trimtab.wire.headers.consume import UpdateConsumerOffset

TOPIC = "orders"
QUEUES = [MessageQueue(TOPIC, BROKER, number) for number in range(8)]
WRITE_S = 0.02


class ThreadsOfApache:
    """Each write looks for the table when it comes, and puts its offset in, or a new table with it, a moment later."""

    def __init__(self, *, loses: int = 0) -> None:
        self.table: dict[str, int] | None = None
        self.asked: defaultdict[int, int] = defaultdict(int)
        self._loses = loses

    def __call__(self, talk: Talk, command: Command) -> None:
        self.asked[command.code] += 1
        if command.code == RequestCode.UPDATE_CONSUMER_OFFSET:
            asyncio.get_running_loop().call_later(WRITE_S, self._put, self.table, talk, command)
            return
        offset = (self.table or {}).get(command.ext["queueId"])
        code = ResponseCode.QUERY_NOT_FOUND if offset is None else ResponseCode.SUCCESS
        talk.answer(command, code, ext={"offset": str(offset)})

    def _put(self, seen: dict[str, int] | None, talk: Talk, command: Command) -> None:
        written = {command.ext["queueId"]: int(command.ext["commitOffset"])}
        if self._loses:
            self._loses -= 1
        elif seen is None:
            self.table = written
        else:
            seen |= written
        talk.answer(command)

    def keeps(self, offset: int) -> bool:
        return self.table == {str(queue.queue_id): offset for queue in QUEUES}


def play(broker: ThreadsOfApache, scenario: Callable[[Session, Session], Awaitable[None]]) -> None:
    async def run() -> None:
        async with Liar(broker, queues=len(QUEUES)) as liar:
            sessions = [acquire_session(connection_options(liar.address), name) for name in ("one", "two")]
            for session in sessions:
                await session.start()
            try:
                await scenario(*sessions)
            finally:
                for session in sessions:
                    await release_session(session)

    asyncio.run(run())


def commit(session: Session, queue: MessageQueue, offset: int) -> Awaitable[object]:
    header = UpdateConsumerOffset(
        consumer_group="g", topic=TOPIC, queue_id=queue.queue_id, commit_offset=offset
    )
    (address,) = session.masters()
    return session.ask(address, RequestCode.UPDATE_CONSUMER_OFFSET, header, asked="a commit")


def test_such_a_broker_forgets_first_offsets_that_are_written_without_care() -> None:
    broker = ThreadsOfApache()

    async def scenario(session: Session, _: Session) -> None:
        await session.route(TOPIC)
        await asyncio.gather(*(commit(session, queue, 7) for queue in QUEUES))
        assert broker.table is not None
        assert len(broker.table) == 1

    play(broker, scenario)


def test_first_offsets_of_one_process_are_all_kept() -> None:
    broker = ThreadsOfApache()

    async def scenario(session: Session, _: Session) -> None:
        await BrokerOffsets(session, "g").write_all(dict.fromkeys(QUEUES, 7))
        assert broker.keeps(7)
        assert broker.asked[RequestCode.UPDATE_CONSUMER_OFFSET] == len(QUEUES), (
            "nothing had to be written again"
        )

    play(broker, scenario)


def test_first_offsets_of_two_processes_are_all_kept() -> None:
    broker = ThreadsOfApache()

    async def scenario(one: Session, two: Session) -> None:
        await asyncio.gather(
            BrokerOffsets(one, "g").write_all(dict.fromkeys(QUEUES[:4], 7)),
            BrokerOffsets(two, "g").write_all(dict.fromkeys(QUEUES[4:], 7)),
        )
        assert broker.keeps(7)

    play(broker, scenario)


def test_a_table_in_which_an_offset_was_found_is_written_to_at_once_and_not_read_again() -> None:
    broker = ThreadsOfApache()
    broker.table = {"0": 3}

    async def scenario(session: Session, _: Session) -> None:
        offsets = BrokerOffsets(session, "g")
        assert await offsets.read(QUEUES[0]) == 3
        await offsets.write_all(dict.fromkeys(QUEUES, 7))
        assert broker.keeps(7)
        assert broker.asked[RequestCode.QUERY_CONSUMER_OFFSET] == 1

    play(broker, scenario)


def test_what_is_gone_again_and_again_is_not_written_for_ever() -> None:
    broker = ThreadsOfApache(loses=1_000)

    async def scenario(session: Session, _: Session) -> None:
        assert await BrokerOffsets(session, "g").write(QUEUES[0], 7), "it was acknowledged"
        assert broker.asked[RequestCode.UPDATE_CONSUMER_OFFSET] == 1 + WRITTEN_AGAIN_MAX

    play(broker, scenario)


def test_what_is_gone_is_not_written_again_by_one_who_has_no_right_to_any_more() -> None:
    broker = ThreadsOfApache(loses=1)

    async def scenario(session: Session, _: Session) -> None:
        await session.route(TOPIC)
        (address,) = session.masters()
        header = UpdateConsumerOffset(consumer_group="g", topic=TOPIC, queue_id=0, commit_offset=7)
        await session.commits.write(address, header, asked="a commit", may_write=lambda: False)
        assert (broker.table, broker.asked[RequestCode.UPDATE_CONSUMER_OFFSET]) == (None, 1)

    play(broker, scenario)


def test_an_offset_of_nothing_is_not_looked_for() -> None:
    """4.9 answers 0 for an offset that it has and for one that it lacks."""
    broker = ThreadsOfApache()

    async def scenario(session: Session, _: Session) -> None:
        assert await BrokerOffsets(session, "g").write(QUEUES[0], 0)
        assert broker.asked[RequestCode.QUERY_CONSUMER_OFFSET] == 0

    play(broker, scenario)
