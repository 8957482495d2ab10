"""Fetches Apache RocketMQ's jars, and all they need, by Maven coordinates."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

from tests.apache.cache import built_once, cache_folder
from tests.apache.java import find_tool
from tests.apache.versions import require_known

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

ARTIFACTS = ("rocketmq-namesrv", "rocketmq-broker", "rocketmq-tools", "rocketmq-client")
FETCH_TIMEOUT_S = 1800.0

POM = """\
<project>
  <modelVersion>4.0.0</modelVersion>
  <groupId>trimtab</groupId>
  <artifactId>apache-{version}</artifactId>
  <version>1</version>
  <dependencies>
{dependencies}
  </dependencies>
</project>
"""
DEPENDENCY = "    <dependency><groupId>org.apache.rocketmq</groupId><artifactId>{artifact}</artifactId><version>{version}</version></dependency>"


class FetchError(Exception):
    """Maven could not fetch the jars; the text carries its last words."""


def jars(version: str) -> Sequence[Path]:
    """The jars of servers, client and tools of `version`, fetched once and kept in the cache."""
    require_known(version)
    folder = built_once(cache_folder() / "apache" / version, lambda temporary: _fetch(version, temporary))
    # Sorted, because a JVM expands `folder/*` in the order of the file system.
    return sorted(folder.glob("*.jar"))


def classpath(version: str) -> str:
    return ":".join(map(str, jars(version)))


def pom(version: str) -> str:
    dependencies = (DEPENDENCY.format(artifact=artifact, version=version) for artifact in ARTIFACTS)
    return POM.format(version=version, dependencies="\n".join(dependencies))


def _fetch(version: str, folder: Path) -> None:
    maven = find_tool("mvn", "Install Maven 3.8 or newer")
    pom_file = folder / "pom.xml"
    pom_file.write_text(pom(version))
    command: list[str | Path] = [
        maven,
        "-q",
        "-B",
        "-f",
        pom_file,
        "dependency:copy-dependencies",
        f"-DoutputDirectory={folder}",
    ]
    try:
        run = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=FETCH_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired as exc:
        raise FetchError(
            f"Maven fetched RocketMQ {version} for {FETCH_TIMEOUT_S:.0f} s without an end"
        ) from exc
    if run.returncode != 0:
        raise FetchError(
            f"Maven could not fetch RocketMQ {version} (exit {run.returncode}); try again when the network is there:\n{run.stdout[-4000:]}"
        )
