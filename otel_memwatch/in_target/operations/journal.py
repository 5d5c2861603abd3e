"""The file of one process's operations: one `write()` for each boundary, so that a line is there or is not.

The process may die at any moment, of any cause: what was written is in the kernel's page cache and survives it. A
mapped file would spare the calls, but end the program with SIGBUS when somebody truncates it or its disk fails. A line
kept back until the next one would spare a call, but be missing after a kill.
"""

from __future__ import annotations

import os
import sys

from otel_memwatch.in_target.operations.lines import quote
from otel_memwatch.in_target.operations.process import (
    JOURNAL,
    UNTRUSTED,
    close_quietly,
    keep_open,
    read_quietly,
)
from otel_memwatch.record.format import OPERATIONS_PREFIX, OPERATIONS_SUFFIX, SCHEMA
from otel_memwatch.runtime.kernel import monotonic_start

_warned: set[str] = set()


def warn_once(kind: str, text: str) -> None:
    """One line on stderr for each kind of trouble in the life of the program; never an exception.

    Not through `warnings`: a program that turns warnings into errors would get an exception from us. Nor through the
    buffer of stderr, where that is Python's own: in a forked child its lock may be held by a thread that is not there.
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
    except Exception:  # noqa: BLE001, S110 - stderr may be closed, replaced or full: there is nobody left to tell
        pass


def process_start(pid: int | str = "self") -> float | None:
    """Start of a process in monotonic seconds, to one clock tick; `None` where /proc does not tell."""
    fields = read_quietly(f"/proc/{pid}/stat").rpartition(b")")[2].split()
    if len(fields) < 20:
        return None
    return monotonic_start(int(fields[19]))


class Journal:
    """Append-only lines. A file that cannot be written any more is given up after one warning.

    Raises `OSError` when the file cannot be opened.
    """

    __slots__ = ("_begin", "_identity", "_path", "descriptor", "first_id", "lost", "written")

    def __init__(self, directory: str, name: str) -> None:
        self._path = os.path.join(directory, f"{OPERATIONS_PREFIX}{name}{OPERATIONS_SUFFIX}")
        self._identity: tuple[int, int]
        self.descriptor: int = self._open()
        self._begin = 0
        """Where in the file the bytes counted by `written` begin, as far as is known."""
        self.lost = False
        self.written = 0
        """Bytes written through this object, to be taken off the program's own I/O."""
        self.first_id = os.fstat(self.descriptor).st_size + 1
        """Ids go on behind those that the same process wrote before an exec: a line is longer than its id counts."""

    def _open(self) -> int:
        descriptor = keep_open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | UNTRUSTED, JOURNAL)
        found = os.fstat(descriptor)
        if found.st_mode & 0o170000 != 0o100000 or found.st_nlink > 1:
            close_quietly(descriptor)
            raise OSError(22, "not a file of operations", self._path)  # EINVAL
        self._identity = found.st_dev, found.st_ino
        return descriptor

    def is_ours(self) -> bool:
        """Whether the descriptor still is of this file: 0.3 us.

        A program that closes all descriptors may have opened files of its own since, under the numbers that were
        ours. The position in the file gives that away; where it is not the expected one, the file itself is looked at.
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
        """Open the file again, for a descriptor that is not ours any more; whether that was possible."""
        try:
            self.descriptor = self._open()
        except OSError as error:
            self.descriptor = -1
            self._give_up(error)
            return False
        return True

    @property
    def is_new(self) -> bool:
        """Whether nothing had been written to the file before it was opened."""
        return self.first_id == 1

    def tail(self, size: int) -> bytes:
        """The last bytes that had been written to the file before it was opened, from a whole line on."""
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
        """Whether the descriptor is so high that its number is free again for a program's files only after many."""
        return self.descriptor >= JOURNAL

    def write(self, data: bytes) -> None:
        """Append one line; never an exception."""
        try:
            done = os.write(self.descriptor, data)
            if done < len(data):
                done += os.write(self.descriptor, data[done:])
            self.written += done
        except OSError as error:
            self.recover(data, error)

    def recover(self, data: bytes, error: OSError) -> None:
        """A program that closed all descriptors gets them opened again; anything else is the end of the recording."""
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
        """Give the descriptor back, for good: nothing that comes late opens the file again."""
        self.lost = True
        close_quietly(self.descriptor)
        self.descriptor = -1


def header_line(exact: bool, floor: int | None) -> bytes:
    """The line that stands before the boundaries of a process."""
    program = sys.argv[0] if getattr(sys, "argv", None) else sys.executable
    start, number = process_start(), rank()
    told = "" if number is None else f',"rank":{number}'
    return (
        f'{{"schema":{SCHEMA},"pid":{os.getpid()},"start":{"null" if start is None else round(start, 3)},'
        f'"program":{quote(str(program) or "python")},"exact":{"true" if exact else "false"},'
        f'"floor":{"null" if floor is None else floor}{told}}}\n'
    ).encode()


_RANKS = ("RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "FLUX_TASK_RANK", "SLURM_PROCID")
"""Variables by which launchers tell each process its number, those of the innermost one first."""


def rank() -> int | None:
    """Which of a launcher's processes this is, from its environment; `None`: no launcher told."""
    told = next((value for name in _RANKS if (value := os.environ.get(name))), "")
    return int(told) if told.isascii() and told.isdigit() and len(told) < 10 else None
