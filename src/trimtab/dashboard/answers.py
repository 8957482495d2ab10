"""What the JSON API gives; pages are drawn from the same values. Times are milliseconds since 1970, what cannot be known is None."""

import msgspec

from trimtab.client.admin.diagnosis import Finding
from trimtab.client.admin.rows import (
    DeadLetterGroup,
    Member,
    OffsetChange,
    ProducerChoices,
    ProducerGroup,
    QueueLine,
    ResentMessage,
    TopicRoute,
    TraceStep,
)


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """Base of all answers."""


class Refusal(Answer, frozen=True):
    """Why there is no answer, and what to do."""

    error: str


class Point(Answer, frozen=True):
    """A figure at a time."""

    at_ms: int
    value: float


class BrokerBrief(Answer, frozen=True):
    """A broker at a glance; with `error` it did not answer."""

    broker: str
    address: str
    version: str | None = None
    put_per_s: float | None = None
    get_per_s: float | None = None
    disk_used: float | None = None
    error: str | None = None


class GroupBrief(Answer, frozen=True):
    """A group at a glance; `needs` says why somebody should look."""

    group: str
    members: int | None
    lag: int
    consumed_per_s: float
    needs: str | None = None


class Overview(Answer, frozen=True):
    """The cluster at a glance."""

    at_ms: int
    clusters: tuple[str, ...]
    brokers: tuple[BrokerBrief, ...]
    groups: tuple[GroupBrief, ...]
    topics: tuple[str, ...]
    lag: int
    put_per_s: float | None
    get_per_s: float | None
    failures: tuple[str, ...]
    lag_history: tuple[Point, ...]


class MemberBrief(Answer, frozen=True):
    """A member and its share."""

    client_id: str
    address: str
    language: str
    queues: int | None
    """None: it does not say what it holds."""
    lag: int
    mode: str | None = None
    strategy: str | None = None
    records: bool = False
    """Whether it keeps a flight recorder that can be read."""


class Moment(Answer, frozen=True):
    """One thing that happened, by the word of a member's recorder, or as this dashboard saw it."""

    at_ms: int
    source: str
    """`recorder`: a member wrote it down. `seen`: two looks of this dashboard differ."""
    kind: str
    member: str
    queue: str | None = None
    other: str = ""
    cause: str = ""
    duration_ms: int | None = None
    in_flight: int | None = None
    detail: str = ""


class Move(Answer, frozen=True):
    """Queues that went from one member to another in a rebalance."""

    giver: str | None
    """None: nothing was recorded of a holder before."""
    taker: str | None
    """None: nobody took them within the rebalance."""
    queues: tuple[str, ...]
    took_ms: int | None
    """The longest that one of them took, where it was recorded."""
    in_flight: int | None
    """Messages that the giver was handling when it let go, where it was recorded."""


class Rebalance(Answer, frozen=True):
    """Moments that follow each other closely."""

    at_ms: int
    took_ms: int
    cause: str
    moved: int
    moves: tuple[Move, ...]
    moments: tuple[Moment, ...]


class Group(Answer, frozen=True):
    """A group: who holds what, is it even, what is wrong."""

    group: str
    at_ms: int
    members: tuple[MemberBrief, ...]
    queues: tuple[QueueLine, ...]
    queue_count: int
    """Of which `queues` are the first ones, if there are very many."""
    lag: int
    consumed_per_s: float | None
    eta_ms: int | None
    skew_queues: float | None
    """Most queues of a member by the mean; 1 is even."""
    skew_lag: float | None
    unheld: int
    double_held: int
    findings: tuple[Finding, ...]
    broadcast: bool
    failures: tuple[str, ...]
    lag_history: tuple[Point, ...]


class Timeline(Answer, frozen=True):
    """What was recorded of a group, newest last."""

    group: str
    rebalances: tuple[Rebalance, ...]
    recording: tuple[str, ...]
    """Members whose recorder was read."""
    not_recording: tuple[str, ...]
    left_out: int
    """Events that recorders no longer had."""


class Holding(Answer, frozen=True):
    """Who held a queue at some time; None: nothing was recorded of it until then."""

    queue: str
    holders: tuple[str, ...] | None


class Scrubbed(Answer, frozen=True):
    """Who held what at some time, by what was recorded."""

    group: str
    at_ms: int
    holdings: tuple[Holding, ...]


class Share(Answer, frozen=True):
    """What a member has now and would have."""

    member: str
    queues_now: int
    queues_then: int
    lag_then: int


class WhatIf(Answer, frozen=True):
    """How queues would be shared."""

    group: str
    strategy: str
    shares: tuple[Share, ...]
    moved: int
    moved_min: int
    skew_now: float
    skew_then: float
    skew_lag_then: float
    idle: int
    rounds: int
    settled: bool


