"""The first offsets of many groups, each group's all at once: none is lost.

Apache's brokers make a table for a group's offsets with the first one that comes. Written without care, first offsets that come together replace each other's tables in a few of a hundred groups.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from tests.interop.servers import unique
from trimtab import Admin
from trimtab.client.pull_consumer_offsets import QueueOffsets
from trimtab.client.push_offsets import BrokerOffsets
from trimtab.client.sessions import acquire_session, connection_options, release_session

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable
    from typing import TypeAlias

    from tests.interop.servers import ServerUnderTest
    from trimtab.client.session import Session
    from trimtab.model import MessageQueue

    Commit: TypeAlias = Callable[[Session, Session, str, tuple[MessageQueue, ...]], Awaitable[None]]

GROUPS = 100
GROUPS_AT_ONCE = 8
OFFSET = 1


async def commit_in_one_process(
    one: Session, _: Session, group: str, queues: tuple[MessageQueue, ...]
) -> None:
    offsets = QueueOffsets(one, group)
    await asyncio.gather(*(offsets.commit(queue, OFFSET) for queue in queues))


async def commit_in_two_processes(
    one: Session, two: Session, group: str, queues: tuple[MessageQueue, ...]
) -> None:
    await asyncio.gather(
        BrokerOffsets(one, group).write_all(dict.fromkeys(queues[::2], OFFSET)),
        BrokerOffsets(two, group).write_all(dict.fromkeys(queues[1::2], OFFSET)),
    )


async def stored(session: Session, group: str, queues: Iterable[MessageQueue]) -> list[int]:
    offsets = BrokerOffsets(session, group)
    return [await offsets.read(queue) for queue in queues]


@pytest.mark.parametrize("commit", [commit_in_one_process, commit_in_two_processes])
def test_first_offsets_of_a_group_are_all_kept(server: ServerUnderTest, commit: Commit) -> None:
    topic, name = server.make_topic(), unique("first")

    async def run() -> None:
        sessions = [
            acquire_session(connection_options(server.nameserver), client_id)
            for client_id in ("127.0.0.1@one", "127.0.0.1@two")
        ]
        for session in sessions:
            await session.start()
        queues = (await sessions[0].route(topic)).readable
        limit = asyncio.Semaphore(GROUPS_AT_ONCE)

        async def write(group: str) -> list[int]:
            async with limit:
                await admin.create_group(group)
                await commit(sessions[0], sessions[1], group, queues)
                return await stored(sessions[0], group, queues)

        async with Admin(nameserver=server.nameserver) as admin:
            found = await asyncio.gather(*(write(f"{name}-{number}") for number in range(GROUPS)))
        for session in sessions:
            await release_session(session)
        lost = [offsets for offsets in found if offsets != [OFFSET] * len(queues)]
        assert not lost, f"{len(lost)} of {GROUPS} groups"

    asyncio.run(run())
