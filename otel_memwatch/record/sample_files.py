"""Files with the samples of a run: closed segments, which are compressed, and the open file.

    samples-1.jsonl.gz   samples-2.jsonl.gz   samples-3.jsonl   samples.jsonl

A short run has the open file only. When that file is large enough, the writer closes it in these steps. After each of them,
a reader finds every sample once, so the writer may be killed at any moment:

1. rename `samples.jsonl` to `samples-3.jsonl`
2. create `samples.jsonl`, with the columns
3. write `.samples-3.jsonl.gz.PID`, a piece at each sample
4. rename it to `samples-3.jsonl.gz`
5. remove `samples-2.jsonl`

A reader prefers the plain file of a segment. It is removed a whole segment later, when the kernel has written the compressed
file to the disk. So a crash of the machine loses no segment, and the writer never waits for the disk.
"""

from __future__ import annotations

import errno
import os
from itertools import count

from otel_memwatch.record.format import (
    FILE_MODE,
    SAMPLES_FILE,
    SEGMENT_BYTES,
    SEGMENT_PREFIX,
    SEGMENT_SUFFIXES,
)
from otel_memwatch.record.jsonl import MAX_LINE, open_regular
from otel_memwatch.runtime.light import suppress
from otel_memwatch.runtime.typed import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import zlib
    from collections.abc import Iterator
    from typing import BinaryIO

    from otel_memwatch.record.jsonl import Damage, FilePath, Readable

_LARGEST = 2 * SEGMENT_BYTES + MAX_LINE
"""Bytes of a compressed segment that are read: a damaged one could represent terabytes."""
_PIECE = 64 << 10
"""Bytes compressed at each sample: about 2 ms."""
_PLAIN, _COMPRESSED = SEGMENT_SUFFIXES


def _name(number: int, suffix: str) -> str:
    return f"{SEGMENT_PREFIX}{number}{suffix}"


def _beside(samples: FilePath, number: int, suffix: str) -> str:
    return os.path.join(os.path.dirname(samples), _name(number, suffix))


class InflatedFile:
    """A compressed segment as a file that is read from its beginning. Damage raises `OSError`."""

    def __init__(self, descriptor: int) -> None:
        import zlib

        self._file: BinaryIO = os.fdopen(descriptor, "rb", buffering=0)
        self._error = zlib.error
        self._inflate = zlib.decompressobj(wbits=31)
        self._left = _LARGEST

    def read(self, size: int) -> bytes:
        """Return at most `size` bytes; none at the end."""
        while not self._inflate.eof:
            data = self._inflate.unconsumed_tail or self._file.read(_PIECE)
            try:
                found = self._inflate.decompress(data, min(size, self._left))
            except self._error:
                raise OSError(errno.EIO, "it is damaged") from None
            if not data and not found:
                raise OSError(errno.EIO, "it is incomplete")
            self._left -= len(found)
            if found and self._left > 0:
                return found
            if self._left <= 0:
                raise OSError(errno.EFBIG, "it is too large")
        return b""

    def close(self) -> None:
        """Close the file."""
        self._file.close()


class SampleFile(NamedTuple):
    """An open file of samples."""

    file: BinaryIO | InflatedFile
    closed: bool
    """True if a segment: nothing will be appended."""


def open_segment(samples: FilePath, number: int) -> BinaryIO | InflatedFile:
    """Open segment `number` beside the open file `samples`. Raises `OSError`."""
    try:
        return os.fdopen(open_regular(_beside(samples, number, _PLAIN)), "rb", buffering=0)
    except FileNotFoundError:
        return InflatedFile(open_regular(_beside(samples, number, _COMPRESSED)))


def open_next(samples: FilePath, number: int) -> SampleFile:
    """Open segment `number`, or the open file if that segment is not closed. Raises `OSError`."""
    try:
        return SampleFile(open_segment(samples, number), closed=True)
    except FileNotFoundError:
        pass
    try:
        file = os.fdopen(open_regular(samples), "rb", buffering=0)
    except FileNotFoundError:
        # The writer is between steps 1 and 2.
        return SampleFile(open_segment(samples, number), closed=True)
    try:
        # The writer may have closed it before we opened the one that it created then.
        closed = open_segment(samples, number)
    except FileNotFoundError:
        return SampleFile(file, closed=False)
    file.close()
    return SampleFile(closed, closed=True)


def skip_to(file: BinaryIO | InflatedFile, offset: int) -> None:
    """Skip the first `offset` bytes of a file that was just opened. Raises `OSError`."""
    if not isinstance(file, InflatedFile):
        file.seek(offset)
        return
    while offset > 0 and (data := file.read(min(offset, _PIECE))):
        offset -= len(data)


