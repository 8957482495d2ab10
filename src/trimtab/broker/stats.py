"""What a broker counts, and what that makes over the last seconds, the last minute, hour and day.

A message that is stored and a pull that is answered add to counters, nothing else: that happens a hundred thousand times a
second. `sample`, called as time goes by, notes where the counters stand. A figure is the difference of two notes, as with
Apache's brokers: a minute is 6 steps of 10 s, an hour 6 of 10 min, a day 24 of 1 h, and a counter that is younger than that
counts from its first step on.
"""

from array import array
from collections import deque
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

if TYPE_CHECKING:
    from trimtab.broker.store import ReadResult
    from trimtab.wire.headers.consume import PullMessage

NAMES_MAX: Final = 10_000
"""Flows of each kind that are told apart; what comes beyond them is counted in the totals only."""

RATE_EVERY_MS: Final = 1_000
RATES_KEPT: Final = 601
MINUTE: Final = (10_000, 7)
HOUR: Final = (600_000, 7)
DAY: Final = (3_600_000, 25)
"""How far two notes are apart, and how many are kept."""

_WORDS = 4  # of a note: when, messages, bytes, calls

TopicAndGroup = tuple[str, str]
K = TypeVar("K")


class Figure(NamedTuple):
    """What was counted over a window: in all, per second, and per call."""

    sum: int = 0
    per_second: float = 0.0
    per_call: float = 0.0


class Figures(NamedTuple):
    """The three windows that Apache's tools show."""

    minute: Figure
    hour: Figure
    day: Figure


class Totals(NamedTuple):
    """Everything since the start."""

    put_messages: int = 0
    put_bytes: int = 0
    got_messages: int = 0
    found: int = 0
    """Pulls that were given messages."""
    missed: int = 0


class Days(NamedTuple):
    """Where a total stood at midnight, yesterday and today."""

    yesterday_morning: int = 0
    today_morning: int = 0


class Notes:
    """Where the counters of a flow stood, at the last steps of one length."""

    __slots__ = ("_kept_words", "_notes", "_step_ms")

    def __init__(self, step_ms: int, kept: int) -> None:
        self._step_ms = step_ms
        self._kept_words = kept * _WORDS
        self._notes = array("q")

    def take(self, at_ms: int, messages: int, size: int, calls: int) -> None:
        """Notes where the counters stand; nothing if nothing has moved for the whole window."""
        notes = self._notes
        if not notes:
            notes.extend((at_ms - self._step_ms, 0, 0, 0))
        elif notes[_WORDS - 1] == notes[-1]:
            if calls == notes[-1]:
                return
            # It was still for a while, and not noted: the window begins one step ago.
            before = notes[-_WORDS:]
            before[0] = at_ms - self._step_ms
            self._notes = notes = before
        notes.extend((at_ms, messages, size, calls))
        if len(notes) > self._kept_words:
            del notes[:_WORDS]

    def figure(self, *, of_bytes: bool) -> Figure:
        """The difference between the last note and the first."""
        notes = self._notes
        if not notes:
            return Figure()
        word = 2 if of_bytes else 1
        total = notes[word - _WORDS] - notes[word]
        span_ms, calls = notes[-_WORDS] - notes[0], notes[-1] - notes[_WORDS - 1]
        return Figure(total, total * 1_000 / span_ms if span_ms else 0.0, total / calls if calls else 0.0)


class Flow:
    """Counters of one name, and their notes."""

    __slots__ = ("bytes", "calls", "day", "hour", "messages", "minute")

    def __init__(self) -> None:
        self.messages = 0
        self.bytes = 0
        self.calls = 0
        self.minute = Notes(*MINUTE)
        self.hour = Notes(*HOUR)
        self.day = Notes(*DAY)

    def figures(self, *, of_bytes: bool = False) -> Figures:
        """What it makes over the three windows."""
        return Figures(
            self.minute.figure(of_bytes=of_bytes),
            self.hour.figure(of_bytes=of_bytes),
            self.day.figure(of_bytes=of_bytes),
        )


