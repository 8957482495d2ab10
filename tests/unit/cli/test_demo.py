"""`trimtab demo`: what it counts, what it shows, and all of it in small."""

import asyncio
import io
import json
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import httpx
import pytest

from trimtab.cli.demo import DemoPlan, program_name, run_demo
from trimtab.cli.demo_counts import Ledger, fewest_moves
from trimtab.cli.demo_screen import Screen
from trimtab.model import MessageQueue

SMALL = DemoPlan(send_s=0.2, pause_s=0.2, members=2, per_second=50, handler_ms=5, queues=2, with_spark=False)


def ledger_of(*deliveries: tuple[int, str, int]) -> Ledger:
    ledger = Ledger("t")
    for at_ms, member, number in deliveries:
        ledger.hear(member, {"what": "got", "number": number, "at_ms": at_ms})
    return ledger


def test_a_second_delivery_counts_and_a_first_one_does_not() -> None:
    ledger = ledger_of((1, "a", 1), (2, "b", 2), (3, "b", 1), (4, "b", 1))
    assert ledger.twice() == (2, 0)
    assert ledger.total() == 4


def test_what_a_dead_member_had_comes_again_because_of_the_crash() -> None:
    late = (1, "dead", 1), (1, "dead", 2)
    ledger = ledger_of((2, "dead", 4), (3, "b", 4), (3, "a", 3), (11, "b", 1), (12, "b", 3), *late)
    ledger.crashed("dead", 10)
    assert ledger.twice() == (2, 1), "4 moved before the crash, 3 was never with the dead one"


def test_a_queue_is_held_from_the_word_of_one_member_to_its_next() -> None:
    ledger = Ledger("t")
    ledger.hear("a", {"what": "took", "queues": [["x", 0], ["x", 1]], "at_ms": 10})
    assert not ledger.is_settled(2, {"a", "b"}), "one member has nothing"
    ledger.hear("b", {"what": "took", "queues": [["x", 1]], "at_ms": 20})
    assert not ledger.is_settled(2, {"a", "b"}), "a queue has two holders"
    ledger.hear("a", {"what": "left", "queues": [["x", 1]], "at_ms": 30})
    assert ledger.is_settled(2, {"a", "b"})
    assert ledger.holders() == {MessageQueue("t", "x", 0): ["a"], MessageQueue("t", "x", 1): ["b"]}
    ledger.gone("a", 40)
    assert [(held.member, held.from_ms, held.until_ms) for held in ledger.held] == [
        ("a", 10, 30),
        ("a", 10, 40),
    ]


def test_the_fewest_moves_are_those_that_somebody_gained() -> None:
    queues = [MessageQueue("t", "x", number) for number in range(4)]
    before = dict(zip(queues, "aabb", strict=True))
    assert fewest_moves(before, dict(zip(queues, "abcb", strict=True))) == 1
    assert fewest_moves(before, dict(zip(queues, "bbaa", strict=True))) == 0
    assert fewest_moves(before, dict(zip(queues, "bbbb", strict=True))) == 2


def test_the_whole_demo_in_small(tmp_path: Path) -> None:
    shown = io.StringIO()
    run_demo(SMALL, tmp_path / "new", Screen(shown))
    figures = json.loads((tmp_path / "new" / "demo.json").read_text())
    classic, leased = figures["groups"]
    assert (classic["mode"], leased["mode"]) == ("classic", "leased")
    assert classic["lost"] == leased["lost"] == 0
    assert classic["sent"] > 0
    assert leased["sent"] > 0
    assert leased["twice_planned"] == 0, "a planned change of a leased group delivers nothing twice"
    assert [row["policy"] for row in figures["sending"]] == ["round-robin"] * 2 + ["adaptive"] * 2
    text = shown.getvalue()
    assert "\x1b" not in text, "no terminal, no colours"
    assert "Three commands to try next" in text
    rows = [line for line in text.splitlines() if line.startswith("  ")]
    assert len(rows) >= 4 + 2 * 3 + 8 + 3, "sending, changes, figures, commands"
    assert max(map(len, rows)) <= 80, "a row stays a row in a usual window"
    assert "Three commands to try next" in (tmp_path / "new" / "demo.html").read_text()


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_table_that_moves_is_drawn_where_its_figures_change() -> None:
    threads: list[int] = []
    enough = asyncio.Event()

    def draw() -> str:
        threads.append(threading.get_ident())
        if len(threads) == 3:
            enough.set()
        return f"frame {len(threads)}"

    async def run() -> None:
        async with Screen(Terminal()).moving(draw):
            await enough.wait()

    asyncio.run(run())
    assert set(threads) == {threading.get_ident()}


def test_the_commands_at_the_end_work_as_they_are_typed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / ".venv" / "bin" / "trimtab"
    program.parent.mkdir(parents=True)
    program.touch(0o755)
    monkeypatch.chdir(tmp_path)
    assert program_name(str(program), path=str(program.parent)) == "trimtab"
    assert program_name(str(program), path="/nowhere") == ".venv/bin/trimtab"
    assert program_name(".venv/bin/trimtab", path="/nowhere") == ".venv/bin/trimtab"
    assert program_name("/usr/lib/python3/site-packages/trimtab/__main__.py") == "python -m trimtab"


def test_a_demo_that_is_kept_has_a_dashboard_until_ctrl_c(tmp_path: Path) -> None:
    program = [sys.executable, "-m", "trimtab", "demo", "--fast", "--keep", "--output", str(tmp_path)]
    with subprocess.Popen(program, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        url = token = ""
        while not token:
            line = process.stdout.readline()
            assert line, process.wait()
            url = line.partition("dashboard: ")[2].strip() or url
            token = line.partition("viewer token: ")[2].strip()
        answer = httpx.get(f"{url}api/v1/overview", headers={"Authorization": f"Bearer {token}"}, timeout=60)
        assert "billing-leased" in {row["group"] for row in answer.json()["groups"]}
        process.send_signal(signal.SIGINT)
        process.stdout.read()
        assert process.wait() in (0, 130)


def children_of(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def is_running(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"  # dead, and nobody has asked yet how it ended


def test_ctrl_c_leaves_no_process_behind(tmp_path: Path) -> None:
    program = [sys.executable, "-m", "trimtab", "demo", "--fast", "--output", str(tmp_path)]
    with subprocess.Popen(program, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        while process.stdout.readline().strip() != "classic":
            assert process.poll() is None
        while not (children := children_of(process.pid)):
            assert process.poll() is None
        process.send_signal(signal.SIGINT)
        process.stdout.read()
        assert process.wait() == 130
    while any(map(is_running, children)):
        time.sleep(0.05)
