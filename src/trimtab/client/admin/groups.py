"""Groups of consumers: their settings, their members, and how far they have come."""

import asyncio

from trimtab.client.admin.reach import Gathered, NoSuchGroupError, NoSuchTopicError, Reach
from trimtab.client.admin.rows import (
    BrokerView,
    GroupMembers,
    GroupOnBroker,
    GroupProgress,
    GroupSettings,
    HeldQueue,
    Member,
    MemberState,
    MemberStates,
    Names,
    QueueProgress,
    Subscription,
    TopicPace,
)
from trimtab.client.admin.topics import Topics
from trimtab.client.checks import check_group
from trimtab.client.holdings import PROPERTY as HOLDINGS
from trimtab.client.holdings import read_holdings
from trimtab.errors import ConsumerNotOnlineError, TopicNotFoundError
from trimtab.wire.bodies import Connection as ConnectionBody
from trimtab.wire.bodies import (
    ConsumerConnectionAndLeases,
    ConsumerRunningInfo,
    ConsumeStats,
    SubscriptionData,
    SubscriptionGroupConfig,
    SubscriptionGroupWrapper,
)
from trimtab.wire.codes import RequestCode
from trimtab.wire.fastjson import decode_body
from trimtab.wire.fastjson_writer import encode_body
from trimtab.wire.headers.admin import DeleteSubscriptionGroup, GetConsumeStats
from trimtab.wire.headers.callbacks import GetConsumerRunningInfo
from trimtab.wire.headers.consume import GroupAndLeases
from trimtab.wire.resources import RETRY_PREFIX

DLQ_PREFIX = "%DLQ%"
STATES_AT_ONCE_MAX = 32
"""Members that are asked for their state at one time: each answer may be large."""


