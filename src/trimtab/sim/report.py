"""What a run came to, under the names of `balance/metrics.py` that every table uses."""

import msgspec

from trimtab.balance import metrics
from trimtab.sim.world import World


class SimReport(msgspec.Struct, frozen=True, kw_only=True):
    """One run. Times are virtual. Counting begins when the first members have settled."""

    scenario: str
    mode: str
    strategy: str
    broker_kind: str
    members: int
    queues: int
    brokers: int
    seed: int
    simulated_s: float
    changes: int
    """Changes after which the group settled."""
    moved: int
    """Queues that got another holder."""
    moved_min: int
    """The fewest that had to."""
    moved_per_min: float | None
    """`moved/min`; 1 is perfect. None where nothing had to move and something did."""
    max_mean: float
    """Of the members' number of queues at the end."""
    idle: int
    """Members without a queue at the end."""
    double_held_s: float
    """Queue-seconds with more than one holder."""
    unheld_s: float
    """Queue-seconds without a holder."""
    delivered: int
    delivered_twice: int
    lost: int
    t_detect_s: float | None
    """The longest time from a change to the first queue that another member took or let go. None where nobody had to."""
    t_converge_s: float
    """The longest time from a change to the last move that followed from it."""
    t_first_s: float | None
    """The longest time from a member's start to its first message, of all that got one."""
    requests_per_member: float
    """Requests to brokers, pulls not counted."""
    lag_max_mean: float | None = None
    """`max/mean` of what waits and arrives at each member, on average over the run; where that is the question."""
    drain_s: float | None = None
    """Until nothing waited any more; where that is the question."""
    moves_in_10_s_max: int = 0
    violations: tuple[str, ...] = ()
    digest: str = ""
    """Equal for equal traces."""
    events: int = 0

    @property
    def is_fine(self) -> bool:
        """Whether every promise was kept."""
        return not self.violations


def report_of(scenario: str, world: World, members: int, requests: int) -> SimReport:
    """The figures of a world as it is now."""
    shape, watch, timeline = world.shape, world.watch, world.timeline
    watch.count_all()
    made, least = watch.moved, world.moved_min
    per_min = made / least if least else (1.0 if not made else None)
    lags = world.lag_samples
    shares = tuple((world.settled_shares or world.shares()).values())
    firsts = watch.first_messages_ms.values()
    return SimReport(
        scenario=scenario,
        mode=shape.mode,
        strategy=shape.strategy_name,
        broker_kind=shape.broker_kind,
        members=shape.members,
        queues=len(world.queues),
        brokers=len(world.brokers),
        seed=shape.seed,
        simulated_s=timeline.passed_ms / 1000,
        changes=len(world.converged_ms),
        moved=made,
        moved_min=least,
        moved_per_min=per_min,
        max_mean=metrics.max_mean(shares),
        idle=sum(share == 0 for share in shares),
        double_held_s=watch.double_held_ms / 1000,
        unheld_s=world.unheld_ms / 1000 if world.unheld_ms is not None else watch.unheld_ms / 1000,
        delivered=watch.delivered,
        delivered_twice=watch.delivered_twice,
        lost=world.lag() if watch.broken or world.is_over else 0,
        t_detect_s=max(world.detected_ms) / 1000 if world.detected_ms else None,
        t_converge_s=max(world.converged_ms, default=0) / 1000,
        t_first_s=max(firsts) / 1000 if firsts else None,
        requests_per_member=requests / max(1, members),
        lag_max_mean=sum(lags) / len(lags) if lags else None,
        drain_s=world.drain_ms / 1000 if world.drain_ms is not None else None,
        moves_in_10_s_max=watch.moves_within(10_000),
        violations=tuple(watch.broken),
        digest=timeline.digest,
        events=timeline.events,
    )
