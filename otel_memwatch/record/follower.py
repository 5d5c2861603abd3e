"""Follower of a run's operations while the run continues."""

from __future__ import annotations

import os

from otel_memwatch.record.format import OPERATIONS_PREFIX, OPERATIONS_SUFFIX
from otel_memwatch.record.jsonl import MAX_LINE, open_regular, parse, parse_all
from otel_memwatch.runtime.typed import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from pathlib import Path

    from otel_memwatch.model import RecordedOperation
    from otel_memwatch.record.operation_lines import OpenOperation, OperationLines
    from otel_memwatch.record.plain_pairs import PlainPairs

    OnClose = Callable[[OperationLines, OpenOperation, Mapping[str, Any]], None]
    OnPairs = Callable[[OperationLines, PlainPairs], int]

_BLOCK = 64 << 10
"""Bytes read from one file at one poll; if a program writes more between two polls, later polls read the rest."""
_MAX_DESCRIPTORS = 256
"""Files kept open at once; the others are opened for each read."""
_SINGLY = 16
"""Blocks read line by line after a search for pairs did not pay, before the next search in the file."""


class Followed(NamedTuple):
    """Result of a poll."""

    closed: list[RecordedOperation]
    """Operations that have ended since the previous poll."""
    opened: int
    """Number of operations that have begun."""
    behind: bool = False
    """True if more data were available than one poll reads."""


class _OperationsFile:
    """One growing `operations-*.jsonl`."""

    def __init__(self, path: str, pid: int) -> None:
        # Most programs mark nothing: import it only for those that do.
        from otel_memwatch.record.operation_lines import OperationLines

        self.path = path
        self.lines = OperationLines(pid)
        self.damaged = 0
        self.descriptor: int | None = None
        self.behind = False
        """True if more data were available than the last call read."""
        self._rest = b""
        self._offset = 0
        self._singly = 0
        """Blocks to read line by line before the next search for pairs."""

    @property
    def name(self) -> str:
        """Return the name of the file, without its directory."""
        return os.path.basename(self.path)

    def read(self, keep: bool, last: bool = False) -> bytes:
        """Return the lines completed since the last call, each with its newline; an incomplete line waits for its rest.

        `last`: the file grows no more, so a complete value without its newline is a line too.
        """
        self.behind = False
        try:
            descriptor = self.descriptor
            if descriptor is None:
                descriptor = open_regular(self.path, os.O_NOFOLLOW)
            try:
                data = os.pread(descriptor, _BLOCK, self._offset)
            finally:
                if keep:
                    self.descriptor = descriptor
                elif self.descriptor is None:
                    os.close(descriptor)
        except OSError:
            return b""
        if not data:
            rest, self._rest = self._rest, b"" if last else self._rest
            return rest + b"\n" if last and parse(rest) is not None else b""
        self.behind = len(data) == _BLOCK
        self._offset += len(data)
        data = self._rest + data
        end = data.rfind(b"\n") + 1
        lines, self._rest = data[:end], data[end:]
        if len(self._rest) > MAX_LINE:
            self._rest, self.damaged = b"", self.damaged + 1
        return lines

    def add(self, texts: Iterable[bytes], on_close: OnClose) -> int:
        """Add lines, except empty ones; return the number of operations that they opened."""
        opened = 0
        for line in parse_all([text for text in texts if text]):
            if not isinstance(line, dict):
                self.damaged += 1
                continue
            try:
                ended = self.lines.match(line)
            except ValueError:
                self.damaged += 1
                continue
            opened += "open" in line
            if ended is not None:
                on_close(self.lines, ended, line)
        return opened

    def add_pairs(self, text: bytes, on_close: OnClose, on_pairs: OnPairs) -> int:
        """Add lines as `add` does; process pairs together if most lines belong to pairs."""
        if self._singly:
            self._singly -= 1
            return self.add(text.split(b"\n"), on_close)
        from otel_memwatch.record.plain_pairs import pieces

        opened = together = 0
        for piece in pieces(text):
            if isinstance(piece, list):
                opened += self.add(piece, on_close)
            else:
                self.lines.match_pairs(piece)
                together += on_pairs(self.lines, piece)
                opened += len(piece.lines)
        if 4 * together < text.count(b"\n"):
            self._singly = _SINGLY
        return opened

    def close(self) -> None:
        if self.descriptor is not None:
            os.close(self.descriptor)
            self.descriptor = None


