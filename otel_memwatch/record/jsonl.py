"""Lines of JSON as a crash, a full disk or a stranger may have left them.

Reading never fails: a torn last line is dropped (it was being written), whatever else is not what it should be is
left out and counted. Memory is bounded by `MAX_LINE`, time by what is lines of ours, whatever the file holds.
"""

from __future__ import annotations

import errno
import json
import os
import stat

from otel_memwatch.runtime.typed import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

MAX_LINE = 8 * 1024 * 1024
"""Bytes of the longest line that is read; a longer one is damage."""

MAX_DAMAGED = 20_000
"""Lines of a file that may be damaged: what follows so many is not read. A crash damages one, a bad disk some pages."""

MAX_SKIPPED = 64 * 1024 * 1024
"""Bytes of a file that may be no lines at all (the inside of one that is too long, holes) before it is given up."""

_BLOCK = 256 * 1024


def open_regular(path: str | os.PathLike[str], flags: int = 0, directory: int | None = None) -> int:
    """A descriptor to read a regular file by; `flags` are added to those of open(2), `path` begins at `directory`.

    Somebody else may have put another thing into the run directory: opening a named pipe would wait for its writer for
    ever, and reading a device may do anything. Raises `OSError` for these too.
    """
    descriptor = os.open(
        path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY | flags, dir_fd=directory
    )
    kind = os.fstat(descriptor).st_mode
    if stat.S_ISREG(kind):
        return descriptor
    os.close(descriptor)
    if stat.S_ISDIR(kind):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), os.fspath(path))
    raise OSError(errno.EINVAL, "it is no regular file", os.fspath(path))


class Damage:
    """What could not be read of one file.

    Args:
        name: of the file, for its sentences.

    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.lines = 0
        """Lines left out, the torn last one not counted."""
        self.torn = False
        """Whether the last line was incomplete: normal after a kill."""
        self.other: list[str] = []
        """Whatever else was wrong, in sentences."""

    def sentences(self) -> list[str]:
        """What a person should know; nothing for a torn last line."""
        if not self.lines:
            return self.other
        return [f"{self.name}: {count(self.lines, 'line')} could not be read and left out.", *self.other]

    def give_up(self, reason: str) -> None:
        """Says why the rest of the file is not read."""
        self.other.append(f"{self.name}: {reason}; what follows was not read.")


def count(number: int, noun: str) -> str:
    """A number of things: "1 line", "3 lines"."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def text_lines(path: Path, damage: Damage) -> Iterator[bytes]:
    """The non-empty complete lines of a file, without their ends; nothing when the file is missing.

    The last line counts as complete only with its newline, or when it is whole JSON (a writer's last act may have
    been cut exactly before the newline).
    """
    for lines in line_blocks(path, damage):
        yield from lines


def line_blocks(path: Path, damage: Damage, block: int = _BLOCK, begin: int = 0) -> Iterator[list[bytes]]:
    """As `text_lines`, some `block` bytes of lines at a time; `begin`: bytes of the file that are left out."""
    for _, lines in _raw_blocks(path, damage, block, begin):
        yield _clean(lines)


def located_lines(path: Path, damage: Damage) -> Iterator[tuple[int, bytes]]:
    """As `text_lines`, each with its offset in the file, by which `line_at` finds it again."""
    for offset, lines in _raw_blocks(path, damage, _BLOCK, 0):
        at = offset
        for line in lines:
            yield from ((at, clean) for clean in _clean([line]))
            at += len(line) + 1


def line_at(path: Path, offset: int, size: int) -> bytes:
    """At least the whole line that begins at `offset`, and `size` bytes where there are as many; empty where it has gone."""
    data = b""
    try:
        descriptor = open_regular(path)
        try:
            while more := os.pread(descriptor, size + len(data), offset + len(data)):
                data += more
                if b"\n" in more or len(data) > MAX_LINE:
                    break
        finally:
            os.close(descriptor)
    except OSError:
        return b""
    return data


def _raw_blocks(path: Path, damage: Damage, block: int, begin: int) -> Iterator[tuple[int, list[bytes]]]:
    """Complete lines as they are, some at a time, with the offset of the first of them."""
    rest = b""
    skipping = False
    garbage = GarbageGuard()
    at = begin
    try:
        with os.fdopen(open_regular(path), "rb") as file:
            file.seek(begin)
            while data := file.read(block):
                if _hopeless(garbage, data, damage):
                    return
                if skipping:
                    left_out, end, data = data.partition(b"\n")
                    at += len(left_out) + len(end)
                    if not end:
                        continue
                    skipping = False
                whole = rest + data
                *lines, rest = whole.split(b"\n")
                yield at, lines
                at += len(whole) - len(rest)
                if len(rest) > MAX_LINE:
                    damage.lines += 1
                    at += len(rest)
                    rest, skipping = b"", True
    except FileNotFoundError:
        return
    except OSError as error:
        damage.other.append(f"{damage.name} cannot be read: {error.strerror}.")
        return
    if rest.strip(b"\0 \r\t") and not skipping:
        if parse(rest.strip(b"\0 \r\t")) is None:
            damage.torn = True
        else:
            yield at, [rest]


class GarbageGuard:
    """Detector of files with too much garbage, read block by block: holes, or one endless line."""

    def __init__(self) -> None:
        self._in_one_line = 0
        self._empty = 0

    def exceeded(self, data: bytes) -> bool:
        """Add a block, and return whether the limit is exceeded."""
        self._in_one_line = 0 if b"\n" in data else self._in_one_line + len(data)
        if not data.strip(b"\0"):
            self._empty += len(data)
        return max(self._in_one_line, self._empty) > MAX_SKIPPED


def _hopeless(garbage: GarbageGuard, data: bytes, damage: Damage) -> bool:
    """Return whether to stop reading; `damage` then records the reason."""
    if damage.lines > MAX_DAMAGED:
        damage.give_up(f"more than {MAX_DAMAGED} lines are damaged")
        return True
    if garbage.exceeded(data):
        damage.give_up(f"{MAX_SKIPPED >> 20} MiB of it are no lines")
        return True
    return False


def _clean(lines: list[bytes]) -> list[bytes]:
    """Without empty lines, and without the NUL bytes that a crash of the machine leaves in a file."""
    return [line.strip(b"\0 \r\t") if line[:1] == b"\0" else line for line in lines if line.strip(b"\0 \r\t")]


def parse(line: bytes | str) -> Any:
    """The line's JSON value; `None` when it is none (`null` stands for nothing we write)."""
    try:
        return _DECODER.decode(line if isinstance(line, str) else line.decode("utf-8", "surrogateescape"))
    except (ValueError, RecursionError):
        return None


def parse_all(lines: list[bytes]) -> list[Any]:
    """As `parse` of each line. All at once where they are sound, which takes two thirds of the time."""
    try:
        values = _DECODER.decode((b"[" + b",".join(lines) + b"]").decode())
    except (ValueError, RecursionError):
        values = None
    if isinstance(values, list) and len(values) == len(lines):
        return values
    return [parse(line) for line in lines]


def _not_a_number(_: str) -> None:
    """`NaN` and `Infinity` are no JSON; what they stood for is not known."""


_DECODER = json.JSONDecoder(parse_constant=_not_a_number)
"""Made once: `json.loads` with `parse_constant` makes one for each line, which takes three times as long as the line."""


def objects(path: Path, damage: Damage) -> Iterator[dict[str, Any]]:
    """The objects of a file of JSON lines."""
    for line in text_lines(path, damage):
        value = parse(line)
        if isinstance(value, dict):
            yield value
        else:
            damage.lines += 1
