"""`trimtab demo`: a cluster in this process, and messages through it and back, with plain wire values."""

import asyncio
from collections import Counter
from itertools import pairwise
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import track
from rich.table import Table

if TYPE_CHECKING:
    from trimtab.io.connection import PeerConnection
    from trimtab.testing import AsyncCluster
    from trimtab.wire.commands import Command
    from trimtab.wire.messages import StoredMessage

TOPIC = "orders"
TAGS = ("eu", "us", "asia")
QUEUES = 4
ANSWER_S_MAX = 10.0
IN_FLIGHT_MAX = 100


def run_demo(count: int) -> None:
    """Ends by itself."""
    from trimtab.io.loops import new_event_loop

    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        runner.run(_demo(count, Console(highlight=False, soft_wrap=True)))


async def _demo(count: int, console: Console) -> None:
    from trimtab.io.clock import SystemClock
    from trimtab.io.connection import PeerConnection
    from trimtab.testing import Cluster

    clock = SystemClock()
    begun_ms = clock.monotonic_ms()
    async with Cluster(brokers=2) as cluster:
        console.print(f"[bold]A cluster[/bold] in this process, in {clock.monotonic_ms() - begun_ms} ms:")
        console.print(f"  nameserver {cluster.nameserver}, {_brokers(cluster)}")
        connections = {name: await PeerConnection.open(address) for name, address in cluster.brokers.items()}
        begun_ms = clock.monotonic_ms()
        await _send_all(list(connections.values()), count, begun_wall_ms=clock.wall_ms(), console=console)
        sent_ms = clock.monotonic_ms() - begun_ms
        begun_ms = clock.monotonic_ms()
        pulled = {name: await _pull_all(connection) for name, connection in connections.items()}
        console.print(
            f"[bold]{count:,} messages[/bold] sent in {sent_ms} ms, pulled back in {clock.monotonic_ms() - begun_ms} ms:"
        )
        console.print(_table(pulled))
        for connection in connections.values():
            connection.close()
    _judge(pulled, count)
    console.print("All came back, each once, and in every queue in the order of sending.")
    console.print("The same servers, kept on disk and for clients in any language: [bold]trimtab up[/bold]")


def _brokers(cluster: "AsyncCluster") -> str:
    return ", ".join(f"{name} {address}" for name, address in cluster.brokers.items())


async def _send_all(
    connections: "list[PeerConnection]", count: int, *, begun_wall_ms: int, console: Console
) -> None:
    """Round robin over all queues of all brokers, some at a time."""
    from trimtab.wire.codes import RequestCode
    from trimtab.wire.headers.send import SendMessageV2
    from trimtab.wire.hot import encode_send_request

    waiting: list[asyncio.Future[Command]] = []
    for number in track(range(count), description="sending", console=console, transient=True):
        header = SendMessageV2(
            producer_group="demo",
            topic=TOPIC,
            default_topic="TBW102",
            default_topic_queue_nums=QUEUES,
            queue_id=number // len(connections) % QUEUES,
            sys_flag=0,
            born_timestamp=begun_wall_ms,
            flag=0,
            properties=f"TAGS\x01{TAGS[number % len(TAGS)]}\x02KEYS\x01o-{number}",
        )
        connection = connections[number % len(connections)]
        opaque = connection.next_opaque()
        frame = encode_send_request(
            RequestCode.SEND_MESSAGE_V2, header, opaque=opaque, body=b"order %d" % number
        )
        waiting.append(connection.ask_soon(opaque, frame))
        if len(waiting) == IN_FLIGHT_MAX or number == count - 1:
            await _all_well(waiting)
            waiting = []


async def _all_well(waiting: "list[asyncio.Future[Command]]") -> None:
    from trimtab.errors import error_from_response

    async with asyncio.timeout(ANSWER_S_MAX):
        for answer in await asyncio.gather(*waiting):
            if answer.code:
                raise error_from_response(
                    answer.code, asked=f"a send to {TOPIC}", peer="the broker", remark=answer.remark or ""
                )


async def _pull_all(connection: "PeerConnection") -> "list[StoredMessage]":
    from trimtab.wire.messages import decode_messages

    pulled: list[StoredMessage] = []
    for queue_id in range(QUEUES):
        offset = 0
        while messages := decode_messages((await _pull(connection, queue_id, offset)).body):
            pulled += messages
            offset = messages[-1].queue_offset + 1
    return pulled


async def _pull(connection: "PeerConnection", queue_id: int, offset: int) -> "Command":
    from trimtab.wire.codes import RequestCode
    from trimtab.wire.commands import Command
    from trimtab.wire.headers.base import encode_ext
    from trimtab.wire.headers.consume import PullMessage

    header = PullMessage(
        consumer_group="demo",
        topic=TOPIC,
        queue_id=queue_id,
        queue_offset=offset,
        max_msg_nums=1_000,
        max_msg_bytes=1 << 20,
        sys_flag=4,  # it brings its subscription along
        commit_offset=0,
        suspend_timeout_millis=0,
        subscription="*",
        sub_version=0,
    )
    command = Command(code=RequestCode.PULL_MESSAGE, opaque=connection.next_opaque(), ext=encode_ext(header))
    return await connection.ask(command, timeout_s=ANSWER_S_MAX)


def _judge(pulled: "dict[str, list[StoredMessage]]", count: int) -> None:
    from trimtab.errors import TrimtabError

    numbers = {
        name: [int(message.body.split()[1]) for message in messages] for name, messages in pulled.items()
    }
    is_whole = sorted(number for some in numbers.values() for number in some) == list(range(count))
    is_ordered = all(
        first < second or one.queue_id < other.queue_id
        for name, messages in pulled.items()
        for (first, one), (second, other) in pairwise(zip(numbers[name], messages, strict=True))
    )
    if not (is_whole and is_ordered):
        raise TrimtabError(
            "what came back is not what was sent; please report this with the output of trimtab doctor"
        )


def _table(pulled: "dict[str, list[StoredMessage]]") -> Table:
    """Queues down, tags across."""
    table = Table("queue", *TAGS, "all", box=None, padding=(0, 2))
    for name, messages in pulled.items():
        for queue_id in range(QUEUES):
            tags = Counter(message.tag or "" for message in messages if message.queue_id == queue_id)
            counts = [tags[tag] for tag in TAGS] + [tags.total()]
            table.add_row(f"{TOPIC}@{name}:{queue_id}", *(f"{number:,}" for number in counts))
    return table
