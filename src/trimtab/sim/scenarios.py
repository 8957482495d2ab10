"""What can be played: membership changes, accidents and loads by name."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Final

from trimtab.balance.locks import LEASE_MS
from trimtab.errors import SettingsError
from trimtab.sim.member import LEASED, SimMember
from trimtab.sim.network import Weather
from trimtab.sim.reading import Handling
from trimtab.sim.world import World

RESTART_MS: Final = 1_500
GONE_LOOK_MS: Final = 50
LEAVE_MS_MAX: Final = 40_000


@dataclass(frozen=True, slots=True)
class Scenario:
    """One of them; `shape` says what is different from the usual world."""

    name: str
    what: str
    play: Callable[[World], None]
    shape: Mapping[str, object] = field(default_factory=dict)
    slowness: Callable[[int], float] = lambda _: 1.0


def _join(world: World) -> None:
    world.mark()
    world.join(world.shape.members)
    world.settle()


def _leave(world: World) -> None:
    world.mark()
    world.members[0].stop()
    world.settle()


def _restart(world: World, places: list[int]) -> None:
    """These leave in order, all at once, and come back."""
    leaving = [world.members[place] for place in places]
    for member in leaving:
        member.stop()
    _wait_until_gone(world, leaving)
    world.run_for(RESTART_MS)
    for place in places:
        world.join(place)


def _wait_until_gone(world: World, members: list[SimMember]) -> None:
    until_ms = world.timeline.now_ms + LEAVE_MS_MAX
    while any(member.is_alive for member in members) and world.timeline.now_ms < until_ms:
        world.run_for(GONE_LOOK_MS)


def _rolling_restart(world: World) -> None:
    for place in range(world.shape.members):
        world.mark()
        _restart(world, [place])
        world.settle()


def _deploy_storm(world: World) -> None:
    size = max(1, world.shape.members // 10)
    for first in range(0, world.shape.members, size):
        world.mark()
        _restart(world, list(range(first, min(first + size, world.shape.members))))
        world.run_for(2_000)
    world.settle()


def _crash(world: World) -> None:
    world.mark()
    world.members[0].crash()
    world.settle()


def _crash_restart(world: World) -> None:
    """The others' quotas do not change: whoever needs the dead one's queues has never seen it."""
    world.mark()
    world.members[0].crash()
    world.run_for(RESTART_MS)
    world.join(0)
    world.run_for(LEASE_MS)
    world.settle()


def _pause(world: World) -> None:
    """Its connections stay and brokers list it, so nobody takes over: a broker misses a member after 120 s, and 90 s may be a slow one."""
    world.mark()
    world.members[0].pause(90_000)
    world.run_for(91_000)
    world.settle()


def _pause_taken_over(world: World) -> None:
    """Brokers miss the heartbeats and close its connections; the others take over, and then it wakes up."""
    sleeper = world.members[0]
    world.mark()
    sleeper.pause(180_000)
    world.run_for(179_000)
    if world.shape.mode == LEASED and world.unsettled():
        world.watch.fail("nobody took over from one that slept", sleeper.name)
    world.run_for(2_000)
    world.settle()


def _frozen(world: World) -> None:
    """It stands still and the network drops its connections (a machine that is suspended, a NAT that forgets): the others take over in seconds."""
    sleeper = world.members[0]
    world.mark()
    sleeper.pause(90_000)
    for link in list(sleeper.links.values()):
        world.network.close_there(link, 1)
    world.run_for(89_000)
    if world.shape.mode == LEASED and world.unsettled():
        world.watch.fail("nobody took over from one that was frozen", sleeper.name)
    world.run_for(2_000)
    world.settle()


def _split_view(world: World) -> None:
    """One broker loses a member, and the two do not find each other for a minute; the other brokers list it."""
    member, name = world.members[0], "broker-0"
    until_ms = world.timeline.now_ms + 60_000
    link = member.links.get(name)
    world.mark()
    if link is not None:
        world.network.close_there(link, 10)
    world.network.part(member.name, name, until_ms)
    world.run_for(60_000)
    world.settle()


def _lost_notices(world: World) -> None:
    world.mark()
    world.join(world.shape.members)
    world.run_for(25_000)
    world.settle()
    world.mark()
    world.members[0].stop()
    world.run_for(25_000)
    world.settle()


def _broker_restart(world: World) -> None:
    broker = world.brokers["broker-0"]
    world.mark()
    broker.stop()
    world.run_for(2_000)
    broker.start()
    world.run_for(12_000)
    world.settle()


def _broker_added(world: World) -> None:
    world.mark()
    world.add_broker(world.shape.queues // max(1, world.shape.brokers))
    world.run_for(35_000)
    world.settle()


def _name_server_disagree(world: World) -> None:
    """The second name server does not know the last broker for a while."""
    name = f"broker-{len(world.brokers) - 1}"
    count = len(world.brokers[name].logs)
    world.mark()
    world.set_queues(name, 0, [world.names[-1]])
    world.run_for(60_000)
    world.set_queues(name, count, [world.names[-1]])
    world.run_for(35_000)
    world.settle()


def _hot_queue(world: World) -> None:
    """A quarter of the queues, neighbours, get a large pile at once."""
    hot = world.queues[: max(1, len(world.queues) // 4)]
    for queue in hot:
        world.log(queue).put(world.timeline.now_ms, 10_000)
    world.watch_load(600_000)


def _uneven_members(world: World) -> None:
    """Half of the members are four times slower, and more arrives than their even share can handle."""
    for queue in world.queues:
        world.log(queue).set_rate(world.timeline.now_ms, 0.6 * world.capacity_per_s() / len(world.queues))
    world.run_and_watch_load(300_000)
    world.stop_producing()
    world.watch_load(1_200_000)


def _more_members_than_queues(world: World) -> None:
    _join(world)
    holder = next(member for member in world.alive if member.shell.holdings())
    world.mark()
    holder.stop()
    world.settle()


def _mixed_group(world: World) -> None:
    """A Java client joins the group, stays for a while, and leaves."""
    world.watch.is_strict = False
    place = world.shape.members
    world.join(place, is_foreign=True)
    world.run_for(60_000)
    world.settle()
    world.members[place].stop()
    world.run_for(60_000)
    world.settle()


def _steady(world: World) -> None:
    """Nothing happens but that rates go up and down a little, every minute, for hours. Counted from when they have been learned."""
    world.run_for(LEARNING_MS)
    world.begin_counting()
    rates = [world.log(queue).per_s for queue in world.queues]
    for _ in range(int(world.shape.hours * 60)):
        for queue, rate in zip(world.queues, rates, strict=True):
            wave = 0.8 + 0.4 * world.timeline.chance.random()
            world.log(queue).set_rate(world.timeline.now_ms, rate * wave)
        world.run_and_watch_load(60_000)


LEARNING_MS: Final = 300_000
"""How long a strategy that follows load may take to learn the rates."""
HOURS: Final = Handling(handler_ms=20, concurrency=8, batch_messages=1_000, pull_gap_ms=5_000)
PILES: Final = Handling(handler_ms=20, concurrency=8, batch_messages=8)

SCENARIOS: Final = {
    scenario.name: scenario
    for scenario in (
        Scenario("join", "one member more", _join),
        Scenario("leave", "one member leaves in order", _leave),
        Scenario("rolling-restart", "all members restart, one after the other, under the same ids", _rolling_restart, {"has_stable_ids": True, "members": 8}),
        Scenario("deploy-storm", "200 members restart in ten waves, under new ids", _deploy_storm, {"members": 200, "queues": 400, "brokers": 4, "per_s": 0.2}),
        Scenario("crash", "one member is killed", _crash),
        Scenario("crash-restart", "one member is killed and comes back under a new id", _crash_restart),
        Scenario("pause", "one member stands still for 90 s and goes on", _pause),
        Scenario("pause-taken-over", "one member stands still for 180 s; brokers miss it, others take over, it wakes up", _pause_taken_over),
        Scenario("frozen", "one member stands still for 90 s without its connections; others take over, it wakes up", _frozen),
        Scenario("split-view", "one broker and one member do not see each other for a minute", _split_view),
        Scenario("lost-notices", "brokers tell nobody of changes", _lost_notices, {"weather": Weather(notice_loss=1.0)}),
        Scenario("broker-restart", "a broker is away for two seconds and has forgotten who held what", _broker_restart),
        Scenario("broker-added", "one broker more, with queues of the topic", _broker_added),
        Scenario("name-server-disagree", "one of two name servers does not know a broker for a minute", _name_server_disagree, {"name_servers": 2}),
        Scenario("hot-queue", "a quarter of the queues get a pile of messages each", _hot_queue, {"handling": PILES}),
        Scenario("uneven-members", "half of the members are four times slower", _uneven_members, {"handling": PILES}, lambda place: 4.0 if place % 2 else 1.0),
        Scenario("more-members-than-queues", "there is not a queue for everybody", _more_members_than_queues, {"members": 12, "queues": 8}),
        Scenario("mixed-group", "a Java client joins, stays for a minute, and leaves", _mixed_group),
        Scenario("steady", "rates go up and down for hours, nothing else happens", _steady, {"members": 8, "queues": 64, "handling": HOURS}),
    )
}  # fmt: skip


def scenario_by_name(name: str) -> Scenario:
    """The scenario of that name."""
    found = SCENARIOS.get(name)
    if found is None:
        close = get_close_matches(name, SCENARIOS, n=1)
        hint = f"did you mean {close[0]!r}? " if close else ""
        raise SettingsError(f"unknown scenario {name!r}; {hint}there are {', '.join(SCENARIOS)}")
    return found
