"""`trimtab up`, `names`, `broker` and `store verify` as real processes."""

import asyncio
import contextlib
import errno
import io
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.peers import Peer
from tests.unit.cli.verbs import run
from trimtab.broker.store import Store, StoreSettings
from trimtab.cli.ready_files import ReadyFileError
from trimtab.cli.serving import Announcement, Keeping, Outside, Storage
from trimtab.io.disk import RealDisk
from trimtab.wire.bodies.route import ClusterInfo
from trimtab.wire.codes import RequestCode
from trimtab.wire.fastjson import decode_body

WAIT_S_MAX = 60.0
FREE_PORTS = ("--nameserver-port", "0", "--broker-port", "0")


class Process:
    """A `trimtab` that runs until it is told to stop."""

    def __init__(self, *arguments: str | Path, cwd: Path, env: dict[str, str] | None = None) -> None:
        self.output = cwd / f"out-{time.monotonic_ns()}.txt"
        self.errors = self.output.with_suffix(".err")
        with self.output.open("wb") as output, self.errors.open("wb") as errors:
            self.process = subprocess.Popen(
                [sys.executable, "-W", "error", "-m", "trimtab", *map(str, arguments)],
                stdout=output,
                stderr=errors,
                cwd=cwd,
                env={**os.environ, "XDG_DATA_HOME": str(cwd / "share"), **(env or {})},
            )

    def wait_until(self, condition: Callable[[], Any]) -> Any:
        deadline = time.monotonic() + WAIT_S_MAX
        while not (outcome := condition()):
            assert self.process.poll() is None, self.errors.read_text()
            assert time.monotonic() < deadline, self.output.read_text() + self.errors.read_text()
            time.sleep(0.01)
        return outcome

    def line(self, beginning: str) -> str:
        """The first whole line that begins so."""

        def found() -> str | None:
            lines = [
                line for line in self.output.read_text().splitlines(keepends=True) if line.endswith("\n")
            ]
            return next((line.strip() for line in lines if line.startswith(beginning)), None)

        return str(self.wait_until(found))

    def facts(self) -> dict[str, Any]:
        """What `--json` printed."""
        loaded: dict[str, Any] = json.loads(self.line("{"))
        return loaded

    def stop(self, number: int = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        return self.process.wait(WAIT_S_MAX)

    def end(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()


Start = Callable[..., Process]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    running: list[Process] = []

    def start_one(*arguments: str | Path, env: dict[str, str] | None = None) -> Process:
        running.append(Process(*arguments, cwd=tmp_path, env=env))
        return running[-1]

    yield start_one
    for process in running:
        process.end()


def run_trimtab(*arguments: str | Path, cwd: Path) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-W", "error", "-m", "trimtab", *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        cwd=cwd,
        timeout=WAIT_S_MAX,
        env={**os.environ, "XDG_DATA_HOME": str(cwd / "share")},
    )


def registered(nameserver: str) -> dict[str, str]:
    async def ask() -> dict[str, str]:
        async with await Peer.open(nameserver) as peer:
            answer = await peer.ask(RequestCode.GET_BROKER_CLUSTER_INFO)
        table = decode_body(ClusterInfo, answer.body).broker_addr_table
        return {name: data.broker_addrs[0] for name, data in table.items()}

    return asyncio.run(ask())


def send(address: str, *bodies: bytes) -> None:
    async def send_all() -> None:
        async with await Peer.open(address) as peer:
            for body in bodies:
                await peer.send("orders", 0, body)

    asyncio.run(send_all())


def read(address: str) -> list[bytes]:
    async def read_all() -> list[bytes]:
        async with await Peer.open(address) as peer:
            return [message.body for message in await peer.read_all("orders", 0)]

    return asyncio.run(read_all())


def free_broker_port() -> int:
    """A port P such that P, P-2, P+10 and P+8 are free just now."""
    for port in range(21_911, 31_911, 20):
        with contextlib.ExitStack() as stack:
            try:
                for distance in (0, -2, 10, 8):
                    probe = stack.enter_context(socket.socket())
                    probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                    probe.bind(("127.0.0.1", port + distance))
            except OSError:
                continue
        return port
    raise AssertionError("no free ports")


# --- up


def test_it_says_when_it_is_ready_and_stops_in_good_order(start: Start, tmp_path: Path) -> None:
    ready_file = tmp_path / "ready.json"
    ready_file.write_text("left over from another run")
    process = start("up", "--brokers", "2", "--data", "data", "--ready-file", "ready.json", *FREE_PORTS)
    ready = process.line("ready: ")
    process.line("clients: export NAMESRV_ADDR=127.0.0.1:")
    facts = process.wait_until(lambda: ready_file.exists() and json.loads(ready_file.read_text()))
    assert ready == "ready: " + ", ".join(
        f"{name} {address}"
        for name, address in {"nameserver": facts["nameserver"], **facts["brokers"]}.items()
    )
    assert facts["pid"] == process.process.pid
    assert facts["data"] == str(tmp_path / "data")
    assert process.line("kept in: ") == f"kept in: {tmp_path / 'data'}"
    assert list(facts["brokers"]) == ["broker-a", "broker-b"]
    assert registered(facts["nameserver"]) == facts["brokers"]
    send(facts["brokers"]["broker-b"], b"one", b"two")
    assert process.stop() == 0
    assert not ready_file.exists()
    assert process.errors.read_text() == ""

    again = start("up", "--brokers", "2", "--data", "data", "--json", *FREE_PORTS)
    assert read(again.facts()["brokers"]["broker-b"]) == [b"one", b"two"]
    assert again.stop(signal.SIGINT) == 0


def test_a_client_that_waits_does_not_hold_up_the_stop(start: Start) -> None:
    process = start("up", "--memory", "--json", *FREE_PORTS)
    address = process.facts()["brokers"]["broker-a"]

    async def wait_while_it_stops() -> int:
        async with await Peer.open(address) as peer:
            await peer.send("orders", 0, b"x")
            held = asyncio.create_task(peer.pull("orders", 0, 1, waits_ms=600_000))
            await peer.ask(RequestCode.GET_MAX_OFFSET)  # when this is answered, the pull is held
            process.process.send_signal(signal.SIGTERM)
            return (await held).code

    assert asyncio.run(wait_while_it_stops())
    assert process.process.wait(WAIT_S_MAX) == 0


def test_memory_leaves_nothing_behind(start: Start, tmp_path: Path) -> None:
    process = start("up", "--memory", *FREE_PORTS)
    process.line("kept in memory")
    process.line("ready: ")
    assert process.stop() == 0
    assert sorted(path.suffix for path in tmp_path.iterdir()) == [".err", ".txt"]


def test_the_default_folder_is_in_the_users_data_folder(start: Start, tmp_path: Path) -> None:
    process = start("up", *FREE_PORTS)
    assert process.line("kept in: ") == f"kept in: {tmp_path / 'share' / 'trimtab'}"
    process.line("ready: ")
    assert process.stop() == 0
    assert (tmp_path / "share" / "trimtab" / "broker-a" / "LAYOUT").exists()


def test_a_second_start_in_the_same_folder_is_told_in_one_sentence(start: Start, tmp_path: Path) -> None:
    process = start("up", "--data", "data", "--ready-file", "ready.json", *FREE_PORTS)
    process.line("ready: ")
    second = run_trimtab("up", "--data", "data", *FREE_PORTS, cwd=tmp_path)
    assert (second.returncode, second.stdout) == (1, "")
    assert second.stderr == (
        f"trimtab: {tmp_path / 'data'} is in use by another process; stop it or name another directory\n"
    )
    assert process.stop() == 0


def test_brokers_take_every_tenth_port_and_the_one_two_below(start: Start) -> None:
    port = free_broker_port()
    process = start(
        "up", "--brokers", "2", "--memory", "--json", "--nameserver-port", "0", "--broker-port", str(port)
    )
    facts = process.facts()
    assert facts["brokers"] == {"broker-a": f"127.0.0.1:{port}", "broker-b": f"127.0.0.1:{port + 10}"}
    send(f"127.0.0.1:{port - 2}", b"by the old way")
    assert read(f"127.0.0.1:{port}") == [b"by the old way"]
    assert read(f"127.0.0.1:{port - 2}") == [b"by the old way"]
    send(f"127.0.0.1:{port + 8}", b"x")
    assert process.stop() == 0


def test_a_port_in_use_is_told_in_one_sentence(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        for option in ("--nameserver-port", "--broker-port"):
            done = run_trimtab("up", "--data", "data", *FREE_PORTS, option, str(port), cwd=tmp_path)
            assert done.returncode == 1
            assert "in use" in done.stderr
            assert done.stderr.count("\n") == 1
            assert "ready" not in done.stdout


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("--host", "0.0.0.0", "--advertise", "10.0.0.5"), "--insecure-open"),
        (("--host", "192.0.2.1"), "--insecure-open"),
        (("--host", "0.0.0.0", "--insecure-open"), "--advertise"),
        (("--host", "example.org", "--insecure-open"), "no IP address"),
        (("--data", "x", "--memory"), "contradict"),
        (("--tls-cert", __file__), "belong together"),
        (("--brokers", "26", "--broker-port", "65535"), "lower"),
        (("--brokers", "27"), "27"),
        (("--acl", "no-such-file"), "no-such-file"),
        (("--ready-file", "no-such-folder/ready.json"), "no-such-folder"),
        (("--retention-hours", "nan"), "--retention-hours"),
        (("--retention-gib", "inf"), "--retention-gib"),
        (("--retention-hours", "1e300"), "--retention-hours"),
        (("--broker-port", "1"), "3 or more"),
        (("--broker-port", "2"), "3 or more"),
    ],
)
def test_misuse_is_refused_before_anything_starts(
    arguments: tuple[str, ...], sentence: str, tmp_path: Path
) -> None:
    done = run_trimtab("up", "--data", "data", *FREE_PORTS, *arguments, cwd=tmp_path)
    assert done.returncode == 2, done.stderr
    assert sentence in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "data").exists()


