"""Ctrl-C anywhere, closed pipes, terminals of every kind, wrong addresses, wrong accounts, wrong names: each one clear line."""

import os
import pty
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.security.accounts import ADMIN, FORGER, SAMPLE_FILE, written
from tests.unit.cli.test_framework import ENDS_S_MAX, PROGRAM, program_env
from tests.unit.cli.verbs import good, run
from trimtab.testing import BlockingCluster, Cluster

BEGUN_S_MAX = 120


@pytest.fixture(scope="module")
def nameserver(cluster: BlockingCluster) -> str:
    good(cluster.nameserver, "topic", "create", "edges", "--queues", "1", "--broker", "broker-a")
    good(cluster.nameserver, "message", "send", "edges", "one")
    return cluster.nameserver


@contextmanager
def program(nameserver: str, *args: str, **more: object) -> Iterator["subprocess.Popen[bytes]"]:
    """A verb in a process of its own, which is ended at the latest here."""
    with subprocess.Popen(
        [*PROGRAM, *args],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=program_env(nameserver),
        **more,  # type: ignore[call-overload]
    ) as running:
        try:
            yield running
        finally:
            if running.poll() is None:
                running.kill()


def is_connected_to(pid: int, port: int) -> bool:
    """Whether a process has a connection to this port: then its loop runs, and Ctrl-C means the loop."""
    inodes = set()
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        try:
            inodes.add(str(entry.readlink()).removeprefix("socket:[").removesuffix("]"))
        except FileNotFoundError:
            continue
    for line in Path(f"/proc/{pid}/net/tcp").read_text().splitlines()[1:]:
        fields = line.split()
        if fields[9] in inodes and int(fields[2].rpartition(":")[2], 16) == port and fields[3] == "01":
            return True
    return False


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc for when it has begun")
@pytest.mark.parametrize(
    "args",
    [
        ("message", "tail", "edges"),
        ("message", "tail", "edges", "-o", "begin", "--json"),
        ("group", "watch", "TOOLS_CONSUMER", "--interval", "0.1"),
        ("bench", "send", "--topic", "edges", "--messages", "100000000", "--rate", "10"),
    ],
    ids=lambda args: " ".join(args[:2]),
)
def test_ctrl_c_ends_it_with_130_and_without_a_word(nameserver: str, args: tuple[str, ...]) -> None:
    port = int(nameserver.rpartition(":")[2])
    with program(nameserver, *args) as running:
        until = time.monotonic() + BEGUN_S_MAX
        while not is_connected_to(running.pid, port):
            assert running.poll() is None, running.stderr and running.stderr.read()
            assert time.monotonic() < until
        running.send_signal(signal.SIGINT)
        _, err = running.communicate(timeout=ENDS_S_MAX)
        assert running.returncode == 130, err
        assert b"Traceback" not in err
        assert err.strip() == b""


def test_ctrl_c_ends_a_send_that_waits_for_the_next_line(nameserver: str) -> None:
    kept_open, fed = os.pipe()
    with program(nameserver, "message", "send", "edges", "--json", stdin=kept_open) as running:
        os.write(fed, b"one\n")
        assert running.stdout is not None
        assert running.stdout.readline().startswith(b"{"), "it was sent, and the next line is waited for"
        running.send_signal(signal.SIGINT)
        _, err = running.communicate(timeout=ENDS_S_MAX)
        assert (running.returncode, err.strip()) == (130, b"")
    os.close(fed)
    os.close(kept_open)


def test_ctrl_c_ends_a_dashboard_well(nameserver: str) -> None:
    with program(nameserver, "dashboard", "--memory", "--port", "0") as running:
        assert running.stdout is not None
        assert running.stdout.readline().startswith(b"dashboard: http://")
        running.send_signal(signal.SIGINT)
        _, err = running.communicate(timeout=ENDS_S_MAX)
        assert (running.returncode, err) == (0, b""), "it runs until Ctrl-C: that is no failure"


def test_ctrl_c_ends_a_long_simulation_whose_bar_says_rate_and_time_left(nameserver: str) -> None:
    master, slave = pty.openpty()
    environment = {**program_env(nameserver), "TERM": "xterm-256color", "COLUMNS": "100"}
    with subprocess.Popen(
        [*PROGRAM, "sim", "swarm", "--seeds", "1000000", "--json"],
        stdout=subprocess.PIPE,
        stderr=slave,
        env=environment,
    ) as running:
        os.close(slave)
        try:
            bar, until = "", time.monotonic() + BEGUN_S_MAX
            while not re.search(r"[0-9.]+/s .*[0-9]+:[0-9]{2}", bar):
                assert time.monotonic() < until, bar
                bar = (bar + os.read(master, 65_536).decode(errors="replace"))[-2_000:]
            running.send_signal(signal.SIGINT)
            while drained(master):
                pass
            assert running.wait(ENDS_S_MAX) == 130
        finally:
            running.kill()
            os.close(master)


