"""What a name server knows: which brokers live, and where the queues of each topic are.

One single-threaded object; time and the number of the connection are arguments. Brokers register again and again and thereby
stay alive; whoever is silent too long, signs off or loses the connection goes, and with the last address of a broker name its
topics go. Frozen values are replaced, never changed, so an answer stays true while it is written.

Where 4.9.3 and 5.x differ we do what 5.x does, with two exceptions. A first registration that carries a single topic is taken
(5.x refuses it as an early increment), but its version is not remembered, so the full table that follows counts as a
change. And a connection that closes takes all brokers with it that registered through it, not just one.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from msgspec.structs import replace

from trimtab.errors import TrimtabError
from trimtab.wire.bodies.lists import TopicList
from trimtab.wire.bodies.route import BrokerData, ClusterInfo, QueueData, TopicRouteData
from trimtab.wire.bodies.topics import DataVersion, TopicConfig

MASTER_ID: Final = 0
PERM_WRITE: Final = 2
PERM_READ_WRITE: Final = 6
UNIT_FLAG: Final = 1
UNIT_SUB_FLAG: Final = 2
SILENCE_MS_MAX: Final = 120_000


class NamesFullError(TrimtabError):
    """A limit of the name server is reached, so it takes no more of that kind."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RouteLimits:
    """How much a name server keeps."""

    topics_max: int = 50_000
    brokers_max: int = 1_000
    addresses_per_broker_max: int = 32
    name_characters_max: int = 512
    """Of a topic, broker or cluster name, and of an address."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerPlace:
    """Who a broker says it is."""

    cluster: str
    name: str
    address: str
    broker_id: int = MASTER_ID


@dataclass(frozen=True, slots=True, kw_only=True)
class Registration:
    """What a broker tells when it registers."""

    place: BrokerPlace
    ha_address: str = ""
    topics: Mapping[str, TopicConfig] = field(default_factory=dict)
    version: DataVersion = field(default_factory=DataVersion)
    silence_ms_max: int = SILENCE_MS_MAX
    acting_master: bool | None = None
    """Whether the smallest slave stands in for a lost master; None from brokers before 5.0, whose slaves bring no topics."""


@dataclass(frozen=True, slots=True)
class Master:
    """What a slave wants to know: where its master answers, and where it replicates from."""

    address: str
    ha_address: str


@dataclass(slots=True)
class _Life:
    """One address that registered."""

    place: BrokerPlace
    connection: int
    ha_address: str
    version: DataVersion | None
    silence_ms_max: int
    heard_ms: int


class RouteTable:
    """Topics, brokers and clusters."""

    def __init__(self, limits: RouteLimits | None = None) -> None:
        self._limits = limits or RouteLimits()
        self._topics: dict[str, dict[str, QueueData]] = {}
        self._brokers: dict[str, BrokerData] = {}
        self._clusters: dict[str, dict[str, None]] = {}
        self._lives: dict[tuple[str, str], _Life] = {}

    def __repr__(self) -> str:
        return f"<RouteTable topics={len(self._topics)} brokers={len(self._brokers)}>"

    # --- brokers come, stay and go

    def register(self, registration: Registration, connection: int, now_ms: int) -> Master | None:
        """Takes a broker in, or refreshes it. A slave learns its master."""
        place = registration.place
        self._require_room(registration)
        if self._is_outdated(registration):
            self._lives.pop(_key(place), None)
            return None
        is_new = self._enter(registration)
        if self._brings_topics(registration):
            self._take_topics(registration, is_new=is_new)
        increment_only = is_new and len(registration.topics) == 1
        self._lives[_key(place)] = _Life(
            place=place,
            connection=connection,
            ha_address=registration.ha_address,
            version=None if increment_only else registration.version,
            silence_ms_max=registration.silence_ms_max,
            heard_ms=now_ms,
        )
        return None if place.broker_id == MASTER_ID else self._master_of(place)

    def unregister(self, place: BrokerPlace) -> None:
        """Lets a broker go that signs off. Only its address counts: its id may be another's by now."""
        self._lives.pop(_key(place), None)
        self._leave(place)

    def heard(self, place: BrokerPlace, now_ms: int) -> None:
        """A sign of life of a broker that is registered; of another it means nothing."""
        life = self._lives.get(_key(place))
        if life is not None:
            life.heard_ms = now_ms

    def version_of(self, place: BrokerPlace) -> DataVersion | None:
        """The version of the topics that a broker registered last."""
        life = self._lives.get(_key(place))
        return None if life is None else life.version

    def has_changed(self, place: BrokerPlace, version: DataVersion) -> bool:
        """Whether a broker at this version has something to register."""
        known = self.version_of(place)
        return known is None or _ordinals(known) != _ordinals(version)

    def expire(self, now_ms: int) -> list[int]:
        """Lets brokers go that were silent too long. Gives their connections, which are to be closed."""
        silent = [life for life in self._lives.values() if now_ms - life.heard_ms > life.silence_ms_max]
        self._let_go(silent)
        return list(dict.fromkeys(life.connection for life in silent))

    def connection_closed(self, connection: int) -> None:
        """Lets every broker go that registered through this connection last."""
        self._let_go([life for life in self._lives.values() if life.connection == connection])

    def _let_go(self, lives: Iterable[_Life]) -> None:
        for life in lives:
            del self._lives[_key(life.place)]
            self._leave(life.place)

    def _require_room(self, registration: Registration) -> None:
        limits, place = self._limits, registration.place
        addresses = self._brokers[place.name].broker_addrs if place.name in self._brokers else None
        if addresses is None and len(self._brokers) >= limits.brokers_max:
            raise NamesFullError(f"broker {_short(place.name)} refused: {limits.brokers_max} are registered")
        if (
            addresses
            and place.broker_id not in addresses
            and len(addresses) >= limits.addresses_per_broker_max
        ):
            raise NamesFullError(
                f"broker {_short(place.name)} has {limits.addresses_per_broker_max} addresses already"
            )
        if place.cluster not in self._clusters and len(self._clusters) >= limits.brokers_max:
            raise NamesFullError(f"cluster {_short(place.cluster)} refused: {limits.brokers_max} are known")
        self._require_short(place.name, place.address, place.cluster, registration.ha_address)
        self._require_room_for_topics([topic.topic_name for topic in registration.topics.values()])

    def _require_room_for_topics(self, topics: Iterable[str]) -> None:
        new = list(dict.fromkeys(topic for topic in topics if topic not in self._topics))
        self._require_short(*new)
        if new and len(self._topics) + len(new) > self._limits.topics_max:
            raise NamesFullError(f"topic {_short(new[0])} refused: {self._limits.topics_max} are registered")

    def _require_short(self, *names: str) -> None:
        for name in names:
            if len(name) > self._limits.name_characters_max:
                raise NamesFullError(
                    f"a name of {len(name)} characters exceeds {self._limits.name_characters_max}: {_short(name)}"
                )

    def _is_outdated(self, registration: Registration) -> bool:
        """Whether another address holds this id and was elected later (stateVersion of 5.x)."""
        place = registration.place
        broker = self._brokers.get(place.name)
        holder = broker.broker_addrs.get(place.broker_id) if broker else None
        if holder is None or holder == place.address:
            return False
        life = self._lives.get((place.cluster, holder))
        if life is None or life.version is None:
            return False
        return (life.version.state_version or 0) > (registration.version.state_version or 0)

    def _enter(self, registration: Registration) -> bool:
        """Notes the address under its id, and under no other. True if nobody had this id."""
        place = registration.place
        known = self._brokers.get(place.name) or BrokerData(cluster=place.cluster, broker_name=place.name)
        addresses = {
            broker_id: address
            for broker_id, address in known.broker_addrs.items()
            if address != place.address or broker_id == place.broker_id
        }
        is_new = place.broker_id not in addresses
        addresses[place.broker_id] = place.address
        self._brokers[place.name] = replace(
            known, broker_addrs=addresses, enable_acting_master=registration.acting_master
        )
        self._clusters.setdefault(place.cluster, {})[place.name] = None
        return is_new

    def _leave(self, place: BrokerPlace) -> None:
        broker = self._brokers.get(place.name)
        if broker is None:
            return
        left = {
            number: address for number, address in broker.broker_addrs.items() if address != place.address
        }
        if left:
            self._brokers[place.name] = replace(broker, broker_addrs=left)
            if broker.enable_acting_master and MASTER_ID not in left:
                self._set_permissions(place.name, keep=~PERM_WRITE)
            return
        del self._brokers[place.name]
        for topic in self._topics_at(place.name):
            self._remove_queues(topic, place.name)
        for cluster in [name for name, brokers in self._clusters.items() if place.name in brokers]:
            del self._clusters[cluster][place.name]
            if not self._clusters[cluster]:
                del self._clusters[cluster]

    def _master_of(self, place: BrokerPlace) -> Master | None:
        address = self._brokers[place.name].broker_addrs.get(MASTER_ID)
        life = self._lives.get((place.cluster, address)) if address is not None else None
        return None if life is None else Master(life.place.address, life.ha_address)

    def _brings_topics(self, registration: Registration) -> bool:
        """The master does; from 5.0 on also the smallest slave while there is no master."""
        place = registration.place
        if place.broker_id == MASTER_ID:
            return True
        return registration.acting_master is not None and place.broker_id == min(
            self._brokers[place.name].broker_addrs
        )

    def _take_topics(self, registration: Registration, *, is_new: bool) -> None:
        """Topics that the table does not name stay. Known ones change only with the version, so a wiped permission stays wiped."""
        place = registration.place
        take_all = is_new or self.has_changed(place, registration.version)
        read_only = registration.acting_master is True and place.broker_id != MASTER_ID
        for topic in registration.topics.values():
            queues = self._topics.setdefault(topic.topic_name, {})
            if take_all or place.name not in queues:
                queues[place.name] = QueueData(
                    broker_name=place.name,
                    read_queue_nums=topic.read_queue_nums,
                    write_queue_nums=topic.write_queue_nums,
                    perm=topic.perm & ~PERM_WRITE if read_only else topic.perm,
                    topic_sys_flag=topic.topic_sys_flag,
                )

    # --- topics

    def register_topic(self, topic: str, queues: Iterable[QueueData]) -> None:
        """Adds queues to a topic (5.x). If one of their brokers is not known, nothing happens."""
        queues = tuple(queues)
        if not queues or any(queue.broker_name not in self._brokers for queue in queues):
            return
        self._require_room_for_topics([topic])
        self._topics.setdefault(topic, {}).update({queue.broker_name: queue for queue in queues})

    def delete_topic(self, topic: str, cluster: str | None = None) -> None:
        """Forgets a topic, or its queues in one cluster."""
        for broker in list(self._topics.get(topic, ())):
            if not cluster or broker in self._clusters.get(cluster, ()):
                self._remove_queues(topic, broker)

    def wipe_write_permission(self, broker: str) -> int:
        """Stops producers from writing to a broker, until it registers with another version. Gives the number of topics."""
        return self._set_permissions(broker, keep=~PERM_WRITE)

    def add_write_permission(self, broker: str) -> int:
        """Makes all topics of a broker readable and writable. Gives their number."""
        return self._set_permissions(broker, keep=0, add=PERM_READ_WRITE)

    def _set_permissions(self, broker: str, *, keep: int, add: int = 0) -> int:
        topics = self._topics_at(broker)
        for topic in topics:
            queues = self._topics[topic]
            queues[broker] = replace(queues[broker], perm=queues[broker].perm & keep | add)
        return len(topics)

    def _topics_at(self, broker: str) -> list[str]:
        return [topic for topic, queues in self._topics.items() if broker in queues]

    def _remove_queues(self, topic: str, broker: str) -> None:
        queues = self._topics[topic]
        del queues[broker]
        if not queues:
            del self._topics[topic]

    # --- answers

    def route(self, topic: str) -> TopicRouteData | None:
        """Where a topic is; None if nobody who lives has it."""
        queues = self._topics.get(topic, {})
        brokers = tuple(self._brokers[name] for name in queues if name in self._brokers)
        return TopicRouteData(queue_datas=tuple(queues.values()), broker_datas=brokers) if brokers else None

    def cluster_info(self) -> ClusterInfo:
        """Every broker and every cluster."""
        clusters = {name: tuple(brokers) for name, brokers in self._clusters.items()}
        return ClusterInfo(broker_addr_table=dict(self._brokers), cluster_addr_table=clusters)

    def members(self, cluster: str, broker: str) -> BrokerData:
        """All addresses of one broker name."""
        known = self._brokers.get(broker)
        addresses = dict(known.broker_addrs) if known else {}
        return BrokerData(cluster=cluster, broker_name=broker, broker_addrs=addresses)

    def topics(self) -> TopicList:
        """Every topic."""
        return TopicList(topic_list=tuple(self._topics))

    def topics_of_cluster(self, cluster: str) -> TopicList:
        """Topics with a queue on a broker of the cluster; none if there is no such cluster."""
        brokers = self._clusters.get(cluster, {})
        return TopicList(
            topic_list=tuple(
                topic for topic, queues in self._topics.items() if queues.keys() & brokers.keys()
            )
        )

    def system_topics(self) -> TopicList:
        """Topics that are called like a cluster or a broker, and the address of some broker to ask for more."""
        names = [name for cluster, brokers in self._clusters.items() for name in (cluster, *brokers)]
        addresses = [address for broker in self._brokers.values() for address in broker.broker_addrs.values()]
        return TopicList(
            topic_list=tuple(dict.fromkeys(names)), broker_addr=addresses[0] if addresses else None
        )

    def unit_topics(self, flags: int, mask: int) -> TopicList:
        """Topics whose unit flags under `mask` are `flags`; their first broker speaks for them."""
        return TopicList(
            topic_list=tuple(
                topic
                for topic, queues in self._topics.items()
                if next(iter(queues.values())).topic_sys_flag & mask == flags
            )
        )


def _key(place: BrokerPlace) -> tuple[str, str]:
    return place.cluster, place.address


def _ordinals(version: DataVersion) -> tuple[int, int, int]:
    return version.timestamp, version.counter, version.state_version or 0


def _short(name: str) -> str:
    return repr(name[:64])