def segments(samples: FilePath) -> list[int]:
    """Return the numbers of the closed segments beside the open file `samples`."""
    found = set()
    try:
        names = os.listdir(os.path.dirname(samples) or ".")
    except OSError:
        return []
    for name in names:
        number, dot, suffix = name.removeprefix(SEGMENT_PREFIX).partition(".")
        if name.startswith(SEGMENT_PREFIX) and f"{dot}{suffix}" in SEGMENT_SUFFIXES and number.isdecimal():
            found.add(int(number))
    return sorted(found)


def sample_files(samples: FilePath, damage: Damage) -> Iterator[Readable]:
    """Yield all files of a record's samples, each open and in the order of the samples; a missing segment is damage."""
    last = max(segments(samples), default=0)
    for number in count(1):
        try:
            found = (
                open_next(samples, number)
                if number > last
                else SampleFile(open_segment(samples, number), closed=True)
            )
        except OSError as error:
            if number > last and isinstance(error, FileNotFoundError):
                return
            damage.other.append(
                f"{SAMPLES_FILE if number > last else _name(number, _COMPRESSED)} cannot be read: {error.strerror}."
            )
            if number > last:
                return
            continue
        try:
            yield found.file
        finally:
            found.file.close()
        if not found.closed:
            return


def last_written(samples: FilePath) -> float:
    """Return the time of the last change of a record's samples, in Unix seconds. Raises `OSError` without any."""
    try:
        return os.stat(samples).st_mtime
    except FileNotFoundError:
        # The writer may have closed it just now.
        numbers = segments(samples)
        if not numbers:
            raise
        return os.stat(_beside(samples, numbers[-1], _PLAIN)).st_mtime


def samples_size(samples: FilePath) -> int:
    """Return the size of all samples in bytes, about that before their compression."""
    try:
        size = os.stat(samples).st_size
    except OSError:
        size = 0
    return size + SEGMENT_BYTES * len(segments(samples))


class SegmentCompressor:
    """Closes segments for the writer of a record, and compresses them piece by piece.

    Args:
        directory: descriptor of the run directory.
    """

    def __init__(self, directory: int) -> None:
        self._directory = directory
        self._number = 0
        self._source: int | None = None
        self._target: int | None = None
        self._deflate: zlib._Compress | None = None

    def close_segment(self) -> None:
        """Rename the open file (step 1). Raises `OSError`."""
        self.give_up()
        self._number += 1
        plain = _name(self._number, _PLAIN)
        os.rename(SAMPLES_FILE, plain, src_dir_fd=self._directory, dst_dir_fd=self._directory)

    def begin(self) -> None:
        """Begin to compress the last segment (step 3). If that fails, it stays as it is."""
        import zlib

        try:
            self._source = self._open(_name(self._number, _PLAIN), os.O_RDONLY)
            self._target = self._open(self._temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
        except OSError:
            self.give_up()
            return
        self._deflate = zlib.compressobj(wbits=31)

    def step(self) -> None:
        """Compress a piece; after the last one, put the result in place (steps 4 and 5)."""
        source, target, deflate = self._source, self._target, self._deflate
        if source is None or target is None or deflate is None:
            return
        try:
            piece = os.read(source, _PIECE)
            _write_all(target, deflate.compress(piece) if piece else deflate.flush())
            if piece:
                return
            place = _name(self._number, _COMPRESSED)
            os.rename(self._temporary, place, src_dir_fd=self._directory, dst_dir_fd=self._directory)
            before = self._number - 1
            os.stat(_name(before, _COMPRESSED), dir_fd=self._directory)
            os.unlink(_name(before, _PLAIN), dir_fd=self._directory)
        except OSError:
            pass  # a full disk, or the first segment; a segment that could not be compressed stays
        self.give_up()

    def give_up(self) -> None:
        """Stop the compression; a segment that is not compressed stays as it is."""
        for descriptor in (self._source, self._target):
            if descriptor is not None:
                os.close(descriptor)
        if self._target is not None:
            with suppress(OSError):  # it may be in place
                os.unlink(self._temporary, dir_fd=self._directory)
        self._source = self._target = self._deflate = None

    @property
    def _temporary(self) -> str:
        return f".{_name(self._number, _COMPRESSED)}.{os.getpid()}"

    def _open(self, name: str, flags: int) -> int:
        return os.open(name, flags | os.O_NOFOLLOW | os.O_CLOEXEC, FILE_MODE, dir_fd=self._directory)


def _write_all(descriptor: int, data: bytes) -> None:
    while data:
        data = data[os.write(descriptor, data) :]
