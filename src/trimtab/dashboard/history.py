"""What was seen, in an SQLite file of bounded size: figures over time, and moments of groups.

A figure is kept when it changes, and once a minute. The oldest rows go when there are too many. Whoever calls does so in a thread.
"""

import logging
import sqlite3
import threading
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

from trimtab.dashboard.answers import Moment, Point
from trimtab.errors import TrimtabError

logger = logging.getLogger(__name__)

FIGURES_MAX = 400_000
MOMENTS_MAX = 100_000
FILE_BYTES_MAX = 128 * 1024 * 1024
PAGE_BYTES = 4096
SAME_FIGURE_MS = 60_000
PRUNE_EVERY = 1_000
LOCKED_S_MAX = 1.0
"""How long another program that has the file is waited for; what is to be kept then is left out."""
_TABLES = """
CREATE TABLE IF NOT EXISTS figures (name TEXT NOT NULL, at_ms INTEGER NOT NULL, value REAL NOT NULL);
CREATE INDEX IF NOT EXISTS figures_by_name ON figures (name, at_ms);
CREATE TABLE IF NOT EXISTS moments (
  grp TEXT NOT NULL, at_ms INTEGER NOT NULL, text TEXT NOT NULL, UNIQUE (grp, at_ms, text)
);
"""


class HistoryError(TrimtabError):
    """The file of the history cannot be used."""


class History:
    """See the module's own words. Without a path it is in memory, and gone when this ends."""

    def __init__(
        self,
        path: Path | None,
        *,
        figures_max: int = FIGURES_MAX,
        moments_max: int = MOMENTS_MAX,
        file_bytes_max: int = FILE_BYTES_MAX,
        locked_s_max: float = LOCKED_S_MAX,
    ) -> None:
        self._lock = threading.Lock()
        self._figures_max = figures_max
        self._moments_max = moments_max
        self._last: dict[str, Point] = {}
        self._added = 0
        self._is_stopped = False
        try:
            self._db = sqlite3.connect(
                ":memory:" if path is None else path, check_same_thread=False, timeout=locked_s_max
            )
            self._db.execute("PRAGMA journal_mode=WAL")
            self._db.execute(
                "PRAGMA synchronous=NORMAL"
            )  # a power cut may cost the last seconds, not the file
            self._db.execute(f"PRAGMA max_page_count={file_bytes_max // PAGE_BYTES}")
            self._db.executescript(_TABLES)
            self._prune()  # those that ran before may each have ended before it was time to
        except sqlite3.Error as error:
            raise HistoryError(f"{path} cannot be used: {error}; move it away to begin a new one") from error

    def close(self) -> None:
        """Ends it."""
        with self._lock:
            self._db.close()

    def add_figures(self, at_ms: int, figures: Iterable[tuple[str, float]]) -> None:
        """Keeps those that changed, or are a minute old."""
        with self._lock:
            rows = []
            for name, value in figures:
                last = self._last.get(name)
                if last is None or last.value != value or at_ms - last.at_ms >= SAME_FIGURE_MS:
                    self._last[name] = Point(at_ms=at_ms, value=value)
                    rows.append((name, at_ms, value))
            self._insert("INSERT INTO figures VALUES (?, ?, ?)", rows)

    def add_moments(self, group: str, moments: Iterable[Moment]) -> None:
        """Keeps those that are new."""
        rows = [(group, moment.at_ms, msgspec.json.encode(moment).decode()) for moment in moments]
        with self._lock:
            self._insert("INSERT OR IGNORE INTO moments VALUES (?, ?, ?)", rows)

    def figures(self, name: str, since_ms: int, *, points_max: int = 500) -> tuple[Point, ...]:
        """A figure over time, thinned out evenly if there are many."""
        with self._lock:
            rows = self._db.execute(
                "SELECT at_ms, value FROM figures WHERE name = ? AND at_ms >= ? ORDER BY at_ms",
                (name, since_ms),
            ).fetchall()
        step = max(1, -(-len(rows) // points_max))
        kept = rows[::step] if not rows or (len(rows) - 1) % step == 0 else [*rows[::step], rows[-1]]
        return tuple(Point(at_ms=at_ms, value=value) for at_ms, value in kept)

    def moments(self, group: str, *, count_max: int = 5_000) -> tuple[Moment, ...]:
        """The newest moments of a group, oldest of them first."""
        with self._lock:
            rows = self._db.execute(
                "SELECT text FROM moments WHERE grp = ? ORDER BY at_ms DESC LIMIT ?", (group, count_max)
            ).fetchall()
        return tuple(msgspec.json.decode(text, type=Moment) for (text,) in reversed(rows))

    def _insert(self, statement: str, rows: Sequence[tuple[str, int, object]]) -> None:
        if not rows:
            return
        try:
            try:
                self._write(statement, rows)
            except sqlite3.OperationalError as error:
                if error.sqlite_errorcode != sqlite3.SQLITE_FULL:
                    raise
                self._prune(half=True)  # the file has come to its own limit, or the disk is full
                self._write(statement, rows)
            self._is_stopped = False
        except sqlite3.OperationalError as error:
            if not self._is_stopped:
                logger.warning("the history is not written: %s; it goes on when that is over", error)
            self._is_stopped = True

    def _write(self, statement: str, rows: Sequence[tuple[str, int, object]]) -> None:
        with self._db:
            self._db.executemany(statement, rows)
        self._added += len(rows)
        if self._added >= PRUNE_EVERY:
            self._added = 0
            self._prune()

    def _prune(self, *, half: bool = False) -> None:
        """Rows are numbered as they come and go from the oldest on, so their numbers say how many there are."""
        for table, most in (("figures", self._figures_max), ("moments", self._moments_max)):
            first, last = self._db.execute(f"SELECT min(rowid), max(rowid) FROM {table}").fetchone()  # noqa: S608 - our own names
            count = 0 if first is None else last - first + 1
            keep = min(most, count // 2) if half else most
            if count > keep:
                try:
                    with self._db:
                        self._db.execute(f"DELETE FROM {table} WHERE rowid <= ?", (last - keep,))  # noqa: S608
                except sqlite3.OperationalError:
                    return  # no room even for that, or somebody has the file; the next time
        if len(self._last) > self._figures_max:
            self._last.clear()
