"""Asks Java before we trust our own opinion: runs a small program of ours against RocketMQ's own jars.

The sources lie in `tests/apache/java`, one public class a file. A program answers either a whole list of questions
(`run`: lines in on stdin, lines out on stdout) or one after the other while it acts as a client (`start`).
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from tests.apache import homes, java
from tests.apache.cache import built_once, cache_folder
from tests.apache.conversation import Conversation, OracleError
from tests.apache.jars import classpath

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

SOURCES = Path(__file__).parent / "java"
COMPILE_TIMEOUT_S = 300.0
RUN_TIMEOUT_S = 600.0


class JavaOracle:
    """One Java source, with its companions, compiled for one RocketMQ version; its main class is called like the file."""

    def __init__(self, version: str, source: Path, companions: Sequence[Path] = ()) -> None:
        self.version = version
        self.source = source
        self._sources = [source, *companions]
        self._jars = classpath(version)
        text = b"".join(file.read_bytes() for file in self._sources)
        key = hashlib.sha256(f"{version}\0{source.name}\0".encode() + text).hexdigest()[:24]
        self._classes = built_once(cache_folder() / "oracle" / key, self._compile)

    def __repr__(self) -> str:
        return f"<JavaOracle {self.source.stem} with RocketMQ {self.version}>"

    def run(
        self, lines: Iterable[str] | str = (), args: Sequence[str] = (), jvm_args: Sequence[str] = ()
    ) -> list[str]:
        """The lines the program answers to these lines."""
        questions = lines if isinstance(lines, str) else "".join(f"{line}\n" for line in lines)
        home = Path(tempfile.mkdtemp(prefix="trimtab-oracle-"))
        try:
            answer = subprocess.run(
                self._command(home, args, jvm_args),
                input=questions.encode(),
                capture_output=True,
                timeout=RUN_TIMEOUT_S,
                check=False,
            )
        finally:
            shutil.rmtree(home, ignore_errors=True)
        if answer.returncode != 0:
            raise OracleError(
                f"{self!r} exited with {answer.returncode}:\n{answer.stderr.decode(errors='replace')[-8192:]}"
            )
        return answer.stdout.decode().split("\n")[:-1]

    def start(self, args: Sequence[str] = (), jvm_args: Sequence[str] = ()) -> Conversation:
        """The program, running, to be used as a context manager: tell it a line, hear a line."""
        home = Path(tempfile.mkdtemp(prefix="trimtab-oracle-"))
        try:
            return Conversation(repr(self), self._command(home, args, jvm_args), home)
        except BaseException:
            shutil.rmtree(home, ignore_errors=True)
            raise

    def _command(self, home: Path, args: Sequence[str], jvm_args: Sequence[str]) -> list[str | Path]:
        return [
            java.java(),
            *java.OPEN_FLAGS,
            *java.UTF8_FLAGS,
            *java.SHORT_LIVED_FLAGS,
            *homes.home_flags(home, stream="err", level="WARN"),
            *jvm_args,
            "-cp",
            f"{self._classes}:{self._jars}",
            self.source.stem,
            *args,
        ]

    def _compile(self, folder: Path) -> None:
        command: list[str | Path] = [
            java.javac(),
            "--release",
            str(java.JAVA_MIN),
            "-encoding",
            "UTF-8",
            "-proc:none",
            "-nowarn",
            "-cp",
            self._jars,
            "-d",
            folder,
            *self._sources,
        ]
        run = subprocess.run(command, capture_output=True, text=True, timeout=COMPILE_TIMEOUT_S, check=False)
        if run.returncode != 0:
            raise OracleError(
                f"{self.source.name} does not compile with RocketMQ {self.version}:\n{run.stderr[-8192:]}"
            )
