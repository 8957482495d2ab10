"""A consumer in a process of its own, for the demo to start and to kill: one line of JSON for each thing that happens.

It leaves the group in good order when its standard input ends, so it never outlives the demo.
"""

import asyncio
import json
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from trimtab.client.received import Received
    from trimtab.model import MessageQueue

CONCURRENCY = 64


async def be_a_member(
    nameserver: str, group: str, topic: str, mode: str, handler_ms: int, trace: str
) -> None:
    """Until the end of standard input."""
    from trimtab.client.push import PushConsumer
    from trimtab.client.push_settings import Consuming
    from trimtab.io.clock import SystemClock

    clock = SystemClock()

    def say(what: str, **more: Any) -> None:
        sys.stdout.write(json.dumps({"at_ms": clock.monotonic_ms(), "what": what, **more}) + "\n")
        sys.stdout.flush()

    def told(what: str) -> "Callable[[tuple[MessageQueue, ...]], None]":
        def tell(queues: "tuple[MessageQueue, ...]") -> None:
            mine = [(queue.broker_name, queue.queue_id) for queue in queues if queue.topic == topic]
            if mine:
                say(what, queues=mine)

        return tell

    async def handle(message: "Received") -> None:
        say("got", number=int(message.body))
        await asyncio.sleep(handler_ms / 1000)

    async with PushConsumer(
        group,
        subscribe={topic: "*"},
        handler=handle,
        nameserver=nameserver,
        start="first",
        mode=mode,
        on_assigned=told("took"),
        on_revoked=told("left"),
        on_lost=told("left"),
        consuming=Consuming(concurrency=CONCURRENCY, trace=trace == "trace"),
    ):
        await asyncio.to_thread(sys.stdin.read)


def main() -> None:
    """`python -m trimtab.cli.demo_member NAMESERVER GROUP TOPIC MODE HANDLER_MS trace|no-trace`."""
    from trimtab.io.loops import new_event_loop

    nameserver, group, topic, mode, handler_ms, trace = sys.argv[1:]
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        runner.run(be_a_member(nameserver, group, topic, mode, int(handler_ms), trace))


if __name__ == "__main__":
    main()