class Groups(Topics, Reach):
    """See the module's own words; `Admin` is the public face."""

    # --- settings -----------------------------------------------------------------------------------------------

    async def groups(self) -> Names:
        """All groups that brokers know."""
        told = await self._group_tables("list of groups")
        names = {name for table in told.found.values() for name in table}
        return Names(names=tuple(sorted(names)), failures=told.failures)

    async def _group_tables(self, asked: str) -> Gathered[dict[str, SubscriptionGroupConfig]]:
        async def table(_broker: str, address: str) -> dict[str, SubscriptionGroupConfig]:
            answer = await self._ask(address, RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, asked=asked)
            return decode_body(SubscriptionGroupWrapper, answer.body).subscription_group_table

        return (await self._each(asked, await self._masters(), table)).or_raise()

    async def group_settings(self, group: str) -> GroupSettings:
        """A group as each broker keeps it."""
        told = await self._group_tables(f"settings of group {group!r}")
        rows = tuple(
            group_row(broker, table[group]) for broker, table in told.found.items() if group in table
        )
        if not rows and not told.failures:
            raise NoSuchGroupError(f"group {group!r} does not exist: no broker knows it")
        return GroupSettings(group=group, brokers=rows, failures=told.failures)

    async def create_group(
        self,
        group: str,
        *,
        retries_max: int = 16,
        retry_queues: int = 1,
        enabled: bool = True,
        broadcast_enabled: bool = True,
        notify_members: bool = True,
        brokers: list[str] | tuple[str, ...] | None = None,
        cluster: str | None = None,
    ) -> GroupSettings:
        """Makes a group, or changes it, at all masters or at those named."""
        check_group(group)
        config = SubscriptionGroupConfig(
            group_name=group,
            consume_enable=enabled,
            consume_broadcast_enable=broadcast_enabled,
            retry_queue_nums=retry_queues,
            retry_max_times=retries_max,
            notify_consumer_ids_changed_enable=notify_members,
        )
        return await self._put_group(dict.fromkeys(await self._masters(brokers, cluster), config))

    async def alter_group(
        self,
        group: str,
        *,
        retries_max: int | None = None,
        retry_queues: int | None = None,
        enabled: bool | None = None,
        broadcast_enabled: bool | None = None,
        notify_members: bool | None = None,
    ) -> GroupSettings:
        """Changes what is given, at each broker that has the group, and leaves the rest."""
        known = (await self._group_tables(f"settings of group {group!r}")).all_done()
        configs = {broker: table[group] for broker, table in known.found.items() if group in table}
        if not configs:
            raise NoSuchGroupError(f"group {group!r} does not exist: no broker knows it")
        wanted = {
            broker: SubscriptionGroupConfig(
                group_name=group,
                consume_enable=config.consume_enable if enabled is None else enabled,
                consume_from_min_enable=config.consume_from_min_enable,
                consume_broadcast_enable=config.consume_broadcast_enable
                if broadcast_enabled is None
                else broadcast_enabled,
                retry_queue_nums=config.retry_queue_nums if retry_queues is None else retry_queues,
                retry_max_times=config.retry_max_times if retries_max is None else retries_max,
                broker_id=config.broker_id,
                which_broker_when_consume_slowly=config.which_broker_when_consume_slowly,
                notify_consumer_ids_changed_enable=config.notify_consumer_ids_changed_enable
                if notify_members is None
                else notify_members,
                consume_message_orderly=config.consume_message_orderly,
                group_retry_policy=config.group_retry_policy,
                group_sys_flag=config.group_sys_flag,
                consume_timeout_minute=config.consume_timeout_minute,
                subscription_data_set=config.subscription_data_set,
                attributes=config.attributes,
            )
            for broker, config in configs.items()
        }
        return await self._put_group(wanted)

    async def _put_group(self, configs: dict[str, SubscriptionGroupConfig]) -> GroupSettings:
        group = next(iter(configs.values())).group_name
        asked = f"settings for group {group!r}"

        async def put(broker: str, address: str) -> GroupOnBroker:
            body = encode_body(configs[broker])
            await self._ask(address, RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=body, asked=asked)
            return group_row(broker, configs[broker])

        done = (await self._each(asked, await self._masters(list(configs)), put)).all_done()
        return GroupSettings(group=group, brokers=tuple(done.found.values()))

    async def delete_group(self, group: str, *, remove_offsets: bool = True) -> tuple[str, ...]:
        """Removes a group with its offsets, its retry topic and its dead letters; gives the brokers' names."""
        asked = f"delete group {group!r}"
        header = DeleteSubscriptionGroup(
            group_name=group, remove_offset=remove_offsets, clean_offset=remove_offsets
        )

        async def delete(_broker: str, address: str) -> None:
            await self._ask(address, RequestCode.DELETE_SUBSCRIPTIONGROUP, header, asked=asked)

        done = (await self._each(asked, await self._masters(), delete)).all_done()
        known = set((await self.topics()).names)
        for topic in (RETRY_PREFIX + group, DLQ_PREFIX + group):
            if topic in known:
                await self.delete_topic(topic)
        return tuple(done.found)

    # --- members ------------------------------------------------------------------------------------------------

    async def members(self, group: str) -> GroupMembers:
        """Who is connected, as each broker sees it."""
        asked = f"members of group {group!r}"

        async def view(broker: str, address: str) -> BrokerView | None:
            try:
                answer = await self._ask(
                    address,
                    RequestCode.GET_CONSUMER_CONNECTION_LIST,
                    GroupAndLeases(consumer_group=group, with_leases=True),
                    asked=asked,
                )
            except ConsumerNotOnlineError:
                return None
            return view_row(broker, decode_body(ConsumerConnectionAndLeases, answer.body))

        told = (await self._each(asked, await self._masters(), view)).or_raise()
        views = tuple(found for found in told.found.values() if found is not None)
        return GroupMembers(group=group, views=views, failures=told.failures)

    async def member_state(self, group: str, client_id: str, *, jstack: bool = False) -> MemberState:
        """What one member says of itself; with `jstack` also where its threads are."""
        members = await self.members(group)
        brokers = [
            view.broker for view in members.views if any(one.client_id == client_id for one in view.members)
        ]
        if not brokers:
            raise ConsumerNotOnlineError(
                asked=f"state of {client_id!r} in group {group!r}",
                peer="every broker",
                remark=f"members are {', '.join(members.client_ids) or 'none'}",
            )
        address = (await self._masters(brokers[:1]))[brokers[0]]
        return await self._member_state(address, group, client_id, jstack=jstack)

    async def member_states(self, group: str, members: GroupMembers | None = None) -> MemberStates:
        """What all members say of themselves, each asked through a broker that sees it."""
        members = await self.members(group) if members is None else members
        masters = await self._masters()
        seen_by = {one.client_id: view.broker for view in reversed(members.views) for one in view.members}
        places = {
            client_id: masters[seen_by[client_id]]
            for client_id in members.client_ids
            if seen_by[client_id] in masters
        }
        room = asyncio.Semaphore(STATES_AT_ONCE_MAX)

        async def state(client_id: str, address: str) -> MemberState:
            async with room:
                return await self._member_state(address, group, client_id, jstack=False)

        told = await self._each(f"states of group {group!r}", places, state)
        return MemberStates(group=group, members=tuple(told.found.values()), failures=told.failures)

    async def _member_state(self, address: str, group: str, client_id: str, *, jstack: bool) -> MemberState:
        header = GetConsumerRunningInfo(consumer_group=group, client_id=client_id, jstack_enable=jstack)
        answer = await self._ask(
            address,
            RequestCode.GET_CONSUMER_RUNNING_INFO,
            header,
            asked=f"state of {client_id!r} in group {group!r}",
            timeout_s=self._slow_s,
        )
        return state_row(client_id, decode_body(ConsumerRunningInfo, answer.body))

    # --- progress -----------------------------------------------------------------------------------------------

    async def progress(self, group: str, topic: str | None = None) -> GroupProgress:
        """How far a group has come, queue by queue, in one topic or in all."""
        asked = f"progress of group {group!r}"
        header = GetConsumeStats(consumer_group=group, topic=topic)

        async def stats(_broker: str, address: str) -> ConsumeStats:
            answer = await self._ask(
                address, RequestCode.GET_CONSUME_STATS, header, asked=asked, timeout_s=self._slow_s
            )
            return decode_body(ConsumeStats, answer.body)

        told = (await self._each(asked, await self._brokers_of_group(group), stats)).or_raise()
        rows = [
            QueueProgress(
                topic=queue.topic,
                broker=queue.broker_name,
                queue_id=queue.queue_id,
                offset=offsets.consumer_offset,
                max_offset=offsets.broker_offset,
                consumed_ms=offsets.last_timestamp or None,
            )
            for stats in told.found.values()
            for queue, offsets in stats.offset_table.items()
        ]
        return GroupProgress(
            group=group,
            queues=tuple(sorted(rows, key=lambda row: (row.topic, row.broker, row.queue_id))),
            consumed_per_s=sum(stats.consume_tps for stats in told.found.values()),
            failures=told.failures,
        )

    async def _brokers_of_group(self, group: str) -> dict[str, str]:
        """Brokers with the group's retry topic have seen it; a group that was only made is at every master."""
        try:
            return await self._brokers_of(RETRY_PREFIX + group)
        except (NoSuchTopicError, TopicNotFoundError):
            await self.group_settings(group)
            return await self._masters()


