"""A Spark session for one command: what Ctrl-C does to it, and that nothing of it stays behind."""

import logging
import os
import shutil
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

STOP_S_MAX = 20.0
READ_BYTES = 65536


@contextmanager
def spark_session(name: str, start: "Callable[[], SparkSession]") -> "Iterator[SparkSession]":
    """A session for as long as the block; one that is interrupted says a line and leaves no JVM behind."""
    others = _children()
    heard = threading.Event()
    shown = os.dup(2)
    with _one_line_at_ctrl_c(name, shown, heard) as catch:
        try:
            with _errors_until(heard, shown):
                session = start()
            catch()  # PySpark has put its own in place
            with _stopped(session):
                yield session
        except KeyboardInterrupt:
            _end(_children() - others)
            raise


@contextmanager
def _errors_until(heard: threading.Event, shown: int) -> Iterator[None]:
    """What starts in the block has its errors shown until Ctrl-C is heard: that Spark's workers are cut off is no news."""
    readable, writable = os.pipe()
    threading.Thread(target=_show, args=(readable, shown, heard), daemon=True).start()
    os.dup2(writable, 2)
    os.close(writable)
    try:
        yield
    finally:
        os.dup2(shown, 2)


def _show(readable: int, shown: int, heard: threading.Event) -> None:
    while said := os.read(readable, READ_BYTES):
        if not heard.is_set():
            os.write(shown, said)


@contextmanager
def _stopped(session: "SparkSession") -> Iterator[None]:
    """Stops the session after the block."""
    try:
        yield
    except KeyboardInterrupt:
        # The connection of this thread to the JVM may be in the middle of an answer: another thread has its own.
        beside = threading.Thread(target=_stop, args=(session,), daemon=True)
        beside.start()
        beside.join(STOP_S_MAX)
        raise
    except BaseException:
        _stop(session)
        raise
    _stop(session)


def _stop(session: "SparkSession") -> None:
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    with suppress(PySparkException, Py4JError, OSError):  # a server that is gone has said so already
        for query in session.streams.active:
            query.stop()
        session.stop()


@contextmanager
def _one_line_at_ctrl_c(name: str, shown: int, heard: threading.Event) -> Iterator[Callable[[], None]]:
    """For as long as the block, what Ctrl-C does once it is caught: it says one line, and the block ends.

    PySpark's own handler asks the JVM to cancel jobs over a connection that may be in the middle of an answer, and py4j logs what comes of that.
    """
    before = signal.getsignal(signal.SIGINT)

    def interrupted(_number: int, _frame: object) -> None:
        heard.set()
        logging.disable(logging.CRITICAL)
        signal.signal(signal.SIGINT, signal.default_int_handler)  # who cannot wait presses it once more
        os.write(shown, f"{name}: interrupted, stopping Spark …\n".encode())
        raise KeyboardInterrupt

    def catch() -> None:
        signal.signal(signal.SIGINT, interrupted)

    catch()
    try:
        yield catch
    finally:
        signal.signal(signal.SIGINT, before)
        logging.disable(logging.NOTSET)


def _children() -> set[int]:
    """The processes that this one started and that still run."""
    listing = shutil.which("ps")
    if listing is None:
        return set()
    listed = subprocess.Popen([listing, "-A", "-o", "pid=,ppid="], stdout=subprocess.PIPE, text=True)  # noqa: S603 - our own words
    said, _ = listed.communicate()
    pairs = (line.split() for line in said.splitlines())
    return {int(pid) for pid, parent in pairs if int(parent) == os.getpid()} - {listed.pid}


def _end(children: set[int]) -> None:
    """A JVM that was still starting has nobody to tell it to stop, and PySpark forgets it: it would run for ever."""
    for child in children:
        with suppress(ProcessLookupError):
            os.kill(child, signal.SIGTERM)
