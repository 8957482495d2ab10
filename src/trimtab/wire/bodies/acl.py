"""Accounts and permissions of 4.9 brokers."""

from msgspec import field

from trimtab.wire.bodies.base import Body
from trimtab.wire.bodies.topics import DataVersion


class PlainAccessConfig(Body, frozen=True, kw_only=True):
    access_key: str | None = None
    secret_key: str | None = None
    white_remote_address: str | None = None
    admin: bool = False
    default_topic_perm: str | None = None
    default_group_perm: str | None = None
    topic_perms: tuple[str, ...] | None = None
    """`topic=PUB|SUB`, `topic=DENY`"""
    group_perms: tuple[str, ...] | None = None

    def __repr__(self) -> str:
        """Without the secret, for logs."""
        secret = "None" if self.secret_key is None else "'***'"
        return f"PlainAccessConfig(access_key={self.access_key!r}, secret_key={secret}, admin={self.admin})"


class AclConfig(Body, frozen=True, kw_only=True):
    global_white_addrs: tuple[str, ...] | None = None
    plain_access_configs: tuple[PlainAccessConfig, ...] | None = None


class ClusterAclVersionInfo(Body, frozen=True, kw_only=True):
    """What the header fields of code 52 say; their values `version` and `allAclFileVersion` are JSON of their own."""

    broker_name: str | None = None
    broker_addr: str | None = None
    cluster_name: str | None = None
    acl_config_data_version: DataVersion | None = None
    all_acl_config_data_version: dict[str, DataVersion] | None = field(default=None)
