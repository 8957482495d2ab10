"""What all verbs that talk to servers share: how to connect, how to fail, how to ask before something is lost.

A verb is declared with `@remote`, gets a `Shell`, and goes: fetch (`shell.ask`), make rows, print. Exit codes: 0 fine, 1 what was
asked is not so, 2 asked wrongly, 3 a server cannot be reached, or a store not be looked at.
"""

import os
import sys
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import click

from trimtab.cli.amounts import Amount
from trimtab.cli.printing import print_json, warn
from trimtab.cli.profiles import Profile, read_profiles
from trimtab.errors import (
    ConnectionLostError,
    InvalidMessageError,
    MaybeStoredError,
    NoRouteError,
    RequestTimeoutError,
    ServerUnreachableError,
    SettingsError,
    SystemFailureError,
    TrimtabError,
)

if TYPE_CHECKING:
    from trimtab.client.admin import Admin
    from trimtab.client.admin.rows import BrokerFailure
    from trimtab.wire.signing import Credentials

T = TypeVar("T")

FINE, NOT_SO, MISUSE, UNREACHABLE = 0, 1, 2, 3
INTERRUPTED = 130
SECRET_VARIABLE = "TRIMTAB_SECRET_KEY"  # noqa: S105 - its name
LOCAL = "127.0.0.1:9876"
"""Where `trimtab up` listens, if nothing else is said."""


class NotSoError(TrimtabError):
    """What was asked for is not so; said in one line."""


def fail(text: str, code: int) -> NoReturn:
    """One line, and out."""
    warn(text)
    raise SystemExit(code)


def exit_code_of(error: Exception) -> int:
    """What an error means to whoever called."""
    from trimtab.client.admin.reach import NoSuchTopicError
    from trimtab.io.nameservers import NameserverTextError

    if isinstance(error, NoSuchTopicError):
        return NOT_SO
    unreachable = ServerUnreachableError | ConnectionLostError | RequestTimeoutError | NoRouteError
    if isinstance(error, unreachable | MaybeStoredError):
        return UNREACHABLE
    misuse = SettingsError | InvalidMessageError | NameserverTextError
    return MISUSE if isinstance(error, misuse) else NOT_SO


