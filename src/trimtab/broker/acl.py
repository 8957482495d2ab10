"""Who may do what: accounts and permissions as Apache's plain_acl.yml has them, judged more strictly.

A request is judged in two steps. `Acl.authenticate` finds the account that signed it; `authorize` asks whether that account
may have what the handler's `Access` says is wanted. Handlers whose body decides call `Acl.permit` for each thing in it.

Where Apache is lax, this is not: an address on a white list still has to sign; what is not granted is denied, for topics,
groups and codes alike; the broker's inner topics are never granted by a default; and a signature of the old kind, which can be
replayed and moved to another code by whoever sees it, counts only where nobody can see it: over TLS, or on loopback.

An admin account without lists of its own may do everything; one with lists is held to them, as in Apache.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import Flag
from typing import Final, NamedTuple

from trimtab.broker.acl_addresses import AddressPattern, is_loopback, parse_pattern
from trimtab.broker.names import NO_CLIENT_SENDS_TO, RETRY_PREFIX
from trimtab.broker.requests import Access, Peer, Refused
from trimtab.errors import TrimtabError
from trimtab.wire.bodies.topics import DataVersion
from trimtab.wire.codes import ResponseCode, Version
from trimtab.wire.commands import Command
from trimtab.wire.headers.base import Header
from trimtab.wire.signing import ACCESS_KEY, SIGNATURE, Credentials, verify

KEY_CHARACTERS_MIN: Final = 7
"""Apache's rule: longer than six."""
SECRET_CHARACTERS_ADVISED: Final = 16
ACCOUNTS_MAX: Final = 10_000
PERMISSIONS_MAX: Final = 10_000
"""Of one account, topics and groups each."""

_SHOWN_CHARACTERS_MAX = 64


class AclError(TrimtabError):
    """Accounts and permissions that cannot be used as they are written."""


class Permission(Flag):
    """What an account may do with a topic or a group."""

    NONE = 0
    PUB = 1
    SUB = 2
    BOTH = 3


_SPELLINGS: Final = {
    "PUB": Permission.PUB,
    "SUB": Permission.SUB,
    "PUB|SUB": Permission.BOTH,
    "SUB|PUB": Permission.BOTH,
    "DENY": Permission.NONE,
}
_NAMES: Final = {
    Permission.NONE: "DENY",
    Permission.PUB: "PUB",
    Permission.SUB: "SUB",
    Permission.BOTH: "PUB|SUB",
}


def permission_named(text: str) -> Permission:
    """`PUB`, `SUB`, `PUB|SUB` or `DENY`; anything else is an error here, and DENY in silence in Apache."""
    found = _SPELLINGS.get(text.replace(" ", ""))
    if found is None:
        raise AclError(f"{_shown(text)} is no permission; write PUB, SUB, PUB|SUB or DENY")
    return found


