"""All groups at a glance: one question to each broker for all lags, and one for the members of each group."""

from collections import Counter
from collections.abc import Mapping

from trimtab.client.admin.letters import Letters
from trimtab.client.admin.reach import Gathered
from trimtab.client.admin.rows import GroupLine, GroupLines
from trimtab.errors import ConsumerNotOnlineError
from trimtab.wire.bodies import ConsumerConnection, ConsumeStats, ConsumeStatsList
from trimtab.wire.codes import RequestCode
from trimtab.wire.fastjson import decode_body
from trimtab.wire.headers.admin import GetBrokerConsumeStats
from trimtab.wire.headers.consume import GroupOnly

Stats = dict[str, list[ConsumeStats]]


class Overview(Letters):
    """See the module's own words; `Admin` is the public face."""

    async def group_lines(self, known: Mapping[str, GroupLine] | None = None) -> GroupLines:
        """Every group with its number of members, its lag and its rate. Members of a group that is `known` are taken from there and not asked for."""
        known = known or {}
        masters = await self._masters()
        tables = await self._group_tables("list of groups")
        names = sorted({name for table in tables.found.values() for name in table})
        told = await self._each("lags of all groups", masters, self._stats_of_all)
        asked = {
            f"{broker}@{name}": address
            for name in names
            if name not in known
            for broker, address in masters.items()
        }
        present = await self._each("members of all groups", asked, self._client_ids)
        lines = []
        for name in names:
            found = [row for table in told.found.values() for row in table.get(name, ())]
            seen = known[name] if name in known else _presence(name, masters, present)
            lines.append(
                GroupLine(
                    group=name,
                    members=seen.members,
                    same_ids=seen.same_ids,
                    lag=sum(
                        offsets.broker_offset - offsets.consumer_offset
                        for row in found
                        for offsets in row.offset_table.values()
                    ),
                    consumed_per_s=sum(row.consume_tps for row in found),
                )
            )
        return GroupLines(groups=tuple(lines), failures=(*tables.failures, *told.failures))

    async def _stats_of_all(self, _broker: str, address: str) -> Stats:
        answer = await self._ask(
            address,
            RequestCode.GET_BROKER_CONSUME_STATS,
            GetBrokerConsumeStats(is_order=False),
            asked="lags of all groups",
            timeout_s=self._slow_s,
        )
        body = decode_body(ConsumeStatsList, answer.body)
        found: Stats = {}
        for table in body.consume_stats_list:
            for group, rows in table.items():
                found.setdefault(group, []).extend(rows)
        return found

    async def _client_ids(self, key: str, address: str) -> list[str]:
        header = GroupOnly(consumer_group=key.partition("@")[2])
        try:
            answer = await self._ask(
                address, RequestCode.GET_CONSUMER_CONNECTION_LIST, header, asked=f"members of {key}"
            )
        except ConsumerNotOnlineError:
            return []
        body = decode_body(ConsumerConnection, answer.body)
        return [one.client_id or "" for one in body.connection_set]


def _presence(group: str, masters: Mapping[str, str], present: Gathered[list[str]]) -> GroupLine:
    """Who is there, by the word of those brokers that answered. If nobody is seen and a broker is silent, it is not known."""
    answers = [present.found.get(f"{broker}@{group}") for broker in masters]
    seen = {one for ids in answers if ids for one in ids}
    twice = {one for ids in answers if ids for one, count in Counter(ids).items() if count > 1}
    is_known = bool(seen) or None not in answers
    return GroupLine(
        group=group,
        members=len(seen) if is_known else None,
        same_ids=tuple(sorted(twice)),
        lag=0,
        consumed_per_s=0.0,
    )
