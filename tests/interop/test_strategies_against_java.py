"""Mission C2–C5: the six stock strategies against the Java classes, on random views, orders included."""

import os
import random

import pytest

from tests.apache.fixtures import OracleFactory
from tests.interop.seeds import seed
from trimtab.balance.order import sorted_names, sorted_queues
from trimtab.balance.strategies import (
    Averagely,
    ByCircle,
    ByConfig,
    ByMachineRoom,
    ConsistentHash,
    MachineRoomNearby,
    Strategy,
)
from trimtab.errors import AllocationError
from trimtab.model import MessageQueue

STOCK = ("AVG", "AVG_BY_CIRCLE", "CONSISTENT_HASH", "CONFIG", "MACHINE_ROOM", "MACHINE_ROOM_NEARBY")
VIEWS_EACH = 20_000 if os.environ.get("TRIMTAB_FULL") else 5_000

# Ends of the Basic Multilingual Plane and beyond it: here the order of UTF-16 units is not the order of characters.
LETTERS = "aB09_-é中\ue000\uffee\U00010000\U0001f600\U0010ffff"
ROOMS = ("hz", "sh", "HZ", "\U0001f600", "\uffee", "中")


class Prefixes:
    def of_queue(self, queue: MessageQueue) -> str:
        return queue.broker_name.partition("-")[0]

    def of_member(self, client_id: str) -> str:
        return client_id.partition("-")[0]


def some_name(rng: random.Random) -> str:
    return "".join(rng.choices(LETTERS, k=rng.randint(1, 6)))


def in_a_room(rng: random.Random, separator: str) -> str:
    return f"{rng.choice(ROOMS)}{separator}{some_name(rng)}"


def odd_room(rng: random.Random) -> str:
    name = some_name(rng)
    forms = (f"@{name}", f"{name}@", f"hz@{name}@", f"hz@{name}@@", f"hz@@{name}", f"hz@{name}@x", "hz@", "@")
    return rng.choice(forms)


def broker_name(rng: random.Random, what: str) -> str:
    if what == "MACHINE_ROOM":
        return odd_room(rng) if rng.random() < 0.2 else in_a_room(rng, "@")
    if what == "MACHINE_ROOM_NEARBY":
        return f"-{some_name(rng)}" if rng.random() < 0.002 else in_a_room(rng, "-")
    return some_name(rng)


def client_id(rng: random.Random, what: str) -> str:
    if what == "MACHINE_ROOM_NEARBY":
        return in_a_room(rng, "-")
    if rng.random() < 0.5:
        return (
            f"10.0.{rng.randrange(256)}.{rng.randrange(256)}@{rng.randrange(60_000)}#{rng.randrange(10**15)}"
        )
    return some_name(rng)


def some_queues(rng: random.Random, what: str) -> list[MessageQueue]:
    topics = [some_name(rng) for _ in range(rng.choice([1, 1, 1, 3]))]
    brokers = [broker_name(rng, what) for _ in range(rng.randint(1, 6))]
    most = rng.choice([1, 4, 8, 24])
    queues = [MessageQueue(t, b, q) for t in topics for b in brokers for q in range(rng.randint(0, most))]
    rng.shuffle(queues)
    return queues + (rng.choices(queues, k=2) if queues and rng.random() < 0.05 else [])


def some_members(rng: random.Random, what: str) -> list[str]:
    members = [client_id(rng, what) for _ in range(rng.choice([0, 1, 1, 2, 3, 5, 8, 30]))]
    return members + (rng.choices(members, k=2) if members and rng.random() < 0.05 else [])


def some_setting(rng: random.Random, what: str, queues: list[MessageQueue]) -> str:
    if what == "CONSISTENT_HASH":
        return str(rng.choice([10, 10, 10, 0, 1, 3, 40]))
    if what == "CONFIG":
        return queue_list(rng.sample(queues, rng.randint(0, len(queues))))
    if what == "MACHINE_ROOM":
        return " ".join(rng.sample(ROOMS, rng.randint(0, 3)))
    if what == "MACHINE_ROOM_NEARBY":
        within = rng.choice(["AVG", "AVG", "AVG_BY_CIRCLE", "CONSISTENT_HASH"])
        return f"{within} {some_setting(rng, within, queues)}"
    return ""


def some_view(rng: random.Random, what: str) -> tuple[str, str, str, str, str]:
    queues, members = some_queues(rng, what), some_members(rng, what)
    me = rng.choice(members) if members and rng.random() < 0.95 else client_id(rng, what)
    if rng.random() < 0.01:
        me = ""
    return what, some_setting(rng, what, queues), me, " ".join(members), queue_list(queues)


def queue_list(queues: list[MessageQueue] | tuple[MessageQueue, ...]) -> str:
    return " ".join(f"{queue.topic}/{queue.broker_name}/{queue.queue_id}" for queue in queues)


def queues_of(text: str) -> list[MessageQueue]:
    parts = (item.split("/") for item in text.split())
    return [MessageQueue(topic, broker, int(number)) for topic, broker, number in parts]


def strategy_of(what: str, setting: str) -> Strategy:
    if what == "CONSISTENT_HASH":
        return ConsistentHash(int(setting))
    if what == "CONFIG":
        return ByConfig(queues_of(setting))
    if what == "MACHINE_ROOM":
        return ByMachineRoom(setting.split(" "))
    if what == "MACHINE_ROOM_NEARBY":
        within, _, rest = setting.partition(" ")
        return MachineRoomNearby(strategy_of(within, rest), Prefixes())
    return Averagely() if what == "AVG" else ByCircle()


def answered(what: str, setting: str, me: str, members: str, queues: str) -> str:
    strategy = strategy_of(what, setting)
    ids, all_queues = sorted_names(members.split()), sorted_queues(queues_of(queues))
    try:
        share = queue_list(strategy.allocate("g", me, all_queues, ids))
    except AllocationError:
        share = "refused"
    return "\t".join((strategy.name, " ".join(ids), queue_list(all_queues), share))


@pytest.mark.parametrize("version", ["4.9.3", "5.5.0"])
def test_the_stock_strategies_share_as_java_does(java_oracle: OracleFactory, version: str) -> None:
    rng = random.Random(seed())
    views = [some_view(rng, what) for what in STOCK for _ in range(VIEWS_EACH)]
    answers = java_oracle(version, "StrategyOracle").run(["\t".join(view) for view in views])
    assert len(answers) == len(views)
    for view, answer in zip(views, answers, strict=True):
        assert answered(*view) == answer, f"TRIMTAB_SEED={seed()} {view}"