def group_row(broker: str, config: SubscriptionGroupConfig) -> GroupOnBroker:
    """A broker's settings as a row."""
    return GroupOnBroker(
        broker=broker,
        enabled=config.consume_enable,
        broadcast_enabled=config.consume_broadcast_enable,
        retry_queues=config.retry_queue_nums,
        retries_max=config.retry_max_times,
        notify_members=config.notify_consumer_ids_changed_enable,
    )


def member_row(connection: ConnectionBody) -> Member:
    """A connection as a row."""
    return Member(
        client_id=connection.client_id or "",
        address=connection.client_addr or "",
        language="OTHER" if connection.language is None else connection.language.name,
        version=connection.version,
    )


def subscription_row(data: SubscriptionData) -> Subscription:
    """A subscription as a row."""
    return Subscription(
        topic=data.topic,
        expression=data.sub_string or "",
        kind=data.expression_type or "TAG",
        version=data.sub_version,
    )


def view_row(broker: str, body: ConsumerConnectionAndLeases) -> BrokerView:
    """A broker's view as a row; two connections with one id are two members."""
    return BrokerView(
        broker=broker,
        members=tuple(
            sorted(map(member_row, body.connection_set), key=lambda one: (one.client_id, one.address))
        ),
        subscriptions=tuple(
            sorted(map(subscription_row, body.subscription_table.values()), key=lambda one: one.topic)
        ),
        consume_type=body.consume_type or "",
        message_model=body.message_model or "",
        consume_from=body.consume_from_where or "",
        tells_leases=body.leases is not None,
    )


def state_row(client_id: str, body: ConsumerRunningInfo) -> MemberState:
    """A member's own words as a row."""
    told = {one.queue: one for one in read_holdings(body.properties.get(HOLDINGS))}
    held = [
        HeldQueue(
            topic=queue.topic,
            broker=queue.broker_name,
            queue_id=queue.queue_id,
            committed=info.commit_offset,
            cached=info.cached_msg_count,
            cached_mib=info.cached_msg_size_in_mib,
            locked=info.locked,
            dropped=info.dropped,
            last_pull_ms=info.last_pull_timestamp or None,
            last_consume_ms=info.last_consume_timestamp or None,
            last_lock_ms=info.last_lock_timestamp or None,
            since_ms=told[queue].since_ms if queue in told else None,
            lease_age_ms=told[queue].lease_age_ms if queue in told else None,
        )
        for queue, info in body.mq_table.items()
    ]
    return MemberState(
        client_id=client_id,
        properties=body.properties,
        subscriptions=tuple(sorted(map(subscription_row, body.subscription_set), key=lambda one: one.topic)),
        queues=tuple(sorted(held, key=lambda one: (one.topic, one.broker, one.queue_id))),
        pace=tuple(
            TopicPace(
                topic=topic,
                pulled_per_s=status.pull_tps,
                consumed_per_s=status.consume_ok_tps,
                failed_per_s=status.consume_failed_tps,
                pull_ms=status.pull_rt,
                consume_ms=status.consume_rt,
                failed_last_hour=status.consume_failed_msgs,
            )
            for topic, status in sorted(body.status_table.items())
        ),
        extra=body.user_consumer_info or {},
        jstack=body.jstack,
    )
