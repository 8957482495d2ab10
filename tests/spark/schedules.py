"""Faults drawn by chance while a real query runs from a topic into Parquet files, and what must be true of the files afterwards.

Every message of the topic is in them exactly once. Where messages were taken away by retention, or the topic itself, the query ends with
the error that the documents name, or goes on without exactly those, as `failOnDataLoss` says.
"""

import asyncio
import random
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

from pyspark.errors import PySparkException

from tests.unit.spark.engine import read_batch
from trimtab import Admin, Message, Producer
from trimtab.model import MessageQueue

ACTS = 8
WAIT_S = 300
LOST = "DataLossError"
FILLER = "filler"
SPARKS_OWN = ("cancel", "Python worker failed to connect back")
"""What is no matter of ours: our own killing of tasks, and a machine that takes more than ten seconds to start a Python."""


class World(Protocol):
    """A cluster and what can be done to it."""

    nameserver: str
    brokers: tuple[str, ...]
    can_expire: bool

    def restart(self, server: str) -> None:
        """A broker, or `nameserver`: down and up again."""


class Schedule:
    """One topic, one query, one seed."""

    def __init__(self, spark: Any, world: World, folder: Path, seed: int, topic: str) -> None:
        self._seed = seed
        self._done: list[str] = []
        self.chance = random.Random(seed)
        self._spark, self._world, self._folder = spark, world, folder
        self._topic = topic
        self._queues = 2
        self._sent: list[str] = []
        self._loss = self.chance.choice(["fail", "fail", "warn", "earliest"])
        self._limit = str(self.chance.randrange(20, 200))
        self._may_lose = False
        self._query: Any = None

    def run(self) -> None:
        try:
            self._run()
        except AssertionError as error:
            error.add_note(f"TRIMTAB_SEED={self._seed} shows it again: {', '.join(self._done)}")
            raise

    def _run(self) -> None:
        self._grow()
        self._send()
        self._start()
        until(lambda: self._batches() > 0 or not self._query.isActive)
        acts = [
            self._send,
            self._send,
            self._grow,
            self._restart_broker,
            self._restart_names,
            self._stop,
            self._cancel,
        ]
        if self._world.can_expire:
            acts.append(self._expire)
        for _ in range(ACTS):
            act = self.chance.choice(acts)
            self._done.append(act.__name__)
            act()
            self._look_after()
            if self.chance.random() < 0.5:
                self._let_it_read()
        if self.chance.random() < 0.2:
            self._delete()
        else:
            self._finish()

    # --- what happens -----------------------------------------------------------------------------------------

    def _send(self) -> None:
        queue = MessageQueue(
            self._topic, self.chance.choice(list(self._world.brokers)), self.chance.randrange(self._queues)
        )
        first, count = len(self._sent), self.chance.randrange(1, 150)
        bodies = [f"{self._topic}-{number}" for number in range(first, first + count)]
        asyncio.run(self._sending([(queue, body.encode()) for body in bodies]))
        self._sent += bodies

    async def _sending(self, messages: Sequence[tuple[MessageQueue, bytes]]) -> None:
        async with Producer("tests", nameserver=self._world.nameserver) as producer:
            await asyncio.gather(
                *(producer.send(Message(queue.topic, body), queue=queue) for queue, body in messages)
            )

    def _grow(self) -> None:
        self._queues += 1
        asyncio.run(self._create(self._topic, self._queues))

    async def _create(self, topic: str, queues: int) -> None:
        async with Admin(nameserver=self._world.nameserver) as admin:
            await admin.create_topic(topic, queues=queues)

    def _restart_broker(self) -> None:
        self._world.restart(self.chance.choice(list(self._world.brokers)))

    def _restart_names(self) -> None:
        self._world.restart("nameserver")

    def _expire(self) -> None:
        """Other messages push the oldest ones out, read or not."""
        asyncio.run(self._create(FILLER, 1))
        body = self.chance.randbytes(30_000)
        filler = [(MessageQueue(FILLER, name, 0), body) for name in self._world.brokers for _ in range(30)]
        asyncio.run(self._sending(filler))
        self._may_lose = True

    def _stop(self) -> None:
        self._query.stop()
        self._start()

    def _cancel(self) -> None:
        """All tasks are killed; the query ends, and begins again with the batch that was not done."""
        self._spark.sparkContext.cancelAllJobs()
        self._query.stop()
        self._start()

    # --- the query --------------------------------------------------------------------------------------------

    def _start(self, **trigger: Any) -> Any:
        options = {
            "nameserver": self._world.nameserver, "topic": self._topic, "startingOffsets": "earliest", "columns": "body",
            "bodyAs": "string", "maxOffsetsPerTrigger": self._limit, "failOnDataLoss": self._loss, "routeRefreshMs": "300",
            "minPartitions": str(self.chance.randrange(1, 4)),
        }  # fmt: skip
        writer = (
            self._spark.readStream.format("rocketmq").options(**options).load().writeStream.format("parquet")
        )
        writer = writer.option("checkpointLocation", str(self._folder / "checkpoint"))
        self._query = (writer.trigger(**trigger) if trigger else writer).start(str(self._folder / "rows"))
        return self._query

    def _batches(self) -> int:
        folder = self._folder / "checkpoint" / "commits"
        return sum(1 for file in folder.iterdir() if file.name.isdecimal()) if folder.exists() else 0

    def _let_it_read(self) -> None:
        """So that faults come in the middle of the work as well as before and after it."""
        before = self._batches()
        until(
            lambda: (
                not self._query.isActive
                or self._batches() > before
                or self._query.status["message"].startswith("Waiting for")
            )
        )

    def _look_after(self) -> None:
        """A query that ended must have had a reason that the documents name."""
        if not self._query.isActive:
            self._judge(self._query.exception())

    def _judge(self, error: Any) -> None:
        self._judge_text(str(error))
        self._start()

    def _judge_text(self, text: str) -> None:
        if any(words in text for words in SPARKS_OWN):
            return
        assert self._may_lose, f"nothing was lost, and the query ended: {text}"
        assert self._loss == "fail", f"it was to go on: {text}"
        assert LOST in text, text
        self._loss = self.chance.choice(["warn", "earliest"])

    def _finish(self) -> None:
        self._query.stop()
        self._all_is_visible()
        while not self._ends():
            pass
        rows = self._rows()
        twice = [body for body, times in rows.items() if times > 1]
        assert not twice, f"{len(twice)} messages are in the files twice, such as {twice[0]}"
        assert rows.keys() <= set(self._sent)
        missing = (set(self._there()) if self._may_lose else set(self._sent)) - rows.keys()
        assert not missing, f"{len(missing)} messages are not in the files, such as {min(missing)}"

    def _ends(self) -> bool:
        """Whether the query came to the end of the topic; another try if messages vanished meanwhile."""
        query = self._start(availableNow=True)
        try:
            assert query.awaitTermination(WAIT_S), "it did not end"
        except PySparkException as error:
            self._judge_text(str(error))
            return False
        return True

    def _delete(self) -> None:
        """The documented error, or a query that goes on with nothing to read."""
        asyncio.run(self._deleting())
        if self._loss == "fail":
            until(lambda: not self._query.isActive)
            text = str(self._query.exception())
            assert LOST in text, text
            said = "no such queue any more" in text or "the topic was removed and made anew" in text
            assert said or self._may_lose, text
        else:
            self._query.stop()
        rows = self._rows()
        assert set(rows.values()) <= {1}
        assert rows.keys() <= set(self._sent)

    async def _deleting(self) -> None:
        async with Admin(nameserver=self._world.nameserver) as admin:
            await admin.delete_topic(self._topic)

    def _rows(self) -> Counter[str]:
        """What is in the files; a query that had no luck before the end has written none."""
        folder = self._folder / "rows"
        files = (
            self._spark.read.schema("body string").parquet(str(folder)).collect() if folder.exists() else []
        )
        return Counter(row.body for row in files)

    # --- the topic --------------------------------------------------------------------------------------------

    def _there(self) -> list[str]:
        rows = read_batch(
            nameserver=self._world.nameserver, topic=self._topic, columns="body", failOnDataLoss="warn"
        )
        return [row["body"].decode() for row in rows]

    def _all_is_visible(self) -> None:
        """A broker that came back registers a moment later, and one of 4.9 shows messages a moment after it took them."""
        if not self._may_lose:
            until(lambda: set(self._sent) <= set(self._there()))


def until(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_S
    while not true():
        assert time.monotonic() < deadline, "it did not become true"
        time.sleep(0.1)
