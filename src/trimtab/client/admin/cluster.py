"""The cluster: brokers, their state and settings, name servers, accounts."""

from collections.abc import Mapping

from trimtab.client.admin.groups import member_row
from trimtab.client.admin.messages import Messages
from trimtab.client.admin.reach import Gathered, NoSuchAccountError
from trimtab.client.admin.rows import (
    Account,
    Accounts,
    BrokerPlace,
    BrokerState,
    BrokerStates,
    BrokerTexts,
    ClusterView,
    Member,
    ProducerChoices,
    ProducerGroup,
    ProducerGroups,
    ProducersChoices,
    ProducerView,
    Rate,
    Rates,
)
from trimtab.client.producer_standings import PROPERTY as CHOICES
from trimtab.client.producer_standings import read_choices
from trimtab.errors import (
    QueryNotFoundError,
    RequestCodeNotSupportedError,
    ResponseError,
    SettingsError,
    SystemFailureError,
)
from trimtab.wire.bodies import (
    AclConfig,
    BrokerStatsData,
    BrokerStatsItem,
    ConsumerRunningInfo,
    KVTable,
    ProducerConnection,
    ProducerTableInfo,
)
from trimtab.wire.codes import RequestCode
from trimtab.wire.fastjson import decode_body
from trimtab.wire.headers.admin import (
    DeleteAclConfig,
    ProducerGroupOnly,
    UpdateAclConfig,
    UpdateGlobalWhiteAddrs,
    ViewBrokerStats,
)
from trimtab.wire.headers.base import decode_ext
from trimtab.wire.headers.callbacks import GetInfoOfOurs
from trimtab.wire.headers.names import (
    AddWritePermResponse,
    BrokerNameOnly,
    GetKvConfigResponse,
    KvConfigKey,
    NamespaceOnly,
    PutKvConfig,
    WipeWritePermResponse,
)
from trimtab.wire.java_properties import decode_properties, encode_properties