class OperationFollower:
    """Operations of a run directory that have been written so far.

    A poll costs one `stat` of the directory and one short `pread` for each process that marks operations. The
    directory is listed only after a change.
    """

    def __init__(self, directory: Path | str) -> None:
        self._directory = os.fspath(directory)
        self._files: dict[str, _OperationsFile] = {}
        self._by_pid: dict[int, _OperationsFile] = {}
        self._listed: int | None = None

    def poll(
        self, *, last: bool = False, on_close: OnClose | None = None, on_pairs: OnPairs | None = None
    ) -> Followed:
        """Read the lines written since the last poll. Never raises for invalid lines or a missing file.

        Args:
            last: all processes have ended, so a line without its newline is complete too.
            on_close: receives the two lines of each closed operation, instead of `closed`: building an operation
                takes longer than reading its lines.
            on_pairs: receives operations that opened and closed without a line between them, instead of `on_close`.
                It returns the number that it processed together; for very many that takes a third of the time.

        """
        self._discover()
        closed: list[RecordedOperation] = []
        take = on_close or (lambda lines, ended, line: closed.append(lines.operation(ended, line)))
        opened = 0
        for file in self._files.values():
            text = file.read(len(self._files) <= _MAX_DESCRIPTORS, last)
            if on_pairs is None:
                opened += file.add(text.split(b"\n"), take)
            else:
                opened += file.add_pairs(text, take, on_pairs)
        return Followed(closed, opened, any(file.behind for file in self._files.values()))

    def _discover(self) -> None:
        try:
            changed = os.stat(self._directory).st_mtime_ns
            if changed == self._listed:
                return
            names = os.listdir(self._directory)
        except OSError:
            return
        # A file created within the resolution of the time stamp would be missed: list once more after a change.
        self._listed = changed if self._listed is not None and changed == -self._listed else -changed
        for name in names:
            if (
                name in self._files
                or not name.startswith(OPERATIONS_PREFIX)
                or not name.endswith(OPERATIONS_SUFFIX)
            ):
                continue
            middle = name[len(OPERATIONS_PREFIX) : -len(OPERATIONS_SUFFIX)]
            pid = middle.rpartition("-")[2]
            file = _OperationsFile(os.path.join(self._directory, name), int(pid) if pid.isdigit() else 0)
            self._files[name] = file
            if middle.isdigit():
                self._by_pid[int(middle)] = file

    @property
    def files(self) -> int:
        """Return the number of processes that mark operations, as of the last poll."""
        return len(self._files)

    def open_operations(self) -> list[RecordedOperation]:
        """Return the operations open at the last poll, with their peak so far, in the order of their start."""
        found = [operation for file in self._files.values() for operation in file.lines.still_open()]
        return sorted(found, key=lambda operation: operation.start)

    def lines(self) -> list[OperationLines]:
        """Return the lines of each process so far."""
        return [file.lines for file in self._files.values()]

    def marks_operations(self, pid: int) -> bool:
        """Return whether the process resets its high-water mark itself; then no other process may reset it.

        For a process without known operations the directory itself is checked: it may have begun a moment ago.
        """
        file = self._by_pid.get(pid)
        if file is None:
            path = os.path.join(self._directory, f"{OPERATIONS_PREFIX}{pid}{OPERATIONS_SUFFIX}")
            if not os.path.exists(path):
                return False
            self._discover()
            return True
        return file.lines.exact or file.lines.start is None

    @property
    def damaged(self) -> int:
        """Return the number of invalid lines."""
        return sum(file.damaged for file in self._files.values())

    def damage(self) -> list[tuple[str, int]]:
        """Return the files with invalid lines and the number of these."""
        return [(file.name, file.damaged) for file in self._files.values() if file.damaged]

    def close(self) -> None:
        """Close all descriptors."""
        for file in self._files.values():
            file.close()
