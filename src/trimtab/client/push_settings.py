"""What can be chosen about a push consumer, in one frozen object with the units in its names."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from trimtab.balance.ordered import SUSPEND_MS
from trimtab.balance.progress import FlowLimits
from trimtab.balance.start import From, StartRule
from trimtab.balance.strategies import Planner, Strategy
from trimtab.client.checks import check_time, check_topic
from trimtab.errors import SettingsError

RECONSUME_TIMES_MAX = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Consuming:
    """How a consumer hands messages to its handler, and how often it does what it does by itself."""

    concurrency: int = 20
    """Handlers at work at once; for a plain function, threads."""
    limits: FlowLimits = field(default_factory=FlowLimits)
    reconsume_times_max: int | None = None
    """After so many failures a message is a dead letter. None: 16; in ordered consumption never."""
    handler_s_max: float = 900.0
    """A message whose handler takes longer is sent back to be tried again; an async handler is cancelled."""
    local_retry_s: float = 5.0
    """When a message could not be sent back it is handed to the handler again after this."""
    suspend_ms: int = SUSPEND_MS
    """How long an ordered queue rests after its handler failed."""
    offsets_every_s: float = 5.0
    rebalance_every_s: float = 20.0
    locks_every_s: float = 20.0
    drain_s_max: float = 10.0
    """At the end, how long handlers at work may go on. 0: they are not waited for, and their messages come again."""
    callback_s_max: float = 30.0
    """How long `on_assigned`, `on_revoked` and `on_lost` may take; after that they are cancelled, and the queues are not waited for."""
    trace: bool = False
    """Whether what handlers do is told in the trace topic."""
    record_to: str | None = None
    """A topic on which the member's flight recorder is published, as JSON lines. Best effort: consuming never waits for it."""
    restart_grace_s: float = 4.0
    """Leased mode: so long a member that was given its client id by the user is waited for after it has gone, before others take its
    queues. Longer than a restart takes, and the same for all members of the group."""
    loads_every_s: float = 5.0
    """Leased mode, strategies that follow load: how often it is measured what waits, what arrives and who holds what."""
    offsets_directory: Path | None = None
    """Where broadcasting keeps offsets; None for Java's place, `.rocketmq_offsets` in the home directory."""

    def __post_init__(self) -> None:
        """What would stand still is refused."""
        if not 1 <= self.concurrency <= 10_000:
            raise SettingsError(f"concurrency {self.concurrency} is not within 1 to 10000")
        if self.record_to is not None:
            check_topic(self.record_to)
        if self.reconsume_times_max is not None and self.reconsume_times_max < 0:
            raise SettingsError("reconsume_times_max must be 0 or more")
        intervals = (self.offsets_every_s, self.rebalance_every_s, self.locks_every_s, self.loads_every_s)
        if min(self.handler_s_max, self.callback_s_max, *intervals) <= 0:
            raise SettingsError("handler_s_max, callback_s_max and the intervals must be positive")
        if self.drain_s_max < 0 or self.local_retry_s < 0:
            raise SettingsError("drain_s_max and local_retry_s must be 0 or more")

    def reconsume_limit(self, *, is_ordered: bool) -> int:
        """The number that goes on the wire."""
        if self.reconsume_times_max is not None:
            return self.reconsume_times_max
        return 2**31 - 1 if is_ordered else RECONSUME_TIMES_MAX


def chosen_strategy(
    strategy: str | Strategy | Planner | None, own: Sequence[Strategy | Planner]
) -> str | Strategy | Planner | None:
    """A name may be that of one of the user's own; those come before ready ones. PURE."""
    if not isinstance(strategy, str):
        return strategy
    names = [one.name for one in own]
    if len(set(names)) < len(names):
        raise SettingsError(f"two of own_strategies have the same name: {', '.join(sorted(names))}")
    return own[names.index(strategy)] if strategy in names else strategy


def start_rule(start: str | datetime) -> StartRule:
    """Where a group without offsets begins. PURE."""
    if isinstance(start, datetime):
        return StartRule(From.TIMESTAMP, check_time(start))
    if start == "first":
        return StartRule(From.FIRST)
    if start == "last":
        return StartRule(From.LAST)
    raise SettingsError(f"start {start!r} is none of 'first', 'last' and a datetime")
