"""Lines of JSON, possibly damaged by a crash, a full disk or another program.

Reading never fails: a torn last line is dropped, because its write was interrupted. All other invalid content is skipped
and counted. `MAX_LINE` bounds the memory; `MAX_DAMAGED` and `MAX_SKIPPED` bound the time for any content.
"""

from __future__ import annotations

import errno
import os
import stat

from otel_memwatch.runtime.fast_json import decoder
from otel_memwatch.runtime.typed import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Protocol

    FilePath = str | os.PathLike[str]

    class Readable(Protocol):
        """An open file, compressed or not."""

        def read(self, size: int, /) -> bytes:
            """Return at most `size` bytes; none at the end. Raises `OSError`."""


MAX_LINE = 8 * 1024 * 1024
"""Size limit of a line in bytes; a longer one is damage."""

MAX_DAMAGED = 20_000
"""Damaged lines before the rest of a file is skipped. A crash damages one, a bad disk some pages."""

MAX_SKIPPED = 64 * 1024 * 1024
"""Bytes without lines (an overlong line, holes) before the rest of a file is skipped."""

_BLOCK = 256 * 1024


def open_regular(path: FilePath, flags: int = 0, directory: int | None = None) -> int:
    """Open a regular file for reading; `flags` are added to those of open(2), `path` is relative to `directory`.

    Another program may have put a special file into the run directory. Opening a named pipe would wait for its writer
    for ever, and reading a device may have any effect. Raises `OSError` for these too.
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
    """Unreadable parts of one file.

    Args:
        name: name of the file, for messages.

    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.lines = 0
        """Skipped lines, without the torn last one."""
        self.other: list[str] = []
        """Other problems, in sentences."""

    def sentences(self) -> list[str]:
        """Return the messages for the user; none for a torn last line."""
        if not self.lines:
            return self.other
        return [f"{self.name}: {count(self.lines, 'line')} could not be read and left out.", *self.other]

    def give_up(self, reason: str) -> None:
        """Record why the rest of the file is not read."""
        self.other.append(f"{self.name}: {reason}; what follows was not read.")


def count(number: int, noun: str) -> str:
    """Return a number with its noun: "1 line", "3 lines"."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def text_lines(path: FilePath, damage: Damage) -> Iterator[bytes]:
    """Yield the non-empty complete lines of a file, without newlines; nothing if the file is missing.

    The last line counts as complete if it has a newline or is valid JSON: a crash may cut it exactly before the newline.
    """
    for lines in line_blocks(path, damage):
        yield from lines


def line_blocks(path: FilePath, damage: Damage, block: int = _BLOCK, begin: int = 0) -> Iterator[list[bytes]]:
    """Yield the lines of `text_lines` in blocks of about `block` bytes; `begin`: bytes of the file to skip."""
    yield from _clean_lines(_raw_blocks(path, damage, block, begin))


def lines_of(file: Readable, damage: Damage, block: int) -> Iterator[list[bytes]]:
    """Yield the lines of an open file as `line_blocks` does."""
    yield from _clean_lines(_raw_lines(file, damage, block, 0))


def _clean_lines(blocks: Iterator[tuple[int, list[bytes]]]) -> Iterator[list[bytes]]:
    for _, lines in blocks:
        # Without empty lines, and without the NUL bytes that a crash of the machine leaves in a file.
        kept = [line for line in lines if line.strip(b"\0 \r\t")]
        yield [line.strip(b"\0 \r\t") if line[:1] == b"\0" else line for line in kept]


def located_blocks(path: FilePath, damage: Damage) -> Iterator[tuple[list[bytes], list[int]]]:
    """Yield the lines of `text_lines` in blocks, and the offset of each in the file, for `line_at`."""
    for offset, lines in _raw_blocks(path, damage, _BLOCK, 0):
        at = offset
        found: list[bytes] = []
        offsets: list[int] = []
        for line in lines:
            clean = line.strip(b"\0 \r\t")
            if clean:
                found.append(clean)
                offsets.append(at)
            at += len(line) + 1
        yield found, offsets


def line_at(path: FilePath, offset: int, size: int) -> bytes:
    """Return the whole line at `offset`, and up to `size` bytes; empty if the line no longer exists."""
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


def _raw_blocks(path: FilePath, damage: Damage, block: int, begin: int) -> Iterator[tuple[int, list[bytes]]]:
    """Yield complete raw lines in blocks, with the offset of the first one."""
    try:
        with os.fdopen(open_regular(path), "rb") as file:
            file.seek(begin)
            yield from _raw_lines(file, damage, block, begin)
    except FileNotFoundError:
        return
    except OSError as error:
        damage.other.append(f"{damage.name} cannot be read: {error.strerror}.")


def _raw_lines(file: Readable, damage: Damage, block: int, at: int) -> Iterator[tuple[int, list[bytes]]]:
    """Yield complete raw lines of an open file, which is `at` bytes from its beginning."""
    rest = b""
    skipping = False
    garbage = GarbageGuard()
    try:
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
    except OSError as error:
        damage.other.append(f"{damage.name} cannot be read: {error.strerror}.")
        return
    # A torn last line is normal after a kill. Usually there is none, and to refuse an empty one, `json` would be imported.
    last = rest.strip(b"\0 \r\t")
    if last and not skipping and parse(last) is not None:
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


def parse(line: bytes | str) -> Any:
    """Return the JSON value of a line; `None` if it is invalid. No line of ours is `null`."""
    try:
        return _decode(line if isinstance(line, str) else line.decode("utf-8", "surrogateescape"))
    except (ValueError, RecursionError):
        return None


def parse_all(lines: list[bytes]) -> list[Any]:
    """Return `parse` of each line. Valid lines are parsed all at once, which takes two thirds of the time."""
    try:
        values = _decode((b"[" + b",".join(lines) + b"]").decode())
    except (ValueError, RecursionError):
        values = None
    if isinstance(values, list) and len(values) == len(lines):
        return values
    return [parse(line) for line in lines]


def _not_a_number(_: str) -> None:
    """Return `None` for `NaN` and `Infinity`: they are not JSON, and their values are unknown."""


_decode = decoder(_not_a_number)


def objects(path: FilePath, damage: Damage) -> Iterator[dict[str, Any]]:
    """Yield the objects of a file of JSON lines."""
    for line in text_lines(path, damage):
        value = parse(line)
        if isinstance(value, dict):
            yield value
        else:
            damage.lines += 1
