"""Where groups stand, and how to set them elsewhere.

A group whose members are connected is moved through them: they are told, forget what they hold and commit the new offsets; set
behind their backs an offset would be committed over within seconds. A group that nobody is connected of is set at the broker.
"""

import asyncio

from trimtab.client.admin.groups import Groups
from trimtab.client.admin.rows import (
    GroupMembers,
    GroupOffset,
    MemberOffset,
    MemberOffsets,
    OffsetChange,
    QueueMove,
    QueueRange,
)
from trimtab.client.checks import check_offset
from trimtab.errors import (
    ConsumerNotOnlineError,
    QueryNotFoundError,
    SettingsError,
    TrimtabError,
)
from trimtab.model import MessageQueue
from trimtab.wire.bodies import GetConsumerStatusBody, ResetOffsetBody
from trimtab.wire.codes import RequestCode
from trimtab.wire.fastjson import decode_body
from trimtab.wire.headers.admin import CloneGroupOffset, GetConsumerStatus, ResetOffset
from trimtab.wire.headers.base import decode_ext
from trimtab.wire.headers.consume import OffsetResponse, QueryConsumerOffset, UpdateConsumerOffset

BEGIN = "begin"
END = "end"
_END_OF_TIME_MS = -1
_BEGIN_OF_TIME_MS = 0


class MembersConnectedError(TrimtabError):
    """What was asked for cannot be done while members of the group are connected."""