def test_insecure_open_opens(start: Start) -> None:
    process = start(
        "up",
        "--memory",
        "--json",
        "--host",
        "0.0.0.0",
        "--advertise",
        "127.0.0.1",
        "--insecure-open",
        *FREE_PORTS,
    )
    facts = process.facts()
    assert facts["nameserver"].startswith("127.0.0.1:")
    assert registered(facts["nameserver"]) == facts["brokers"]
    assert process.stop() == 0


def test_brokers_that_are_left_out_are_mentioned(start: Start) -> None:
    process = start("up", "--brokers", "2", "--data", "data", *FREE_PORTS)
    process.line("ready: ")
    assert process.stop() == 0
    process = start("up", "--data", "data", *FREE_PORTS)
    process.line("ready: ")
    assert process.stop() == 0
    assert "broker-b" in process.errors.read_text()


def test_a_folder_that_cannot_be_made_is_told_in_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    done = run_trimtab("up", "--data", "file/below", *FREE_PORTS, cwd=tmp_path)
    assert done.returncode == 1
    assert "cannot be used" in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_second_server_does_not_touch_the_ready_file_of_the_first_until_it_is_ready_itself(
    start: Start, tmp_path: Path
) -> None:
    ready_file = tmp_path / "ready.json"

    def names(process: Process) -> Callable[[], bool]:
        return lambda: json.loads(ready_file.read_text())["pid"] == process.process.pid

    first = start("up", "--memory", "--ready-file", "ready.json", *FREE_PORTS)
    first.line("ready: ")
    port = json.loads(ready_file.read_text())["nameserver"].rpartition(":")[2]
    failed = run_trimtab("names", "--memory", "--port", port, "--ready-file", "ready.json", cwd=tmp_path)
    assert failed.returncode == 1
    assert names(first)()
    second = start("names", "--memory", "--port", "0", "--ready-file", "ready.json")
    second.line("ready: ")
    assert names(second)()
    assert first.stop() == 0
    assert names(second)(), "it is not the first one's any more"
    assert second.stop() == 0
    assert not ready_file.exists()