def drained(master: int) -> bool:
    """Reads what is written to a terminal; whether the other side is still there."""
    try:
        return bool(os.read(master, 65_536))
    except OSError:  # Linux says so when the other side is closed
        return False


def test_a_reader_that_takes_one_line_of_a_list(nameserver: str) -> None:
    for number in range(5):
        good(nameserver, "topic", "create", f"listed-{number}", "--queues", "1")
    with program(nameserver, "topic", "list", "--all") as running:
        assert running.stdout is not None
        assert running.stderr is not None
        running.stdout.close()  # before anything is written
        assert running.wait(ENDS_S_MAX) == 0
        assert running.stderr.read() == b""


def shown(nameserver: str, *args: str, **env: str) -> str:
    """What a verb prints on a terminal."""
    master, slave = pty.openpty()
    environment = {**program_env(nameserver), "TERM": "xterm-256color"}
    del environment["NO_COLOR"]
    running = subprocess.Popen(
        [*PROGRAM, *args], stdout=slave, stderr=subprocess.DEVNULL, env={**environment, **env}
    )
    os.close(slave)
    chunks = []
    try:
        while chunk := os.read(master, 65_536):
            chunks.append(chunk)
    except OSError:
        pass  # Linux says so when the other side is closed
    os.close(master)
    assert running.wait(ENDS_S_MAX) == 0
    return b"".join(chunks).decode()


def test_no_color_is_heeded_on_a_terminal(nameserver: str) -> None:
    assert "\x1b[1m" in shown(nameserver, "topic", "queues", "edges")
    plain = shown(nameserver, "topic", "queues", "edges", NO_COLOR="1")
    assert not re.search(r"\x1b\[[0-9;]*3[0-9]m", plain), "no colour"
    assert "broker-a" in plain


@pytest.mark.parametrize(
    "args",
    [
        ("topic", "queues", "edges"),
        ("topic", "list"),
        ("group", "list", "--long"),
        ("cluster", "brokers"),
        ("group", "describe", "TOOLS_CONSUMER", "--sample", "0"),
    ],
    ids=" ".join,
)
def test_tables_fit_forty_columns(nameserver: str, args: tuple[str, ...]) -> None:
    lines = re.sub(r"\x1b\[[0-9;]*m", "", shown(nameserver, *args, COLUMNS="40")).splitlines()
    assert lines
    assert max(map(len, lines)) <= 40


def test_without_a_terminal_nothing_is_asked_and_nothing_coloured(nameserver: str) -> None:
    with program(
        nameserver, "topic", "delete", "edges", stdin=subprocess.DEVNULL, start_new_session=True
    ) as running:
        out, err = running.communicate(timeout=ENDS_S_MAX)
        assert (running.returncode, out) == (2, b"")
        assert b"Say --yes" in err
        assert b"\x1b" not in err


def test_a_wrong_name_server_is_one_line_and_exit_code_3() -> None:
    told = run("127.0.0.1:1", "topic", "list", "--timeout", "1")
    assert (told.code, told.out, told.err.count("\n")) == (3, "", 1)
    assert "127.0.0.1:1" in told.err


def test_a_name_server_that_does_not_answer_is_given_up_at_the_deadline() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        told = run(address, "topic", "list", "--timeout", "0.5")
    assert (told.code, told.err.count("\n")) == (3, 1)
    assert address in told.err


