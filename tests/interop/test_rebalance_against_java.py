"""The classic machine beside the stock RebalanceImpl: the same views and answers, the same holdings, pulls and offsets (C6 to C9)."""

from __future__ import annotations

import os
import random
from typing import TYPE_CHECKING

from tests.apache import homes
from tests.interop.seeds import seed
from trimtab.balance.rebalance import SILENT_PULL_MS_MAX, Rebalance
from trimtab.balance.rebalance_effects import Changed, Effect, Lock, ReadStart, Release, StartPull
from trimtab.balance.strategies import Averagely
from trimtab.model import MessageQueue

if TYPE_CHECKING:
    from pathlib import Path

    from tests.apache.fixtures import OracleFactory

HISTORIES = 10_000 if os.environ.get("TRIMTAB_FULL") else 3_000
TOPICS = ("T1", "T2", "%RETRY%g")
MEMBERS = ("10.0.0.1@1", "10.0.0.10@1", "10.0.0.2@1", "me", "z")
ME = "me"


def name_of(queue: MessageQueue) -> str:
    return f"{queue.topic}/{queue.broker_name}/{queue.queue_id}"


class Script:
    """A history as words, made step by step; it knows what the views are."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.kind = rng.choice("ccob")
        self.words = [ME, self.kind]
        self.queues: dict[str, list[str]] = {}

    def made(self) -> list[str]:
        self.words.append(f"s:{','.join(TOPICS)}")
        for topic in TOPICS:
            self.change_queues(topic)
        self.change_members()
        self.words.append("r")
        for _ in range(self.rng.randint(1, 10)):
            for _ in range(self.rng.randint(0, 3)):
                self.rng.choice(
                    (self.change_members, self.change_some_queues, self.silence, self.refuse, self.begin_elsewhere, self.subscribe)
                )()  # fmt: skip
            self.words.append("r")
        return self.words

    def change_members(self) -> None:
        present = [member for member in MEMBERS if self.rng.random() < 0.5 or member == ME]
        if self.rng.random() < 0.1:
            present.remove(ME)
        self.rng.shuffle(present)
        self.words.append("m:-" if self.rng.random() < 0.1 else f"m:{','.join(present)}")

    def change_queues(self, topic: str) -> None:
        counts = {broker: self.rng.randint(0, 4) for broker in ("b0", "b1")}
        self.queues[topic] = [
            f"{topic}/{broker}/{n}" for broker, count in counts.items() for n in range(count)
        ]
        text = ",".join(f"{broker}={count}" for broker, count in counts.items())
        self.words.append(f"q:{topic}:-" if self.rng.random() < 0.1 else f"q:{topic}:{text}")

    def change_some_queues(self) -> None:
        self.change_queues(self.rng.choice(TOPICS))

    def some(self, share: float) -> list[str]:
        return [queue for queues in self.queues.values() for queue in queues if self.rng.random() < share]

    def silence(self) -> None:
        self.words += [f"x:{queue}" for queue in self.some(0.2)]

    def refuse(self) -> None:
        self.words.append(f"l:{','.join(self.some(0.3))}")

    def begin_elsewhere(self) -> None:
        self.words += [f"o:{queue}={self.rng.choice([-1, 0, 7, 1234567890123])}" for queue in self.some(0.3)]

    def subscribe(self) -> None:
        self.words.append(f"s:{','.join(topic for topic in TOPICS if self.rng.random() < 0.8)}")


class Played:
    """The same words for our machine."""

    def __init__(self, words: list[str]) -> None:
        self.machine = Rebalance(
            "g", words[0], Averagely(), is_ordered=words[1] == "o", is_broadcast=words[1] == "b"
        )
        self.views: dict[str, list[MessageQueue] | None] = {}
        self.members: list[str] | None = None
        self.topics: list[str] = []
        self.refused: set[str] = set()
        self.busy: set[str] = set()
        self.starts: dict[str, int] = {}
        self.told = "".join(filter(None, [self.do(*word.split(":")) for word in words[2:]]))

    def do(self, kind: str, *parts: str) -> str | None:
        if kind == "q":
            self.views[parts[0]] = None if parts[1] == "-" else queues_of(parts[0], parts[1])
        elif kind == "m":
            self.members = None if parts[0] == "-" else list(filter(None, parts[0].split(",")))
        elif kind == "s":
            self.topics = [topic for topic in parts[0].split(",") if topic]
        elif kind == "x":
            for queue in self.machine.held():
                if name_of(queue) == parts[0]:
                    self.machine.on_pull(queue, -SILENT_PULL_MS_MAX - 1)
        elif kind == "l":
            self.refused = set(parts[0].split(","))
        elif kind == "k":
            self.busy = set(parts[0].split(","))
        elif kind == "o":
            queue_name, _, offset = parts[0].partition("=")
            self.starts[queue_name] = int(offset)
        else:
            return self.round()
        return None

    def round(self) -> str:
        effects: list[Effect] = []
        for topic in self.topics:
            effects += self.answered(self.machine.on_view(topic, self.views.get(topic), self.members, 0))
        effects += self.answered(self.machine.on_subscriptions(self.topics, 0))
        pulls = sorted(f"{name_of(one.queue)}@{one.offset}" for one in effects if isinstance(one, StartPull))
        changed = sorted(one.topic for one in effects if isinstance(one, Changed))
        held = sorted(map(name_of, self.machine.held()))
        return f"held=[{', '.join(held)}] pulls=[{', '.join(pulls)}] changed=[{', '.join(changed)}];"

    def answered(self, effects: list[Effect]) -> list[Effect]:
        seen, waiting = [], list(effects)
        while waiting:
            effect = waiting.pop(0)
            seen.append(effect)
            if isinstance(effect, Lock):
                granted = [queue for queue in effect.queues if name_of(queue) not in self.refused]
                waiting += self.machine.on_locked(effect, granted, 0)
            elif isinstance(effect, ReadStart):
                waiting += self.machine.on_start(effect, self.starts.get(name_of(effect.queue), 0), 0)
            elif isinstance(effect, Release):
                was_released = name_of(effect.queue) not in self.busy
                waiting += self.machine.on_released(
                    effect, was_released=was_released, has_messages=False, now_ms=0
                )
        return seen


def queues_of(topic: str, counts: str) -> list[MessageQueue]:
    return [
        MessageQueue(topic, broker, number)
        for broker, _, count in (part.partition("=") for part in counts.split(","))
        for number in range(int(count))
    ]


def test_the_classic_machine_holds_pulls_and_starts_what_java_does(
    java_oracle: OracleFactory, tmp_path: Path
) -> None:
    rng = random.Random(seed())
    histories = [Script(rng).made() for _ in range(HISTORIES)]
    silent = homes.home_flags(
        tmp_path, stream="err", level="OFF"
    )  # it warns of every topic that it does not know
    oracle = java_oracle("4.9.3", "RebalanceOracle")
    answers = oracle.run([" ".join(words) for words in histories], jvm_args=silent)
    assert len(answers) == HISTORIES
    for words, answer in zip(histories, answers, strict=True):
        assert Played(words).told == answer, f"TRIMTAB_SEED={seed()} {' '.join(words)}"


def test_an_ordered_queue_that_is_at_work_is_kept_until_it_lets_go(java_oracle: OracleFactory) -> None:
    history = "me o s:T1 q:T1:b0=4 m:me r k:T1/b0/0,T1/b0/1 m:a,me r r k: r m:me l:T1/b0/0 r l: r"
    words = history.split(" ")
    (answer,) = java_oracle("4.9.3", "RebalanceOracle").run([history])
    assert Played(words).told == answer
    rounds = answer.split(";")
    assert rounds[1] == "held=[T1/b0/2, T1/b0/3] pulls=[] changed=[]"
    assert rounds[3] == "held=[T1/b0/2, T1/b0/3] pulls=[] changed=[T1]"