def test_a_ready_file_of_a_process_that_is_gone_does_not_outlast_the_next_start(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        process.wait()
    (tmp_path / "ready.json").write_text(json.dumps({"pid": process.pid}))
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        done = run_trimtab("names", "--memory", "--port", port, "--ready-file", "ready.json", cwd=tmp_path)
    assert done.returncode == 1
    assert not (tmp_path / "ready.json").exists()


def test_a_ready_file_that_cannot_be_written_is_told_before_anybody_hears_ready(tmp_path: Path) -> None:
    (tmp_path / "ready.json").mkdir()
    outside = Outside(
        host="127.0.0.1", advertise=None, insecure_open=False, acl=None, acl_in_clear=False,
        tls_cert=None, tls_key=None, ready_file=tmp_path / "ready.json", as_json=False, verbose=False,
    )  # fmt: skip
    told = io.StringIO()
    with (
        contextlib.redirect_stdout(told),
        pytest.raises(ReadyFileError, match=r"ready\.json cannot be written: .*--ready-file"),
    ):
        Announcement(outside, None).ready("127.0.0.1:1", {}, None)
    assert told.getvalue() == ""
    assert [path.name for path in tmp_path.iterdir()] == ["ready.json"]


# --- the dashboard beside


def test_a_dashboard_whose_port_is_taken_is_told_before_anything_is_ready(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        done = run_trimtab(
            "up", "--memory", "--dashboard", "--dashboard-port", port, *FREE_PORTS, cwd=tmp_path
        )
    assert done.returncode == 2
    assert "ready" not in done.stdout
    assert done.stderr.count("\n") == 1
    assert "--dashboard-port" in done.stderr


def test_a_dashboard_that_is_not_installed_is_told_before_anything_starts(tmp_path: Path) -> None:
    program = "import sys; sys.modules['uvicorn'] = None; from trimtab.cli.main import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", program, "up", "--data", "data", "--dashboard", *FREE_PORTS],
        capture_output=True, text=True, check=False, cwd=tmp_path, timeout=WAIT_S_MAX,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (2, "")
    assert "pip install 'trimtab[dashboard]'" in done.stderr
    assert not (tmp_path / "data").exists()


def test_with_json_the_dashboards_address_and_tokens_are_in_the_one_line(
    start: Start, tmp_path: Path
) -> None:
    process = start(
        "up",
        "--memory",
        "--json",
        "--dashboard",
        "--dashboard-port",
        "0",
        "--ready-file",
        "r.json",
        *FREE_PORTS,
    )
    facts = process.facts()
    assert facts["dashboard"]["url"].startswith("http://127.0.0.1:")
    assert set(facts["dashboard"]["tokens"]) == {"operator", "viewer"}
    kept = json.loads((tmp_path / "r.json").read_text())
    assert kept["dashboard"] == {"url": facts["dashboard"]["url"]}, (
        "tokens are not for everybody who can read"
    )
    assert process.stop() == 0
    assert len(process.output.read_text().splitlines()) == 1


# --- a folder that only can be read


@pytest.fixture
def read_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a store, and from now on nothing can be written: as on a disk that is mounted so."""
    Store.open(RealDisk(tmp_path / "broker-a")).close()
    really_open = os.open

    def only_for_reading(path: Any, flags: int, mode: int = 0o777, **more: Any) -> int:
        if flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
            raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(path))
        return really_open(path, flags, mode, **more)

    monkeypatch.setattr(os, "open", only_for_reading)
    return tmp_path


def test_a_store_that_only_can_be_read_is_verified(read_only: Path) -> None:
    told = run(None, "store", "verify", str(read_only))
    assert (told.code, told.out, told.err) == (0, f"{read_only}/broker-a: fine\n", "")


@pytest.mark.parametrize("verb", [("up",), ("names",), ("broker", "-n", "127.0.0.1:1"), ("store", "rebuild")])
def test_a_folder_that_only_can_be_read_is_told_in_one_sentence(
    read_only: Path, verb: tuple[str, ...]
) -> None:
    folder = read_only if verb == ("up",) else read_only / "broker-a"
    args = (str(folder),) if verb == ("store", "rebuild") else ("--data", str(folder))
    told = run(None, *verb, *args)
    assert (told.code, told.err.count("\n")) == (1, 1)
    assert str(folder) in told.err
    assert "Read-only file system" in told.err
    assert "listen" not in told.err


def test_a_store_whose_files_cannot_be_read_is_not_called_damaged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Store.open(RealDisk(tmp_path)).close()
    really_open = os.open

    def refuse(path: Any, *rest: Any, **more: Any) -> int:
        if Path(path).name == "LAYOUT":
            raise OSError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        return really_open(path, *rest, **more)

    monkeypatch.setattr(os, "open", refuse)
    told = run(None, "store", "verify", str(tmp_path))
    assert (told.code, told.out, told.err.count("\n")) == (3, "", 1)
    assert "cannot be read" in told.err
    assert str(tmp_path) in told.err


# --- accounts and TLS


ACCOUNTS = """\
accounts:
  - accessKey: operator
    secretKey: operator-secret-0123456789
    admin: true
"""


def test_with_accounts_nobody_is_served_unsigned_and_brokers_sign(start: Start, tmp_path: Path) -> None:
    (tmp_path / "accounts.yml").write_text(ACCOUNTS)
    (tmp_path / "accounts.yml").chmod(0o600)
    process = start("up", "--memory", "--json", "--acl", "accounts.yml", *FREE_PORTS)
    facts = process.facts()

    async def code(address: str) -> int:
        async with await Peer.open(address) as peer:
            return (await peer.ask(RequestCode.GET_BROKER_CLUSTER_INFO)).code

    assert asyncio.run(code(facts["nameserver"])) != 0
    assert asyncio.run(code(facts["brokers"]["broker-a"])) != 0
    assert process.stop() == 0
    assert "not registered" not in process.errors.read_text()
    assert "refused" not in process.errors.read_text()


def test_with_tls_the_brokers_reach_their_name_server(start: Start, tmp_path: Path) -> None:
    if shutil.which("openssl") is None:
        pytest.skip("openssl makes the certificate for this test and is not installed")
    command = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=elsewhere"
    subprocess.run(
        [*command.split(), "-keyout", "key.pem", "-out", "cert.pem"],
        check=True,
        capture_output=True,
        cwd=tmp_path,
    )
    process = start(
        "up", "--memory", "--json", "--tls-cert", "cert.pem", "--tls-key", "key.pem", "-v", *FREE_PORTS
    )
    process.facts()
    assert process.stop() == 0
    assert "not registered" not in process.errors.read_text()


# --- alone


def test_names_and_broker_run_apart(start: Start, tmp_path: Path) -> None:
    names = start("names", "--port", "0", "--json")
    nameserver = names.facts()["nameserver"]
    broker = start(
        "broker",
        "--port",
        "0",
        "--name",
        "broker-x",
        "--json",
        env={"NAMESRV_ADDR": f"{nameserver};127.0.0.1:1"},
    )
    facts = broker.facts()
    assert facts["nameserver"] is None
    assert registered(nameserver) == facts["brokers"]
    assert list(facts["brokers"]) == ["broker-x"]
    assert facts["data"] == str(tmp_path / "share" / "trimtab" / "broker-x")
    assert broker.stop() == 0
    assert registered(nameserver) == {}
    assert names.stop() == 0


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("--name", "../../../x"), "--name"),
        (("--name", ""), "--name"),
        (("--name", "a b"), "--name"),
        (("--name", "b" * 256), "255"),
        (("--cluster", "a/b"), "--cluster"),
        (("--port", "2"), "3 or more"),
    ],
    ids=lambda value: " ".join(value)[:20] if isinstance(value, tuple) else "",
)
def test_a_broker_whose_name_or_port_cannot_be_is_refused(
    arguments: tuple[str, ...], sentence: str, tmp_path: Path
) -> None:
    done = run_trimtab("broker", "-n", "127.0.0.1:1", "--port", "0", *arguments, cwd=tmp_path)
    assert done.returncode == 2, done.stderr
    assert sentence in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_broker_with_a_bad_name_server_text_is_refused(tmp_path: Path) -> None:
    done = run_trimtab("broker", "-n", "nonsense", "--memory", "--port", "0", cwd=tmp_path)
    assert done.returncode == 2
    assert "nonsense" in done.stderr


# --- keeping


def test_a_full_disk_is_told_with_the_options_that_help(start: Start) -> None:
    process = start("up", "--data", "data", "--json", "--disk-free-min-mib", str(1 << 40), *FREE_PORTS)
    with pytest.raises(AssertionError, match=r"14: less than .* MiB are free .*--disk-free-min-mib"):
        send(process.facts()["brokers"]["broker-a"], b"message")
    assert process.stop() == 0


def test_how_long_messages_are_kept_can_be_said() -> None:
    said = Storage(None, memory=True, keeping=Keeping(1.5, 2, 64)).store_settings()
    assert (said.retention_ms, said.retention_bytes, said.disk_free_bytes_min) == (
        5_400_000,
        2 << 30,
        64 << 20,
    )
    by_default = Storage(None, memory=True).store_settings()
    assert by_default == StoreSettings()


@pytest.mark.parametrize("verb", [("up",), ("broker", "-n", "127.0.0.1:1")])
def test_keeping_less_than_one_file_of_the_log_is_misuse(verb: tuple[str, ...], tmp_path: Path) -> None:
    done = run_trimtab(*verb, "--memory", "--retention-gib", "0.1", cwd=tmp_path)
    assert done.returncode == 2
    assert "0.25 or more" in done.stderr


# --- store verify


def test_a_store_is_verified(start: Start, tmp_path: Path) -> None:
    process = start("up", "--data", "data", "--json", *FREE_PORTS)
    address = process.facts()["brokers"]["broker-a"]
    send(address, *(b"message %d" % number for number in range(100)))
    busy = run_trimtab("store", "verify", "data", cwd=tmp_path)
    assert (busy.returncode, busy.stdout, busy.stderr.count("\n")) == (3, "", 1)
    assert "in use" in busy.stderr
    (row,) = json.loads(run_trimtab("store", "verify", "data", "--json", cwd=tmp_path).stdout)
    assert (row["damaged"], row["findings"]) == (None, [])
    assert "in use" in row["failure"]
    assert process.stop() == 0

    for directory in ("data", "data/broker-a"):
        fine = run_trimtab("store", "verify", directory, cwd=tmp_path)
        assert (fine.returncode, fine.stderr) == (0, "")
        assert fine.stdout.endswith(": fine\n")

    (segment,) = (tmp_path / "data" / "broker-a" / "log").iterdir()
    raw = bytearray(segment.read_bytes())
    raw[raw.index(b"message 50") + 2] ^= 1
    segment.write_bytes(raw)
    damaged = run_trimtab("store", "verify", "data", cwd=tmp_path)
    assert damaged.returncode == 1
    assert segment.name in damaged.stdout
    assert "damaged" in damaged.stdout
    as_json = run_trimtab("store", "verify", "data", "--json", cwd=tmp_path)
    assert as_json.returncode == 1
    (row,) = json.loads(as_json.stdout)
    assert row["damaged"]
    assert row["findings"][0]["file"].endswith(segment.name)


def test_a_store_with_a_bad_frame_refuses_to_start_until_it_is_rebuilt_and_then_serves_the_rest(
    start: Start, tmp_path: Path
) -> None:
    process = start("up", "--data", "data", "--json", *FREE_PORTS)
    address = process.facts()["brokers"]["broker-a"]
    bodies = [b"message %03d" % number for number in range(100)]
    for body in bodies:
        send(address, body)
    assert process.stop() == 0
    folder = tmp_path / "data" / "broker-a"
    (segment,) = (folder / "log").iterdir()
    raw = bytearray(segment.read_bytes())
    raw[raw.index(b"message 050") + 2] ^= 1
    segment.write_bytes(raw)
    (queue_file, *_) = (folder / "queues").iterdir()
    queue_file.unlink()

    refused = run_trimtab("up", "--data", "data", *FREE_PORTS, cwd=tmp_path)
    assert refused.returncode == 1
    assert queue_file.name in refused.stderr
    assert "trimtab store rebuild" in refused.stderr
    asked = run_trimtab("store", "rebuild", folder, cwd=tmp_path)
    assert asked.returncode == 2
    assert "--yes" in asked.stderr
    assert not queue_file.exists(), "nothing was changed"

    rebuilt = run_trimtab("store", "rebuild", folder, "--yes", cwd=tmp_path)
    assert (rebuilt.returncode, rebuilt.stderr) == (0, "")
    assert "of the log are damaged and were passed over" in rebuilt.stdout
    process = start("up", "--data", "data", "--json", *FREE_PORTS)
    assert read(process.facts()["brokers"]["broker-a"]) == [*bodies[:50], *bodies[51:]]
    assert process.stop() == 0
    again = run_trimtab("store", "rebuild", folder, cwd=tmp_path)
    assert again.returncode == 0
    assert "nothing was changed" in again.stdout


def test_states_that_cannot_be_read_are_named_and_set_aside_by_a_rebuild(
    start: Start, tmp_path: Path
) -> None:
    for _ in range(2):  # two generations
        process = start("up", "--data", "data", "--json", *FREE_PORTS)
        send(process.facts()["brokers"]["broker-a"], b"message")
        assert process.stop() == 0
    folder = tmp_path / "data" / "broker-a"
    for state in (folder / "state").glob("topics.?"):
        state.write_bytes(b"rotten")
    refused = run_trimtab("up", "--data", "data", *FREE_PORTS, cwd=tmp_path)
    assert refused.returncode == 1
    assert "state/topics.a" in refused.stderr
    assert "trimtab store rebuild" in refused.stderr
    rebuilt = run_trimtab("store", "rebuild", folder, "--yes", cwd=tmp_path)
    assert rebuilt.returncode == 0, rebuilt.stderr
    assert "state/topics will be set aside" in rebuilt.stdout
    process = start("up", "--data", "data", "--json", *FREE_PORTS)
    assert read(process.facts()["brokers"]["broker-a"]) == [b"message"] * 2
    assert process.stop() == 0
    assert list((folder / "state").glob("topics.?.bad"))


def test_a_folder_without_a_store_is_misuse(tmp_path: Path) -> None:
    done = run_trimtab("store", "verify", ".", cwd=tmp_path)
    assert done.returncode == 2
    assert "no store" in done.stderr
    assert list(tmp_path.iterdir()) == []


# --- help


@pytest.mark.parametrize(
    "verb",
    [("up",), ("names",), ("broker",), ("store", "verify"), ("store", "rebuild"), ("demo",), ("doctor",)],
)
def test_every_help_ends_with_examples(verb: tuple[str, ...], tmp_path: Path) -> None:
    done = run_trimtab(*verb, "--help", cwd=tmp_path)
    assert done.returncode == 0
    assert f"trimtab {' '.join(verb)}" in done.stdout.partition("Example")[2]


def test_help_loads_no_server(tmp_path: Path) -> None:
    program = (
        "import sys\nfrom trimtab.cli.main import main\nmain(['up', '--help'], standalone_mode=False)\n"
        "print([name for name in sys.modules if name.startswith(('trimtab.broker', 'trimtab.names', 'rich'))])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False, cwd=tmp_path
    )
    assert done.stdout.splitlines()[-1] == "[]", done.stderr
