"""Cache of the run index in a SQLite file beside the runs: each run is read once.

The file may be deleted at any time. If it cannot be opened, written or parsed, rows are made from the runs. Only its owner
can read it, because it contains commands.

The file may come from an unpacked archive, so it is checked before it is used:

* It belongs to the reader, in a directory of the reader's that is not world-writable.
* It has no journal: SQLite would replay it. Ours is kept in memory; a crash costs the file.
* It contains our table and nothing else. Views and triggers would run as part of a query.
* Each column of a row has the type that we write. Other rows are made anew.
* A query ends after a number of steps that grows with the number of runs.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import sqlite3
import stat
from functools import lru_cache

from otel_memwatch.model import Certainty
from otel_memwatch.record.fields import FARTHEST, moment
from otel_memwatch.record.format import INDEX_FILE
from otel_memwatch.record.jsonl import open_regular
from otel_memwatch.runtime.typed import TYPE_CHECKING, Any
from otel_memwatch.wings.index.indexed_run import IndexedRun

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from otel_memwatch.wings.index.filter import Condition
    from otel_memwatch.wings.index.run_search import Signature

_VERSION = 15
"""Version of the rows: raise it if rows are made in another way, so old ones are made anew."""
_PATIENCE = 0.2
"""Seconds to wait for another reader that is writing."""

_TOGETHER = 1000
"""Rows written in one transaction."""
_READ_TOGETHER = 500
"""Rows read by their names at once, at most: old versions of SQLite take 999 parameters."""

_MANY = 5000
"""Runs above which `expect_many` saves more time than its import takes."""

_KEPT = IndexedRun._fields[1:]  # the path depends on how the directory was named
_QUOTED = ", ".join(f'"{name}"' for name in _KEPT)
_SIGNATURE = "directory, changed, size, inode"
_COLUMNS = f"{_SIGNATURE}, {_QUOTED}"
_CREATE = f"CREATE TABLE runs (directory BLOB PRIMARY KEY, changed, size, inode, {_QUOTED}) WITHOUT ROWID"
_SCHEMA = [("table", "runs", "runs", _CREATE)]
"""Expected content of `sqlite_master`."""
_FORMAT = b"\1\1"
"""Bytes 18 and 19 of the file: no write-ahead log."""
_SIDE_FILES = ("-journal", "-wal", "-shm")

_STEPS, _STEPS_A_RUN = 5_000_000, 500
"""Steps of SQLite's virtual machine allowed in total, plus those for each run.

