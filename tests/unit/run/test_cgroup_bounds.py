"""Bounds of charged memory less page cache, against simulated groups of known truth."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from otel_memwatch.record.schema import Sample
from otel_memwatch.run.cgroup_bounds import CgroupBounds, CgroupWindow
from otel_memwatch.run.conditions import RunConditions

MOVES = st.lists(
    st.tuples(
        st.sampled_from(["needed", "cache", "drop", "tick", "write", "skew"]),
        st.integers(min_value=0, max_value=500),
    ),
    min_size=1,
    max_size=80,
)


def reading(
    time: float, usage: int, window: int | None, gap: float, watermark: int, file: int, moved: int
) -> Sample:
    return Sample(
        time, usage=usage, window=window, gap=gap, watermark=watermark, file=file, moved=moved, locked=0
    )


def bounds(error: int) -> CgroupBounds:
    """Bounds on two processors, of counters that are off by so much."""
    made = CgroupBounds(RunConditions.of({"host": {"cpus": 2}}))
    made._error = error
    return made


class Group:
    """A control group whose needed memory and cache are moved by a script; a tick reads it as the monitor does."""

    def __init__(self) -> None:
        self.time = 0.0
        self.needed = self.cache = self.moved = 0
        self.watermark = self.lifetime = self.truth = 0
        self.truths: list[tuple[float, float, int]] = []
        self._since, self._largest = 0.0, 0

    def move(self, kind: str, size: int) -> None:
        self.time += 0.001
        if kind == "needed":
            self.needed = size
        elif kind == "cache":
            self.cache, self.moved = self.cache + size, self.moved + size
        elif kind == "write":
            self.moved += size
        elif kind == "drop":
            self.cache = max(0, self.cache - size)
        self.watermark = max(self.watermark, self.needed + self.cache)
        self.lifetime = max(self.lifetime, self.watermark)
        self._largest = max(self._largest, self.needed)

    def read(self, during: int, *, resets: bool) -> Sample:
        """The I/O first, then the cache, then the watermark, which is reset; `during`: cache that grows in between."""
        moved = self.moved
        self.move("cache", during)
        file = self.cache
        window, usage = self.watermark, self.needed + self.cache
        self.truths.append((self._since, self.time, self._largest))
        self._since, self._largest = self.time, self.needed
        if resets:
            self.watermark = usage
        return reading(self.time, usage, window if resets else None, 0, self.lifetime, file, moved)


DROPPED_AND_READ_AGAIN = [("cache", 1), ("tick", 0), ("skew", 1), ("drop", 1), ("needed", 1), ("needed", 0)]
"""Cache goes, memory comes and goes, and the cache comes back while the last tick is read."""


@given(MOVES, st.booleans(), st.booleans())
@example(DROPPED_AND_READ_AGAIN, False, False)
@example(DROPPED_AND_READ_AGAIN, True, False)
def test_the_truth_lies_between_the_bounds(
    moves: list[tuple[str, int]], resets: bool, all_ended: bool
) -> None:
    """Whatever needed memory and cache do between two ticks, and while a tick is read; the last too, if a process lives."""
    group, windows, found = Group(), bounds(0), []
    during = 0
    for kind, size in [*moves, *([("skew", 0)] if all_ended else []), ("tick", 0)]:
        if kind == "skew":
            during = size
        elif kind == "tick":
            found.append(windows.add(group.read(during, resets=resets)))
            during = 0
        else:
            group.move(kind, size)
    known = [window for window in found if window is not None] + list(windows.rest(all_ended=all_ended))
    assert len(known) == len(group.truths)
    for window, (_, end, truth) in zip(known, group.truths, strict=True):
        assert window.end == end
        assert window.low is None or window.low <= truth
        assert window.high is None or truth <= window.high


def window(**changes: object) -> CgroupWindow:
    """The second of three ticks, of a group of 300 with 100 of cache, changed."""
    base = reading(1.0, 300, 300, 0, 300, 100, 1000)
    windows = bounds(1)
    windows.add(base._replace(time=0.5))
    windows.add(base._replace(**changes))  # type: ignore[arg-type]
    found = windows.add(base._replace(time=1.5))
    assert found is not None
    return found


def test_a_peak_that_is_missing_in_a_window_is_the_peak_of_all_time() -> None:
    """40 MiB come and go before another program resets the watermark, and again after the next sample."""
    cgroup = bounds(error=0)
    of_program = [
        reading(float(time), 10, window, 0, watermark, 0, 0)
        for time, window, watermark in ((1, 10, 10), (2, 12, 40), (3, 13, 40), (4, 14, 40))
    ]
    windows = [window for sample in of_program if (window := cgroup.add(sample))]
    assert [(window.low, window.high) for window in [*windows, *cgroup.rest(all_ended=True)]] == [
        (10, 10), (40, 40), (13, 40), (14, 40)]  # fmt: skip


def test_memory_that_came_between_both_readings_of_a_watermark_is_in_the_next_window() -> None:
    """No other program resets it: the peak of all time is read a moment later than that of the window."""
    cgroup = bounds(error=0)
    grows = [
        reading(float(time), 10, window, 0, watermark, 0, 0)
        for time, window, watermark in ((1, 10, 10), (2, 20, 25), (3, 25, 25))
    ]
    windows = [window for sample in grows if (window := cgroup.add(sample))]
    assert [window.high for window in windows] == [10, 20]


def test_a_quiet_cache_gives_one_figure() -> None:
    assert window() == CgroupWindow(0.5, 1.0, 1.01, 199, 201, 200)


def test_without_io_figures_only_the_watermark_bounds() -> None:
    assert window(moved=1000, file=None) == CgroupWindow(0.5, 1.0, 1.01, None, 301, None)


def test_a_cache_that_grew_unaccounted_for_is_believed() -> None:
    """A file system that does not tell the kernel's accounting: its growth counts in place of the I/O."""
    assert window(file=150) == CgroupWindow(0.5, 1.0, 1.01, 149, 201, 150)


def test_a_long_gap_before_the_window_allows_for_what_it_may_hide() -> None:
    windows = bounds(0)
    base = reading(1.0, 300, 300, 0.01, 300, 0, 0)
    windows.add(base)
    windows.add(base._replace(time=2.0, gap=0))
    found = windows.add(base._replace(time=3.0))
    assert found is not None
    assert found.high == 300 + int(0.01 * 2 * 5e9)