@pytest.mark.parametrize("who", [None, FORGER], ids=["nobody", "forger"])
@pytest.mark.parametrize("args", [("topic", "list"), ("group", "list"), ("cluster", "brokers")], ids=" ".join)
def test_wrong_credentials_are_one_line_and_exit_code_1(
    guarded: BlockingCluster, args: tuple[str, ...], who: object
) -> None:
    account = (
        {}
        if who is None
        else {"TRIMTAB_ACCESS_KEY": FORGER.access_key, "TRIMTAB_SECRET_KEY": FORGER.secret_key}
    )
    told = run(guarded.nameserver, *args, "--timeout", "30", **account)
    assert (told.code, told.out, told.err.count("\n")) == (1, "", 1)
    assert FORGER.secret_key not in told.err
    right = {"TRIMTAB_ACCESS_KEY": ADMIN.access_key, "TRIMTAB_SECRET_KEY": ADMIN.secret_key}
    assert run(guarded.nameserver, *args, "--timeout", "30", **right).code == 0


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BlockingCluster]:
    with Cluster(acl=written(tmp_path_factory.mktemp("acl"), SAMPLE_FILE)) as running:
        yield running


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("topic", "describe", "edgse"), "did you mean edges"),
        (("topic", "queues", "edgse"), "did you mean edges"),
        (("group", "describe", "TOOLS_CONSUMR"), "did you mean TOOLS_CONSUMER"),
        (("group", "members", "TOOLS_CONSUMR"), "did you mean TOOLS_CONSUMER"),
        (("group", "lag", "nothing-like-it"), "'nothing-like-it' does not exist"),
        (("message", "consume", "edgse"), "did you mean edges"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_wrong_names_are_one_line_with_what_was_meant(
    nameserver: str, args: tuple[str, ...], said: str
) -> None:
    told = run(nameserver, *args, "--timeout", "30")
    assert (told.code, told.out, told.err.count("\n")) == (1, "", 1), told.err
    assert said in told.err


# --- wrong input ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "args",
    [
        (b"topic", b"describe", b"\xff"),
        (b"message", b"send", b"edges", b"caf\xe9"),
        (b"group", b"lag", b"\xfe\xff"),
    ],
    ids=lambda args: args[0].decode(),
)
def test_an_argument_that_is_no_utf8_is_refused_in_one_line(nameserver: str, args: tuple[bytes, ...]) -> None:
    done = subprocess.run([*PROGRAM, *args], capture_output=True, check=False, env=program_env(nameserver))
    assert (done.returncode, done.stdout, done.stderr.count(b"\n")) == (2, b"", 1), done.stderr
    assert b"is no UTF-8" in done.stderr


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("cluster", "info", "-n", "nohost"), "'nohost' names no name server"),
        (("topic", "create", "bad name"), "may only have letters"),
        (("group", "reset", "TOOLS_CONSUMER", "--to", "0001-01-01T00:00"), "is no place"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_what_is_asked_wrongly_is_one_line_and_exit_code_2(
    nameserver: str, args: tuple[str, ...], said: str
) -> None:
    told = run(nameserver, *args)
    assert (told.code, told.out, told.err.count("\n")) == (2, "", 1), told.err
    assert said in told.err


@pytest.mark.parametrize("amount", ["nan", "inf", "-inf", "1e300"])
def test_a_timeout_that_is_no_amount_is_refused(nameserver: str, amount: str) -> None:
    told = run(nameserver, "topic", "list", "--timeout", amount)
    assert told.code == 2
    assert "--timeout" in told.err


def test_a_refusal_is_no_failure_of_the_server(nameserver: str) -> None:
    told = run(nameserver, "topic", "create", "TBW102", "--timeout", "30")
    assert told.code == 1
    assert "conflict with system topic" in told.err
    assert "log" not in told.err


# --- completion ---------------------------------------------------------------------------------------------------


def completed(*words: str) -> list[str]:
    """What bash would offer for the last word, by the script that we tell people to load."""
    done = subprocess.run(
        PROGRAM,
        capture_output=True, text=True, check=True,
        env={
            **program_env("h:1"), "_TRIMTAB_COMPLETE": "bash_complete",
            "COMP_WORDS": " ".join(("trimtab", *words)), "COMP_CWORD": str(len(words)),
        },
    )  # fmt: skip
    return [line.partition(",")[2] for line in done.stdout.splitlines()]


@pytest.mark.parametrize("kind", ["bash", "zsh", "fish"])
def test_every_shell_gets_its_script(kind: str) -> None:
    if kind == "bash":
        assert subprocess.run(["bash", "--version"], capture_output=True, check=True).returncode == 0
    env = {**program_env("h:1"), "_TRIMTAB_COMPLETE": f"{kind}_source"}
    done = subprocess.run(PROGRAM, capture_output=True, text=True, check=True, env=env)
    assert f"_TRIMTAB_COMPLETE={kind}_complete" in done.stdout
    if kind == "bash":
        assert subprocess.run(["bash", "-n"], input=done.stdout, text=True, check=True).returncode == 0


def test_verbs_and_options_are_completed() -> None:
    assert completed("gro") == ["group"]
    assert completed("group", "de") == ["delete", "describe"]
    assert "--dry-run" in completed("group", "reset", "--d")
    assert completed("group", "simulate", "g", "--mode", "") == ["leased", "classic"]
