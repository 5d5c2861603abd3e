"""Memory that a run needs for full speed: the largest sum over time of needed memory and the files in use at that time."""

from __future__ import annotations

from math import inf

from otel_memwatch.runtime.light import deque, ge, le
from otel_memwatch.runtime.typed import TYPE_CHECKING, NamedTuple
from otel_memwatch.truth.stalls import SLOWEST_READ
from otel_memwatch.truth.working_set import (
    ENDING,
    kept,
    mapped_by_several,
    read_ahead,
    unwritten,
    waiting,
)

if TYPE_CHECKING:
    from otel_memwatch.record.schema import Sample
    from otel_memwatch.run.cgroup_bounds import CgroupWindow

_POINTS = 256
"""Limit of the points that are kept; neighbours are then joined."""
_POINTS_OF_ENDING = 16
_LEAST_WINDOW = 0.05
"""Seconds between two samples that show a rate: the kernel counts bytes as it asks for them."""
_BURST = 0.05
"""Seconds of computing in which all data may be written at one moment. Beside other programs, as much work has more samples."""
_MAPPED_EARLY = 1 / 3
"""Share of the pages newly mapped in a window that count as mapped before its largest sum. At its start, the program had neither read
nor needed as much as at its end. With none, rustc was advised 1.04 to 1.31 of its knee, with a half ffmpeg 0.90 to 1.05."""
_NOISE = 0.9
"""Share of the mapped pages at earlier samples below which some were unmapped."""


class _Point(NamedTuple):
    """Bytes of one window between two samples, or of several: the largest of each, but the smallest of the last two."""

    needed: float
    mapped: float
    """Sum over the processes, so shared pages count repeatedly."""
    unread: float
    """Mapped pages that the run did not read."""
    cache: float
    faulted: float
    """Read by page faults so far."""
    unwritten: float
    mapped_before: float
    """Newly mapped before the largest sum of the window."""
    again: float
    """Used by read calls repeatedly, so far."""

    def within(self, earlier: _Point) -> bool:
        """Return whether an earlier point needs as much."""
        return all(map(le, self[:6], earlier[:6])) and all(map(ge, self[6:], earlier[6:]))

    def joined(self, other: _Point) -> _Point:
        """Return both as one."""
        return _Point(*map(max, self[:6], other[:6]), *map(min, self[6:], other[6:]))


