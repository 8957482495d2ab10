"""A member of a leased group in a process of its own, to be killed and stopped: `python -m tests.leased_member NAMESERVER GROUP TOPIC OPTIONS`.

It writes one line of JSON for each thing that happens, with the machine's monotonic time in milliseconds, which is the same for all processes.
"""

import asyncio
import json
import signal
import subprocess
import sys
import threading
import time
from types import TracebackType
from typing import Any, Self

from trimtab import PushConsumer, Received
from trimtab.balance.metrics import Held
from trimtab.errors import ClientIdTakenError
from trimtab.model import MessageQueue
from trimtab.settings import Intervals

HANDLER_S = 0.02


def monotonic_ms() -> int:
    """The same for all processes of the machine."""
    return time.monotonic_ns() // 1_000_000


def _say(what: str, **more: Any) -> None:
    sys.stdout.write(json.dumps({"at_ms": monotonic_ms(), "what": what, **more}) + "\n")
    sys.stdout.flush()


def _name(queue: MessageQueue) -> str:
    return f"{queue.broker_name}:{queue.queue_id}"


async def main(nameserver: str, group: str, topic: str, options: str) -> None:
    wanted: dict[str, Any] = json.loads(options)

    def told(what: str) -> Any:
        def tell(queues: tuple[MessageQueue, ...]) -> None:
            _say(what, queues=[_name(queue) for queue in queues if queue.topic == topic])

        return tell

    async def handle(message: Received) -> None:
        about = {"body": message.body.decode(), "queue": _name(message.queue), "offset": message.queue_offset}
        _say("got", **about)
        await asyncio.sleep(HANDLER_S)
        _say("done", **about)

    consumer = PushConsumer(
        group, subscribe={topic: "*"}, handler=handle, nameserver=nameserver, start="first", mode="leased",
        on_assigned=told("took"), on_revoked=told("left"), on_lost=told("lost"),
        client_id=wanted.get("client_id"), ordered=wanted.get("ordered", False),
        intervals=Intervals(heartbeat_s=wanted.get("heartbeat_s", 30.0)),
    )  # fmt: skip
    try:
        async with consumer:
            _say("started")
            stdin = asyncio.create_task(asyncio.to_thread(sys.stdin.read))
            stopped = asyncio.create_task(consumer.wait())
            await asyncio.wait([stdin, stopped], return_when=asyncio.FIRST_COMPLETED)
            if stopped.done():
                await stopped
    except ClientIdTakenError as error:
        _say("refused", why=str(error))


class MemberProcess:
    """One of them, seen from the test."""

    def __init__(self, nameserver: str, group: str, topic: str, **options: Any) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.leased_member", nameserver, group, topic, json.dumps(options)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.events: list[dict[str, Any]] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            try:
                self.events.append(json.loads(line))
            except ValueError:
                return  # the last words of a process that was killed

    @property
    def pid(self) -> int:
        return self._process.pid

    def kill(self) -> None:
        """SIGKILL; back when it is gone."""
        self._process.kill()
        self._process.wait(30)
        self._reader.join(30)
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None and not pipe.closed:
                pipe.close()

    def sleep(self) -> None:
        """SIGSTOP: nothing of it runs, its connections stay."""
        self._process.send_signal(signal.SIGSTOP)

    def wake(self) -> None:
        """SIGCONT."""
        self._process.send_signal(signal.SIGCONT)

    def all(self, what: str) -> list[dict[str, Any]]:
        return [event for event in list(self.events) if event["what"] == what]

    def bodies(self, what: str) -> list[str]:
        return [event["body"] for event in self.all(what)]

    def places(self, what: str) -> list[tuple[str, int]]:
        """Queue and offset of each message: a producer that tries again may have stored one body twice."""
        return [(event["queue"], event["offset"]) for event in self.all(what)]

    def queues(self) -> set[str]:
        """What it holds, by its own word."""
        held: set[str] = set()
        for event in list(self.events):
            if event["what"] == "took":
                held.update(event["queues"])
            elif event["what"] in ("left", "lost"):
                held.difference_update(event["queues"])
        return held

    def times(self, until_ms: int) -> list[Held]:
        """When it held what, by its own word; until then at the latest."""
        since: dict[str, int] = {}
        times: list[Held] = []

        def end(queue: str, at_ms: int) -> None:
            if queue in since:
                broker, _, number = queue.rpartition(":")
                key = MessageQueue("", broker, int(number))
                times.append(Held(key, str(self.pid), since.pop(queue), min(at_ms, until_ms)))

        for event in list(self.events):
            for queue in event.get("queues", ()):
                if event["what"] == "took":
                    since[queue] = event["at_ms"]
                else:
                    end(queue, event["at_ms"])
        for queue in list(since):
            end(queue, until_ms)
        return times


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
