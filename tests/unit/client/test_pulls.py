"""Pulls of one queue against a real broker of ours, and against answers that a broker should not give."""

import asyncio
from collections.abc import Callable, Iterator
from itertools import pairwise

import pytest

from tests.unit.client.pull_scenes import ONE, Diary, play, send_to_one, session_of, until
from trimtab.client.pulls import SQL92, QueuePulls, Riding, Room, Wanted
from trimtab.client.session import Session
from trimtab.errors import (
    ConnectionLostError,
    NoPermissionError,
    ProtocolError,
    RequestTimeoutError,
    SubscriptionNotFoundError,
)
from trimtab.settings import Pulling
from trimtab.testing import DROP, AsyncCluster
from trimtab.wire.bodies import ConsumerData, SubscriptionData
from trimtab.wire.codes import RESPONSE_FLAG, RequestCode, ResponseCode
from trimtab.wire.commands import Command

SOON = Pulling(retry_s_min=0.01, retry_s_max=0.05, suspend_ms=200, timeout_s=20)
STOCK = Pulling(pull_messages_max=32, depth_max=4, retry_s_min=0.01, suspend_ms=200, timeout_s=20)


@pytest.fixture
def pulls_of() -> Iterator[Callable[..., QueuePulls]]:
    """Makes pulls of `ONE`, started; whatever is made is dropped."""
    made: list[QueuePulls] = []

    def make(
        session: Session,
        diary: Diary,
        offset: int = 0,
        wanted: Wanted | None = None,
        pulling: Pulling = SOON,
        room: Room | None = None,
        group: str = "g",
    ) -> QueuePulls:
        pulls = QueuePulls(session, diary, group, ONE, offset, wanted or Wanted(), pulling=pulling, room=room)
        made.append(pulls)
        pulls.start()
        return pulls

    yield make
    assert all(pulls._is_dropped for pulls in made), "a test drops what it started"


def answer_with(code: ResponseCode, **ext: int) -> Callable[[Command], Command]:
    def answer(command: Command) -> Command:
        fields = {"suggestWhichBrokerId": 0, "nextBeginOffset": 0, "minOffset": 0, "maxOffset": 0, **ext}
        return Command(
            code=code, opaque=command.opaque, flag=RESPONSE_FLAG, remark="told so",
            ext={name: str(value) for name, value in fields.items()},
        )  # fmt: skip

    return answer


@pytest.mark.parametrize("pulling", [SOON, STOCK])
def test_a_backlog_comes_in_order_and_whole_and_nothing_is_wasted(
    pulls_of: Callable[..., QueuePulls], pulling: Pulling
) -> None:
    async def scenario(cluster: AsyncCluster) -> None:
        bodies = await send_to_one(cluster, 3_000)
        async with session_of(cluster) as session:
            diary = Diary()
            pulls = pulls_of(session, diary, pulling=pulling)
            await diary.until(lambda: len(diary.messages) >= len(bodies))
            pulls.drop()
            assert diary.bodies[-3_000:] == bodies
            assert [m.queue_offset for m in diary.messages] == list(range(len(diary.messages)))
            assert pulls.tally.wasted == 0
            assert diary.troubles == []

    play(scenario)


def test_on_a_broker_that_gives_32_several_pulls_are_on_their_way(
    pulls_of: Callable[..., QueuePulls],
) -> None:
    async def scenario(cluster: AsyncCluster) -> None:
        await send_to_one(cluster, 2_000)
        asked: list[Command] = []
        remove = cluster.intercept(RequestCode.PULL_MESSAGE, asked.append)
        async with session_of(cluster) as session:
            diary = Diary()
            pulls = pulls_of(session, diary, pulling=STOCK)
            await diary.until(lambda: len(diary.messages) >= 2_000)
            pulls.drop()
        remove()
        backlog = [command for command in asked if not int(command.ext["sysFlag"]) & 2]
        offsets = [int(command.ext["queueOffset"]) for command in backlog]
        assert {b - a for a, b in pairwise(offsets)} <= {32, *range(32)}
        assert len(asked) <= 2_000 // 32 + 12

    play(scenario)


def test_what_is_new_comes_through_a_pull_that_waits_at_the_broker(
    pulls_of: Callable[..., QueuePulls],
) -> None:
    async def scenario(cluster: AsyncCluster) -> None:
        await send_to_one(cluster, 1)
        async with session_of(cluster) as session:
            diary = Diary()
            pulls = pulls_of(session, diary)
            await diary.until(lambda: bool(diary.messages))
            before = len(diary.messages)
            await send_to_one(cluster, 3)
            await diary.until(lambda: len(diary.messages) >= before + 3)
            pulls.drop()

    play(scenario)


