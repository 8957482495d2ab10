"""A group in one look: is every queue held once, is it even, does it keep up, what changed last. PURE."""

from dataclasses import dataclass
from typing import Literal

from trimtab.cli.moments import number_text, rate_text, span_text
from trimtab.dashboard.answers import Group, Timeline

UNEVEN = 1.5
"""A member that has so many times the mean is too much of a difference."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """A question, its answer in a few words, and what it rests on."""

    question: str
    answer: str
    because: str
    tone: Literal["good", "bad", "plain"] = "plain"


def verdicts(group: Group, timeline: Timeline) -> tuple[Verdict, ...]:
    """The questions that somebody has who opens the page."""
    return (_held(group), _even(group), _waiting(group), _last(group, timeline))


def _held(group: Group) -> Verdict:
    ask = "Is each queue read once?"
    if group.broadcast:
        return Verdict(ask, "by everyone", "the group broadcasts: every member reads every queue")
    if not group.members:
        tone: Literal["bad", "plain"] = "bad" if group.lag else "plain"
        return Verdict(ask, "by nobody", "no member is connected", tone)
    untold = sum(member.queues is None for member in group.members)
    if group.double_held:
        because = f"{_queues(group.double_held)} held by more than one member: messages come twice"
        return Verdict(ask, f"no: {group.double_held} twice", because, "bad")
    if group.unheld and untold:
        because = f"{_members(untold)} not say what they hold; {group.unheld} of the queues are with none of the others"
        return Verdict(ask, "not told", because)
    if group.unheld:
        return Verdict(
            ask,
            f"no: {group.unheld} by nobody",
            f"{_queues(group.unheld)} held by nobody: messages wait",
            "bad",
        )
    return Verdict(ask, "yes", f"all {group.queue_count} queues have one holder each", "good")


def _queues(count: int) -> str:
    return "1 queue is" if count == 1 else f"{count} queues are"


def _members(count: int) -> str:
    return "1 member does" if count == 1 else f"{count} members do"


def _even(group: Group) -> Verdict:
    ask = "Is it even?"
    counts = [member.queues for member in group.members if member.queues is not None]
    if not counts or group.skew_queues is None or group.broadcast:
        return Verdict(ask, "-", "nobody says what it holds" if group.members else "no member is connected")
    least, most = min(counts), max(counts)
    answer = f"{most} each" if least == most else f"{least} to {most} each"
    if len(counts) == 1:
        return Verdict(ask, f"{most} for one", "there is one member")
    skew = f"the most by the mean is {group.skew_queues:.2f}"
    if most - least <= 1:
        return Verdict(ask, answer, skew, "good")
    return Verdict(ask, answer, skew, "bad" if group.skew_queues > UNEVEN else "plain")


def _waiting(group: Group) -> Verdict:
    ask = "Does it keep up?"
    if not group.lag:
        return Verdict(ask, "nothing waits", f"consumed {rate_text(group.consumed_per_s)}", "good")
    pace = f"consumed {rate_text(group.consumed_per_s)}"
    if group.eta_ms is not None:
        return Verdict(
            ask, f"{number_text(group.lag)} wait", f"{pace}; caught up in {span_text(group.eta_ms)}"
        )
    if not group.consumed_per_s:
        known = (
            "nothing is consumed" if group.consumed_per_s == 0 else "how fast is known after a second look"
        )
        return Verdict(
            ask, f"{number_text(group.lag)} wait", known, "bad" if group.consumed_per_s == 0 else "plain"
        )
    return Verdict(ask, f"{number_text(group.lag)} wait", f"{pace}; it does not get less everywhere")


def _last(group: Group, timeline: Timeline) -> Verdict:
    ask = "What changed last?"
    if not timeline.rebalances:
        return Verdict(ask, "not recorded", "nothing was seen or recorded yet")
    last = timeline.rebalances[-1]
    ago = span_text(max(0, group.at_ms - last.at_ms - last.took_ms))
    moved = {0: "nothing", 1: "1 queue"}.get(last.moved, f"{last.moved} queues")
    causes = last.cause.split("; ")
    more = f" and {len(causes) - 1} more" if len(causes) > 1 else ""
    return Verdict(ask, f"{ago} ago", f"{moved} moved: {causes[0]}{more}")
