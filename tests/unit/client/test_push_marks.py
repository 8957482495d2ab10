"""A leased member that a broker lists as another kind of member says goodbye there and comes again, and not all the time."""

from collections.abc import Iterator
from contextlib import contextmanager

from tests.unit.client.pushing import TOPIC, consumer, eventually, numbered, play, send
from trimtab.client.push import PushConsumer
from trimtab.client.push_marks import MARK_AGAIN_MS, Marks
from trimtab.client.push_members import Look, Seen
from trimtab.client.push_settings import Consuming
from trimtab.client.received import Received
from trimtab.testing import AsyncCluster
from trimtab.wire.bodies import Connection, ConsumerConnection
from trimtab.wire.codes import LEASED_VERSION, SPOKEN_VERSION, LanguageCode, RequestCode, ResponseCode
from trimtab.wire.commands import Command
from trimtab.wire.fastjson_writer import encode_body

LOOKS_S = 0.05
QUEUES = 4


class KeepsTheFirst:
    """Lists the member by what was said first over its connection, as Apache's brokers do, until it said goodbye; or for ever."""

    def __init__(self, client_id: str, *, for_ever: bool = False) -> None:
        self.goodbyes = 0
        self.looks = 0
        self._client_id = client_id
        self._for_ever = for_ever

    def goodbye(self, _: Command) -> None:
        self.goodbyes += 1

    def list(self, _: Command) -> Command:
        self.looks += 1
        version = SPOKEN_VERSION if self._for_ever or not self.goodbyes else LEASED_VERSION
        listed = Connection(
            client_id=self._client_id,
            client_addr="127.0.0.1:1",
            language=LanguageCode.PYTHON,
            version=version,
        )
        body = encode_body(ConsumerConnection(connection_set=(listed,)))
        return Command(code=ResponseCode.SUCCESS, opaque=0, body=body)

    @contextmanager
    def at(self, cluster: AsyncCluster) -> Iterator[None]:
        ends = (
            cluster.intercept(RequestCode.UNREGISTER_CLIENT, self.goodbye),
            cluster.intercept(RequestCode.GET_CONSUMER_CONNECTION_LIST, self.list),
        )
        yield
        for end in ends:
            end()


async def ignore(_: Received) -> None: ...


def leased(cluster: AsyncCluster, client_id: str) -> PushConsumer:
    return consumer(
        cluster, ignore, mode="leased", client_id=client_id, consuming=Consuming(rebalance_every_s=LOOKS_S)
    )


def has_all(member: PushConsumer) -> bool:
    return {held.queue.queue_id for held in member.holdings() if held.queue.topic == TOPIC} == set(
        range(QUEUES)
    )


def test_a_member_that_is_listed_by_what_was_said_before_it_comes_again_and_keeps_leases() -> None:
    async def scenario(cluster: AsyncCluster) -> None:
        await send(cluster, numbered(1))
        member = leased(cluster, "10.0.0.1@one")
        async with member:
            broker = KeepsTheFirst("10.0.0.1@one")
            with broker.at(cluster):
                await eventually(lambda: broker.goodbyes, "it says goodbye")
                looks = broker.looks
                await eventually(lambda: broker.looks > looks + 3, "it looked again")
                await eventually(lambda: has_all(member), "it has all queues")
                assert (broker.goodbyes, member.mode) == (1, "leased")

    play(scenario)


def test_where_that_does_not_help_the_group_shares_without_leases_and_is_left_in_peace() -> None:
    async def scenario(cluster: AsyncCluster) -> None:
        await send(cluster, numbered(1))
        member = leased(cluster, "10.0.0.1@one")
        async with member:
            broker = KeepsTheFirst("10.0.0.1@one", for_ever=True)
            with broker.at(cluster):
                await eventually(lambda: member.mode == "classic", "it fell back")
                await eventually(lambda: has_all(member), "it has all queues")
                looks = broker.looks
                await eventually(lambda: broker.looks > looks + 10, "it looked again and again")
                assert broker.goodbyes == 1
            await eventually(lambda: member.mode == "leased", "leases again")

    play(scenario)


def shown(asked_ms: int, *mismarked: str) -> Seen:
    """What two brokers list, asked at one time."""
    me = frozenset({"me"})
    return Seen(
        lists=tuple(Look(name, me, asked_ms, asked_ms + 1) for name in ("a", "b")),
        is_whole=True,
        members=me,
        foreign=me if mismarked else frozenset(),
        mismarked=frozenset(mismarked),
        namesakes={},
        stable=frozenset(),
    )


def test_a_list_that_was_asked_for_before_it_came_again_says_nothing_against_it() -> None:
    """Its own goodbye makes the group look, and on a slow machine that look overtakes what follows the goodbye."""
    marks = Marks()
    assert marks.due(shown(0, "a", "b"), 10) == ("a", "b")
    assert marks.is_coming(shown(0, "a", "b"))
    on_the_way = shown(20, "a", "b")
    assert (marks.due(on_the_way, 30), marks.is_coming(on_the_way)) == ((), True)
    marks.came(("a", "b"), 40)
    late = shown(40, "b")
    assert (marks.due(late, 50), marks.is_coming(late)) == ((), True)


def test_a_list_that_was_asked_for_after_it_came_again_is_believed() -> None:
    marks = Marks()
    marks.due(shown(0, "a"), 10)
    marks.came(("a",), 40)
    in_vain = shown(41, "a")
    assert (marks.due(in_vain, 50), marks.is_coming(in_vain)) == ((), False)
    assert marks.due(shown(MARK_AGAIN_MS, "a"), 10 + MARK_AGAIN_MS) == ("a",)


def test_a_broker_that_is_still_being_told_is_not_left_a_second_time() -> None:
    marks = Marks()
    marks.due(shown(0, "a"), 10)
    assert marks.due(shown(MARK_AGAIN_MS, "a"), 10 + MARK_AGAIN_MS) == ()


def test_a_mark_that_was_shown_and_is_lost_again_is_a_new_accident() -> None:
    marks = Marks()
    marks.due(shown(0, "a"), 10)
    marks.came(("a",), 40)
    assert marks.due(shown(50), 60) == ()
    assert marks.due(shown(70, "a"), 80) == ("a",)
