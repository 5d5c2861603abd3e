"""Bounds of the memory that a tree needed, from page faults of each sample; the rules are those of `truth`."""

from __future__ import annotations

import math

from otel_memwatch.record.format import TICK_DECIMALS
from otel_memwatch.record.schema import whole_of
from otel_memwatch.run.cgroup_bounds import CgroupWindow
from otel_memwatch.run.maximum import Maximum
from otel_memwatch.run.tree_bounds import UNCAPPED, SumOverTime, WindowBounds
from otel_memwatch.runtime.kernel import sum_known
from otel_memwatch.runtime.typed import TYPE_CHECKING
from otel_memwatch.truth.faults import gained

if TYPE_CHECKING:
    from otel_memwatch.record.samples import Array, Samples
    from otel_memwatch.record.schema import Sample
    from otel_memwatch.run.conditions import RunConditions


class LedgerBounds:
    """The bounds between samples, from the columns `memwatch.tree.memory.needed.*`.

    The process that waits for another one reports the page faults after the other's last sample. Reading a sample takes a
    moment. The reports at the sample that ends a window count in that window. Reports at the next sample may belong to it too:

        sample 1 ---------- sample 2 ---------- sample 3
                  |<- bound of sample 2 ->|
                     page faults reported at sample 2 count, and those at sample 3 of processes that ended before
                     sample 2 was over

    Args:
        page: bytes of a base page.
        carried: whether a sample's bound is at least the previous one, if its reports may belong to the previous window.
            Otherwise they are assumed to belong to it.

    Attributes:
        low: the most that certainly existed at one moment.
    """

    def __init__(self, page: int, *, carried: bool = False) -> None:
        self._page = page
        self._carried = carried
        self.low = Maximum()
        self._confirmed, self._guesses = Maximum(), Maximum()
        """Best estimate up to the last reading of proportional sizes, and the largest guess since, not corrected."""
        self._correction = 1.0, 0
        """Factor of the last reading of proportional sizes, and the guess at that sample."""
        self._unknown = WindowBounds()
        """Windows that page faults do not bound; the others are present as windows of 0 bytes."""
        self._began: float | None = None
        """Time of the first sample."""
        self._most = 0
        """The largest bound of the other windows."""
        self._open: tuple[float, int | None, int | None, bool] | None = None
        self.known = False
        """True if any bound is known."""
        self._edges: int | None = 0
        """The largest bound of the first window, and of those that ended without memory; `None`: one is unknown."""

    def add_sample(self, time: float, high: int | None, faults: int | None, *, resident: bool = True) -> None:
        """Add a sample.

        Args:
            time: monotonic seconds.
            high: bytes that the seen processes never exceeded since the previous sample; `None`: not known.
            faults: page faults of other processes, and of the seen ones after their last sample; `None`: not known.
            resident: a process has memory.
        """
        if self._open is not None:
            before, high_before, faults_before, was_resident = self._open
            # If the faults of ended processes were not reported, they may belong to either window.
            reported = 0 if self._carried and faults is not None else faults
            bound = self._bound(high_before, faults_before, reported)
            self._unknown.add_sample(before, None if bound is None else 0, 0)
            self._most = max(self._most, bound or 0)
            if before == self._began or not was_resident:
                self._edges = _larger(self._edges, bound)
        self._began = time if self._began is None else self._began
        self._open = time, high, faults, resident
        self.known = self.known or high is not None

    def add_guess(
        self,
        time: float,
        guess: int | None,
        shares: int | None,
        factor: float | None = None,
        *,
        has_factors: bool = False,
    ) -> None:
        """Add the best estimate of the needed memory.

        /proc does not show how much of the memory that forked processes gained they have freed since. It does at samples that
        read the proportional sizes of all pages. The ratio found there corrects the other estimates.

        Args:
            time: monotonic seconds.
            guess: bytes, as if nothing had been freed.
            shares: certain part of the sum of proportional sizes, in bytes; `None`: not read at this sample.
            factor: correction that the sum gives; `None`: it gives none.
            has_factors: the record has corrections. An older one has only the certain part of the sum.
        """
        self.low.add(time, shares)
        if guess is None:
            return
        self._guesses.add(time, guess)
        read = guess
        if not has_factors and factor is None and shares is not None and guess > 0:
            from otel_memwatch.truth.tree_estimates import share_of_estimate

            factor, read = share_of_estimate(shares, guess), UNCAPPED
        if factor is not None:
            self._correction = factor, read
            self._confirmed, self._guesses = self.estimate, Maximum()

    @property
    def estimate(self) -> Maximum:
        """Return the largest best estimate. The last reading of proportional sizes corrects the guesses since the one before."""
        estimate, guess = self._confirmed.copy(), self._guesses
        if guess.value is not None and guess.at is not None:
            from otel_memwatch.truth.tree_estimates import corrected  # not for a short run

            estimate.add(guess.at, corrected(guess.value, *self._correction))
        return estimate

    def _bound(self, high: int | None, *faults: int | None) -> int | None:
        total = sum_known(faults)
        return None if high is None or total is None else high + gained(total, page=self._page)

    def at_edges(self, *, over: bool) -> int | None:
        """Return the largest bound of the windows in which the tree's first process began or ended; `None`: not known.

        `over`: as for `most`.
        """
        if self._open is None:
            return None
        _, high, faults, _ = self._open
        return _larger(self._edges, self._bound(high if over else None, faults))

    def most(self, sums: SumOverTime | None, *, over: bool) -> int | None:
        """Return the upper bound of the needed memory, in bytes; `None`: not known. Asking changes nothing.

        If page faults do not bound a window, the bounds of the processes that lived in it do. In other windows these bound
        nothing: a file in /dev/shm that no process maps is in none of them.

        Args:
            sums: the bounds of all processes over time; `None`: not all have one.
            over: whether the last sample was taken after the target's end, or found no process alive. The later memory of a
                daemon that the target leaves behind does not belong to the run.
        """
        if self._open is None or not self.known:
            return None
        time, high, faults, _ = self._open
        bound = self._bound(high if over else None, faults)
        windows = self._unknown.copy()
        windows.add_sample(time, None if bound is None else 0, 0)

        def by_processes(start: float, end: float) -> int:
            if over and start > time:
                return 0
            return UNCAPPED if sums is None else sums.largest(start, end)

        most = max(windows.largest(0, by_processes), self._most, bound or 0)
        return None if most >= UNCAPPED else int(most)


