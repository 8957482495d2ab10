"""A server that anybody can reach must know who asks."""

import ipaddress

from trimtab.errors import TrimtabError


class OpenExposureError(TrimtabError):
    """A server without accounts would listen where others can reach it."""


def refuse_open_exposure(host: str, *, has_acl: bool, insecure_open: bool) -> None:
    """`OpenExposureError` if a server at `host` would serve strangers without asking who they are."""
    if has_acl or insecure_open or is_private_to_this_machine(host):
        return
    raise OpenExposureError(
        f"refusing to listen at {host or 'every address'} without accounts: anybody who reaches it could read, write and delete"
        " everything. Name an ACL file, or listen at 127.0.0.1, or say --insecure-open if the network is closed"
    )


def is_private_to_this_machine(host: str) -> bool:
    """Loopback addresses and `localhost`. A name that only a resolver knows does not count, nor does an empty one."""
    if host.lower().rstrip(".") == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]").partition("%")[0]).is_loopback
    except ValueError:
        return False