@pytest.mark.parametrize(
    "wanted", [Wanted("eu"), Wanted("eu || us"), Wanted("number > 5 OR TAGS = 'eu'", SQL92)], ids=str
)
def test_filters_are_applied_and_offsets_go_on_past_what_does_not_match(
    pulls_of: Callable[..., QueuePulls], wanted: Wanted
) -> None:
    async def scenario(cluster: AsyncCluster) -> None:
        await send_to_one(cluster, 600, tag=lambda number: "eu" if number % 3 == 0 else "asia")
        async with session_of(cluster) as session:
            diary = Diary()
            pulls = pulls_of(session, diary, wanted=wanted)
            await diary.until(lambda: pulls.position >= 600)
            pulls.drop()
            assert {message.tag for message in diary.messages} == {"eu"}
            assert len(diary.messages) == 200

    play(scenario)


def test_tags_with_one_hash_are_told_apart_here(pulls_of: Callable[..., QueuePulls]) -> None:
    async def scenario(cluster: AsyncCluster) -> None:
        await send_to_one(cluster, 10, tag=lambda number: ("Aa", "BB")[number % 2])  # one hash in Java
        async with session_of(cluster) as session:
            diary = Diary()
            pulls = pulls_of(session, diary, wanted=Wanted("BB"))
            await diary.until(lambda: pulls.position >= 10)
            pulls.drop()
            assert [message.tag for message in diary.messages] == ["BB"] * 5
            assert len(diary.pulled[0].body) > 5 * 100, "the broker gave both"

    play(scenario)


