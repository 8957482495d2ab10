"""Accounts and permissions over the wire, for admins: shown without secrets, changed in the file given at the start only."""

from collections.abc import Callable

import msgspec

from trimtab.broker.acl import Acl, AclError, Rules
from trimtab.broker.acl_forms import AccountForm, account_from, form_of
from trimtab.broker.core import BrokerCore
from trimtab.broker.requests import OK, Access, Answer, NoHeader, Refused, Request, handles
from trimtab.wire.bodies import AclConfig, PlainAccessConfig
from trimtab.wire.codes import RequestCode, ResponseCode
from trimtab.wire.fastjson_writer import encode_body
from trimtab.wire.headers.admin import (
    AclVersionResponse,
    DeleteAclConfig,
    UpdateAclConfig,
    UpdateGlobalWhiteAddrs,
)

ADMIN = Access(admin=True)
MASK = "***"
"""Stands for a secret in answers. Sent back in a change, it means that the secret stays."""


def _acl_of(core: BrokerCore, refused: int = ResponseCode.SYSTEM_ERROR) -> Acl:
    if core.acl is None:
        raise Refused(refused, "this broker runs without accounts; start it with an ACL file to have some")
    return core.acl


def _change(acl: Acl, refused: int, changed: Callable[[], Rules]) -> Answer:
    try:
        acl.change(changed())
    except AclError as error:
        raise Refused(refused, str(error)) from error
    return OK


@handles(RequestCode.UPDATE_AND_CREATE_ACL_CONFIG, header=UpdateAclConfig, access=ADMIN)
def update_account(core: BrokerCore, request: Request[UpdateAclConfig]) -> Answer:
    """Makes an account, or changes what is named of one. As in Apache, it is an admin only if that is said again."""
    refused = ResponseCode.UPDATE_AND_CREATE_ACL_CONFIG_FAILED
    acl, header = _acl_of(core, refused), request.header

    def changed() -> Rules:
        known = acl.rules.accounts.get(header.access_key)
        form = AccountForm(access_key=header.access_key) if known is None else form_of(known)
        form = msgspec.structs.replace(form, admin=header.admin)
        if header.secret_key not in (None, "", MASK):
            form = msgspec.structs.replace(form, secret_key=header.secret_key)
        if header.white_remote_address is not None:
            form = msgspec.structs.replace(form, white_remote_address=header.white_remote_address)
        if header.default_topic_perm:
            form = msgspec.structs.replace(form, default_topic_perm=header.default_topic_perm)
        if header.default_group_perm:
            form = msgspec.structs.replace(form, default_group_perm=header.default_group_perm)
        if header.topic_perms is not None:
            form = msgspec.structs.replace(form, topic_perms=_listed(header.topic_perms))
        if header.group_perms is not None:
            form = msgspec.structs.replace(form, group_perms=_listed(header.group_perms))
        return acl.rules.with_account(account_from(form), request.now.wall_ms)

    return _change(acl, refused, changed)


@handles(RequestCode.DELETE_ACL_CONFIG, header=DeleteAclConfig, access=ADMIN)
def delete_account(core: BrokerCore, request: Request[DeleteAclConfig]) -> Answer:
    """Removes an account, but never the last admin."""
    refused = ResponseCode.DELETE_ACL_CONFIG_FAILED
    acl = _acl_of(core, refused)
    return _change(
        acl, refused, lambda: acl.rules.without_account(request.header.access_key, request.now.wall_ms)
    )


@handles(RequestCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG, header=UpdateGlobalWhiteAddrs, access=ADMIN)
def update_white_addresses(core: BrokerCore, request: Request[UpdateGlobalWhiteAddrs]) -> Answer:
    """Keeps the list, for Apache's tools; it spares nobody the signature here."""
    refused = ResponseCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG_FAILED
    acl = _acl_of(core, refused)
    texts = _listed(request.header.global_white_addrs)
    return _change(acl, refused, lambda: acl.rules.with_white_addresses(texts, request.now.wall_ms))


@handles(RequestCode.GET_BROKER_CLUSTER_ACL_INFO, header=NoHeader, access=ADMIN)
def acl_version(core: BrokerCore, _request: Request[NoHeader]) -> Answer:
    """Which state of which file is in force."""
    acl = _acl_of(core)
    version = encode_body(acl.rules.version)
    files = msgspec.json.encode({acl.file_name: msgspec.Raw(version)})
    return Answer(
        header=AclVersionResponse(
            version=version.decode(),
            all_acl_file_version=files.decode(),
            broker_name=core.settings.broker_name,
            broker_addr=core.address,
            cluster_name=core.settings.cluster_name,
        )
    )


@handles(RequestCode.GET_BROKER_CLUSTER_ACL_CONFIG, header=NoHeader, access=ADMIN)
def acl_config(core: BrokerCore, _request: Request[NoHeader]) -> Answer:
    """Every account without its secret."""
    rules = _acl_of(core).rules
    accounts = tuple(_shown(form_of(account)) for account in rules.accounts.values())
    addresses = tuple(pattern.text for pattern in rules.white_addresses)
    return Answer(body=encode_body(AclConfig(global_white_addrs=addresses, plain_access_configs=accounts)))


def _shown(form: AccountForm) -> PlainAccessConfig:
    return PlainAccessConfig(**{**msgspec.structs.asdict(form), "secret_key": MASK})


def _listed(text: str) -> tuple[str, ...]:
    """Texts joined with commas. The commas of a pattern in braces are not those."""
    found: list[str] = []
    for piece in text.split(","):
        if found and "{" in found[-1] and "}" not in found[-1]:
            found[-1] += "," + piece
        elif piece.strip():
            found.append(piece.strip())
    return tuple(found)
