"""Finds a JDK and says how its tools are called for RocketMQ."""

from __future__ import annotations

import functools
import os
import re
import shutil
import subprocess
from pathlib import Path

JAVA_MIN = 17

# 4.9 unmaps files and reads netty's buffers by reflection; both are closed since JDK 16. The same flags serve 17 to 25.
OPEN_FLAGS = tuple(
    f"--add-{verb}=java.base/{package}=ALL-UNNAMED"
    for verb in ("opens", "exports")
    for package in (
        "java.lang",
        "java.nio",
        "java.util",
        "jdk.internal.misc",
        "jdk.internal.ref",
        "sun.nio.ch",
    )
)
UTF8_FLAGS = (
    "-Dfile.encoding=UTF-8",
    "-Dstdin.encoding=UTF-8",
    "-Dstdout.encoding=UTF-8",
    "-Dstderr.encoding=UTF-8",
)
# For programs that have little to do: the time goes into starting and into compiling, not into running.
LIGHT_LOAD_FLAGS = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
SHORT_LIVED_FLAGS = (*LIGHT_LOAD_FLAGS, "-Xms32m", "-Xmx256m", "-XX:-UsePerfData")


class ToolMissingError(Exception):
    """A program the harness needs is not installed; the text says what to install."""


def java() -> Path:
    return _checked("java")


def javac() -> Path:
    return _checked("javac")


def find_tool(name: str, remedy: str) -> Path:
    """Where `name` is on the PATH."""
    found = shutil.which(name)
    if found is None:
        raise ToolMissingError(f"{remedy}: the Apache RocketMQ harness found no `{name}` on the PATH.")
    return Path(found)


def _checked(name: str) -> Path:
    """The tool of JAVA_HOME if that is set, else of the PATH; new enough."""
    remedy = f"Install a JDK {JAVA_MIN} or newer and put it on the PATH or into JAVA_HOME"
    home = os.environ.get("JAVA_HOME")
    tool = Path(home) / "bin" / name if home else find_tool(name, remedy)
    if not os.access(tool, os.X_OK):
        raise ToolMissingError(f"{remedy}: JAVA_HOME is set, but it has no `bin/{name}`.")
    if (release := _release(tool)) < JAVA_MIN:
        raise ToolMissingError(f"{remedy}: the `{name}` found is of JDK {release}.")
    return tool


@functools.cache
def _release(tool: Path) -> int:
    """The 17 of `openjdk version "17.0.15"` or `javac 17.0.15`; JDK 8 calls itself 1.8 and counts as 1."""
    answer = subprocess.run([tool, "-version"], capture_output=True, text=True, timeout=60, check=True)
    number = re.search(r'(?:version "|javac )(\d+)', answer.stderr + answer.stdout)
    if number is None:
        raise ToolMissingError(
            f"Install another JDK: `{tool.name} -version` said no version but {answer.stderr!r}."
        )
    return int(number[1])
