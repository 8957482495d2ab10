"""The Apache RocketMQ versions we measure ourselves against."""

from __future__ import annotations

import os

# 4.9.8 would be the newest 4.9, but Maven Central has only its rocketmq-client and rocketmq-tools, no broker
# and no name server; so the newest 4.9 server is 4.9.7. 5.5.0 is the newest 5.x.
VERSIONS = ("4.9.3", "4.9.7", "5.5.0")


def chosen_versions() -> tuple[str, ...]:
    """The comma-separated versions of `TRIMTAB_APACHE_VERSIONS`, or all of them."""
    wanted = tuple(
        part.strip() for part in os.environ.get("TRIMTAB_APACHE_VERSIONS", "").split(",") if part.strip()
    )
    for version in wanted:
        require_known(version)
    return wanted or VERSIONS


def thorough_versions() -> tuple[str, ...]:
    """For tests that start servers of their own, at half a minute each: the oldest version, or all with TRIMTAB_FULL=1."""
    return chosen_versions() if os.environ.get("TRIMTAB_FULL") else chosen_versions()[:1]


def require_known(version: str) -> None:
    if version not in VERSIONS:
        raise ValueError(f"unknown Apache RocketMQ version {version!r}; choose among {', '.join(VERSIONS)}")


def is_4x(version: str) -> bool:
    return version.startswith("4.")
