"""The file of accounts and permissions: Apache's plain_acl.yml, read with suspicion and written whole or not at all.

Every plain text stays a text (`secretKey: 12345678` is the eight digits), names that nobody knows are errors instead of
being passed over, and so are references and doubled keys. No message quotes a line of the file: it may hold a secret.
"""

import contextlib
import hashlib
import os
import stat
from collections import Counter
from collections.abc import Hashable
from pathlib import Path
from typing import Any, Final

import msgspec
import yaml

from trimtab.broker.acl import Account, Acl, AclError, Rules, pattern_named
from trimtab.broker.acl_forms import AccountForm, account_from, form_of
from trimtab.wire.bodies.topics import DataVersion

FILE_BYTES_MAX: Final = 4 << 20
_PRIVATE = 0o600


class _VersionForm(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    counter: int = 0
    timestamp: int = 0


class _FileForm(
    msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True, omit_defaults=True
):
    global_white_remote_addresses: tuple[str, ...] | None = None
    accounts: tuple[AccountForm, ...] | None = None
    data_version: tuple[_VersionForm, ...] | None = None


def load_acl(path: Path, *, allow_v1_in_clear: bool = False) -> Acl:
    """The rules of a file, tied to it: changes go there and nowhere else."""
    file = AclFile(path)
    rules = file.read()
    return Acl(
        rules,
        allow_v1_in_clear=allow_v1_in_clear,
        save=file.write,
        file_name=file.path.name,
        warnings=file.warnings(),
    )


class AclFile:
    """One file. Links are followed once, at the start."""

    def __init__(self, path: Path) -> None:
        self.path = path.resolve()
        self._digest = b""

    def __repr__(self) -> str:
        return f"<AclFile {self.path}>"

    def read(self) -> Rules:
        """What it says; every complaint names the file, the entry and what to do."""
        data = self._bytes()
        self._digest = hashlib.sha256(data).digest()
        try:
            return rules_from(data)
        except AclError as error:
            raise AclError(f"{self.path}: {error}") from error

    def write(self, rules: Rules) -> None:
        """Replaces the file, durable before it is back; refuses if somebody else changed it meanwhile."""
        if hashlib.sha256(self._bytes()).digest() != self._digest:
            raise AclError(
                f"{self.path} was changed by somebody else; restart the broker to read it, then try again"
            )
        data = rules_to(rules)
        aside = self.path.with_name(f"{self.path.name}.new")
        try:
            _write_aside(aside, data)
            aside.replace(self.path)
            _sync_directory(self.path.parent)
        except OSError as error:
            with contextlib.suppress(OSError):
                aside.unlink()
            raise AclError(f"{self.path} cannot be written: {error.strerror}; nothing was changed") from error
        self._digest = hashlib.sha256(data).digest()

    def warnings(self) -> list[str]:
        """What is wrong with the file's own permissions."""
        mode = stat.S_IMODE(self.path.stat().st_mode)
        if mode & ~_PRIVATE:
            return [f"{self.path} has mode {mode:04o}, so others may read its secrets: chmod 600 it"]
        return []

    def _bytes(self) -> bytes:
        try:
            with self.path.open("rb") as file:
                data = file.read(FILE_BYTES_MAX + 1)
        except OSError as error:
            raise AclError(
                f"{self.path} cannot be read: {error.strerror}; name a file that this user can read"
            ) from error
        if len(data) > FILE_BYTES_MAX:
            raise AclError(f"{self.path} has more than {FILE_BYTES_MAX} bytes; is it the right file?")
        return data


def rules_from(data: bytes) -> Rules:
    """The rules that a file's bytes say."""
    try:
        form = msgspec.convert(_parse(data), _FileForm, strict=False)
    except msgspec.ValidationError as error:
        raise AclError(f"{error}; see docs/security.md for the form") from error
    accounts: dict[str, Account] = {}
    for number, entry in enumerate(form.accounts or ()):
        where = f"accounts[{number}] ({entry.access_key[:64]!a})"
        try:
            account = account_from(entry)
        except AclError as error:
            raise AclError(f"{where}: {error}") from error
        if account.access_key in accounts:
            raise AclError(f"{where}: this accessKey has an account already; remove one of the two")
        accounts[account.access_key] = account
    try:
        white = tuple(map(pattern_named, form.global_white_remote_addresses or ()))
    except AclError as error:
        raise AclError(f"globalWhiteRemoteAddresses: {error}") from error
    version = form.data_version[0] if form.data_version else _VersionForm()
    return Rules(accounts, white, DataVersion(timestamp=version.timestamp, counter=version.counter))


def rules_to(rules: Rules) -> bytes:
    """The bytes of a file that says these rules."""
    version = _VersionForm(counter=rules.version.counter, timestamp=rules.version.timestamp)
    form = _FileForm(
        global_white_remote_addresses=tuple(pattern.text for pattern in rules.white_addresses),
        accounts=tuple(map(form_of, rules.accounts.values())),
        data_version=(version,),
    )
    plain = msgspec.to_builtins(form)
    return yaml.safe_dump(plain, sort_keys=False, allow_unicode=True).encode()


# --- YAML ---------------------------------------------------------------------------------------------------------


class _TextLoader(yaml.SafeLoader):
    """Maps, lists and texts; no types by guesswork but null and true, no references, no key twice."""

    yaml_implicit_resolvers = {  # noqa: RUF012 - PyYAML's way
        first: [(tag, expression) for tag, expression in resolvers if tag.endswith((":null", ":bool"))]
        for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        if self.check_event(yaml.AliasEvent):
            raise yaml.MarkedYAMLError(
                problem="references are not allowed",
                problem_mark=self.get_mark(),  # type: ignore[no-untyped-call, unused-ignore]
            )
        return super().compose_node(parent, index)  # type: ignore[no-any-return, unused-ignore]

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:  # noqa: FBT001, FBT002 - PyYAML's signature
        for name, count in Counter(str(key.value) for key, _ in node.value).items():
            if count > 1:
                raise yaml.MarkedYAMLError(
                    problem=f"{name[:64]!a} is there twice", problem_mark=node.start_mark
                )
        return super().construct_mapping(node, deep)


def _parse(data: bytes) -> object:
    try:
        loader = _TextLoader(data.decode())
        try:
            return loader.get_single_data() or {}
        finally:
            loader.dispose()
    except yaml.MarkedYAMLError as error:
        line = f"line {error.problem_mark.line + 1}: " if error.problem_mark else ""
        raise AclError(f"{line}{error.problem}; mend the YAML") from None  # its context quotes the file
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError, ValueError):
        raise AclError("this is no readable YAML; see docs/security.md for the form") from None


def _write_aside(path: Path, data: bytes) -> None:
    with contextlib.suppress(FileNotFoundError):
        path.unlink()
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, _PRIVATE)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _sync_directory(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