class WorkingSet:
    """Collects the samples of a run that has a cgroup; a sample costs some 5 us, and few points are kept."""

    def __init__(self, disk_rate: int | None = None) -> None:
        self._points: list[_Point] = []
        self._held: _Point | None = None
        """Point of the last sample; the best estimate of its window comes with the next one."""
        self._cache = self._mapped = self._time = self._newly_mapped = self._again = self._faulted = 0.0
        self._read = self._rate = 0.0
        self._disk_rate = max(SLOWEST_READ, disk_rate or 0)
        self._waiting = self._written = self._unwritten = self._user_seconds = 0.0
        self._burst = self._computed = 0.0
        """Bytes written since `_waiting`, and seconds in which the disk had time for those before."""
        self._caught_up = self._copied = self._most_waiting = 0.0
        """Bytes that the disk wrote while the program computed, bytes read while as many were written, and the most that waited."""
        self._cpu_seconds = inf
        self._start: float | None = None
        self._ending = deque([(0.0, 0.0)])
        """Times and newly mapped bytes of the samples at the end of the run (`ENDING`)."""

    def add(self, sample: Sample, window: CgroupWindow | None) -> None:
        """Add a sample, and the window that ended at the sample before."""
        self._settle(window)
        usage, read = sample.usage, sample.read_bytes
        if usage is None or read is None:
            return
        cache = self._cache if sample.file is None else sample.file
        chars, call_writes = sample.read_chars or 0.0, sample.write_chars or 0.0
        mapped = max(0.0, (sample.rss or 0.0) - (sample.anon or 0.0))
        written = sample.write_bytes or 0.0
        self._again = max(self._again, chars - read - call_writes)
        self._faulted = max(0.0, read - chars)
        unwritten_now = min(self._wait(sample, read, written), self._dirty(sample, written))
        self._most_waiting = max(self._most_waiting, unwritten_now)
        self._cpu_seconds = sample.cpu_seconds or self._cpu_seconds
        self._written, self._user_seconds = written, sample.user_seconds or self._user_seconds
        newly = self._newly(mapped if sample.mapped is None else sample.mapped)
        self._held = _Point(
            max(0.0, usage - cache),
            mapped,
            max(0.0, mapped - read),
            max(cache, self._cache),
            self._faulted,
            unwritten_now,
            self._newly_mapped + _MAPPED_EARLY * newly,
            self._again,
        )
        self._newly_mapped += newly
        self._add_ending(sample.time)
        seconds = sample.time - self._time
        if seconds >= _LEAST_WINDOW:
            self._rate = max(self._rate, (read - self._read) / seconds)
        self._cache, self._time, self._read = cache, sample.time, read

    def _wait(self, sample: Sample, read: float, written: float) -> float:
        """Return the bytes that wait to be written, if the disk writes only while the program computes."""
        more, more_read = written - self._written, read - self._read
        busy = (sample.user_seconds or 0.0) - self._user_seconds
        self._burst += more
        self._copied += max(0.0, min(more, more_read))
        self._computed += max(0.0, min(busy, sample.time - self._time) - more_read / self._disk_rate)
        waits = waiting(self._waiting, self._burst, self._computed, self._disk_rate)
        if self._computed >= _BURST:
            self._caught_up += self._waiting + self._burst - waits
            self._waiting, self._burst, self._computed = waits, 0.0, 0.0
        return waits

    def _dirty(self, sample: Sample, written: float) -> float:
        """Return the most pages that can have been unwritten at one moment since the last sample, by the kernel's counter."""
        most = self._unwritten + written - self._written
        self._unwritten = most if sample.unwritten is None else sample.unwritten
        return max(most, self._unwritten)

    def _add_ending(self, time: float) -> None:
        """Add the newly mapped bytes of a sample to those of the last part of the run so far; few of its samples are kept."""
        self._start = time if self._start is None else self._start
        ending, length = self._ending, ENDING * (time - self._start)
        if len(ending) > 2 and time - ending[-2][0] < length / _POINTS_OF_ENDING:
            ending.pop()
        ending.append((time, self._newly_mapped))
        while len(ending) > 2 and ending[1][0] <= time - length:
            ending.popleft()

    def _mapped_before_ending(self) -> float:
        """Return the newly mapped bytes, without those of the last part of the run."""
        (time, mapped), (later, more) = self._ending[0], self._ending[1]
        last = self._ending[-1][0]
        share = (last - ENDING * (last - (self._start or 0.0)) - time) / max(later - time, 1e-9)
        return mapped + min(1.0, max(0.0, share)) * (more - mapped)

    def _newly(self, mapped: float) -> float:
        """Return bytes that were mapped since the last sample.

        `mapped` has each page once: processes that share pages, as after a fork, map no new ones. Old records have the sum of the
        processes, which moves to and fro. A program that maps other files afterwards has less in between: rustc has 97 MiB, 66,
        then 87 with those of the linker.
        """
        more = max(0.0, mapped - self._mapped)
        self._mapped = mapped if mapped < _NOISE * self._mapped else max(self._mapped, mapped)
        return more

    def _settle(self, window: CgroupWindow | None) -> None:
        """Add the last sample's point."""
        held, self._held = self._held, None
        if held is None:
            return
        if window is not None and window.likely is not None and window.likely > held.needed:
            held = held._replace(needed=window.likely)
        points = self._points
        if points and held.within(points[-1]):
            return
        points.append(held)
        if len(points) >= _POINTS:
            pairs = zip(points[::2], points[1::2], strict=True)
            self._points = [first.joined(second) for first, second in pairs]

    def beside_peak(self, largest_mapped: int | None, processes: int | None, seconds: float) -> int | None:
        """Return the files that full speed needs beside the peak, in bytes; `None`: unknown.

        Args:
            largest_mapped: most file pages of one process at a sample.
            processes: of the run.
            seconds: its duration, less the waiting for processors that other programs used.
        """
        points = self._points if self._held is None else [*self._points, self._held]
        if not points or largest_mapped is None:
            return None
        limit = mapped_by_several(largest_mapped, processes)
        most = max(point.needed + self._files(point, limit, processes, seconds) for point in points)
        return round(most - max(point.needed for point in points))

    def _files(self, point: _Point, limit: float, processes: int | None, seconds: float) -> float:
        """Return the bytes of files in use at a point: they are in the page cache, or mapped.

        A call that copies a whole file counts as read at its end, so fewer bytes are read by faults at the end than before.
        """
        mapped, faulted = min(point.mapped, limit), min(point.faulted, self._faulted)
        ahead = read_ahead(faulted, mapped, point.mapped_before, self._mapped_before_ending(), processes)
        # On a busy machine a run takes longer than its work needs, and reads slower than the disk allows.
        rate = max(self._rate, self._disk_rate)
        seconds = min(seconds, self._cpu_seconds + self._read / rate)
        ahead = kept(ahead, seconds, rate)
        waits = unwritten(
            point.unwritten,
            seconds,
            self._disk_rate,
            bursts=self._caught_up / max(1.0, self._most_waiting),
            copied=self._copied / max(1.0, self._written),
        )
        found = mapped + self._again - point.again + ahead + waits
        return min(found, point.cache + min(point.unread, limit))
