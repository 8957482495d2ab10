"""A member of a leased group in a process of its own, to be killed and stopped: `python -m tests.leased_member NAMESERVER GROUP TOPIC`.

It writes one line of JSON for each thing that happens, with the machine's monotonic time in milliseconds, which is the same for all processes.
"""

import asyncio
import json
import subprocess
import sys
import threading
import time
from types import TracebackType
from typing import Any, Self

from trimtab import PushConsumer, Received
from trimtab.model import MessageQueue

HANDLER_S = 0.02


def _say(what: str, **more: Any) -> None:
    line = json.dumps({"at_ms": time.monotonic_ns() // 1_000_000, "what": what, **more})
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


async def main(nameserver: str, group: str, topic: str) -> None:
    def told(what: str) -> Any:
        def tell(queues: tuple[MessageQueue, ...]) -> None:
            _say(
                what,
                queues=[f"{queue.broker_name}:{queue.queue_id}" for queue in queues if queue.topic == topic],
            )

        return tell

    async def handle(message: Received) -> None:
        _say("got", body=message.body.decode())
        await asyncio.sleep(HANDLER_S)
        _say("done", body=message.body.decode())

    async with PushConsumer(
        group, subscribe={topic: "*"}, handler=handle, nameserver=nameserver, start="first", mode="leased",
        on_assigned=told("took"), on_revoked=told("left"), on_lost=told("lost"),
    ):  # fmt: skip
        await asyncio.to_thread(sys.stdin.read)


class MemberProcess:
    """One of them, seen from the test."""

    def __init__(self, nameserver: str, group: str, topic: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.leased_member", nameserver, group, topic],
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
            if pipe is not None:
                pipe.close()

    def bodies(self, what: str) -> list[str]:
        return [event["body"] for event in list(self.events) if event["what"] == what]

    def queues(self) -> set[str]:
        """What it holds, by its own word."""
        held: set[str] = set()
        for event in list(self.events):
            if event["what"] == "took":
                held.update(event["queues"])
            elif event["what"] in ("left", "lost"):
                held.difference_update(event["queues"])
        return held


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
