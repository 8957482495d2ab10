"""Running verbs in this process, against a cluster in a thread of its own."""

from __future__ import annotations

import asyncio
import json
import threading
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from click.testing import CliRunner

from tests.unit.client.admin_member import ScriptedMember, connected
from trimtab.cli.main import main

if TYPE_CHECKING:
    from collections.abc import Iterator

TIMEOUT_S = "30"


@dataclass(frozen=True)
class Told:
    """What a verb printed and how it ended."""

    code: int
    out: str
    err: str
    out_bytes: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def rows(self) -> list[list[str]]:
        """The lines of a table, split at its wide gaps."""
        return [line.split() for line in self.out.splitlines()]


def run(nameserver: str | None, *args: str, stdin: str | bytes | None = None, **env: str | None) -> Told:
    """A verb with a name server in its environment, and without the user's own settings."""
    environment: dict[str, str | None] = {
        "NAMESRV_ADDR": nameserver,
        "XDG_CONFIG_HOME": "/nonexistent",
        "TRIMTAB_PROFILE": None,
        "TRIMTAB_ACCESS_KEY": None,
        "TRIMTAB_SECRET_KEY": None,
        **env,
    }
    result = CliRunner().invoke(main, args, input=stdin, env=environment)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return Told(result.exit_code, result.stdout, result.stderr, result.stdout_bytes)


def good(nameserver: str, *args: str, stdin: str | bytes | None = None) -> Told:
    """A verb that must not fail."""
    told = run(nameserver, *args, "--timeout", TIMEOUT_S, stdin=stdin)
    assert told.code == 0, f"{args}: {told.code} {told.out} {told.err}"
    return told


@contextmanager
def online(members: list[ScriptedMember], addresses: list[str]) -> Iterator[None]:
    """Members connected to all these brokers, in a thread of their own."""
    ready, done = threading.Event(), threading.Event()
    failures: list[BaseException] = []

    async def live() -> None:
        from contextlib import AsyncExitStack

        async with AsyncExitStack() as stack:
            for member in members:
                await stack.enter_async_context(connected(member, addresses))
            ready.set()
            await asyncio.to_thread(done.wait)

    def body() -> None:
        try:
            asyncio.run(live())
        except BaseException as error:
            failures.append(error)
            raise
        finally:
            ready.set()

    thread = threading.Thread(target=body)
    thread.start()
    ready.wait()
    try:
        assert not failures
        yield
    finally:
        done.set()
        thread.join()


def until_alone(nameserver: str, group: str) -> None:
    """Brokers see that a connection is closed a moment after it was."""
    while good(nameserver, "group", "members", group, "--json").json["members"]:
        pass
