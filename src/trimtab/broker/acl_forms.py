"""An account as it is written, in the file of accounts and in the commands that change it."""

import msgspec

from trimtab.broker.acl import (
    Account,
    AclError,
    Permission,
    pattern_named,
    permission_named,
    permission_text,
)


class AccountForm(
    msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True, omit_defaults=True
):
    """An account as it is written."""

    access_key: str = ""
    secret_key: str = ""
    white_remote_address: str | None = None
    admin: bool = False
    default_topic_perm: str | None = None
    default_group_perm: str | None = None
    topic_perms: tuple[str, ...] | None = None
    group_perms: tuple[str, ...] | None = None

    def __repr__(self) -> str:
        return f"AccountForm(access_key={self.access_key!r}, admin={self.admin})"


def account_from(form: AccountForm) -> Account:
    """The account that is written so."""
    white = (form.white_remote_address or "").strip()
    return Account(
        access_key=form.access_key,
        secret_key=form.secret_key,
        white_address=pattern_named(white) if white else None,
        admin=form.admin,
        default_topic=_permission(form.default_topic_perm),
        default_group=_permission(form.default_group_perm),
        topics=_permissions("topicPerms", form.topic_perms or ()),
        groups=_permissions("groupPerms", form.group_perms or ()),
    )


def form_of(account: Account) -> AccountForm:
    """How an account is written."""

    def listed(permissions: dict[str, Permission]) -> tuple[str, ...] | None:
        return tuple(f"{name}={permission_text(one)}" for name, one in permissions.items()) or None

    return AccountForm(
        access_key=account.access_key,
        secret_key=account.secret_key,
        white_remote_address=account.white_address.text if account.white_address else None,
        admin=account.admin,
        default_topic_perm=permission_text(account.default_topic),
        default_group_perm=permission_text(account.default_group),
        topic_perms=listed(dict(account.topics)),
        group_perms=listed(dict(account.groups)),
    )


def _permission(text: str | None) -> Permission:
    return Permission.NONE if not (text or "").strip() else permission_named(text or "")


def _permissions(field: str, entries: tuple[str, ...]) -> dict[str, Permission]:
    found: dict[str, Permission] = {}
    for entry in entries:
        name, equals, text = (part.strip() for part in entry.partition("="))
        if not (name and equals and text) or "=" in text:
            raise AclError(f"{field}: {entry[:64]!a} is not of the form name=PUB|SUB")
        if name in found:
            raise AclError(f"{field}: {name[:64]!a} is there twice; remove one of the two")
        found[name] = permission_named(text)
    return found