def text_of(error: Exception) -> str:
    """What is said of an error. A server that gives its reason has refused; that it failed inside would be a guess."""
    if isinstance(error, SystemFailureError) and error.remark:
        return str(error).removesuffix(f"; {error.advice}")
    return str(error)


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Whom to connect to, and as whom."""

    nameserver: str
    access_key: str | None = None
    secret_key: str | None = None
    tls: bool | str = False
    was_guessed: bool = False

    def credentials(self) -> "Credentials | None":
        """The account to sign with, if there is one."""
        from trimtab.wire.signing import Credentials

        if self.access_key is None or self.secret_key is None:
            return None
        return Credentials(self.access_key, self.secret_key)

    def options(self) -> dict[str, Any]:
        """What a client is told: where to connect, and as whom."""
        return {
            "nameserver": self.nameserver,
            "credentials": self.credentials(),
            "tls": self.tls or None,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Shell:
    """What a verb works with."""

    target: Target
    timeout_s: float
    as_json: bool

    def ask(self, question: "Callable[[Admin], Awaitable[T]]") -> T:
        """Opens an admin for one question. An unknown topic or group is answered with a name that is like it."""
        import asyncio

        answers: list[T] = []

        async def keep() -> None:
            answers.append(await self._ask(question))

        # Not as the coroutine's result: Python 3.11 makes a text of that when it gives Ctrl-C back, and it may be large.
        asyncio.run(keep())
        return answers[0]

    async def _ask(self, question: "Callable[[Admin], Awaitable[T]]") -> T:
        from trimtab.client.admin import Admin
        from trimtab.client.admin.reach import NoSuchGroupError, NoSuchTopicError
        from trimtab.settings import Timeouts

        async with Admin(
            **self.target.options(),
            timeouts=Timeouts(request_s=self.timeout_s, connect_s=min(3.0, self.timeout_s)),
        ) as admin:
            try:
                return await question(admin)
            except NoSuchTopicError as error:
                raise NotSoError(f"{error}{like(str(error), (await admin.topics()).names)}") from error
            except NoSuchGroupError as error:
                raise NotSoError(f"{error}{like(str(error), (await admin.groups()).names)}") from error
            except NoRouteError as error:
                if self.target.was_guessed:
                    raise ServerUnreachableError(
                        f"no name server is given and none is at {LOCAL}: say -n HOST:PORT, set NAMESRV_ADDR, or start one with"
                        " `trimtab up`"
                    ) from error
                raise

    def print_json(self, value: Any) -> bool:
        """Prints the value if JSON was asked for; whether it did."""
        if self.as_json:
            print_json(value)
        return self.as_json

    def confirm(self, what: str, *, yes: bool) -> None:
        """Asks before something is lost. Without a terminal to ask, `--yes` must be said."""
        if yes:
            return
        if not sys.stdin.isatty():
            raise click.UsageError(f"{what} Say --yes if you mean it: there is no terminal to ask.")
        if not click.confirm(what, err=True):
            raise NotSoError("nothing was changed")

    def finish(self, failures: "Iterable[BrokerFailure]", code: int = FINE) -> None:
        """Ends a verb: servers that did not answer are named, and make the exit code 3."""
        failures = list(failures)
        for failure in failures:
            warn(f"{failure.broker}: {failure.error}")
        if failures:
            raise SystemExit(UNREACHABLE if any(one.unreachable for one in failures) else code or NOT_SO)
        if code:
            raise SystemExit(code)


def like(text: str, names: Sequence[str]) -> str:
    """`; did you mean ...?` for the first quoted name in a text, if anything is like it."""
    import difflib

    parts = text.split("'")
    wanted = parts[1] if len(parts) > 2 else ""
    visible = [name for name in names if not name.startswith("%") or wanted.startswith("%")]
    found = difflib.get_close_matches(wanted, visible, n=3, cutoff=0.6)
    return f"; did you mean {' or '.join(found)}?" if found else ""


def remote(command: Callable[..., None]) -> Callable[..., None]:
    """Declares a verb that talks to servers: adds the options for that, and hands over a `Shell`."""

    @wraps(command)
    def run(
        nameserver: tuple[str, ...],
        profile: str | None,
        access_key: str | None,
        secret_key_file: Path | None,
        tls: bool,  # noqa: FBT001 - click hands it over so
        tls_ca: Path | None,
        timeout_s: float,
        as_json: bool,  # noqa: FBT001
        **rest: Any,
    ) -> None:
        secret_key = os.environ.get(SECRET_VARIABLE)
        if secret_key_file is not None:
            secret_key = secret_key_file.read_text().strip()
        said = Profile(
            nameserver=";".join(nameserver) or None,
            access_key=access_key,
            secret_key=secret_key,
            tls=tls or None,
            tls_ca=None if tls_ca is None else str(tls_ca),
        )
        command(Shell(target=target_of(said, profile), timeout_s=timeout_s, as_json=as_json), **rest)

    for option in reversed(_OPTIONS):
        run = option(run)
    return run


def target_of(said: Profile, profile_name: str | None) -> Target:
    """What was said comes first, then the profile named, then NAMESRV_ADDR, then the default profile."""
    profiles = read_profiles()
    environment = os.environ.get("NAMESRV_ADDR")
    profile = Profile()
    if profile_name is not None:
        profile = profiles.named(profile_name)
    elif profiles.default is not None and not (said.nameserver or environment):
        profile = profiles.named(profiles.default)
    nameserver = said.nameserver or profile.nameserver or environment
    ca = said.tls_ca or profile.tls_ca
    access_key = said.access_key or profile.access_key
    secret_key = said.secret_key or profile.secret_key
    if said.access_key is not None and secret_key is None and sys.stdin.isatty():
        secret_key = click.prompt(f"Secret of {access_key}", hide_input=True, err=True)
    if (access_key is None) != (secret_key is None):
        raise SettingsError(
            f"an access key and its secret belong together, and one is missing: say --access-key, and give the secret with"
            f" --secret-key-file or in {SECRET_VARIABLE}"
        )
    return Target(
        nameserver=nameserver or LOCAL,
        access_key=access_key,
        secret_key=secret_key,
        tls=ca or bool(said.tls or profile.tls),
        was_guessed=nameserver is None,
    )


_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
_OPTIONS = (
    click.option(
        "-n",
        "--nameserver",
        multiple=True,
        metavar="HOST:PORT",
        help="Once or more often, or with ; between them.  [env: NAMESRV_ADDR]",
    ),
    click.option(
        "--profile", envvar="TRIMTAB_PROFILE", help="A place from `trimtab config`.  [env: TRIMTAB_PROFILE]"
    ),
    click.option(
        "--access-key", envvar="TRIMTAB_ACCESS_KEY", help="Sign requests.  [env: TRIMTAB_ACCESS_KEY]"
    ),
    click.option(
        "--secret-key-file",
        type=_FILE,
        help="Read its secret from this file. Without one it is asked for: others can see a command line."
        f"  [env: {SECRET_VARIABLE}]",
    ),
    click.option("--tls", is_flag=True, help="Speak TLS; trust what the system trusts."),
    click.option("--tls-ca", type=_FILE, help="Speak TLS; trust the certificates in this PEM file."),
    click.option(
        "--timeout",
        "timeout_s",
        type=Amount(0.1, 600),
        default=5.0,
        show_default=True,
        metavar="SECONDS",
        help="How long each server may take.",
    ),
    click.option("--json", "as_json", is_flag=True, help="Print one JSON document with stable names."),
)
