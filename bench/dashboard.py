"""What the dashboard's pages take at 1,000 groups and 20,000 queues on our brokers: overview and group, first and while open.

`first` is somebody who comes when nobody was there: brokers are asked, then the page is drawn. `open` is a page of a look that is there
already. `fifty` is fifty pages at once. The goal is a second for each. Servers, ten members and the dashboard share one process and one
loop here, so brokers and pages slow each other down more than they do in two. The note has the time on the wall, which is that of a
machine that has nothing else to do, and the CPU time of all of them together.
"""

import asyncio
import tempfile
import time
from pathlib import Path

import httpx

import trimtab
from bench.report import Row
from tests.unit.cli.large import WIDE, Size, large_cluster
from trimtab.dashboard.serving import DashboardPlan, running
from trimtab.dashboard.tokens import Role

RUNS = 5
PAGES = (
    ("overview", "/"),
    ("group of all queues", f"/group?name={WIDE}"),
    ("group", "/group?name=group-0001"),
)
PAGES_AT_ONCE = 50
GOAL_S = 1.0


def rows() -> list[Row]:
    with tempfile.TemporaryDirectory() as folder, large_cluster(Path(folder), Size()) as cluster:
        return asyncio.run(_measure(cluster.nameserver))


async def _measure(nameserver: str) -> list[Row]:
    found = []
    async with (
        trimtab.Admin(nameserver=nameserver) as admin,
        running(admin, DashboardPlan(port=0)) as dashboard,
        httpx.AsyncClient(
            base_url=dashboard.url, timeout=60.0, limits=httpx.Limits(max_keepalive_connections=0)
        ) as browser,
    ):
        browser.headers["Authorization"] = f"Bearer {dashboard.tokens[Role.VIEWER]}"
        for name, path in PAGES:
            found.append(await _row(f"{name}: first", browser, path, runs=1))
            found.append(await _row(f"{name}: open", browser, path, runs=RUNS))
            began = time.perf_counter()
            await asyncio.gather(*(browser.get(path) for _ in range(PAGES_AT_ONCE)))
            took_s = time.perf_counter() - began
            found.append(
                Row(f"{name}: fifty", PAGES_AT_ONCE / took_s, note=f"{took_s:.2f} s for all of them")
            )
    return found


async def _row(name: str, browser: httpx.AsyncClient, path: str, *, runs: int) -> Row:
    took = []
    for _ in range(runs):
        began, cpu_began = time.perf_counter(), time.process_time()
        answer = await browser.get(path)
        took.append((time.perf_counter() - began, time.process_time() - cpu_began))
        assert answer.status_code == 200, answer.text
    worst_s, cpu_s = max(took)
    verdict = "" if worst_s < GOAL_S else f", above the goal of {GOAL_S:.0f} s"
    note = f"slowest {worst_s:.2f} s, {cpu_s:.2f} s CPU, {len(answer.content):,} bytes{verdict}"
    return Row(name, 1 / worst_s, note=note)