class ClusterPart(Messages):
    """See the module's own words; `Admin` is the public face."""

    async def cluster(self) -> ClusterView:
        """All brokers that are registered."""
        return ClusterView(brokers=await self._places())

    async def broker_states(self) -> BrokerStates:
        """What all brokers, slaves too, say of themselves."""
        places = {
            f"{place.broker}:{number}" if number else place.broker: (place, number, address)
            for place in await self._places()
            for number, address in place.addresses.items()
        }

        async def state(name: str, address: str) -> BrokerState:
            place, number, _ = places[name]
            answer = await self._ask(address, RequestCode.GET_BROKER_RUNTIME_INFO, asked=f"state of {name}")
            return state_row(place, number, address, decode_body(KVTable, answer.body).table)

        addresses = {name: address for name, (_, _, address) in places.items()}
        told = (await self._each("state of brokers", addresses, state)).or_raise()
        return BrokerStates(brokers=tuple(told.found.values()), failures=told.failures)

    async def broker_settings(self, brokers: list[str] | tuple[str, ...] | None = None) -> BrokerTexts:
        """The settings of masters, in their own names."""

        async def settings(broker: str, address: str) -> dict[str, str]:
            answer = await self._ask(address, RequestCode.GET_BROKER_CONFIG, asked=f"settings of {broker}")
            return decode_properties(answer.body)

        told = (await self._each("settings of brokers", await self._masters(brokers), settings)).or_raise()
        return BrokerTexts(settings=told.found, failures=told.failures)

    async def change_broker_settings(
        self, settings: Mapping[str, str], brokers: list[str] | tuple[str, ...] | None = None
    ) -> tuple[str, ...]:
        """Changes settings of masters while they run; gives their names."""
        if not settings:
            raise SettingsError("no setting is given")
        body = encode_properties(settings)
        asked = f"settings {', '.join(settings)}"

        async def change(_broker: str, address: str) -> None:
            await self._ask(address, RequestCode.UPDATE_BROKER_CONFIG, body=body, asked=asked)

        return tuple((await self._each(asked, await self._masters(brokers), change)).all_done().found)

    async def clean_queues(self, brokers: list[str] | tuple[str, ...] | None = None) -> tuple[str, ...]:
        """Lets masters delete files of consume queues whose messages are gone; gives their names."""
        return await self._cleaned("old files of queues", RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE, brokers)

    async def clean_topics(self, brokers: list[str] | tuple[str, ...] | None = None) -> tuple[str, ...]:
        """Lets masters delete what is left of topics that do not exist any more; gives their names."""
        return await self._cleaned("what is left of topics", RequestCode.CLEAN_UNUSED_TOPIC, brokers)

    async def _cleaned(
        self, asked: str, code: RequestCode, brokers: list[str] | tuple[str, ...] | None
    ) -> tuple[str, ...]:
        async def clean(_broker: str, address: str) -> None:
            await self._ask(address, code, asked=f"cleaning of {asked}", timeout_s=self._slow_s)

        return tuple((await self._each(asked, await self._masters(brokers), clean)).all_done().found)

    async def broker_rates(self, name: str, key: str) -> Rates:
        """A figure that brokers keep, such as `TOPIC_PUT_NUMS` of a topic, or `GROUP_GET_NUMS` of `topic@group`."""
        header = ViewBrokerStats(stats_name=name, stats_key=key)
        asked = f"figure {name} of {key!r}"

        async def rate(broker: str, address: str) -> Rate | None:
            try:
                answer = await self._ask(address, RequestCode.VIEW_BROKER_STATS_DATA, header, asked=asked)
            except SystemFailureError:  # nothing was counted there yet
                return None
            return rate_row(broker, decode_body(BrokerStatsData, answer.body))

        told = (await self._each(asked, await self._masters(), rate)).or_raise()
        rates = tuple(found for found in told.found.values() if found is not None)
        return Rates(name=name, key=key, rates=rates, failures=told.failures)

    async def producers(self, group: str) -> ProducerView:
        """The producers of a group that are connected."""
        told = await self._producer_connections(group)
        rows = {row.client_id: row for seen in told.found.values() for row in seen}
        return ProducerView(
            group=group, members=tuple(rows[name] for name in sorted(rows)), failures=told.failures
        )

    async def producer_choices(self, group: str) -> ProducersChoices:
        """How the producers of a group see the brokers now, each asked through a broker that sees it."""
        masters = await self._masters()
        told = await self._producer_connections(group)
        places = {row.client_id: masters[broker] for broker, seen in told.found.items() for row in seen}
        answers = await self._each(
            f"choices of producers of {group!r}",
            dict(sorted(places.items())),
            lambda client_id, address: self._choices_of(address, group, client_id),
        )
        known = [one for one in answers.found.values() if one is not None]
        names = {one.client_id for one in known}
        return ProducersChoices(
            group=group,
            producers=tuple(known),
            untold=tuple(name for name in sorted(places) if name not in names),
        )

    async def _choices_of(self, address: str, group: str, client_id: str) -> ProducerChoices | None:
        answer = await self._ask(
            address,
            RequestCode.GET_CONSUMER_RUNNING_INFO,
            GetInfoOfOurs(consumer_group=group, client_id=client_id, of_producer=True),
            asked=f"choices of producer {client_id!r}",
            timeout_s=self._slow_s,
        )
        told = read_choices(decode_body(ConsumerRunningInfo, answer.body).properties.get(CHOICES))
        if told is None:
            return None
        return ProducerChoices(client_id=client_id, policy=told.policy, brokers=told.brokers)

    async def _producer_connections(self, group: str) -> Gathered[tuple[Member, ...]]:
        header = ProducerGroupOnly(producer_group=group)
        asked = f"producers of group {group!r}"

        async def connections(_broker: str, address: str) -> tuple[Member, ...]:
            try:
                answer = await self._ask(
                    address, RequestCode.GET_PRODUCER_CONNECTION_LIST, header, asked=asked
                )
            except SystemFailureError:  # so brokers say that they see none
                return ()
            return tuple(map(member_row, decode_body(ProducerConnection, answer.body).connection_set))

        return (await self._each(asked, await self._masters(), connections)).or_raise()

    async def producer_groups(self) -> ProducerGroups:
        """The groups of producers that are connected, from brokers that keep a list of them."""
        asked = "list of all producers"

        async def table(_broker: str, address: str) -> ProducerTableInfo | None:
            try:
                answer = await self._ask(address, RequestCode.GET_ALL_PRODUCER_INFO, asked=asked)
            except RequestCodeNotSupportedError:
                return None
            return decode_body(ProducerTableInfo, answer.body)

        told = (await self._each(asked, await self._masters(), table)).or_raise()
        ids: dict[str, set[str]] = {}
        for body in told.found.values():
            for group, members in ({} if body is None else body.data).items():
                ids.setdefault(group, set()).update(one.client_id or "" for one in members)
        return ProducerGroups(
            groups=tuple(ProducerGroup(group=name, members=len(ids[name])) for name in sorted(ids)),
            untold=tuple(sorted(broker for broker, body in told.found.items() if body is None)),
            failures=told.failures,
        )

    # --- name servers -------------------------------------------------------------------------------------------

    @property
    def nameservers(self) -> tuple[str, ...]:
        """The name servers, as they were given."""
        return self._nameservers

    async def nameserver_settings(self) -> BrokerTexts:
        """The settings of every name server."""

        async def settings(_name: str, address: str) -> dict[str, str]:
            answer = await self._ask(
                address, RequestCode.GET_NAMESRV_CONFIG, asked="settings of the name server"
            )
            return decode_properties(answer.body)

        told = (await self._each_nameserver("settings of name servers", settings)).or_raise()
        return BrokerTexts(settings=told.found, failures=told.failures)

    async def change_nameserver_settings(self, settings: Mapping[str, str]) -> tuple[str, ...]:
        """Changes settings of all name servers while they run; gives their addresses. Ours take none over the network."""
        if not settings:
            raise SettingsError("no setting is given")
        body = encode_properties(settings)
        asked = f"settings {', '.join(settings)}"

        async def change(_name: str, address: str) -> None:
            await self._ask(address, RequestCode.UPDATE_NAMESRV_CONFIG, body=body, asked=asked)

        return tuple((await self._each_nameserver(asked, change)).all_done().found)

    async def put_kv(self, namespace: str, key: str, value: str) -> None:
        """Puts a value at every name server."""
        header = PutKvConfig(namespace=namespace, key=key, value=value)

        async def put(_name: str, address: str) -> None:
            await self._ask(address, RequestCode.PUT_KV_CONFIG, header, asked=f"value {namespace}/{key}")

        (await self._each_nameserver(f"value {namespace}/{key}", put)).all_done()

    async def delete_kv(self, namespace: str, key: str) -> None:
        """Takes a value from every name server."""
        header = KvConfigKey(namespace=namespace, key=key)

        async def delete(_name: str, address: str) -> None:
            await self._ask(address, RequestCode.DELETE_KV_CONFIG, header, asked=f"value {namespace}/{key}")

        (await self._each_nameserver(f"value {namespace}/{key}", delete)).all_done()

    async def get_kv(self, namespace: str, key: str) -> str | None:
        """A value, or None."""
        header = KvConfigKey(namespace=namespace, key=key)
        try:
            answer = await self._ask_names(
                RequestCode.GET_KV_CONFIG, header, asked=f"value {namespace}/{key}"
            )
        except QueryNotFoundError:
            return None
        return decode_ext(GetKvConfigResponse, answer.ext).value

    async def list_kv(self, namespace: str) -> dict[str, str]:
        """All values of a namespace."""
        try:
            answer = await self._ask_names(
                RequestCode.GET_KVLIST_BY_NAMESPACE,
                NamespaceOnly(namespace=namespace),
                asked=f"values of namespace {namespace!r}",
            )
        except QueryNotFoundError:
            return {}
        return decode_body(KVTable, answer.body).table

    async def wipe_write_perm(self, broker: str) -> int:
        """Takes the write permission of all topics of a broker away, at every name server; gives how many topics."""
        header = BrokerNameOnly(broker_name=broker)
        asked = f"no writing to {broker}"

        async def wipe(_name: str, address: str) -> int:
            answer = await self._ask(address, RequestCode.WIPE_WRITE_PERM_OF_BROKER, header, asked=asked)
            return decode_ext(WipeWritePermResponse, answer.ext).wipe_topic_count

        await self._masters([broker])
        return max((await self._each_nameserver(asked, wipe)).all_done().found.values())

    async def add_write_perm(self, broker: str) -> int:
        """Gives the write permission back; gives how many topics."""
        header = BrokerNameOnly(broker_name=broker)
        asked = f"writing to {broker}"

        async def add(_name: str, address: str) -> int:
            answer = await self._ask(address, RequestCode.ADD_WRITE_PERM_OF_BROKER, header, asked=asked)
            return decode_ext(AddWritePermResponse, answer.ext).add_topic_count

        await self._masters([broker])
        return max((await self._each_nameserver(asked, add)).all_done().found.values())

    # --- accounts -----------------------------------------------------------------------------------------------

    async def accounts(self, broker: str) -> Accounts:
        """The accounts of a broker with ACL, without their secrets."""
        address = (await self._masters([broker]))[broker]
        answer = await self._ask(
            address, RequestCode.GET_BROKER_CLUSTER_ACL_CONFIG, asked=f"accounts of {broker}"
        )
        body = decode_body(AclConfig, answer.body)
        rows = [
            Account(
                access_key=one.access_key or "",
                admin=one.admin,
                white_remote_address=one.white_remote_address or None,
                default_topic_perm=one.default_topic_perm,
                default_group_perm=one.default_group_perm,
                topic_perms=one.topic_perms or (),
                group_perms=one.group_perms or (),
            )
            for one in body.plain_access_configs or ()
        ]
        return Accounts(
            broker=broker, accounts=tuple(rows), global_white_addresses=body.global_white_addrs or ()
        )

    async def put_account(
        self,
        access_key: str,
        secret_key: str,
        *,
        admin: bool = False,
        white_remote_address: str | None = None,
        default_topic_perm: str | None = None,
        default_group_perm: str | None = None,
        topic_perms: tuple[str, ...] | list[str] = (),
        group_perms: tuple[str, ...] | list[str] = (),
    ) -> tuple[str, ...]:
        """Makes or changes an account at all masters; `topic_perms` are like `orders=PUB|SUB`."""
        header = UpdateAclConfig(
            access_key=access_key,
            secret_key=secret_key,
            admin=admin,
            white_remote_address=white_remote_address,
            default_topic_perm=default_topic_perm,
            default_group_perm=default_group_perm,
            topic_perms=",".join(topic_perms) or None,
            group_perms=",".join(group_perms) or None,
        )
        asked = f"account {access_key!r}"

        async def put(_broker: str, address: str) -> None:
            await self._ask(address, RequestCode.UPDATE_AND_CREATE_ACL_CONFIG, header, asked=asked)

        return tuple((await self._each(asked, await self._masters(), put)).all_done().found)

    async def delete_account(self, access_key: str) -> tuple[str, ...]:
        """Removes an account from all masters; gives those that had it. One that none of them has is an error."""
        asked = f"delete account {access_key!r}"

        async def delete(broker: str, address: str) -> bool:
            try:
                await self._ask(
                    address,
                    RequestCode.DELETE_ACL_CONFIG,
                    DeleteAclConfig(access_key=access_key),
                    asked=asked,
                )
            except ResponseError:
                # Brokers refuse to delete what they do not have; some share their accounts with one that just did.
                if any(one.access_key == access_key for one in (await self.accounts(broker)).accounts):
                    raise
                return False
            return True

        done = (await self._each(asked, await self._masters(), delete)).all_done()
        had = tuple(broker for broker, was_there in done.found.items() if was_there)
        if not had:
            raise NoSuchAccountError(f"account {access_key!r} does not exist: no broker has it")
        return had

    async def set_white_addresses(self, addresses: list[str] | tuple[str, ...]) -> tuple[str, ...]:
        """Sets the addresses that need no account, at all masters."""
        header = UpdateGlobalWhiteAddrs(global_white_addrs=",".join(addresses))
        asked = "addresses that need no account"

        async def put(_broker: str, address: str) -> None:
            await self._ask(address, RequestCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG, header, asked=asked)

        return tuple((await self._each(asked, await self._masters(), put)).all_done().found)


