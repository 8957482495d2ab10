"""A group's facts by hand, for what is decided from them."""

import msgspec

from trimtab.client.admin.diagnosis import Facts, Look
from trimtab.client.admin.rows import (
    BrokerPlace,
    BrokerView,
    GroupMembers,
    GroupOnBroker,
    GroupProgress,
    GroupSettings,
    HeldQueue,
    Member,
    MemberState,
    MemberStates,
    QueueProgress,
    RouteOfNameserver,
    Subscription,
    TopicOnBroker,
    TopicRoute,
)

NOW = 1_800_000_000_000
STAR = (Subscription(topic="t", expression="*"),)
replace = msgspec.structs.replace


def held(queue_id: int, broker: str = "a", **changes: object) -> HeldQueue:
    row = HeldQueue(
        topic="t", broker=broker, queue_id=queue_id, committed=0, cached=0, cached_mib=0, locked=False, dropped=False,
        last_pull_ms=NOW, last_consume_ms=NOW, last_lock_ms=None,
    )  # fmt: skip
    return replace(row, **changes)


def state(client_id: str, *queues: HeldQueue, **changes: object) -> MemberState:
    row = MemberState(client_id=client_id, properties={}, subscriptions=STAR, queues=queues, pace=())
    return replace(row, **changes)


def member(client_id: str, address: str = "", language: str = "JAVA") -> Member:
    return Member(client_id=client_id, address=address or f"{client_id}:1", language=language, version=399)


def view(broker: str, *members: Member, model: str = "CLUSTERING") -> BrokerView:
    return BrokerView(
        broker=broker, members=members, subscriptions=STAR, consume_type="CONSUME_PASSIVELY", message_model=model,
        consume_from="CONSUME_FROM_LAST_OFFSET",
    )  # fmt: skip


def route(read: int = 2, write: int = 2, perm: str = "rw") -> TopicRoute:
    queues = TopicOnBroker(broker="a", read_queues=read, write_queues=write, perm=perm)  # type: ignore[arg-type]
    return TopicRoute(
        topic="t", queues=(queues,), brokers=(BrokerPlace(broker="a", cluster="C", addresses={0: "h:1"}),)
    )


def look(*states: MemberState, offsets: tuple[int, ...] = (5, 5), ends: tuple[int, ...] = (5, 5)) -> Look:
    rows = [
        QueueProgress(topic="t", broker="a", queue_id=number, offset=offset, max_offset=end)
        for number, (offset, end) in enumerate(zip(offsets, ends, strict=True))
    ]
    return Look(
        now_ms=NOW,
        states=MemberStates(group="g", members=states),
        progress=GroupProgress(group="g", queues=tuple(rows)),
    )


def facts(after: Look, *views: BrokerView, before: Look | None = None, **changes: object) -> Facts:
    settings = GroupOnBroker(
        broker="a", enabled=True, broadcast_enabled=True, retry_queues=1, retries_max=16, notify_members=True
    )
    row = Facts(
        group="g",
        settings=GroupSettings(group="g", brokers=(settings,)),
        members=GroupMembers(group="g", views=views),
        routes={"t": (RouteOfNameserver(nameserver="n:1", route=route()),)},
        before=before or after,
        after=after,
    )
    return replace(row, **changes)


HEALTHY = look(state("c-1", held(0)), state("c-2", held(1)))
BOTH = view("a", member("c-1"), member("c-2"))
