"""What all verbs share: help, start, signals, pipes, terminals, profiles."""

import json
import os
import pty
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click
import pytest

from tests.unit.cli.verbs import good, run
from trimtab.cli.main import VERBS, main
from trimtab.testing import BlockingCluster

PROGRAM = [sys.executable, "-m", "trimtab"]
ENDS_S_MAX = 120


def commands(
    command: click.Command, path: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            found = command.get_command(context, name)
            assert found is not None
            yield from commands(found, (*path, name))
    else:
        yield path, command


ALL = list(commands(main))
OURS = {"topic", "group", "message", "dlq", "cluster", "config"}


@pytest.mark.parametrize(("path", "command"), ALL, ids=[" ".join(path) for path, _ in ALL])
def test_every_command_teaches_with_examples(path: tuple[str, ...], command: click.Command) -> None:
    told = run(None, *path, "--help")
    assert told.code == 0
    assert "Example" in (command.epilog or ""), "examples stand at the end of the help"
    assert f"trimtab {path[0]}" in told.out
    assert command.help, "it says in a sentence what it does"


@pytest.mark.parametrize(("path", "command"), ALL, ids=[" ".join(path) for path, _ in ALL])
def test_every_verb_of_ours_has_json(path: tuple[str, ...], command: click.Command) -> None:
    if path[0] not in OURS or path in {
        ("config", "set"),
        ("config", "use"),
        ("config", "delete"),
        ("config", "path"),
    }:
        return
    assert any("--json" in parameter.opts for parameter in command.params)


def groups_of_verbs() -> list[str]:
    context = click.Context(main)
    return [
        name
        for name in main.list_commands(context)
        if isinstance(main.get_command(context, name), click.Group)
    ]


@pytest.mark.parametrize("name", groups_of_verbs())
def test_no_sentence_in_a_list_of_verbs_is_cut(name: str) -> None:
    listed = run(None, name, "--help").out.partition("Commands:")[2]
    assert listed
    assert "..." not in listed


def test_the_installation_is_told_as_json_too() -> None:
    told = run(None, "doctor", "--json")
    assert (told.code, told.json["whole"]) == (0, True)
    assert {"extra": "base", "package": "msgspec"}.items() <= told.json["packages"][0].items()


def test_the_list_of_verbs_says_what_each_says_itself() -> None:
    listed = run(None, "--help").out
    for name in VERBS:
        assert f"  {name} " in listed


@pytest.mark.parametrize(("args", "meant"), [(("topc",), "topic"), (("group", "descibe"), "describe")])
def test_a_mistyped_verb_is_answered_with_one_that_is_like_it(args: tuple[str, ...], meant: str) -> None:
    told = run(None, *args)
    assert (told.code, f"Did you mean {meant}" in told.err) == (2, True)


def test_help_loads_no_client_and_no_table() -> None:
    """What makes a start slow is not loaded before it is needed."""
    program = (
        "import sys\nfrom trimtab.cli.main import main\n"
        "try:\n    main(sys.argv[1:])\nexcept SystemExit:\n    pass\n"
        "slow = {'asyncio', 'msgspec', 'rich', 'trimtab.client', 'trimtab.broker', 'trimtab.wire'}\n"
        "print(sorted(slow & {*sys.modules}), file=sys.stderr)"
    )
    for args in (
        ["--help"],
        ["topic", "--help"],
        ["group", "describe", "--help"],
        ["message", "send", "--help"],
        ["bench", "send", "--help"],
        ["bench", "drain", "--help"],
        ["bench", "rebalance", "--help"],
    ):
        done = subprocess.run(
            [sys.executable, "-c", program, *args], capture_output=True, text=True, check=False
        )
        assert done.stderr == "[]\n", args


def program_env(nameserver: str) -> dict[str, str]:
    return {**os.environ, "NAMESRV_ADDR": nameserver, "XDG_CONFIG_HOME": "/nonexistent", "NO_COLOR": ""}


@contextmanager
def tailing(cluster: BlockingCluster, topic: str) -> Iterator["subprocess.Popen[bytes]"]:
    """`message tail` from the begin, in a process of its own, which is ended at the latest here."""
    with subprocess.Popen(
        [*PROGRAM, "message", "tail", topic, "-o", "begin", "--timeout", "60"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=program_env(cluster.nameserver),
    ) as program:
        try:
            yield program
        finally:
            if program.poll() is None:
                program.kill()


def test_a_reader_that_has_seen_enough_ends_it_without_a_word(cluster: BlockingCluster) -> None:
    good(cluster.nameserver, "topic", "create", "piped", "--queues", "1", "--broker", "broker-a")
    good(cluster.nameserver, "message", "send", "piped", stdin="\n".join(map(str, range(5_000))))
    with tailing(cluster, "piped") as program:
        assert program.stdout is not None
        assert program.stderr is not None
        assert program.stdout.readline() == b"0\n"
        program.stdout.close()
        good(cluster.nameserver, "message", "send", "piped", "more")  # the next write finds the pipe closed
        assert program.wait(ENDS_S_MAX) == 0
        assert program.stderr.read() == b""


def test_ctrl_c_ends_it_cleanly(cluster: BlockingCluster) -> None:
    good(cluster.nameserver, "topic", "create", "endless", "--queues", "1", "--broker", "broker-a")
    good(cluster.nameserver, "message", "send", "endless", "one")
    with tailing(cluster, "endless") as program:
        assert program.stdout is not None
        assert program.stdout.readline() == b"one\n"
        program.send_signal(signal.SIGINT)
        out, err = program.communicate(timeout=ENDS_S_MAX)
        assert (program.returncode, out, err.strip()) == (130, b"", b"")


def on_a_terminal(nameserver: str, columns: int, *args: str) -> str:
    """What a verb prints on a terminal of this width."""
    master, slave = pty.openpty()
    env = {**program_env(nameserver), "COLUMNS": str(columns), "TERM": "xterm-256color"}
    del env["NO_COLOR"]
    program = subprocess.Popen([*PROGRAM, *args], stdout=slave, stderr=subprocess.DEVNULL, env=env)
    os.close(slave)
    chunks = []
    try:
        while chunk := os.read(master, 65_536):
            chunks.append(chunk)
    except OSError:
        pass  # Linux says so when the other side is closed
    os.close(master)
    assert program.wait(ENDS_S_MAX) == 0
    return b"".join(chunks).decode()


def test_a_table_fits_a_narrow_terminal_and_a_pipe_gets_all(cluster: BlockingCluster) -> None:
    name = "a-topic-with-quite-a-long-name-indeed"
    good(cluster.nameserver, "topic", "create", name, "--queues", "1")
    shown = on_a_terminal(cluster.nameserver, 40, "topic", "queues", name)
    assert "\x1b[" in shown, "colours on a terminal"
    piped = good(cluster.nameserver, "topic", "queues", name, "--times").out
    assert "\x1b[" not in piped, "none in a pipe"
    assert len(piped.splitlines()) == 3
    lines = re.sub(r"\x1b\[[0-9;]*m", "", shown).splitlines()
    assert max(map(len, lines)) <= 40
    assert lines[0].split() == ["BROKER", "QUEUE", "MIN", "MAX", "MESSAGES"]
    assert lines[3:] == ["no room for OLDEST, NEWEST"]


# --- profiles -----------------------------------------------------------------------------------------------------


def configured(folder: Path, *args: str, stdin: str | None = None, **env: str | None) -> tuple[int, str, str]:
    told = run(None, *args, stdin=stdin, XDG_CONFIG_HOME=str(folder), **env)
    return told.code, told.out, told.err


def test_a_profile_saves_typing(cluster: BlockingCluster, tmp_path: Path) -> None:
    assert "no profile in" in configured(tmp_path, "config", "list")[1]
    code, out, _ = configured(tmp_path, "config", "set", "local", "-n", cluster.nameserver)
    assert (code, out.endswith("and is the default\n")) == (0, True)
    assert configured(tmp_path, "cluster", "health")[0] == 0
    configured(tmp_path, "config", "set", "gone", "-n", "127.0.0.1:1")
    assert configured(tmp_path, "cluster", "health", "--profile", "gone")[0] == 3
    assert configured(tmp_path, "cluster", "health", "--profile", "gone", "-n", cluster.nameserver)[0] == 0
    assert configured(tmp_path, "cluster", "health", NAMESRV_ADDR="127.0.0.1:1")[0] == 3
    configured(tmp_path, "config", "use", "gone")
    assert configured(tmp_path, "cluster", "health")[0] == 3
    configured(tmp_path, "config", "delete", "gone")
    listed = json.loads(configured(tmp_path, "config", "list", "--json")[1])
    assert (listed["default"], list(listed["profiles"])) == (None, ["local"])


def test_a_secret_is_kept_for_its_owner_and_shown_to_nobody(tmp_path: Path) -> None:
    args = ("config", "set", "prod", "-n", "h:1", "--access-key", "reader", "--secret-key-stdin")
    assert configured(tmp_path, *args, stdin="s3cret\n")[0] == 0
    path = Path(configured(tmp_path, "config", "path")[1].strip())
    assert path.stat().st_mode & 0o777 == 0o600
    assert "s3cret" in path.read_text()
    for shown in (configured(tmp_path, "config", "list"), configured(tmp_path, "config", "list", "--json")):
        assert "s3cret" not in shown[1]
        assert "reader" in shown[1]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("nonsense [", "cannot be read"),
        ("[profiles]\nx = 1\n", "must be tables"),
        ("[profiles.x]\ncolour = 'red'\n", "has 'colour'"),
        ("[profiles.x]\nnameserver = 5\n", "must be a str"),
        ("default = 'other'\n", "there is no profile 'other'"),
    ],
)
def test_a_file_that_is_wrong_is_said_in_one_line(tmp_path: Path, text: str, said: str) -> None:
    folder = tmp_path / "trimtab"
    folder.mkdir()
    (folder / "config.toml").write_text(text)
    code, _, err = configured(tmp_path, "topic", "list")
    assert (code, err.count("\n")) == (2, 1)
    assert said in err


def test_half_an_account_is_misuse() -> None:
    told = run("h:1", "topic", "list", "--access-key", "a")
    assert (told.code, "belong together" in told.err) == (2, True)
