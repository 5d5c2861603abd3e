"""A record that grows: the lines of a file, the newest sample, the largest size over time."""

from __future__ import annotations

import math
import os
import time
from collections import deque
from contextlib import closing

from otel_memwatch.record.format import SEGMENT_BYTES
from otel_memwatch.record.jsonl import MAX_LINE, open_regular, parse
from otel_memwatch.record.sample_files import SampleFile, open_next, samples_size, skip_to
from otel_memwatch.record.schema import Sample, sample_maker
from otel_memwatch.runtime.typed import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path
    from typing import BinaryIO

    from otel_memwatch.model import Column, Value
    from otel_memwatch.record.sample_files import InflatedFile

_BLOCK = 1 << 20
_END = 256 << 10
"""Bytes at the end of the samples file that hold the current samples."""
_BUCKETS = 512
"""Parts of the curve to keep. At twice as many, pairs are merged."""
_PACE_SECONDS = 30.0
"""Time over which growth is measured."""
_PACE_TICKS = 8
_STEADY = 0.8
"""Least share of the variance of recent sizes that a line explains if growth is steady."""


class GrowingFile:
    """Growing file of lines, read as it grows. `segmented`: closed segments of samples come before it."""

    def __init__(self, path: Path, *, segmented: bool = False) -> None:
        self._path, self._segmented = path, segmented
        self.rewind()

    def rewind(self) -> None:
        """Start again at the beginning of the file."""
        self._offset, self._rest = 0, b""
        self._segments = 0
        """Closed segments of samples that were read completely."""
        self.behind = False
        """True if time ran out before the end of the file."""

    def values(self, until: float) -> Iterator[Any]:
        """Yield the JSON values of the lines completed since the last call; nothing if the file does not exist.

        Reading stops at `until`, in monotonic seconds.
        """
        self.behind, closed = False, True
        while closed and not self.behind:
            try:
                file, closed = self._open()
                with closing(file):
                    yield from self._values_of(file, until, closed=closed)
            except OSError:
                return
            if closed and not self.behind:
                self._segments += 1
                self._offset, self._rest = 0, b""

    def _open(self) -> SampleFile:
        if self._segmented:
            return open_next(self._path, self._segments + 1)
        return SampleFile(os.fdopen(open_regular(self._path), "rb", buffering=0), closed=False)

    def _values_of(self, file: BinaryIO | InflatedFile, until: float, *, closed: bool) -> Iterator[Any]:
        skip_to(file, self._offset)
        while data := file.read(_BLOCK):
            self._offset += len(data)
            *lines, self._rest = (self._rest + data).split(b"\n")
            if len(self._rest) > MAX_LINE:
                self._rest = b""
            for line in lines:
                value = parse(line)
                if value is not None:
                    yield value
            if time.monotonic() >= until and (closed or len(data) == _BLOCK):
                self.behind = True
                return

    def end(self) -> list[Any]:
        """Return the JSON values of the last whole lines, read before or not."""
        try:
            descriptor = open_regular(self._path)
        except OSError:
            return []
        try:
            data = os.pread(descriptor, _END, max(0, os.fstat(descriptor).st_size - _END))
        finally:
            os.close(descriptor)
        return [value for line in data.split(b"\n")[1:-1] if (value := parse(line)) is not None]

    @property
    def share(self) -> float:
        """Part of the file read so far, 0 to 1."""
        try:
            size = samples_size(self._path) if self._segmented else os.stat(self._path).st_size
            read = self._segments * SEGMENT_BYTES + self._offset
            return min(1.0, read / max(1, size)) if self.behind else 1.0
        except OSError:
            return 1.0


class NewestSample:
    """Current figures from the last samples."""

    def __init__(self, columns: Sequence[Column], order: Sequence[int]) -> None:
        self.time: float | None = None
        """Monotonic seconds of the last sample."""
        self.values: tuple[Value, ...] = (None,) * len(columns)
        """Last known value of each column; some sources are not read at every sample."""
        self.latest = Sample(-math.inf)
        """Last known values by name."""
        self.order = order
        self.recent: deque[tuple[float, int]] = deque()
        """Times and sizes of the last `_PACE_SECONDS`."""
        self._columns = columns
        self._make = sample_maker(columns)

    def declare(self, columns: Sequence[Column]) -> None:
        """Declare the columns of the lines that follow."""
        self.order = [self._columns.index(column) for column in columns]

    def add(self, line: Sequence[Any]) -> Sample:
        """Add a line, and return it as a sample."""
        values: list[Value] = [None] * len(self._columns)
        for index, value in zip(self.order, line[1:], strict=False):
            values[index] = value
        self.values = tuple(old if new is None else new for old, new in zip(self.values, values, strict=True))
        self.time = float(line[0])
        self.latest = self._make((self.time, *self.values))
        return self._make((self.time, *values))

    def size(self, time: float, size: int) -> None:
        """Add the size at a sample."""
        self.recent.append((time, size))
        while self.recent and self.recent[0][0] < time - _PACE_SECONDS:
            self.recent.popleft()

    @property
    def pace(self) -> float | None:
        """Growth in bytes per second by least squares; `None` if no line fits the recent sizes."""
        recent = self.recent
        if len(recent) < _PACE_TICKS:
            return None
        count = len(recent)
        mean_time = sum(time for time, _ in recent) / count
        mean = sum(value for _, value in recent) / count
        over = sum((time - mean_time) ** 2 for time, _ in recent)
        spread = sum((value - mean) ** 2 for _, value in recent)
        both = sum((time - mean_time) * (value - mean) for time, value in recent)
        if over <= 0 or spread <= 0 or both <= 0 or both * both / (over * spread) < _STEADY:
            return None
        return both / over


class LargestOverTime:
    """Largest value of each stretch of time; stretches become longer with the run."""

    def __init__(self) -> None:
        self._width = 0.1
        self._most: dict[int, int] = {}

    def add(self, time: float, value: int) -> None:
        """Add a value at a time in seconds."""
        bucket = int(time / self._width)
        self._most[bucket] = max(value, self._most.get(bucket, 0))
        while len(self._most) > 2 * _BUCKETS:
            merged: dict[int, int] = {}
            for place, most in self._most.items():
                merged[place // 2] = max(most, merged.get(place // 2, 0))
            self._most, self._width = merged, 2 * self._width

    def points(self) -> list[tuple[float, int]]:
        """Return the start of each stretch and its largest value."""
        return [(place * self._width, most) for place, most in sorted(self._most.items())]