class QueueSize(Answer, frozen=True):
    """A queue of a topic."""

    broker: str
    queue_id: int
    min_offset: int
    max_offset: int
    newest_ms: int | None
    per_s: float | None
    """What came in between the last two looks; None: there was one look so far."""
    hot: bool
    """Gets more than twice of what the mean queue gets, or holds as much more while nothing comes in."""


class BrokerShare(Answer, frozen=True):
    """What a broker counted of a topic in the last minute."""

    broker: str
    per_s: float
    share: float | None


class Topic(Answer, frozen=True):
    """A topic: where it is, what lies in it, who reads it."""

    topic: str
    at_ms: int
    route: TopicRoute
    queues: tuple[QueueSize, ...]
    messages: int
    put_per_s: float | None
    """What came in between the last two looks; None: there was one look so far."""
    groups: tuple[str, ...]
    brokers: tuple[BrokerShare, ...]
    failures: tuple[str, ...]


class MessageLine(Answer, frozen=True):
    """A message in a list."""

    topic: str
    broker: str
    queue_id: int
    offset: int
    message_id: str
    offset_message_id: str
    tag: str | None
    keys: tuple[str, ...]
    stored_ms: int
    born_ms: int
    retries: int
    body_bytes: int
    origin: str


class MessageLines(Answer, frozen=True):
    """Messages, oldest first."""

    messages: tuple[MessageLine, ...]
    complete: bool
    """Whether these are all; otherwise ask for less."""
    failures: tuple[str, ...]


class Message(Answer, frozen=True):
    """A message with its body, in each form that it can be read in."""

    line: MessageLine
    properties: dict[str, str]
    born_host: str
    store_host: str
    text: str | None
    json: str | None
    """The same laid out, if the body is JSON."""
    hex: str
    cut_bytes: int
    """How much of the body is not shown."""


class Trace(Answer, frozen=True):
    """What clients recorded of a message; nothing unless they were told to."""

    message_id: str
    steps: tuple[TraceStep, ...]


class Producers(Answer, frozen=True):
    """Producers of a group that are connected."""

    group: str
    members: tuple[Member, ...]
    choices: tuple[ProducerChoices, ...]
    """How they see the brokers, best first, by their own word."""
    untold: tuple[str, ...]
    """Client ids of those that do not say it."""
    failures: tuple[str, ...]


class ProducerNames(Answer, frozen=True):
    """Groups of producers that are connected."""

    groups: tuple[ProducerGroup, ...]
    untold: tuple[str, ...]
    """Brokers that have no such list."""
    failures: tuple[str, ...]


class DeadGroups(Answer, frozen=True):
    """All of them."""

    groups: tuple[DeadLetterGroup, ...]
    failures: tuple[str, ...]


class CauseCount(Answer, frozen=True):
    """So many letters died of the same."""

    cause: str | None
    """None: not recorded."""
    letters: int


class DeadLetters(Answer, frozen=True):
    """Dead letters of a group, oldest first."""

    group: str
    letters: tuple[MessageLine, ...]
    complete: bool
    """Whether there are no more behind them."""
    skipped: int
    """How many older ones were left out."""
    causes: dict[str, str]
    """How the last try went, by offset message id, of letters whose consumers trace."""
    by_cause: tuple[CauseCount, ...]
    """These letters counted by how their last try ended, most first."""
    failures: tuple[str, ...] = ()
    """Brokers whose letters are not among them."""


class Reset(Answer, frozen=True):
    """What a reset does; `done` says whether it was done."""

    done: bool
    change: OffsetChange
    moved: int


class Resent(Answer, frozen=True):
    """What is sent again; `done` says whether it was."""

    done: bool
    to: str
    letters: tuple[MessageLine, ...]
    sent: tuple[ResentMessage, ...]
    failures: tuple[str, ...] = ()
    """Brokers whose letters are not among them."""


class HeldSpan(Answer, frozen=True):
    """A member held a queue for a while; times are virtual seconds since the group had settled."""

    queue: str
    member: str
    from_s: float
    until_s: float


class Simulated(Answer, frozen=True):
    """Runs of a scenario side by side, under the names of the simulator's report."""

    scenario: str
    holdings: tuple[tuple[HeldSpan, ...], ...]
    """Who held what when, for each report; the first queues, if there are very many."""
    reports: tuple[dict[str, bool | int | float | str | tuple[str, ...] | None], ...]


class Scenarios(Answer, frozen=True):
    """What can be simulated."""

    scenarios: dict[str, str]