A run needs 110 steps; five million take a second.
"""
_STEPS_AT_ONCE = 100_000
"""Steps between two counts."""
_LIMIT_LENGTH = 0  # sqlite3.SQLITE_LIMIT_LENGTH, which Python 3.10 lacks
_LONGEST = 64 << 20
"""Bytes of the longest value: a command has up to 6 MiB, and escaping multiplies its size."""

_ALLOWED: dict[str, frozenset[type]] = {
    "str": frozenset((str,)),
    "str | None": frozenset((str, type(None))),
    "int": frozenset((int,)),
    "int | None": frozenset((int, type(None))),
    "float": frozenset((float, int)),
    "float | None": frozenset((float, int, type(None))),
}
_TYPES = tuple(_ALLOWED[IndexedRun.__annotations__[name]] for name in _KEPT)
_STATE, _CERTAINTY, _STARTED, _SECONDS, _CPU, _TAGS, _COMMAND = map(
    _KEPT.index, ("state", "certainty", "started", "seconds", "cpu", "tags_json", "command_json")
)
_CERTAINTIES = frozenset((None, *(certainty.value for certainty in Certainty)))
_FINAL = frozenset(("finished", "incomplete", "broken"))
"""States in which a run does not change without its `run.json`."""


class IndexCache:
    """The cache of the runs directly in one directory."""

    def __init__(self, directory: str) -> None:
        self._directory = directory
        self._path = f"{directory}/{INDEX_FILE}"
        self._database: sqlite3.Connection | None = None
        self._steps = _STEPS

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
        accepts: Condition | None = None,
    ) -> Iterator[IndexedRun]:
        """Yield a row for each run directory in `entries`, unordered: from the cache if its signature matches, else anew.

        With `newest`, only that many of the newest rows that match are required; of older ones only the signature is checked.
        """
        missing, gone = dict(entries), []
        starts: list[tuple[float, str]] = []
        whole = newest is None
        self._steps = _STEPS + _STEPS_A_RUN * len(entries)
        # Without the whole row, the only value is the start, by which rows are ordered.
        sound = is_sound_row if whole else lambda values: moment(values[0]) is not None
        for kept in self._kept(_COLUMNS if whole else f"{_SIGNATURE}, started"):
            name = os.fsdecode(kept[0])
            if name not in entries:
                gone.append(name)
            # A damaged file may hold a name twice.
            elif missing.get(name) == kept[1:4] and sound(values := kept[4:]):
                del missing[name]
                if whole:
                    yield tuple.__new__(IndexedRun, (f"{self._directory}/{name}", *values))
                else:
                    starts.append((values[0], name))
        if newest is not None:
            starts.sort(reverse=True)
            unread: set[str] = set()
            yield from self._newest(newest, [name for _, name in starts], accepts, unread)
            missing.update((name, entries[name]) for name in unread)
        if gone:
            self._keep([], gone)
        yield from self._made(missing, make)

    def _made(
        self, missing: Mapping[str, Signature | None], make: Callable[[str], IndexedRun]
    ) -> Iterator[IndexedRun]:
        """Make the missing rows and store them in batches: an interrupted reader keeps the finished batches."""
        if len(missing) > _MANY:
            from otel_memwatch.record.open import expect_many

            expect_many()
        fresh: list[tuple[str, Signature, IndexedRun]] = []
        # Sorted as in the file, rows are appended at its end. In another order each would touch another page.
        for name in sorted(missing):
            row, signature = make(f"{self._directory}/{name}"), missing[name]
            if signature is not None and row.state in _FINAL:
                fresh.append((name, signature, row))
            if len(fresh) >= _TOGETHER:
                self._keep(fresh, [])
                fresh.clear()
            yield row
        self._keep(fresh, [])

    def _newest(
        self, number: int, names: Sequence[str], accepts: Condition | None, unread: set[str]
    ) -> Iterator[IndexedRun]:
        """Yield the first rows that match of these names, newest first. Names without a sound row are added to `unread`.

        Older rows are not read. Rows are read some at once, first as many as are required.
        """
        end, size = 0, number
        while number > 0 and end < len(names):
            begin, end = end, end + min(size, _READ_TOGETHER)
            size *= 2
            wanted = set(names[begin:end])
            marks = ", ".join("?" * len(wanted))
            for kept in self._kept(_COLUMNS, f"AND directory IN ({marks})", map(os.fsencode, wanted)):
                name = os.fsdecode(kept[0])
                if name not in wanted or not is_sound_row(kept[4:]):
                    continue
                wanted.discard(name)
                row = tuple.__new__(IndexedRun, (f"{self._directory}/{name}", *kept[4:]))
                if accepts is None or accepts(row):
                    number -= 1
                    yield row
            unread |= wanted

    # -- the file

    def _open(self) -> sqlite3.Connection | None:
        """Open the file, made anew if it is damaged; `None` if there can be none."""
        status = os.stat(self._directory)
        if status.st_uid != os.geteuid() or status.st_mode & stat.S_IWOTH:
            return None  # others, except perhaps a group, can put files into the directory
        for _ in range(2):
            with contextlib.suppress(FileExistsError):
                os.close(os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
            # Never read or write another user's file.
            if not self._is_ours():
                return None
            if self._is_plain() and (database := self._connect()) is not None:
                return database
            self._remove()
        return None

    def _is_ours(self) -> bool:
        """Return whether only this user can read and replace the file and SQLite's side files."""
        status = os.lstat(self._path)
        if not stat.S_ISREG(status.st_mode) or status.st_uid != os.geteuid():
            return False
        for suffix in _SIDE_FILES:
            with contextlib.suppress(FileNotFoundError):
                status = os.lstat(f"{self._path}{suffix}")
                if stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid():
                    return False
        return True

    def _is_plain(self) -> bool:
        """Return whether SQLite would read this file alone."""
        if any(os.path.lexists(f"{self._path}{suffix}") for suffix in _SIDE_FILES):
            return False
        with open(open_regular(self._path, os.O_NOFOLLOW), "rb") as file:
            return file.read(20)[18:] in (b"", _FORMAT)

    def _connect(self) -> sqlite3.Connection | None:
        """Connect to the file; `None` if it holds something other than our table. Raises `sqlite3.Error` if it is locked."""
        database = sqlite3.connect(self._path, timeout=_PATIENCE, isolation_level=None)
        try:
            set_limit: Callable[[int, int], int] | None = getattr(database, "setlimit", None)
            if set_limit is not None:  # from Python 3.11 on
                set_limit(_LIMIT_LENGTH, _LONGEST)
            database.set_progress_handler(self._is_over, _STEPS_AT_ONCE)
            database.execute("PRAGMA journal_mode=MEMORY")
            database.execute("PRAGMA synchronous=OFF")  # a file lost in a crash is made anew
            if not _schema(database):
                database.execute("BEGIN IMMEDIATE")
                if not _schema(database):  # another reader may have been faster
                    database.execute(_CREATE)
                    database.execute(f"PRAGMA user_version={_VERSION}")
                database.execute("COMMIT")
            if _schema(database) == _SCHEMA and database.execute("PRAGMA user_version").fetchone() == (
                _VERSION,
            ):
                return database
        except sqlite3.Error as error:
            if not _is_damage(error):
                database.close()
                raise
        database.close()
        return None

    def _is_over(self) -> bool:
        """Return whether SQLite has used up its steps; called each `_STEPS_AT_ONCE`."""
        self._steps -= _STEPS_AT_ONCE
        return self._steps < 0

    def _remove(self) -> None:
        for suffix in ("", *_SIDE_FILES):
            with contextlib.suppress(OSError):
                os.unlink(f"{self._path}{suffix}")

    def _kept(self, columns: str, which: str = "", values: Iterable[bytes] = ()) -> Iterator[tuple[Any, ...]]:
        """Yield these columns of the rows in the file, in any order; fewer if it is damaged."""
        if self._database is None:
            return
        try:
            yield from self._database.execute(
                f"SELECT {columns} FROM runs WHERE typeof(directory) = 'blob' {which}",  # noqa: S608 - of our own
                tuple(values),
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
        """Continue without the file. Remove a damaged one; leave one that another reader is writing."""
        self._close()
        if _is_damage(error):
            self._remove()

    def _close(self) -> None:
        if self._database is not None:
            with contextlib.suppress(sqlite3.Error):
                self._database.close()
            self._database = None


def _schema(database: sqlite3.Connection) -> list[tuple[Any, ...]]:
    return database.execute("SELECT type, name, tbl_name, sql FROM sqlite_master LIMIT 2").fetchall()


def _is_damage(error: Exception) -> bool:
    """Return whether the file is to blame, rather than another reader's lock or a full disk."""
    if not isinstance(error, sqlite3.DatabaseError):
        return False
    return not isinstance(error, sqlite3.OperationalError) or str(error).startswith(
        ("interrupted", "Could not decode")
    )


_sound_types: set[tuple[type, ...]] = set()
"""Combinations of types that were checked column by column; the rows of a directory have few."""


def is_sound_row(values: tuple[Any, ...]) -> bool:
    """Return whether these columns, without the signature, are a valid row of ours."""
    types = tuple(map(type, values))
    if types not in _sound_types:
        if not all(kind in allowed for kind, allowed in zip(types, _TYPES, strict=True)):
            return False
        if len(_sound_types) > _TOGETHER:
            _sound_types.clear()
        _sound_types.add(types)
    return (
        values[_STATE] in _FINAL
        and values[_CERTAINTY] in _CERTAINTIES
        and abs(values[_STARTED]) <= FARTHEST
        and math.isfinite(values[_SECONDS] or 0.0)
        and math.isfinite(values[_CPU] or 0.0)
        and _is_json(values[_TAGS], dict, "{}")
        and _is_json(values[_COMMAND], list, "[]")
    )


@lru_cache(_TOGETHER)
def _is_json(document: str, kind: type, empty: str) -> bool:
    """Return whether a text is an object or an array of strings alone."""
    if document == empty:
        return True
    try:
        value: Any = json.loads(document)
    except (ValueError, RecursionError):
        return False
    members = list(value.values()) if isinstance(value, dict) else value
    return type(value) is kind and isinstance(members, list) and all(type(one) is str for one in members)