class Offsets(Groups):
    """See the module's own words; `Admin` is the public face."""

    async def group_offsets(self, group: str, topic: str) -> tuple[GroupOffset, ...]:
        """What a group committed, queue by queue. A 4.9 broker says 0 for a young queue that has nothing."""
        queues = (await self.topic_queues(topic)).queues
        brokers = await self._brokers_of(topic)

        async def one(row: QueueRange) -> GroupOffset:
            offset = await self._committed(brokers[row.broker], group, row.queue)
            return GroupOffset(topic=topic, broker=row.broker, queue_id=row.queue_id, offset=offset)

        return tuple(await asyncio.gather(*map(one, queues)))

    async def _committed(self, address: str, group: str, queue: MessageQueue) -> int | None:
        header = QueryConsumerOffset(
            consumer_group=group, topic=queue.topic, queue_id=queue.queue_id, set_zero_if_not_found=False
        )
        asked = f"offset of group {group!r} in {queue}"
        try:
            answer = await self._ask(address, RequestCode.QUERY_CONSUMER_OFFSET, header, asked=asked)
        except QueryNotFoundError:
            return None
        return decode_ext(OffsetResponse, answer.ext).offset

    async def member_offsets(self, group: str, topic: str) -> MemberOffsets:
        """How far the members that are connected say that they are, which may be ahead of what they committed."""
        header = GetConsumerStatus(topic=topic, group=group)
        asked = f"offsets of the members of group {group!r} in topic {topic!r}"

        async def table(_broker: str, address: str) -> dict[str, dict[MessageQueue, int]]:
            code = RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS
            answer = await self._ask(address, code, header, asked=asked, timeout_s=self._slow_s)
            return decode_body(GetConsumerStatusBody, answer.body).consumer_table

        told = (await self._each(asked, await self._brokers_of(topic), table)).or_raise()
        # Members are connected to every broker, and each of them passes on the same whole table.
        found = {
            (client_id, queue): offset
            for members in told.found.values()
            for client_id, offsets in members.items()
            for queue, offset in offsets.items()
        }
        rows = [
            MemberOffset(
                client_id=client_id, topic=queue.topic, broker=queue.broker_name, queue_id=queue.queue_id, offset=offset
            )
            for (client_id, queue), offset in found.items()
        ]  # fmt: skip
        rows.sort(key=lambda row: (row.client_id, row.topic, row.broker, row.queue_id))
        return MemberOffsets(offsets=tuple(rows), failures=told.failures)

    async def set_offset(self, group: str, queue: MessageQueue, offset: int) -> None:
        """Sets one offset at the broker. Members that are connected will commit theirs over it: see `reset_offsets`."""
        check_offset(queue, offset)
        address = (await self._masters([queue.broker_name]))[queue.broker_name]
        await self._set_offset(address, group, queue, offset)

    async def _set_offset(self, address: str, group: str, queue: MessageQueue, offset: int) -> None:
        header = UpdateConsumerOffset(
            consumer_group=group, topic=queue.topic, queue_id=queue.queue_id, commit_offset=offset
        )
        await self._ask(
            address,
            RequestCode.UPDATE_CONSUMER_OFFSET,
            header,
            asked=f"offset {offset} of group {group!r} in {queue}",
        )

    async def reset_offsets(
        self,
        group: str,
        topic: str,
        to: str | int | dict[MessageQueue, int],
        *,
        at_ms: int | None = None,
        dry_run: bool = False,
    ) -> OffsetChange:
        """Moves a group in a topic to `"begin"`, `"end"`, `"time"` (with `at_ms`), an offset, or an offset for each queue.

        With `dry_run` nothing changes and the answer says what would. A group whose members are connected can be moved to a
        time, the beginning or the end, through its members, who drop what they hold and take seconds for it. Moving it to
        an offset needs the members to be stopped. Members who read other topics only do not count.
        """
        if to == "time" and at_ms is None:
            raise SettingsError("a reset to a time needs at_ms")
        members = await self.members(group)
        queues = await self.topic_queues(topic)
        if members.failures or queues.failures:
            failure = (*members.failures, *queues.failures)[0]
            raise SettingsError(
                f"group {group!r} is not moved: {failure.broker} does not answer ({failure.error}); moving a part of it would"
                " leave the rest behind"
            )
        brokers = await self._brokers_of(topic)
        moves = await asyncio.gather(
            *(self._move(brokers[row.broker], group, row, to, at_ms) for row in queues.queues)
        )
        change = OffsetChange(
            group=group,
            topic=topic,
            moves=tuple(moves),
            through="members" if _reads(members, topic) else "broker",
        )
        if dry_run or not moves:
            return change
        if change.through == "broker":
            await self._set_all(group, brokers, change)
            return change
        if isinstance(to, int | dict):
            raise MembersConnectedError(
                f"group {group!r} has {len(members.client_ids)} member(s) connected, who would commit over it: stop them, or"
                " move it to a time, to the beginning or to the end"
            )
        return await self._through_members(change, brokers, to, at_ms)

    async def _move(
        self,
        address: str,
        group: str,
        row: QueueRange,
        to: str | int | dict[MessageQueue, int],
        at_ms: int | None,
    ) -> QueueMove:
        before = await self._committed(address, group, row.queue)
        if isinstance(to, dict):
            after = to.get(row.queue, row.min_offset if before is None else before)
        elif isinstance(to, int):
            after = to
        elif to == BEGIN:
            after = row.min_offset
        elif to == END:
            after = row.max_offset
        elif to == "time":
            after = await self._offset_at(address, row.queue, at_ms or 0)
        else:
            raise SettingsError(f"{to!r} is none of begin, end, time, an offset, or a table of offsets")
        after = min(max(after, row.min_offset), row.max_offset)
        return QueueMove(
            topic=row.topic,
            broker=row.broker,
            queue_id=row.queue_id,
            before=before,
            after=after,
            min_offset=row.min_offset,
            max_offset=row.max_offset,
        )

    async def _set_all(self, group: str, brokers: dict[str, str], change: OffsetChange) -> None:
        asked = f"offsets of group {group!r} in topic {change.topic!r}"

        async def put(broker: str, address: str) -> None:
            for move in change.moves:
                if move.broker == broker:
                    queue = MessageQueue(move.topic, move.broker, move.queue_id)
                    await self._set_offset(address, group, queue, move.after)

        (await self._each(asked, brokers, put)).all_done()

    async def _through_members(
        self, change: OffsetChange, brokers: dict[str, str], to: str, at_ms: int | None
    ) -> OffsetChange:
        time_ms = {BEGIN: _BEGIN_OF_TIME_MS, END: _END_OF_TIME_MS}.get(to, at_ms or 0)
        header = ResetOffset(topic=change.topic, group=change.group, timestamp=time_ms, is_force=True)
        asked = f"reset group {change.group!r} in topic {change.topic!r}"

        async def reset(_broker: str, address: str) -> dict[MessageQueue, int]:
            try:
                answer = await self._ask(
                    address,
                    RequestCode.INVOKE_BROKER_TO_RESET_OFFSET,
                    header,
                    asked=asked,
                    timeout_s=self._slow_s,
                )
            except ConsumerNotOnlineError:  # it left meanwhile
                return {}
            return decode_body(ResetOffsetBody, answer.body).offset_table

        done = (await self._each(asked, brokers, reset)).all_done()
        told = {queue: offset for table in done.found.values() for queue, offset in table.items()}
        moves = tuple(
            QueueMove(
                topic=move.topic,
                broker=move.broker,
                queue_id=move.queue_id,
                before=move.before,
                after=told.get(MessageQueue(move.topic, move.broker, move.queue_id), move.after),
                min_offset=move.min_offset,
                max_offset=move.max_offset,
            )
            for move in change.moves
        )
        return OffsetChange(group=change.group, topic=change.topic, moves=moves, through="members")

    async def clone_offsets(
        self, source: str, target: str, topic: str, *, dry_run: bool = False
    ) -> OffsetChange:
        """Puts one group where another one stands in a topic. Nobody of the target may be connected."""
        members = await self.members(target)
        if members.views:
            raise MembersConnectedError(
                f"group {target!r} has {len(members.client_ids)} member(s) connected, who would commit over it: stop them first"
            )
        queues = await self.topic_queues(topic)
        brokers = await self._brokers_of(topic)
        wanted = {
            MessageQueue(row.topic, row.broker, row.queue_id): row.offset
            for row in await self.group_offsets(source, topic)
            if row.offset is not None
        }
        rows = [row for row in queues.queues if row.queue in wanted]
        moves = await asyncio.gather(
            *(self._move(brokers[row.broker], target, row, wanted, None) for row in rows)
        )
        change = OffsetChange(group=target, topic=topic, moves=tuple(moves), through="broker")
        if dry_run or not moves:
            return change
        asked = f"offsets of group {source!r} for group {target!r}"
        header = CloneGroupOffset(src_group=source, dest_group=target, topic=topic, offline=False)

        async def clone(_broker: str, address: str) -> None:
            await self._ask(
                address, RequestCode.CLONE_GROUP_OFFSET, header, asked=asked, timeout_s=self._slow_s
            )

        (await self._each(asked, brokers, clone)).all_done()
        return change


def _reads(members: GroupMembers, topic: str) -> bool:
    """Whether there are members to move the group in a topic: who reads other topics would store nothing, and tell nobody.

    Who subscribes to nothing has queues assigned, of any topic.
    """
    read = [[one.topic for one in view.subscriptions] for view in members.views]
    return any(not topics or topic in topics for topics in read)