class Stats:
    """All counters of one broker."""

    def __init__(self, cluster_name: str = "DefaultCluster") -> None:
        self._cluster_name = cluster_name
        self._puts: dict[str, Flow] = {}
        self._gets: dict[TopicAndGroup, Flow] = {}
        self._backs: dict[TopicAndGroup, Flow] = {}
        self._other_puts, self._other_gets = Flow(), Flow()
        self._all_puts, self._all_gets = Flow(), Flow()
        self._missed = 0
        self._gone = Totals()
        self._rates: deque[tuple[int, Totals]] = deque(maxlen=RATES_KEPT)
        self._due_ms: dict[int, int] = {}
        self._day: int | None = None
        self.put_days = Days()
        self.got_days = Days()
        self.put_failures = 0
        """Messages that came and could not be written."""

    # --- counting

    def stored(self, topic: str, size: int, messages: int = 1) -> None:
        """Messages were written that take `size` bytes together."""
        flow = self._puts.get(topic)
        if flow is None:
            flow = _flow_for(self._puts, topic, self._other_puts)
        flow.messages += messages
        flow.bytes += size

    def pulled(self, header: "PullMessage", result: "ReadResult") -> None:
        """A pull was answered."""
        count = result.count
        if count:
            key = header.topic, header.consumer_group
            flow = self._gets.get(key)
            if flow is None:
                flow = _flow_for(self._gets, key, self._other_gets)
            flow.messages += count
            flow.bytes += len(result.body)
            flow.calls += 1
        else:
            self._missed += 1

    def sent_back(self, topic: str, group: str) -> None:
        """A consumer gave a message back, to be tried again."""
        flow = _flow_for(self._backs, (topic, group), None)
        if flow is not None:
            flow.messages += 1

    def drop_topic(self, topic: str) -> None:
        """The topic was deleted; what it counted stays in the totals."""
        self._forget(
            [topic] if topic in self._puts else [],
            [key for key in self._gets if key[0] == topic],
            [key for key in self._backs if key[0] == topic],
        )

    def drop_group(self, group: str) -> None:
        """The group was deleted; what it counted stays in the totals."""
        self._forget(
            [],
            [key for key in self._gets if key[1] == group],
            [key for key in self._backs if key[1] == group],
        )

    def _forget(self, puts: list[str], gets: list[TopicAndGroup], backs: list[TopicAndGroup]) -> None:
        put_flows = [self._puts.pop(key) for key in puts]
        got_flows = [self._gets.pop(key) for key in gets]
        for key in backs:
            del self._backs[key]
        gone = self._gone
        self._gone = Totals(
            gone.put_messages + sum([flow.messages for flow in put_flows]),
            gone.put_bytes + sum([flow.bytes for flow in put_flows]),
            gone.got_messages + sum([flow.messages for flow in got_flows]),
            gone.found + sum([flow.calls for flow in got_flows]),
        )

    # --- as time goes by

    def sample(self, now_ms: int, day: int) -> None:
        """Notes what is due. `now_ms` measures, `day` is the number of the day where the broker stands."""
        if not self._is_due(now_ms, RATE_EVERY_MS):
            return
        totals = self.totals()
        self._rates.append((now_ms, totals))
        if day != self._day:
            self._begin_day(day, totals)
        for which, (step_ms, _) in (("minute", MINUTE), ("hour", HOUR), ("day", DAY)):
            if self._is_due(now_ms, step_ms):
                self._note(which, now_ms, totals)

    def _is_due(self, now_ms: int, step_ms: int) -> bool:
        if now_ms < self._due_ms.get(step_ms, now_ms):
            return False
        self._due_ms[step_ms] = now_ms + step_ms
        return True

    def _note(self, which: str, now_ms: int, totals: Totals) -> None:
        self._all_puts.messages, self._all_puts.bytes = totals.put_messages, totals.put_bytes
        self._all_gets.messages, self._all_gets.calls = totals.got_messages, totals.found
        for table in (self._puts, self._backs):
            for flow in table.values():
                flow.calls = flow.messages
        self._all_puts.calls = self._all_puts.messages
        for flow in (
            *self._puts.values(), *self._gets.values(), *self._backs.values(), self._all_puts, self._all_gets,
        ):  # fmt: skip
            notes: Notes = getattr(flow, which)
            notes.take(now_ms, flow.messages, flow.bytes, flow.calls)

    def _begin_day(self, day: int, totals: Totals) -> None:
        if self._day is not None:
            self.put_days = Days(self.put_days.today_morning, totals.put_messages)
            self.got_days = Days(self.got_days.today_morning, totals.got_messages)
        self._day = day

    # --- figures

    def totals(self) -> Totals:
        """Everything since the start."""
        puts = [self._other_puts, *self._puts.values()]
        gets = [self._other_gets, *self._gets.values()]
        gone = self._gone
        return Totals(
            gone.put_messages + sum([flow.messages for flow in puts]),
            gone.put_bytes + sum([flow.bytes for flow in puts]),
            gone.got_messages + sum([flow.messages for flow in gets]),
            gone.found + sum([flow.calls for flow in gets]),
            self._missed,
        )

    def rate(self, word: str, seconds: int) -> float:
        """How much of one of the totals came per second, over the last seconds or since the first note."""
        if len(self._rates) < 2:
            return 0.0
        before_ms, before = self._rates[max(0, len(self._rates) - 1 - seconds)]
        last_ms, last = self._rates[-1]
        grown: int = getattr(last, word) - getattr(before, word)
        return grown * 1_000 / (last_ms - before_ms)

    def view(self, name: str, key: str) -> Figures | None:
        """What Apache's tools ask for by name: `TOPIC_PUT_NUMS` of a topic, `GROUP_GET_NUMS` of `topic@group` and so on."""
        topic, _, group = key.partition("@")
        if name in ("TOPIC_PUT_NUMS", "TOPIC_PUT_SIZE"):
            flow = self._puts.get(key)
        elif name in ("GROUP_GET_NUMS", "GROUP_GET_SIZE"):
            flow = self._gets.get((topic, group))
        elif name == "SNDBCK_PUT_NUMS":
            flow = self._backs.get((topic, group))
        elif name in ("BROKER_PUT_NUMS", "BROKER_GET_NUMS") and key == self._cluster_name:
            flow = self._all_puts if name == "BROKER_PUT_NUMS" else self._all_gets
        else:
            flow = None
        return None if flow is None else flow.figures(of_bytes=name.endswith("SIZE"))

    def put_per_second(self, topic: str) -> float:
        """Messages stored under a topic, over the last minute."""
        flow = self._puts.get(topic)
        return 0.0 if flow is None else flow.minute.figure(of_bytes=False).per_second

    def got_per_second(self, topic: str, group: str) -> float:
        """Messages of a topic given to a group, over the last minute."""
        flow = self._gets.get((topic, group))
        return 0.0 if flow is None else flow.minute.figure(of_bytes=False).per_second


F = TypeVar("F", Flow, None)


def _flow_for(table: dict[K, Flow], key: K, other: F) -> Flow | F:
    """The flow of that name, made if there is room for one more."""
    flow = table.get(key)
    if flow is not None:
        return flow
    if len(table) >= NAMES_MAX:
        return other
    flow = table[key] = Flow()
    return flow
