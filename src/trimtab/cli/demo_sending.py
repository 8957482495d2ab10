"""The demo's first part: one broker becomes slow, and the shares of messages shift, or do not."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.table import Table

    from trimtab.cli.demo import DemoPlan
    from trimtab.cli.demo_screen import Screen
    from trimtab.client.producer import Producer
    from trimtab.testing import AsyncCluster

TOPIC = "payments"
SLOW_BROKER = "broker-b"
STALL_S = 0.15
PER_SECOND = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class SendingRow:
    """What came of some seconds of sending."""

    policy: str
    is_slow: bool
    when: str
    messages: int
    shares: dict[str, int]
    mean_ms: float
    p99_ms: float
    errors: int

    def share(self, broker: str) -> float:
        """The part of the messages that went to a broker."""
        return self.shares.get(broker, 0) / max(1, sum(self.shares.values()))


async def show_sending(cluster: "AsyncCluster", plan: "DemoPlan", screen: "Screen") -> list[SendingRow]:
    """Round robin and the adaptive policy, with the same slow broker."""
    from trimtab.client.admin import Admin

    screen.title("1. A producer meets a slow broker")
    screen.say(
        f"{PER_SECOND} messages a second go to two brokers. Then {SLOW_BROKER} stops for {STALL_S * 1000:.0f} ms again and again, as"
        " one with a bad disk does."
    )
    async with Admin(nameserver=cluster.nameserver) as admin:
        await admin.create_topic(TOPIC, queues=4)
    rows: list[SendingRow] = []
    async with screen.moving(lambda: _table(rows)):
        for policy in ("round-robin", "adaptive"):
            await _with_policy(cluster, plan, policy, rows.append)
    screen.say(_table(rows))
    return rows


async def _with_policy(
    cluster: "AsyncCluster", plan: "DemoPlan", policy: str, done: Callable[[SendingRow], None]
) -> None:
    from trimtab.client.producer import Producer
    from trimtab.settings import Sending

    async with Producer("demo", nameserver=cluster.nameserver, sending=Sending(policy=policy)) as producer:
        done(await _row(producer, plan, policy, "both are well"))
        async with _slow(cluster):
            done(await _row(producer, plan, policy, f"{SLOW_BROKER} slow", is_slow=True))


async def _row(
    producer: "Producer", plan: "DemoPlan", policy: str, when: str, *, is_slow: bool = False
) -> SendingRow:
    from trimtab.client.send_load import SendLoad, run_send_load

    load = SendLoad(topic=TOPIC, messages=int(plan.send_s * PER_SECOND), per_second=PER_SECOND)
    report = await run_send_load(producer, load)
    return SendingRow(
        policy=policy,
        is_slow=is_slow,
        when=when,
        messages=report.messages,
        shares=report.shares,
        mean_ms=report.mean_ms,
        p99_ms=report.p99_ms,
        errors=report.errors,
    )


@asynccontextmanager
async def _slow(cluster: "AsyncCluster") -> AsyncIterator[None]:
    async def stall() -> None:
        while True:
            cluster.pause(SLOW_BROKER)
            await asyncio.sleep(STALL_S)
            cluster.resume(SLOW_BROKER)
            await asyncio.sleep(0)

    stalling = asyncio.get_running_loop().create_task(stall())
    try:
        yield
    finally:
        stalling.cancel()
        await asyncio.gather(stalling, return_exceptions=True)
        cluster.resume(SLOW_BROKER)


def _table(rows: list[SendingRow]) -> "Table":
    from rich.table import Table

    table = Table(
        "policy", "when", "broker-a", "broker-b", "mean", "99% in", "errors", box=None, padding=(0, 0, 0, 2)
    )
    for column in table.columns[2:]:
        column.justify = "right"
    for row in rows:
        table.add_row(
            row.policy,
            row.when,
            f"{row.share('broker-a'):.1%}",
            f"{row.share('broker-b'):.1%}",
            f"{row.mean_ms:.1f} ms",
            f"{row.p99_ms:.1f} ms",
            str(row.errors),
            style="yellow" if row.is_slow else None,
        )
    return table