def test_an_offset_that_is_not_there_is_told_and_the_owner_says_where_to_go_on(
    pulls_of: Callable[..., QueuePulls], caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(cluster: AsyncCluster) -> None:
        await send_to_one(cluster, 10)
        async with session_of(cluster) as session:
            diary = Diary()
            diary.go_on_from = lambda moved: 4
            pulls = pulls_of(session, diary, offset=5_000)
            await diary.until(lambda: len(diary.messages) >= 6)
            pulls.drop()
            (moved,) = diary.moved
            assert (moved.queue, moved.asked, moved.max_offset) == (ONE, 5_000, pulls.end)
            assert diary.messages[0].queue_offset == 4
            assert "5000" in caplog.text

    play(scenario)


def test_an_owner_that_says_nothing_ends_it(pulls_of: Callable[..., QueuePulls]) -> None:
    async def scenario(cluster: AsyncCluster) -> None:
        await send_to_one(cluster, 10)
        async with session_of(cluster) as session:
            diary = Diary()
            diary.go_on_from = lambda moved: None
            pulls = pulls_of(session, diary, offset=5_000)
            await diary.until(lambda: bool(diary.moved))
            assert pulls.is_over
            assert diary.messages == []

    play(scenario)


def test_flow_control_lets_come_what_is_on_its_way_and_asks_for_no_more(
    pulls_of: Callable[..., QueuePulls],
) -> None:
    async def scenario(cluster: AsyncCluster) -> None:
        await send_to_one(cluster, 1_000)
        async with session_of(cluster) as session:
            diary = Diary()
            pulls = pulls_of(session, diary, pulling=STOCK)
            diary.then = lambda: pulls.stop() if len(diary.messages) >= 64 else None
            await until(lambda: len(diary.messages) >= 64 and not pulls._on_way)
            stopped_at = len(diary.messages)
            assert stopped_at <= 64 + 32 * STOCK.depth_max
            await asyncio.sleep(0.05)
            assert len(diary.messages) == stopped_at
            diary.then = lambda: None
            pulls.go()
            await diary.until(lambda: len(diary.messages) >= 1_000)
            pulls.drop()

    play(scenario)


def test_what_is_held_stays_within_the_room_and_goes_on_when_it_is_given_back(
    pulls_of: Callable[..., QueuePulls],
) -> None:
    async def scenario(cluster: AsyncCluster) -> None:
        await send_to_one(cluster, 400, body=lambda number: b"x" * 1_000)
        async with session_of(cluster) as session:
            diary = Diary()
            room = Room(100_000)
            pulls = pulls_of(session, diary, pulling=STOCK, room=room)
            most = 0
            while len(diary.messages) < 400:
                await until(lambda: not room.free_bytes or len(diary.messages) >= 400)
                most = max(most, room.taken_bytes)
                for pulled in diary.pulled:
                    pulled.release()
                diary.pulled.clear()
            pulls.drop()
            assert most < 100_000 + 2 * 64_000
            assert room.taken_bytes == 0

    play(scenario)


def test_a_seek_throws_away_what_is_on_its_way(pulls_of: Callable[..., QueuePulls]) -> None:
    async def scenario(cluster: AsyncCluster) -> None:
        await send_to_one(cluster, 500)
        async with session_of(cluster) as session:
            diary = Diary()
            room = Room(10 << 20)
            pulls = pulls_of(session, diary, pulling=STOCK, room=room)
            await diary.until(lambda: len(diary.messages) >= 96)
            diary.messages.clear()
            pulls.seek(400)
            await diary.until(lambda: pulls.position >= 500)
            assert [message.queue_offset for message in diary.messages][:100] == list(range(400, 500))
            pulls.drop()
            for pulled in diary.pulled:
                pulled.release()
            assert room.taken_bytes == 0, "what was thrown away takes no room"

    play(scenario)


def test_after_a_drop_nothing_comes(pulls_of: Callable[..., QueuePulls]) -> None:
    async def scenario(cluster: AsyncCluster) -> None:
        await send_to_one(cluster, 500)
        async with session_of(cluster) as session:
            diary = Diary()
            pulls = pulls_of(session, diary, pulling=STOCK)
            await diary.until(lambda: bool(diary.messages))
            pulls.drop()
            count = len(diary.messages)
            await send_to_one(cluster, 5)
            await asyncio.sleep(0.05)
            assert len(diary.messages) == count

    play(scenario)


def test_a_broker_that_comes_back_is_read_on_from_where_it_was_left(
    pulls_of: Callable[..., QueuePulls],
) -> None:
    async def scenario(cluster: AsyncCluster) -> None:
        await send_to_one(cluster, 50)
        async with session_of(cluster) as session:
            diary = Diary()
            pulls = pulls_of(session, diary)
            await diary.until(lambda: len(diary.messages) >= 50)
            before = len(diary.messages)
            await cluster.kill("broker-a")
            await diary.until(lambda: bool(diary.troubles))
            await cluster.restart("broker-a")
            await send_to_one(cluster, 20)
            await diary.until(lambda: len(diary.messages) >= before + 20)
            pulls.drop()
            assert [m.queue_offset for m in diary.messages] == list(range(len(diary.messages)))
            assert isinstance(diary.troubles[0], ConnectionLostError)

    play(scenario)


def test_a_pull_that_nobody_answers_is_sent_again(pulls_of: Callable[..., QueuePulls]) -> None:
    async def scenario(cluster: AsyncCluster) -> None:
        await send_to_one(cluster, 20)
        remove = cluster.intercept(RequestCode.PULL_MESSAGE, lambda command: DROP)
        async with session_of(cluster) as session:
            diary = Diary()
            pulling = Pulling(suspend_ms=50, timeout_s=0.2, retry_s_min=0.01)
            pulls = pulls_of(session, diary, pulling=pulling)
            await diary.until(lambda: bool(diary.troubles))
            remove()
            await diary.until(lambda: len(diary.messages) >= 20)
            pulls.drop()
            assert isinstance(diary.troubles[0], RequestTimeoutError)

    play(scenario)


def test_a_subscription_that_the_broker_has_not_heard_of_is_mended_by_a_heartbeat(
    pulls_of: Callable[..., QueuePulls],
) -> None:
    async def scenario(cluster: AsyncCluster) -> None:
        await send_to_one(cluster, 20)
        async with session_of(cluster) as session:
            data = SubscriptionData(topic="orders", sub_string="*", sub_version=7)
            session.roles.consumers["g"] = lambda: ConsumerData(group_name="g", subscription_data_set=(data,))
            diary = Diary()
            pulls = pulls_of(session, diary, wanted=Wanted(version=7, is_posted=False))
            await diary.until(lambda: len(diary.messages) >= 20)
            pulls.drop()
            assert all(isinstance(trouble, SubscriptionNotFoundError) for trouble in diary.troubles)

    play(scenario)


def test_a_refusal_is_told_and_asked_again(pulls_of: Callable[..., QueuePulls]) -> None:
    async def scenario(cluster: AsyncCluster) -> None:
        await send_to_one(cluster, 20)
        remove = cluster.intercept(RequestCode.PULL_MESSAGE, answer_with(ResponseCode.NO_PERMISSION))
        async with session_of(cluster) as session:
            diary = Diary()
            pulls = pulls_of(session, diary)
            await diary.until(lambda: len(diary.troubles) >= 2)
            remove()
            await diary.until(lambda: len(diary.messages) >= 20)
            pulls.drop()
            assert isinstance(diary.troubles[0], NoPermissionError)
            assert "pull of orders@broker-a:0 for group 'g'" in str(diary.troubles[0])

    play(scenario)


def test_a_broker_that_does_not_say_where_to_go_on_is_not_asked_in_a_circle(
    pulls_of: Callable[..., QueuePulls],
) -> None:
    async def scenario(cluster: AsyncCluster) -> None:
        await send_to_one(cluster, 20)
        remove = cluster.intercept(RequestCode.PULL_MESSAGE, answer_with(ResponseCode.PULL_RETRY_IMMEDIATELY))
        async with session_of(cluster) as session:
            diary = Diary()
            pulls = pulls_of(session, diary)
            await diary.until(lambda: bool(diary.troubles))
            remove()
            await diary.until(lambda: len(diary.messages) >= 20)
            pulls.drop()
            assert isinstance(diary.troubles[0], ProtocolError)

    play(scenario)


def test_a_broker_that_holds_no_pull_is_not_asked_without_a_pause(
    pulls_of: Callable[..., QueuePulls],
) -> None:
    async def scenario(cluster: AsyncCluster) -> None:
        asked: list[Command] = []

        def nothing(command: Command) -> Command:
            asked.append(command)
            return answer_with(ResponseCode.PULL_NOT_FOUND)(command)

        await send_to_one(cluster, 1)
        remove = cluster.intercept(RequestCode.PULL_MESSAGE, nothing)
        async with session_of(cluster) as session:
            pulls = pulls_of(session, Diary())
            begin = asyncio.get_running_loop().time()
            await until(lambda: len(asked) >= 5)
            pulls.drop()
            assert asyncio.get_running_loop().time() - begin > 0.15
        remove()

    play(scenario)


def test_damaged_messages_are_asked_for_again_and_nothing_behind_them_comes_first(
    pulls_of: Callable[..., QueuePulls],
) -> None:
    async def scenario(cluster: AsyncCluster) -> None:
        await send_to_one(cluster, 20)

        def damaged(command: Command) -> Command:
            answer = answer_with(ResponseCode.SUCCESS, nextBeginOffset=20, maxOffset=20)(command)
            return Command(
                code=0, opaque=answer.opaque, flag=RESPONSE_FLAG, ext=answer.ext, body=b"\x00" * 100
            )

        remove = cluster.intercept(RequestCode.PULL_MESSAGE, damaged)
        async with session_of(cluster) as session:
            diary = Diary()
            room = Room(1 << 20)
            pulls = pulls_of(session, diary, room=room)
            await diary.until(lambda: bool(diary.troubles))
            remove()
            await diary.until(lambda: len(diary.messages) >= 20)
            pulls.drop()
            assert isinstance(diary.troubles[0], ProtocolError)
            assert diary.messages[0].queue_offset == 0

    play(scenario)


def test_a_commit_rides_on_pulls_where_the_owner_says_so(pulls_of: Callable[..., QueuePulls]) -> None:
    async def scenario(cluster: AsyncCluster) -> None:
        await send_to_one(cluster, 20)
        asked: list[Command] = []
        remove = cluster.intercept(RequestCode.PULL_MESSAGE, asked.append)
        async with session_of(cluster) as session:
            diary = Diary()
            diary.rides = Riding(11)
            pulls = pulls_of(session, diary)
            await diary.until(lambda: len(diary.messages) >= 20)
            pulls.drop()
        remove()
        assert {(int(c.ext["sysFlag"]) & 1, c.ext["commitOffset"]) for c in asked} == {(1, "11")}

    play(scenario)


def test_a_suggested_slave_is_asked_next_and_gets_no_commit(pulls_of: Callable[..., QueuePulls]) -> None:
    async def scenario(cluster: AsyncCluster) -> None:
        await send_to_one(cluster, 20)
        asked: list[Command] = []

        def suggest(command: Command) -> Command:
            asked.append(command)
            offset = int(command.ext["queueOffset"])
            return answer_with(
                ResponseCode.PULL_RETRY_IMMEDIATELY,
                suggestWhichBrokerId=1,
                nextBeginOffset=offset + 1,
                maxOffset=20,
            )(command)

        remove = cluster.intercept(RequestCode.PULL_MESSAGE, suggest)
        async with session_of(cluster) as session:
            diary = Diary()
            diary.rides = Riding(3)
            pulls = pulls_of(session, diary)
            await until(lambda: len(asked) >= 2)
            pulls.drop()
        remove()
        # There is no slave here, so the master is asked again, but as one that takes no commits.
        assert [int(command.ext["sysFlag"]) & 1 for command in asked[:2]] == [1, 0]

    play(scenario)