def state_row(place: BrokerPlace, number: int, address: str, facts: dict[str, str]) -> BrokerState:
    """A broker's own words as a row."""
    return BrokerState(
        broker=place.broker,
        broker_id=number,
        address=address,
        cluster=place.cluster,
        version=facts.get("brokerVersionDesc"),
        put_per_s=_first_number(facts.get("putTps")),
        get_per_s=_first_number(facts.get("getTransferredTps") or facts.get("getTransferedTps")),
        disk_used=_first_number(facts.get("commitLogDiskRatio")),
        started_ms=None if (started := _first_number(facts.get("bootTimestamp"))) is None else int(started),
        facts=facts,
    )


def rate_row(broker: str, body: BrokerStatsData) -> Rate:
    """A broker's figure as a row."""
    empty = BrokerStatsItem()
    minute, hour, day = body.stats_minute or empty, body.stats_hour or empty, body.stats_day or empty
    return Rate(
        broker=broker,
        per_s_minute=minute.tps,
        per_s_hour=hour.tps,
        per_s_day=day.tps,
        sum_minute=minute.sum,
        sum_hour=hour.sum,
        sum_day=day.sum,
    )


def _first_number(text: str | None) -> float | None:
    """Of `10s 60s 600s` figures the first."""
    try:
        return float((text or "").split(" ")[0])
    except ValueError:
        return None
