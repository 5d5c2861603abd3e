"""Rows of the run index kept in a SQLite file beside the runs, so that a run is read once.

The file may be deleted at any time, and nothing depends on it: where it cannot be opened, written or understood, rows are
made from the runs. It is for its owner only, since commands stand in it.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import stat

from otel_memwatch.record.format import INDEX_FILE
from otel_memwatch.runs.indexed_run import IndexedRun
from otel_memwatch.runtime.typed import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from otel_memwatch.runs.tree import Signature

_VERSION = 6
"""Of the rows: raised whenever a row is made in another way, so that old ones are made again."""
_PATIENCE = 0.2
"""Seconds that another reader, who is writing what it found, is waited for."""

_TOGETHER = 1000
"""Rows that are written in one transaction."""

_KEPT = IndexedRun._fields[1:]  # the path depends on how the directory was named
_QUOTED = ", ".join(f'"{name}"' for name in _KEPT)
_SIGNATURE = "directory, changed, size, inode"
_COLUMNS = f"{_SIGNATURE}, {_QUOTED}"
_CREATE = f"""
CREATE TABLE IF NOT EXISTS runs (directory BLOB PRIMARY KEY, changed, size, inode, {_QUOTED}) WITHOUT ROWID
"""
_FINAL = frozenset(("finished", "incomplete", "broken"))
"""States in which a run does not change without its `run.json`."""


class IndexCache:
    """The cache of the runs directly in one directory."""

    def __init__(self, directory: str) -> None:
        self._directory = directory
        self._path = f"{directory}/{INDEX_FILE}"
        self._database: sqlite3.Connection | None = None

    def __enter__(self) -> IndexCache:  # noqa: PYI034 - `Self` is in `typing` from 3.11 on only
        try:
            self._database = self._open()
        except (OSError, sqlite3.Error):
            self._database = None
        return self

    def __exit__(self, *_: object) -> None:
        self._close()

    def rows(
        self,
        entries: Mapping[str, Signature | None],
        make: Callable[[str], IndexedRun],
        newest: int | None = None,
    ) -> Iterator[IndexedRun]:
        """The row of each run directory in `entries`, in no order: the one that is kept where its signature is the same, else made anew.

        With `newest` no more than these need be among them: of the others no more is read than whether they are the same.
        """
        missing, gone = dict(entries), []
        whole = newest is None
        for kept in self._kept(_COLUMNS if whole else _SIGNATURE):
            name = os.fsdecode(kept[0])
            if name not in entries:
                gone.append(name)
            elif entries[name] == kept[1:4]:
                del missing[name]
                if whole:
                    yield tuple.__new__(IndexedRun, (f"{self._directory}/{name}", *kept[4:]))
        if newest is not None:
            # Those that are gone or to be made anew may stand among the newest.
            wanted = newest + len(gone) + len(missing)
            for kept in self._kept(_COLUMNS, f"ORDER BY started DESC, directory DESC LIMIT {wanted}"):
                name = os.fsdecode(kept[0])
                if name in entries and name not in missing:
                    yield tuple.__new__(IndexedRun, (f"{self._directory}/{name}", *kept[4:]))
        if gone:
            self._keep([], gone)
        yield from self._made_anew(missing, make)

    def _made_anew(
        self, missing: Mapping[str, Signature | None], make: Callable[[str], IndexedRun]
    ) -> Iterator[IndexedRun]:
        """The rows of these, which are kept some at a time: what was read stays, though the reader be interrupted."""
        fresh: list[tuple[str, Signature, IndexedRun]] = []
        # In the order of the file, to whose end they are written then: in any other one each would be another page of it.
        for name in sorted(missing):
            row, signature = make(f"{self._directory}/{name}"), missing[name]
            if signature is not None and row.state in _FINAL:
                fresh.append((name, signature, row))
            if len(fresh) >= _TOGETHER:
                self._keep(fresh, [])
                fresh.clear()
            yield row
        self._keep(fresh, [])

    # -- the file

    def _open(self) -> sqlite3.Connection | None:
        try:
            os.close(os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        except FileExistsError:
            status = os.lstat(self._path)
            # What somebody else has put there is neither believed nor written to.
            if not stat.S_ISREG(status.st_mode) or status.st_uid != os.geteuid():
                return None
        database = sqlite3.connect(self._path, timeout=_PATIENCE, isolation_level=None)
        try:
            database.execute("PRAGMA synchronous=OFF")  # what a crash of the machine destroys is made again
            if database.execute("PRAGMA user_version").fetchone() != (_VERSION,):
                database.execute("DROP TABLE IF EXISTS runs")
                database.execute(_CREATE)
                database.execute(f"PRAGMA user_version={_VERSION}")
        except sqlite3.Error as error:
            database.close()
            self._give_up(error)
            return None
        return database

    def _kept(self, columns: str, which: str = "") -> Iterator[tuple[Any, ...]]:
        """These columns of the rows in the file; fewer where it is damaged."""
        if self._database is None:
            return
        try:
            yield from self._database.execute(
                f"SELECT {columns} FROM runs WHERE typeof(directory) = 'blob' {which}"  # noqa: S608 - of our own
            )
        except sqlite3.Error as error:
            self._give_up(error)

    def _keep(self, fresh: list[tuple[str, Signature, IndexedRun]], gone: list[str]) -> None:
        if self._database is None or not (fresh or gone):
            return
        marks = ", ".join("?" * (4 + len(_KEPT)))
        try:
            self._database.execute("BEGIN IMMEDIATE")
            self._database.executemany(
                "DELETE FROM runs WHERE directory = ?", [(os.fsencode(one),) for one in gone]
            )
            self._database.executemany(
                f"INSERT OR REPLACE INTO runs ({_COLUMNS}) VALUES ({marks})",  # noqa: S608
                [(os.fsencode(name), *signature, *row[1:]) for name, signature, row in fresh],
            )
            self._database.execute("COMMIT")
        except (sqlite3.Error, OverflowError) as error:
            self._give_up(error)

    def _give_up(self, error: Exception) -> None:
        """Goes on without the file; one that is damaged is removed, one that somebody else is writing is left."""
        self._close()
        if isinstance(error, sqlite3.DatabaseError) and not isinstance(error, sqlite3.OperationalError):
            with contextlib.suppress(OSError):
                os.unlink(self._path)

    def _close(self) -> None:
        if self._database is not None:
            with contextlib.suppress(sqlite3.Error):
                self._database.close()
            self._database = None
