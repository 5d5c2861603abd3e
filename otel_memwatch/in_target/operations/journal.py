"""File of one process's operations. One `write()` per boundary writes a complete line.

The process may die at any moment, but written lines survive in the kernel's page cache. Alternatives are worse:

- A mapped file needs no calls, but SIGBUS would end the program if the file is truncated or its disk fails.
- A buffered line saves a call, but would be lost after a kill.
"""

from __future__ import annotations

import os
import sys

from otel_memwatch.in_target.operations.process_state import (
    JOURNAL,
    UNTRUSTED,
    close_quietly,
    keep_open,
    read_quietly,
)
from otel_memwatch.record import operation_writer
from otel_memwatch.record.format import OPERATIONS_PREFIX, OPERATIONS_SUFFIX
from otel_memwatch.runtime.kernel import monotonic_start

_warned: set[str] = set()


def warn_once(kind: str, text: str) -> None:
    """Write one line to stderr for each kind of problem during the program's life. Never raises.

    The module `warnings` is unsuitable, because some programs turn warnings into exceptions. Python's buffer of stderr is
    also avoided, because in a forked child a missing thread may hold its lock.
    """
    if kind in _warned:
        return
    _warned.add(kind)
    line = f"otel-memwatch: {text}\n"
    try:
        stream = sys.stderr
        if stream is sys.__stderr__ and stream is not None:
            os.write(stream.fileno(), line.encode(stream.encoding, "backslashreplace"))
        else:
            stream.write(line)
            stream.flush()
    except Exception:  # noqa: BLE001, S110 - stderr may be closed, replaced or full, and no other output exists
        pass


def process_start(pid: int | str = "self") -> float | None:
    """Return the start of a process in monotonic seconds, to one clock tick; `None` if /proc lacks it."""
    fields = read_quietly(f"/proc/{pid}/stat").rpartition(b")")[2].split()
    if len(fields) < 20:
        return None
    return monotonic_start(int(fields[19]))


class Journal:
    """Append-only file of lines. After a failed write, it prints one warning and stops writing.

    Raises `OSError` if the file cannot be opened.
    """

    __slots__ = ("_begin", "_identity", "_path", "descriptor", "first_id", "lost", "written")

    def __init__(self, directory: str, name: str) -> None:
        self._path = os.path.join(directory, f"{OPERATIONS_PREFIX}{name}{OPERATIONS_SUFFIX}")
        self._identity: tuple[int, int]
        self.descriptor: int = self._open()
        self._begin = 0
        """Last known file offset at which the bytes counted by `written` begin."""
        self.lost = False
        self.written = 0
        """Bytes written through this object, which are subtracted from the program's I/O."""
        self.first_id = os.fstat(self.descriptor).st_size + 1
        """First id. It is above all ids that the same process wrote before an exec, because each line is longer than 1 byte."""

    def _open(self) -> int:
        descriptor = keep_open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | UNTRUSTED, JOURNAL)
        found = os.fstat(descriptor)
        if found.st_mode & 0o170000 != 0o100000 or found.st_nlink > 1:
            close_quietly(descriptor)
            raise OSError(22, "not a file of operations", self._path)  # EINVAL
        self._identity = found.st_dev, found.st_ino
        return descriptor

    def is_ours(self) -> bool:
        """Return whether the descriptor still refers to this file. Takes 0.3 us.

        A program that closes all descriptors may have opened other files under our numbers. An unexpected file offset
        reveals this; then the file's identity is compared.
        """
        descriptor = self.descriptor
        try:
            position = os.lseek(descriptor, 0, os.SEEK_CUR)
            if position == self._begin + self.written:
                return True
            found = os.fstat(descriptor)
        except OSError:
            return descriptor < 0
        if (found.st_dev, found.st_ino) != self._identity:
            return False
        self._begin = position - self.written
        return True

    def reopen(self) -> bool:
        """Open the file again after the descriptor was lost, and return whether that succeeded."""
        try:
            self.descriptor = self._open()
        except OSError as error:
            self.descriptor = -1
            self._give_up(error)
            return False
        return True

    @property
    def is_new(self) -> bool:
        """Return whether the file was empty when it was opened."""
        return self.first_id == 1

    def tail(self, size: int) -> bytes:
        """Return the last bytes of the file at the time of opening, beginning with a complete line."""
        try:
            with open(self._path, "rb") as file:
                begin = max(0, self.first_id - 1 - size)
                file.seek(begin)
                text = file.read(self.first_id - 1 - begin)
        except OSError:
            return b""
        return text.partition(b"\n")[2] if begin else text

    @property
    def is_apart(self) -> bool:
        """Return whether the descriptor's number is so high that a program reuses it only after opening many files."""
        return self.descriptor >= JOURNAL

    def write(self, data: bytes) -> None:
        """Append one line. Never raises."""
        try:
            done = os.write(self.descriptor, data)
            if done < len(data):
                done += os.write(self.descriptor, data[done:])
            self.written += done
        except OSError as error:
            self.recover(data, error)

    def recover(self, data: bytes, error: OSError) -> None:
        """Write again after the program closed the descriptor. Any other error ends the recording."""
        if self.lost:  # or closed
            return
        try:
            if error.errno != 9:  # EBADF
                raise error
            self.descriptor = self._open()
            self.written += os.write(self.descriptor, data)
        except OSError as final:
            self._give_up(final)

    def _give_up(self, error: OSError) -> None:
        self.lost = True
        warn_once("journal", f"operations are no longer recorded: {self._path}: {error.strerror}.")

    def close(self) -> None:
        """Close the descriptor permanently. A late write does not open the file again."""
        self.lost = True
        close_quietly(self.descriptor)
        self.descriptor = -1


def header_line(exact: bool, floor: int | None) -> bytes:
    """Return the first line of a process's file."""
    program = sys.argv[0] if getattr(sys, "argv", None) else sys.executable
    return operation_writer.header_line(
        pid=os.getpid(),
        start=process_start(),
        program=str(program) or "python",
        exact=exact,
        floor=floor,
        rank=rank(),
    )


_RANKS = ("RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "FLUX_TASK_RANK", "SLURM_PROCID")
"""Variables of launchers with the rank of a process; those of the innermost launcher come first."""


def rank() -> int | None:
    """Return this process's rank from its launcher's environment variables; `None` if there is none."""
    text = next((value for name in _RANKS if (value := os.environ.get(name))), "")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else None
