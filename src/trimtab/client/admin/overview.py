"""All groups at a glance: one question to each broker for all lags, and one for the members of each group."""

from trimtab.client.admin.letters import Letters
from trimtab.client.admin.rows import GroupLine, GroupLines
from trimtab.errors import ConsumerNotOnlineError
from trimtab.wire.bodies import ConsumerConnection, ConsumeStats, ConsumeStatsList
from trimtab.wire.codes import RequestCode
from trimtab.wire.fastjson import decode_body
from trimtab.wire.headers.admin import GetBrokerConsumeStats
from trimtab.wire.headers.consume import GroupOnly


class Overview(Letters):
    """See the module's own words; `Admin` is the public face."""

    async def group_lines(self) -> GroupLines:
        """Every group with its number of members, its lag and its rate."""
        masters = await self._masters()
        tables = await self._group_tables("list of groups")
        names = sorted({name for table in tables.found.values() for name in table})

        async def stats(_broker: str, address: str) -> dict[str, list[ConsumeStats]]:
            answer = await self._ask(
                address,
                RequestCode.GET_BROKER_CONSUME_STATS,
                GetBrokerConsumeStats(is_order=False),
                asked="lags of all groups",
                timeout_s=self._slow_s,
            )
            body = decode_body(ConsumeStatsList, answer.body)
            found: dict[str, list[ConsumeStats]] = {}
            for table in body.consume_stats_list:
                for group, rows in table.items():
                    found.setdefault(group, []).extend(rows)
            return found

        async def members(key: str, address: str) -> set[str]:
            header = GroupOnly(consumer_group=key.partition("@")[2])
            try:
                answer = await self._ask(
                    address, RequestCode.GET_CONSUMER_CONNECTION_LIST, header, asked=f"members of {key}"
                )
            except ConsumerNotOnlineError:
                return set()
            body = decode_body(ConsumerConnection, answer.body)
            return {one.client_id or "" for one in body.connection_set}

        told = await self._each("lags of all groups", masters, stats)
        places = {f"{broker}@{name}": address for name in names for broker, address in masters.items()}
        present = await self._each("members of all groups", places, members)
        lines = []
        for name in names:
            found = [row for table in told.found.values() for row in table.get(name, ())]
            ids = {one for broker in masters for one in present.found.get(f"{broker}@{name}", ())}
            lines.append(
                GroupLine(
                    group=name,
                    members=len(ids),
                    lag=sum(
                        offsets.broker_offset - offsets.consumer_offset
                        for row in found
                        for offsets in row.offset_table.values()
                    ),
                    consumed_per_s=sum(row.consume_tps for row in found),
                )
            )
        return GroupLines(groups=tuple(lines), failures=(*tables.failures, *told.failures))
