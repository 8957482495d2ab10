"""What people ask for beside looking: searching, viewing, resetting, replaying, resending. Pages and the JSON API both call these."""

import asyncio
from collections import Counter
from contextlib import aclosing
from typing import TYPE_CHECKING, NamedTuple

from trimtab.cli.moments import parse_place, parse_time, span_text
from trimtab.client.admin.dead_letters import FoundLetters, letter_queues, letters_in, oldest_letters
from trimtab.client.admin.rows import FoundMessage, FoundMessages, QueueRange, TopicQueues
from trimtab.dashboard import answers, wishes
from trimtab.dashboard.bodies import message_line, message_view
from trimtab.dashboard.overview_view import failure_texts
from trimtab.errors import NoMessageError, NoRouteError, SettingsError, TopicNotFoundError
from trimtab.io.clock import Clock

if TYPE_CHECKING:
    from trimtab.client.admin import Admin

REPLAYED_MAX = 1_000
READ_AT_ONCE = 32
TRACED_MAX = 100
"""Dead letters of a page whose traces are looked for."""


class Cause(NamedTuple):
    """Why a letter died, in a word and in a line."""

    kind: str
    text: str


class Actions:
    """See the module's own words."""

    def __init__(self, admin: "Admin", clock: Clock) -> None:
        self._admin = admin
        self._clock = clock

    # --- topics and messages ------------------------------------------------------------------------------------

    async def search(self, wish: wishes.SearchWish) -> answers.MessageLines:
        """Messages by key, by id, or from a time on."""
        if sum(map(bool, (wish.key, wish.id, wish.since))) != 1:
            raise SettingsError("say one of key, id, or since")
        if wish.key:
            found = await self._admin.messages_by_key(wish.name, wish.key, max_messages=min(wish.count, 64))
            return _lines(found, is_complete=len(found.messages) < min(wish.count, 64))
        if wish.id:
            found = await self._admin.messages_by_id(wish.name, wish.id)
            if not found.messages:
                try:
                    found = FoundMessages(messages=(await self._admin.message(wish.id, wish.name),))
                except NoMessageError:
                    return _lines(found, is_complete=True)
            return _lines(found, is_complete=True)
        at_ms = parse_time(wish.since, self._clock.wall_ms())
        queues = await self._admin.topic_queues(wish.name)
        each = max(1, wish.count // max(1, len(queues.queues)))
        read = await asyncio.gather(*(self._from_time(row, at_ms, each) for row in queues.queues))
        messages = sorted((one for some, _ in read for one in some), key=lambda one: one.store_timestamp)
        return answers.MessageLines(
            messages=tuple(map(message_line, messages[: wish.count])),
            complete=len(messages) <= wish.count and all(is_all for _, is_all in read),
            failures=failure_texts(queues.failures),
        )

    async def _from_time(self, row: QueueRange, at_ms: int, count: int) -> tuple[list[FoundMessage], bool]:
        offset = max(row.min_offset, await self._admin.offset_at(row.queue, at_ms))
        found: list[FoundMessage] = []
        while offset < row.max_offset and len(found) < count:
            read = await self._admin.read_anyway(row.queue, offset, min(READ_AT_ONCE, count - len(found)))
            found += [one for one in read.messages if one.store_timestamp >= at_ms]
            if read.next_offset <= offset:
                break
            offset = read.next_offset
        return found, offset >= row.max_offset

    async def message(self, wish: wishes.MessageWish) -> answers.Message:
        """One message with its body."""
        return message_view(await self._admin.message(wish.id, wish.topic))

    async def trace(self, wish: wishes.TraceWish) -> answers.Trace:
        """What clients recorded of it."""
        try:
            found = await self._admin.message_trace(wish.id)
        except (NoRouteError, TopicNotFoundError):  # nobody ever traced anything here
            return answers.Trace(message_id=wish.id, steps=())
        return answers.Trace(message_id=wish.id, steps=found.steps)

    async def resend(self, wish: wishes.ResendWish) -> answers.Resent:
        """A copy to its own topic or to another one."""
        message = await self._admin.message(wish.id, wish.topic)
        line = message_line(message)
        to = wish.to or line.origin
        await self._admin.topic_route(to)
        sent = () if wish.preview else (await self._admin.resend(message, topic=to),)
        return answers.Resent(done=not wish.preview, to=to, letters=(line,), sent=sent)

    # --- groups -------------------------------------------------------------------------------------------------

    async def reset(self, wish: wishes.ResetWish) -> answers.Reset:
        """Moves a group in a topic, or says what that would do."""
        await self._admin.group_settings(wish.name)
        place = parse_place(wish.to, self._clock.wall_ms())
        to: str | int = place.value if place.kind == "offset" else place.kind
        change = await self._admin.reset_offsets(
            wish.name,
            wish.topic,
            to,
            at_ms=place.value if place.kind == "time" else None,
            dry_run=wish.preview,
        )
        moved = sum(move.before != move.after for move in change.moves)
        return answers.Reset(done=not wish.preview, change=change, moved=moved)

    async def producer_groups(self) -> answers.ProducerNames:
        """Groups of producers, from brokers that keep a list of them."""
        found = await self._admin.producer_groups()
        return answers.ProducerNames(
            groups=found.groups, untold=found.untold, failures=failure_texts(found.failures)
        )

    async def producers(self, group: str) -> answers.Producers:
        """Who is connected, and how those of ours choose brokers."""
        found, choices = await asyncio.gather(
            self._admin.producers(group), self._admin.producer_choices(group)
        )
        return answers.Producers(
            group=group,
            members=found.members,
            choices=choices.producers,
            untold=choices.untold,
            failures=failure_texts(found.failures),
        )

    # --- dead letters -------------------------------------------------------------------------------------------

    async def dead_groups(self) -> answers.DeadGroups:
        """Groups that have any."""
        found = await self._admin.dead_letter_groups()
        return answers.DeadGroups(groups=found.groups, failures=failure_texts(found.failures))

    async def dead_letters(self, wish: wishes.DeadWish) -> answers.DeadLetters:
        """A group's, oldest first."""
        wanted = wish.skip + wish.count
        queues = await letter_queues(self._admin, wish.name)
        found = await oldest_letters(self._admin, queues, wanted + 1)
        letters = found.messages[wish.skip : wanted]
        causes = await self._causes(wish.name, letters[:TRACED_MAX])
        kinds = Counter(
            causes[one.offset_message_id].kind if one.offset_message_id in causes else None for one in letters
        )
        return answers.DeadLetters(
            group=wish.name,
            letters=tuple(map(message_line, letters)),
            complete=len(found.messages) <= wanted,
            skipped=wish.skip,
            failures=failure_texts(found.failures),
            causes={name: cause.text for name, cause in causes.items()},
            by_cause=tuple(
                answers.CauseCount(cause=kind, letters=count) for kind, count in kinds.most_common()
            ),
        )

    async def _causes(self, group: str, letters: list[FoundMessage]) -> dict[str, Cause]:
        traces = await asyncio.gather(
            *(self.trace(wishes.TraceWish(id=one.message_id)) for one in letters), return_exceptions=True
        )
        return {
            one.offset_message_id: cause
            for one, trace in zip(letters, traces, strict=True)
            if isinstance(trace, answers.Trace) and (cause := cause_of(group, trace)) is not None
        }

    async def _letters_named(self, queues: TopicQueues, ids: set[str]) -> FoundLetters:
        """Those, wherever they lie."""
        named: list[FoundMessage] = []
        async with aclosing(letters_in(self._admin, queues.queues)) as found:
            async for one in found:
                if {one.message_id, one.offset_message_id} & ids:
                    named.append(one)
                    if len(named) >= REPLAYED_MAX:
                        break
        return FoundLetters(named, queues.failures)

    async def replay(self, wish: wishes.ReplayWish) -> answers.Resent:
        """Lets the group try its letters again, or says which ones that would be."""
        queues = await letter_queues(self._admin, wish.name)
        letters = await (
            self._letters_named(queues, set(wish.ids))
            if wish.ids
            else oldest_letters(self._admin, queues, REPLAYED_MAX)
        )
        lines = tuple(map(message_line, letters.messages))
        to = ", ".join(sorted({line.origin for line in lines})) if wish.to_origin else f"group {wish.name}"
        sent = []
        for one in letters.messages if not wish.preview else ():
            again = (
                self._admin.resend(one) if wish.to_origin else self._admin.replay_dead_letter(wish.name, one)
            )
            sent.append(await again)
        return answers.Resent(
            done=not wish.preview,
            to=to,
            letters=lines,
            sent=tuple(sent),
            failures=failure_texts(letters.failures),
        )


def cause_of(group: str, trace: answers.Trace) -> Cause | None:
    """How the group's last try of a message ended, if it was traced."""
    tries = [step for step in trace.steps if step.what == "handled" and step.group == group and not step.ok]
    if not tries:
        return None
    last = tries[-1]
    kind = last.detail or "failed"
    traced = "1 try traced" if len(tries) == 1 else f"{len(tries)} tries traced"
    return Cause(kind, f"{kind} after {span_text(last.cost_ms)}, {traced}")


def _lines(found: FoundMessages, *, is_complete: bool) -> answers.MessageLines:
    return answers.MessageLines(
        messages=tuple(map(message_line, found.messages)),
        complete=is_complete,
        failures=failure_texts(found.failures),
    )