def permission_text(permission: Permission) -> str:
    """As the file spells it."""
    return _NAMES[permission]


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """One user. The secret shows nowhere."""

    access_key: str
    secret_key: str = field(repr=False)
    white_address: AddressPattern | None = None
    admin: bool = False
    default_topic: Permission = Permission.NONE
    default_group: Permission = Permission.NONE
    topics: Mapping[str, Permission] = field(default_factory=dict)
    groups: Mapping[str, Permission] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Refuses keys that Apache refuses, and lists without end."""
        for name, value in (("accessKey", self.access_key), ("secretKey", self.secret_key)):
            if len(value) < KEY_CHARACTERS_MIN:
                raise AclError(
                    f"{name} has {len(value)} characters; give it at least {KEY_CHARACTERS_MIN}, better {SECRET_CHARACTERS_ADVISED}"
                )
        if max(len(self.topics), len(self.groups)) > PERMISSIONS_MAX:
            raise AclError(f"more than {PERMISSIONS_MAX} permissions; use a default permission")

    @property
    def may_do_all(self) -> bool:
        """An admin who is held to no list."""
        return self.admin and not self.topics and not self.groups

    def topic_permission(self, topic: str) -> Permission:
        """A retry topic counts as its group; an inner topic of the broker is never granted by default."""
        if topic.startswith(RETRY_PREFIX):
            return self.group_permission(topic.removeprefix(RETRY_PREFIX))
        default = Permission.NONE if topic in NO_CLIENT_SENDS_TO else self.default_topic
        return self.topics.get(topic, default)

    def group_permission(self, group: str) -> Permission:
        """What is granted for the group, or by default."""
        return self.groups.get(group, self.default_group)


_NOBODY: Final = Account(access_key="nobody at all", secret_key="no secret at all")  # noqa: S106 - never accepted


@dataclass(frozen=True, slots=True)
class Rules:
    """All accounts, and the list of addresses that Apache would not ask for a signature."""

    accounts: Mapping[str, Account] = field(default_factory=dict)
    white_addresses: tuple[AddressPattern, ...] = ()
    version: DataVersion = field(default_factory=DataVersion)

    def with_account(self, account: Account, now_ms: int) -> "Rules":
        """The rules with this account added or replaced."""
        return self._changed(now_ms, accounts={**self.accounts, account.access_key: account})

    def without_account(self, access_key: str, now_ms: int) -> "Rules":
        """The rules without this account; there must be one."""
        if access_key not in self.accounts:
            raise AclError(f"there is no account {_shown(access_key)}")
        left = {key: account for key, account in self.accounts.items() if key != access_key}
        return self._changed(now_ms, accounts=left)

    def with_white_addresses(self, texts: Iterable[str], now_ms: int) -> "Rules":
        """The rules with another list of addresses."""
        return self._changed(now_ms, white_addresses=tuple(map(pattern_named, texts)))

    def warnings(self) -> Iterator[str]:
        """What an operator should hear of at the start."""
        if not self.accounts:
            yield "there is no account at all: nobody can do anything"
        elif not any(account.admin for account in self.accounts.values()):
            yield "there is no admin account: nobody can register brokers, make topics or change accounts"
        listed = [key for key, account in self.accounts.items() if account.white_address is not None]
        if self.white_addresses or listed:
            where = " and ".join(
                (["globalWhiteRemoteAddresses"] if self.white_addresses else [])
                + ([f"whiteRemoteAddress of {', '.join(map(_shown, listed))}"] if listed else [])
            )
            yield f"{where}: white-listed addresses spare no signature here, unlike in Apache; give their clients keys"
        for key, account in self.accounts.items():
            if len(account.secret_key) < SECRET_CHARACTERS_ADVISED:
                yield f"the secretKey of {_shown(key)} is shorter than {SECRET_CHARACTERS_ADVISED} characters; make it longer"

    def _changed(
        self,
        now_ms: int,
        *,
        accounts: Mapping[str, Account] | None = None,
        white_addresses: tuple[AddressPattern, ...] | None = None,
    ) -> "Rules":
        changed = replace(
            self,
            accounts=self.accounts if accounts is None else accounts,
            white_addresses=self.white_addresses if white_addresses is None else white_addresses,
            version=self.version.next(now_ms),
        )
        if len(changed.accounts) > ACCOUNTS_MAX:
            raise AclError(f"more than {ACCOUNTS_MAX} accounts")
        if not any(account.admin for account in changed.accounts.values()):
            raise AclError("no admin account would be left; make another one first")
        return changed


def pattern_named(text: str) -> AddressPattern:
    """An address pattern, or an error that says which is none."""
    try:
        return parse_pattern(text)
    except ValueError as error:
        raise AclError(f"no address pattern: {error}") from error


class Need(NamedTuple):
    """One permission that a request takes."""

    kind: str
    name: str
    permission: Permission


class Acl:
    """The rules as they are now, and the judgement of requests by them."""

    def __init__(
        self,
        rules: Rules,
        *,
        allow_v1_in_clear: bool = False,
        save: Callable[[Rules], None] | None = None,
        file_name: str = "",
        warnings: Iterable[str] = (),
    ) -> None:
        """`save` is called with changed rules before they count; without it they cannot be changed."""
        self.rules = rules
        self.allow_v1_in_clear = allow_v1_in_clear
        self.file_name = file_name
        self.warnings = (*warnings, *rules.warnings())
        self._save = save

    def __repr__(self) -> str:
        return (
            f"<Acl {self.file_name} accounts={len(self.rules.accounts)} changes={self.rules.version.counter}>"
        )

    # --- judging ----------------------------------------------------------------------------------------------

    def judge(self, command: Command, access: Access, header: Header, peer: Peer) -> None:
        """`Refused` unless the request is signed by somebody who may make it."""
        authorize(self.authenticate(command, peer), command, access, header)

    def authenticate(self, command: Command, peer: Peer) -> Account:
        """The account that signed the request, or `Refused`."""
        return self._account_that_signed(command, peer.address.rpartition(":")[0], is_secure=peer.is_secure)

    def refusal(self, command: Command, *, admin: bool, host: str, is_secure: bool) -> tuple[int, str] | None:
        """For servers that know no topics and groups: why this request is refused, if it is."""
        try:
            account = self._account_that_signed(command, host, is_secure=is_secure)
            authorize(account, command, Access(admin=admin, anyone=not admin), Header())
        except Refused as refused:
            return refused.code, refused.remark
        return None

    def permit(
        self,
        command: Command,
        *,
        publish: Iterable[str] = (),
        consume: Iterable[str] = (),
        groups: Iterable[str] = (),
    ) -> None:
        """`Refused` unless the account that signed may publish to, consume from and join all of these."""
        account = self.rules.accounts.get(command.ext.get(ACCESS_KEY, ""), _NOBODY)
        _require(account, command, [Need("topic", name, Permission.PUB) for name in publish])
        _require(account, command, [Need("topic", name, Permission.SUB) for name in consume])
        _require(account, command, [Need("group", name, Permission.SUB) for name in groups])

    def _account_that_signed(self, command: Command, host: str, *, is_secure: bool) -> Account:
        ext = command.ext
        key = ext.get(ACCESS_KEY)
        if not key or SIGNATURE not in ext:
            hint = ""
            if any(pattern.matches(host) for pattern in self.rules.white_addresses):
                hint = "; a white-listed address spares no signature here"
            raise _refused(
                command, f"the request is not signed: give the client an access key and a secret{hint}"
            )
        if not (is_secure or self.allow_v1_in_clear or is_loopback(host)):
            raise _refused(
                command,
                "signatures of this kind can be replayed by whoever sees them, so they count over TLS only:"
                " turn TLS on, or set acl_allow_v1_in_clear at the server if the network is trusted",
            )
        account = self.rules.accounts.get(key, _NOBODY)
        # The same work and the same words for a wrong secret and for an account that does not exist.
        is_right = verify(ext, command.body, secret_key=account.secret_key, version=command.version)
        if not is_right or account is _NOBODY:
            raise _refused(
                command, f"no account {_shown(key)} with this secret; check accessKey and secretKey"
            )
        return account

    # --- changing ---------------------------------------------------------------------------------------------

    def change(self, rules: Rules) -> None:
        """Saves other rules and goes by them from now on."""
        if self._save is None:
            raise AclError(
                "these accounts did not come from a file, so they cannot be changed; start with one"
            )
        self._save(rules)
        self.rules = rules

    def require_admin(self) -> None:
        """`AclError` if brokers with these accounts could not register with name servers that have the same."""
        if self.admin_credentials() is None:
            raise AclError(
                f"{self.file_name}: no account is an admin, so no broker could register; give one of them admin: true"
            )

    def admin_credentials(self) -> Credentials | None:
        """What a server of this cluster signs its own requests with: an admin account, if there is one. One that is held to lists
        will do where there is no other: registering names no topic and no group.
        """
        admins = [account for account in self.rules.accounts.values() if account.admin]
        if not admins:
            return None
        chosen = next((account for account in admins if account.may_do_all), admins[0])
        return Credentials(chosen.access_key, chosen.secret_key)


def authorize(account: Account, command: Command, access: Access, header: Header) -> None:
    """`Refused` unless the account may have what the handler declares. What declares nothing is for admins alone."""
    if account.may_do_all:
        return
    if access.admin and not account.admin:
        raise _refused(
            command, f"request {command.code} needs an admin, which {_shown(account.access_key)} is not"
        )
    needs = list(_needs(access, header))
    _require(account, command, needs)
    if not (needs or access.admin or access.anyone or access.judged_by_handler):
        raise _refused(
            command, f"request {command.code} names nothing that {_shown(account.access_key)} is permitted"
        )


def _needs(access: Access, header: Header) -> Iterator[Need]:
    for attribute, kind, permission in (
        (access.publish_topic, "topic", Permission.PUB),
        (access.consume_topic, "topic", Permission.SUB),
        (access.consume_group, "group", Permission.SUB),
    ):
        name = None if attribute is None else getattr(header, attribute)
        if name is not None:
            yield Need(kind, name, permission)


def _require(account: Account, command: Command, needs: Iterable[Need]) -> None:
    if account.may_do_all:
        return
    for kind, name, permission in needs:
        owned = account.topic_permission(name) if kind == "topic" else account.group_permission(name)
        if not permission & owned:
            raise _refused(
                command,
                f"{_shown(account.access_key)} has no {permission.name} permission for {kind} {_shown(name)};"
                f" grant it under {kind}Perms of the account",
            )


def _refused(command: Command, text: str) -> Refused:
    """4.9 clients know code 1 and the name of the exception, later ones a code of its own."""
    is_new = command.version >= Version.V5_0_0
    code = ResponseCode.NO_PERMISSION if is_new else ResponseCode.SYSTEM_ERROR
    return Refused(code, f"AclException: {text}")


def _shown(text: str) -> str:
    """For remarks and logs: short, without control characters."""
    return ascii(text[:_SHOWN_CHARACTERS_MAX])
