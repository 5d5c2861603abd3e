"""Peaks of overlapping operations, computed from readings of high-water marks at boundaries.

The boundaries of all operations divide time into segments. A segment's peak is exact if the lifetime high-water mark
rose in it. It is also exact if the segment began at the high-water mark, as after a reset. Otherwise the peak is between
the memory in use at the segment's ends and the high-water mark. An operation's peak is the largest of its segments.

This code runs at every boundary of a program that uses a GPU, between two launches of kernels. Each call, object and
attribute counts, because nothing of it is in the processor's caches then.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    Reading = tuple[int, int | None, int | None, int | None, int | None, int | None]
    """Values of an allocator for one device at one moment; `None` is unknown.

    Bytes in tensors; their largest number since the allocator started or its high-water mark was reset; bytes reserved
    from the device, including the cache; their largest number; failed allocations; allocations that succeeded only after
    the cache was freed.
    """


class _Bounds:
    """Bounds of one operation on one device."""

    __slots__ = ("high", "low", "reserved", "start")

    def __init__(self, start: Reading) -> None:
        self.start = start
        self.low: int = start[0]
        self.high: int | None = start[0]
        self.reserved = start[2]
        """Lower bound of the peak of bytes reserved."""


class AllocatorBounds:
    """Bounds of all open operations on the devices of one library. Not thread-safe."""

    __slots__ = ("_before_resets", "_last", "_open", "allocator")

    def __init__(self, allocator: str) -> None:
        self.allocator = allocator
        self._last: dict[str, Reading] = {}
        self._open: dict[int, dict[str, _Bounds]] = {}
        self._before_resets: dict[str, tuple[int, int]] = {}
        """High-water marks of tensors and of reserved bytes before resets of ours."""

    def segment(self, readings: dict[str, Reading]) -> None:
        """Add the bounds of the segment that ends to all open operations.

        If a device is missing from the readings, its upper bound is unknown.
        """
        last, opened = self._last, self._open
        for device in last:
            if device not in readings:
                self._lose(device)
        if opened:
            for device, reading in readings.items():
                before = last.get(device) or _unused(reading)
                low, high, reserved = _segment(before, reading)
                for devices in opened.values():
                    bounds = devices.get(device)
                    if bounds is None:
                        bounds = devices[device] = _Bounds(before)
                    bounds.low = max(bounds.low, low)
                    if high is None or bounds.high is None:
                        bounds.high = None
                    elif high > bounds.high:
                        bounds.high = high
                    if reserved is not None and bounds.reserved is not None and reserved > bounds.reserved:
                        bounds.reserved = reserved
        last.update(readings)

    def _lose(self, device: str) -> None:
        """Note that a device has not answered at a boundary."""
        self._last[device] = 0, None, None, None, None, None
        for devices in self._open.values():
            if device in devices:
                devices[device].high = None

    def begin_again(self, readings: dict[str, Reading]) -> None:
        """Begin the next segment after a reset of the high-water marks to the use in these readings."""
        for device, (used, peak, reserved, reserved_peak, ooms, retries) in readings.items():
            earlier, earlier_reserved = self._before_resets.get(device, (0, 0))
            self._before_resets[device] = max(earlier, peak or 0), max(earlier_reserved, reserved_peak or 0)
            held = None if reserved_peak is None else reserved
            self._last[device] = used, None if peak is None else used, reserved, held, ooms, retries

    def open(self, key: int) -> None:
        """Begin an operation at the last boundary."""
        self._open[key] = {device: _Bounds(reading) for device, reading in self._last.items()}

    def close(self, key: int) -> dict[str, Any]:
        """End an operation at the last boundary. Returns its figures by device."""
        devices = self._open.pop(key, None)
        if devices is None:
            devices = {device: self._whole(device) for device in self._last}
        return {
            device: _figures(self.allocator, bounds, self._last[device])
            for device, bounds in devices.items()
            if bounds.high != 0
        }

    def _whole(self, device: str) -> _Bounds:
        """Return bounds of an operation older than the allocator. Its high-water marks cover it if we alone reset them."""
        reading = self._last[device]
        bounds = _Bounds(_unused(reading))
        bounds.low, bounds.high, bounds.reserved = _segment(bounds.start, reading)
        earlier, earlier_reserved = self._before_resets.get(device, (0, 0))
        bounds.low = max(bounds.low, earlier)
        bounds.high = None if bounds.high is None else max(bounds.high, earlier)
        bounds.reserved = None if bounds.reserved is None else max(bounds.reserved, earlier_reserved)
        return bounds


def _segment(start: Reading, end: Reading) -> tuple[int, int | None, int | None]:
    """Return bounds of the most bytes in tensors within a segment, and a lower bound of the most bytes reserved.

    A high-water mark that is lower at the end than at the start was reset by the program in between.
    """
    used, mark, held, held_mark, _, _ = start
    low, peak, reserved, reserved_peak, _, _ = end
    low = max(low, used)
    high = None
    if peak is not None and mark is not None:
        if peak >= mark:
            high = peak
        if peak != mark and peak > low:
            low = peak
    if reserved is not None and held is not None:
        reserved = max(reserved, held)
        if reserved_peak is not None and reserved_peak != held_mark and held_mark is not None:
            reserved = max(reserved, reserved_peak)
    return low, high, reserved


def _unused(reading: Reading) -> Reading:
    """Return the reading of the allocator before its first use."""
    _, peak, reserved, reserved_peak, ooms, retries = (None if value is None else 0 for value in reading)
    return 0, peak, reserved, reserved_peak, ooms, retries


def _figures(allocator: str, bounds: _Bounds, end: Reading) -> dict[str, Any]:
    used, _, reserved, _, ooms, retries = end
    start, _, _, _, earlier_ooms, earlier_retries = bounds.start
    low, high = bounds.low, bounds.high
    return {
        "allocator": allocator,
        "peak": low,
        "low": low,
        "high": high,
        "certainty": "exact" if low == high else "interval",
        "reserved_peak": bounds.reserved,
        "start": start,
        "end": used,
        "ooms": None if ooms is None or earlier_ooms is None else max(0, ooms - earlier_ooms),
        "retries": None if retries is None or earlier_retries is None else max(0, retries - earlier_retries),
        "fragmentation": None if reserved is None else max(0, reserved - used),
    }
