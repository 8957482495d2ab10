"""The page of a balance report. PURE."""

from collections.abc import Mapping, Sequence
from dataclasses import astuple, fields
from typing import Any

from trimtab.balance.flights import FlightLine
from trimtab.pipelines.drawing import Stretch, bars, key, lanes, lines, page, section, table
from trimtab.pipelines.holders import GroupFacts, Move, Span

MEMBERS_SHOWN_MAX = 40
QUEUES_SHOWN_MAX = 64
MOVES_SHOWN_MAX = 200
EVENTS_SHOWN_MAX = 400
TITLES = (
    "group", "members", "queues", "deliveries", "moves", "rebalances", "delivered twice", "double-held s", "unheld s",
    "max/mean", "Gini",
)  # fmt: skip

assert len(TITLES) == len(fields(GroupFacts))

_RECORDED = "As the members recorded it: from taking a queue to letting it go. Where colours lie over each other, two members held one queue."
_INFERRED = "From a member's first delivery to the end of its last. Where colours lie over each other, two members handled one queue."

Rate = tuple[str, str, int, int]
"""Group, member, beginning of a stretch of time, deliveries in it."""


def balance_page(
    *,
    groups: Sequence[GroupFacts],
    spans: Sequence[Span],
    moves: Sequence[Move],
    loads: Mapping[tuple[str, str], int],
    rates: Sequence[Rate],
    width_ms: int,
    latency: Sequence[Mapping[str, Any]],
    twice: Sequence[Mapping[str, Any]],
    told: Sequence[FlightLine] = (),
) -> str:
    """The whole file; `told` are the events of groups whose `spans` are what members recorded."""
    recorded = {line.group for line in told}
    parts = [section("Groups", _source(recorded), table(TITLES, map(astuple, groups)))]
    if spans:
        from_ms, until_ms = min(span.from_ms for span in spans), max(span.until_ms for span in spans)
        for facts in groups:
            is_recorded = facts.group in recorded
            parts += _group_parts(
                facts.group, spans, loads, rates, width_ms, (from_ms, until_ms), is_recorded=is_recorded
            )
        if told:
            parts.append(_events_part(told, from_ms))
        parts.append(_moves_part(moves, from_ms))
        parts.append(_twice_part(twice, from_ms))
    parts.append(_latency_part(latency))
    return page("Balance report", parts)


def _source(recorded: set[str]) -> str:
    if not recorded:
        return "Inferred from deliveries, as far as they show."
    return (
        f"Holders, moves and rebalances of {', '.join(sorted(recorded))} are what the members' flight recorders say; all else is"
        " inferred from deliveries, as far as they show."
    )


def _events_part(told: Sequence[FlightLine], from_ms: int) -> str:
    rows = [
        (
            f"{(line.at_ms - from_ms) / 1000:.1f} s", line.group, line.client_id, line.kind, str(line.message_queue or ""),
            line.cause, line.other, "" if line.duration_ms is None else line.duration_ms,
        )
        for line in told[:EVENTS_SHOWN_MAX]
    ]  # fmt: skip
    titles = ("at", "group", "member", "what", "queue", "cause", "other member", "took ms")
    text = f"{len(told)} events that members recorded; the first {len(rows)} of them. All are in flights.parquet."
    return section("Rebalances and their causes", text, table(titles, rows))


def _group_parts(
    group: str, spans: Sequence[Span], loads: Mapping[tuple[str, str], int], rates: Sequence[Rate], width_ms: int,
    times: tuple[int, int], *, is_recorded: bool,
) -> list[str]:  # fmt: skip
    from_ms, until_ms = times
    own = [span for span in spans if span.group == group]
    members = list(dict.fromkeys(span.member for span in own))[:MEMBERS_SHOWN_MAX]
    numbers = {member: at for at, member in enumerate(members)}
    queues = set(sorted({str(span.queue) for span in own})[:QUEUES_SHOWN_MAX])
    held = [
        Stretch(
            str(span.queue), span.from_ms, span.until_ms, numbers[span.member],
            f"{span.member}: {'' if is_recorded else f'{span.messages} messages in '}{(span.until_ms - span.from_ms) / 1000:.1f} s",
        )
        for span in own
        if span.member in numbers and str(span.queue) in queues
    ]  # fmt: skip
    # Traces do not name members by their client ids.
    handling = (
        [who for of, who in sorted(loads) if of == group][:MEMBERS_SHOWN_MAX] if is_recorded else members
    )
    pace = [_pace(rates, group, member, width_ms) for member in handling]
    return [
        section(
            f"{group}: who held which queue",
            _RECORDED if is_recorded else _INFERRED,
            key(members),
            lanes(held, from_ms, until_ms),
        ),
        section(
            f"{group}: deliveries a second",
            "By member, as traces name them." if is_recorded else "By member.",
            *((key(handling),) if is_recorded else ()),
            lines(pace, from_ms - from_ms % width_ms, until_ms),
        ),
        section(
            f"{group}: deliveries by member",
            "Members that were there for less time have less.",
            bars([(member, loads.get((group, member), 0)) for member in handling], is_coloured=True),
        ),
    ]


def _pace(rates: Sequence[Rate], group: str, member: str, width_ms: int) -> list[tuple[int, float]]:
    """Deliveries a second; where there were none between two stretches, none."""
    own = {at_ms: count for of, who, at_ms, count in rates if (of, who) == (group, member)}
    if not own:
        return []
    return [(at, own.get(at, 0) * 1000 / width_ms) for at in range(min(own), max(own) + 1, width_ms)]


def _moves_part(moves: Sequence[Move], from_ms: int) -> str:
    rows = [
        (
            f"{(move.at_ms - from_ms) / 1000:.1f} s", move.group, str(move.queue), move.before, move.after, move.unheld_ms,
            move.overlap_ms,
        )
        for move in moves[:MOVES_SHOWN_MAX]
    ]  # fmt: skip
    titles = ("at", "group", "queue", "from", "to", "unheld ms", "overlap ms")
    return section(
        "Moves", f"{len(moves)} changes of holder; the first {len(rows)} of them.", table(titles, rows)
    )


def _twice_part(twice: Sequence[Mapping[str, Any]], from_ms: int) -> str:
    rows = [
        (
            f"{(row['first_ms'] - from_ms) / 1000:.1f} s", row["group"], f"{row['topic']}/{row['broker']}/{row['queue']}",
            str(row["offset"]), row["message_id"], row["times"], row["last_ms"] - row["first_ms"], ", ".join(row["members"]),
        )
        for row in twice
    ]  # fmt: skip
    titles = ("at", "group", "queue", "offset", "message", "times", "apart ms", "by")
    return section(
        "Delivered twice",
        "Without a failed try before; all of them are in twice.parquet." if rows else "Nothing.",
        table(titles, rows) if rows else "",
    )


def _latency_part(latency: Sequence[Mapping[str, Any]]) -> str:
    titles = ("group", "what", "messages", "p50", "p95", "p99", "max")
    rows = [[row[title] for title in titles] for row in latency]
    shown = [(f"{row['group']} {row['what']}", row["p95"]) for row in latency]
    text = "Milliseconds: waiting in the queue, in the handler, and from birth to the handler's end. The bars are p95."
    return section("Latency", text, table(titles, rows), bars(shown))
