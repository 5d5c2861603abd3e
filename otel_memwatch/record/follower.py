"""Follower of a run's operations while the run continues."""

from __future__ import annotations

import os

from otel_memwatch.record.format import OPERATIONS_PREFIX, OPERATIONS_SUFFIX
from otel_memwatch.record.jsonl import MAX_LINE, open_regular, parse
from otel_memwatch.runtime.typed import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from otel_memwatch.model import RecordedOperation
    from otel_memwatch.record.operation_lines import OperationLines, OperationRow

_BLOCK = 64 << 10
"""Bytes read from one file at one poll; if a program writes more between two polls, later polls read the rest."""
_MAX_DESCRIPTORS = 256
"""Files kept open at once; the others are opened for each read."""


class PollResult(NamedTuple):
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
        self.descriptor: int | None = None
        self.behind = False
        """True if more data were available than the last call read."""
        self.size = 0
        """Bytes of the file that are known of."""
        self._rest = b""
        self._offset = 0

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
                self.behind = len(data) == _BLOCK
                self.size = os.fstat(descriptor).st_size if self.behind else self._offset + len(data)
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
        self._offset += len(data)
        data = self._rest + data
        end = data.rfind(b"\n") + 1
        lines, self._rest = data[:end], data[end:]
        if len(self._rest) > MAX_LINE:
            self._rest = b""
            self.lines.damaged += 1
        return lines

    def rows(self, text: bytes, size: int) -> list[OperationRow]:
        """Add lines, except empty ones; return the rows of the operations that they close. `size`: bytes of all files."""
        from otel_memwatch.record.operation_line import decode

        return self.lines.add(decode([line for line in text.split(b"\n") if line], size))

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
        self._opened = 0

    def poll(
        self, *, last: bool = False, on_close: Callable[[OperationRow], object] | None = None
    ) -> PollResult:
        """Read the lines written since the last poll. Never raises for invalid lines or a missing file.

        Args:
            last: all processes have ended, so a line without its newline is complete too.
            on_close: receives the row of each closed operation, instead of `closed`: building an operation takes
                longer than reading its lines.

        """
        self._discover()
        closed: list[RecordedOperation] = []
        size, opened = sum(file.size for file in self._files.values()), self._opened
        for file in self._files.values():
            text = file.read(len(self._files) <= _MAX_DESCRIPTORS, last)
            if not text:
                continue
            for row in file.rows(text, max(size, file.size)):
                if on_close is None:
                    closed.append(row.operation())
                else:
                    on_close(row)
        self._opened = sum(file.lines.opened for file in self._files.values())
        return PollResult(closed, self._opened - opened, self.behind)

    @property
    def behind(self) -> bool:
        """Return whether more data were available than the last poll read."""
        return any(file.behind for file in self._files.values())

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

    def resets_itself(self, pid: int) -> bool:
        """Return whether the process has announced that it resets its high-water mark."""
        file = self._by_pid.get(pid)
        return file is not None and file.lines.exact

    def damage(self) -> list[tuple[str, int]]:
        """Return the files with invalid lines and the number of these."""
        return [(file.name, file.lines.damaged) for file in self._files.values() if file.lines.damaged]

    def close(self) -> None:
        """Close all descriptors."""
        for file in self._files.values():
            file.close()
