"""Peaks of overlapping operations, computed from readings of high-water marks at boundaries.

The boundaries of all operations divide time into segments. A segment's peak is exact if the lifetime high-water mark
rose in it. It is also exact if the segment began at the high-water mark, as after a reset. Otherwise the peak is between
the memory in use at the segment's ends and the high-water mark. An operation's peak is the largest of its segments.
"""

from __future__ import annotations

from typing import Any, NamedTuple


class AllocatorReading(NamedTuple):
    """Values of an allocator for one device at one moment, in bytes. `None` is unknown."""

    allocator: str
    current: int
    """Bytes in tensors."""
    peak: int | None
    """Largest `current` since the allocator started, or since its high-water mark was reset."""
    reserved: int | None = None
    """Bytes reserved from the device, including the cache."""
    reserved_peak: int | None = None
    ooms: int | None = None
    retries: int | None = None


class _PeakBounds:
    """Bounds of a peak; `high` is `None` if unknown."""

    __slots__ = ("high", "low")

    def __init__(self, value: int) -> None:
        self.low = value
        self.high: int | None = value

    def extend(self, low: int, high: int | None) -> None:
        """Add a segment."""
        self.low = max(self.low, low)
        self.high = None if high is None or self.high is None else max(self.high, high)


class _DeviceBounds:
    """Bounds of one operation on one device."""

    __slots__ = ("reserved", "start", "used")

    def __init__(self, start: AllocatorReading) -> None:
        self.start = start
        self.used = _PeakBounds(start.current)
        self.reserved = None if start.reserved is None else _PeakBounds(start.reserved)


class AllocatorBounds:
    """Bounds of all open operations. Not thread-safe."""

    def __init__(self) -> None:
        self._last: dict[str, AllocatorReading] = {}
        self._open: dict[int, dict[str, _DeviceBounds]] = {}

    def segment(self, allocator: str, readings: dict[str, AllocatorReading]) -> None:
        """Add the bounds of an allocator's segment that ends to all open operations.

        If a device of the allocator is missing from the readings, its upper bound is unknown.
        """
        for device, last in self._last.items():
            if last.allocator == allocator and device not in readings:
                for devices in self._open.values():
                    if device in devices:
                        devices[device].used.extend(0, None)
        for device, reading in readings.items():
            before = self._last.get(device) or _unused(reading)
            used = _segment(before.current, before.peak, reading.current, reading.peak)
            for devices in self._open.values():
                bounds = devices.get(device)
                if bounds is None:
                    bounds = devices[device] = _DeviceBounds(before)
                bounds.used.extend(*used)
                if bounds.reserved is not None and reading.reserved is not None:
                    reserved = _segment(
                        before.reserved or 0, before.reserved_peak, reading.reserved, reading.reserved_peak
                    )
                    bounds.reserved.extend(*reserved)
            self._last[device] = reading

    def begin_segment(self, readings: dict[str, AllocatorReading]) -> None:
        """Begin the next segment with these readings, after a reset of the high-water marks."""
        self._last.update(readings)

    def open(self, key: int) -> None:
        """Begin an operation at the last boundary."""
        self._open[key] = {device: _DeviceBounds(reading) for device, reading in self._last.items()}

    def close(self, key: int) -> dict[str, Any] | None:
        """End an operation at the last boundary. Returns its figures by device; `None` without any memory."""
        devices = self._open.pop(key, None)
        if devices is None:
            devices = self._since_the_beginning()
        figures = {device: _figures(bounds, self._last[device]) for device, bounds in devices.items()}
        return {device: known for device, known in figures.items() if known["high"] != 0} or None

    def _since_the_beginning(self) -> dict[str, _DeviceBounds]:
        """Return bounds of an operation that is older than the allocators. The high-water mark covers it if never reset."""
        result = {}
        for device, reading in self._last.items():
            bounds = result[device] = _DeviceBounds(_unused(reading))
            bounds.used.extend(
                *_segment(0, 0 if reading.peak is not None else None, reading.current, reading.peak)
            )
            if bounds.reserved is not None and reading.reserved is not None:
                known = 0 if reading.reserved_peak is not None else None
                bounds.reserved.extend(*_segment(0, known, reading.reserved, reading.reserved_peak))
        return result


def _segment(start: int, mark: int | None, end: int, peak: int | None) -> tuple[int, int | None]:
    """Return bounds of the largest value within a segment.

    Args:
        start: value at the segment's start.
        mark: high-water mark at its start.
        end: value at its end.
        peak: high-water mark at its end; lower than `mark` if the program has reset it in between.

    """
    low = max(start, end)
    if mark is None or peak is None:
        return low, None
    if peak > mark:
        return peak, peak
    if peak < mark:
        return max(low, peak), None
    return low, peak


def _unused(reading: AllocatorReading) -> AllocatorReading:
    """Return the reading of the allocator before its first use."""
    zero = {
        name: None if getattr(reading, name) is None else 0
        for name in ("peak", "reserved", "reserved_peak", "ooms", "retries")
    }
    return AllocatorReading(reading.allocator, 0, **zero)


def _figures(bounds: _DeviceBounds, end: AllocatorReading) -> dict[str, Any]:
    start, used, reserved = bounds.start, bounds.used, bounds.reserved
    return {
        "allocator": end.allocator,
        "peak": used.low,
        "low": used.low,
        "high": used.high,
        "certainty": "exact" if used.low == used.high else "interval",
        "reserved_peak": None if reserved is None else reserved.low,
        "start": start.current,
        "end": end.current,
        "ooms": _difference(start.ooms, end.ooms),
        "retries": _difference(start.retries, end.retries),
        "fragmentation": None if end.reserved is None else max(0, end.reserved - end.current),
    }


def _difference(before: int | None, after: int | None) -> int | None:
    return None if before is None or after is None else max(0, after - before)