def _larger(one: int | None, other: int | None) -> int | None:
    return None if one is None or other is None else max(one, other)


class LedgerWindows:
    """Turn successive samples into windows that page faults bound; a window is known one sample later.

    Reports at the sample that ends a window, and at the next one, may belong to it: both count. A sample's bound includes
    reports that may be older than the sample before, so `CgroupHistory.most` counts the next window too.
    """

    def __init__(self, conditions: RunConditions) -> None:
        self._conditions = conditions
        self._before: Sample | None = None
        self._last: Sample | None = None

    def add(self, sample: Sample) -> CgroupWindow | None:
        """Add a sample; return the window that ended at the sample before. One that did not read the tree ends none."""
        if sample.processes is None:
            return None
        window = self._window(sample)
        self._before, self._last = self._last, sample
        return window

    def rest(self, *, all_ended: bool) -> list[CgroupWindow]:
        """Return the window that no later sample completes. It has no bound unless `all_ended`; asking changes nothing."""
        window = self._window(self._last if all_ended else None)
        return [] if window is None else [window]

    def _window(self, after: Sample | None) -> CgroupWindow | None:
        """Return the window that ended at the last sample, with the reports of the sample `after` it."""
        before, last = self._before, self._last
        if last is None:
            return None
        start = self._conditions.started if before is None else before.time
        high = None
        reported = 0 if before is None else before.unseen_faults
        if after is not None and None not in (last.needed_high, reported, after.unseen_faults):
            more = max(0, (whole_of(after.unseen_faults) or 0) - (whole_of(reported) or 0))
            high = (whole_of(last.needed_high) or 0) + gained(more, page=self._conditions.page_bytes)
        return CgroupWindow(
            start, last.time, self._conditions.read_until(last.time, last.reading), None, high
        )


def ledger_between(samples: Samples, conditions: RunConditions, *, all_ended: bool) -> tuple[Array, ...]:
    """Return the windows of a whole record as `LedgerWindows` does: starts, ends, untils, lower and upper bounds.

    An upper bound is NaN if it is not known. A day at 10 Hz would take 5 s more from its samples one by one (`bench_twins`).
    """
    import numpy as np

    read = ~np.isnan(samples.field("processes"))
    count = int(read.sum())
    time = np.round(samples.time[read] + conditions.started, TICK_DECIMALS)
    reading, high, reported = (
        samples.field(name)[read] for name in ("reading", "needed_high", "unseen_faults")
    )
    untils = time + np.where(np.isnan(reading), conditions.reading_seconds, reading)
    starts = np.concatenate(([conditions.started], time))[:count]

    def after(values: Array) -> Array:
        return np.append(values[1:], values[-1:] if all_ended else math.nan)[:count]

    more = np.maximum(0.0, after(reported) - np.concatenate(([0.0], reported))[:count])
    return starts, time, untils, np.zeros(count), high + more * conditions.page_bytes
