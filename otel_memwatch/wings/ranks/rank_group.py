"""A group: the runs of one job on several ranks or hosts, for every report of a group.

A separate monitor recorded each run. Runs on one host are added up at each instant. Across hosts the peaks of the hosts
are added up (`host_sums`).
"""

from __future__ import annotations

import math
from functools import cached_property

from otel_memwatch.model import Evidence
from otel_memwatch.record.fields import text
from otel_memwatch.runtime.typed import TYPE_CHECKING, NamedTuple
from otel_memwatch.text import clean
from otel_memwatch.truth.ranks import Bins, Bound, in_bins, sum_at_one_instant
from otel_memwatch.wings.ranks.host_sums import (
    HostFigures,
    HostRuns,
    RankPlace,
    in_wall_time,
    sum_hosts,
    windows_of,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from otel_memwatch.model import Peak
    from otel_memwatch.run.recorded_run import RecordedRun

    Array = NDArray[np.float64]

_BINS_PER_SAMPLE = 4
"""Bins in a sampling interval, unless the run is too long for that. Finer bins widen the range less."""
_CLOCK_TOLERANCE = 1.0
"""Seconds by which the wall clocks of two hosts may differ when the order of two deaths is stated."""


class Rank(NamedTuple):
    """One run of a group."""

    run: RecordedRun
    rank: int | None
    """Number of the rank; `None` without one, for example for a run around all ranks of a host."""
    local_rank: int | None
    host: str
    """Name of the host or pod."""
    clock: str
    """Identity of the clock of its samples: one boot of a machine."""
    inside: bool
    """True if another run of the group on the same machine includes it; then it is not added up again."""
    around: bool = False
    """True if it includes the ranks of its host."""

    @property
    def peak(self) -> Peak | None:
        """Peak of needed memory."""
        return self.run.peaks.tree

    @property
    def label(self) -> str:
        """Label: "rank 3", "all of HOST" around the ranks of a host, or the directory of a run without a rank."""
        return (
            f"rank {self.rank}"
            if self.rank is not None
            else f"all of {clean(self.host)}"
            if self.around
            else self.short
        )

    @property
    def short(self) -> str:
        """Label in a column of ranks."""
        return (
            str(self.rank) if self.rank is not None else "all" if self.around else clean(self.run.path.name)
        )

    @property
    def died(self) -> bool:
        """Return whether the run failed or its record stops early."""
        if self.run.state == "running":
            return False
        return self.run.ending.bad or self.run.state == "incomplete"


class Death(NamedTuple):
    """The first run of a group that ended badly."""

    rank: Rank
    at: float
    """Seconds after the start of the group."""
    others: tuple[Rank, ...]
    """Runs that may have ended earlier: clocks differ between hosts, and a record may stop early."""
    operation: str | None
    """Innermost operation that was open at that time."""


class _End(NamedTuple):
    """Earliest and latest end of a run by the wall clock of its host; Unix seconds."""

    earliest: float
    latest: float


class GroupSum(NamedTuple):
    """Memory that all runs needed: at one instant on one host, or the sum of the hosts' peaks."""

    peak: Peak
    hosts: Sequence[HostFigures]
    bins: Bins
    bound: Bound | None
    """Bounds in each bin; `None` for several hosts."""
    guess: Array
    """Best estimate in each bin, with the hosts side by side by their wall clocks."""


class RankGroup:
    """The runs of one job.

    Args:
        name: of the group.
        ranks: runs that count, by rank.
        earlier: runs of earlier attempts, which do not count.
        size: number of ranks according to the launcher; `None`: unknown.
        missing: numbers of ranks without a record.
        more: other names of the group.
        launcher: program that started the ranks, named as in `record.identity`; "": unknown.

    """

    def __init__(
        self,
        name: str,
        ranks: Sequence[Rank],
        *,
        earlier: Sequence[Rank] = (),
        size: int | None = None,
        missing: Sequence[int] = (),
        more: Sequence[str] = (),
        launcher: str = "",
    ) -> None:
        self.name = name
        self.ranks = tuple(ranks)
        self.earlier = tuple(earlier)
        self.size = size
        self.missing = tuple(missing)
        self.more = tuple(more)
        self.launcher = launcher

    @property
    def numbered(self) -> tuple[Rank, ...]:
        """Ranks without the runs around them."""
        return tuple(rank for rank in self.ranks if rank.rank is not None) or self.ranks

    @property
    def state(self) -> str:
        """State: "running" if any run is, else "incomplete" if any record stops early, else "finished"."""
        states = {rank.run.state for rank in self.ranks}
        return next((state for state in ("running", "incomplete") if state in states), "finished")

    @property
    def command(self) -> tuple[str, ...]:
        """Command of the first rank."""
        return self.numbered[0].run.command

    @cached_property
    def started(self) -> float:
        """Unix seconds of the first start, by the wall clocks of the hosts."""
        return min(self._wall(rank, rank.run.started) for rank in self.ranks)

    @cached_property
    def seconds(self) -> float:
        """Seconds from the first start to the last end."""
        return (
            max(self._wall(rank, rank.run.started + rank.run.seconds) for rank in self.ranks) - self.started
        )

    @cached_property
    def hosts(self) -> tuple[str, ...]:
        """Names of the hosts."""
        return tuple(dict.fromkeys(rank.host for rank in self.ranks))

    def by_memory(self) -> list[tuple[Rank, int]]:
        """Return the ranks and their peaks in bytes, the largest first. Ranks with an unknown peak are omitted."""
        known = [(rank, peak.bytes) for rank in self.numbered if (peak := rank.peak) is not None]
        return sorted(known, key=lambda one: -one[1])

    @property
    def median(self) -> float | None:
        """Median of the ranks' peaks in bytes."""
        import statistics

        known = [value for _, value in self.by_memory()]
        return statistics.median(known) if known else None

    # -- clocks

    @cached_property
    def _ahead(self) -> dict[str, float]:
        """Seconds by which each host's wall clock is ahead of its monotonic clock.

        The last run of a host sets the value for all of its runs: the wall clock may have been set between two starts.
        """
        found: dict[str, tuple[float, float]] = {}
        for rank in self.ranks:
            wall, monotonic = rank.run.fields.started
            if wall is not None and monotonic is not None:
                monotonic -= _shift(rank.run)
                found[rank.clock] = max(
                    found.get(rank.clock, (-math.inf, 0.0)), (monotonic, wall - monotonic)
                )
        return {clock: ahead for clock, (_, ahead) in found.items()}

    def _ahead_of(self, rank: Rank) -> float:
        """Return the seconds by which the host's wall clock is ahead of a run's monotonic clock."""
        return self._ahead.get(rank.clock, 0.0) - _shift(rank.run)

    def _wall(self, rank: Rank, monotonic: float) -> float:
        """Convert a moment of a run to the wall clock of its host."""
        return monotonic + self._ahead_of(rank)

    # -- memory

    @cached_property
    def counted(self) -> Mapping[str, Sequence[Rank]]:
        """Runs that are added up, by clock, in the order of `together.hosts`."""
        found: dict[str, list[Rank]] = {}
        for rank in self.ranks:
            if not rank.inside:
                found.setdefault(rank.clock, []).append(rank)
        return found

    @cached_property
    def together(self) -> GroupSum:
        """Memory that all runs needed.

        Reads all samples: 3.6 million in about 5 s, which is an hour of 1000 ranks at 1 Hz.
        """
        ranks = [rank for of_host in self.counted.values() for rank in of_host]
        begin = min(self._wall(rank, rank.run.started) for rank in ranks)
        end = max(self._wall(rank, rank.run.started + rank.run.seconds) for rank in ranks)
        interval = min((rank.run.interval or 0.1 for rank in ranks), default=0.1)
        bins = Bins.across(begin - interval, end + interval, interval / _BINS_PER_SAMPLE)
        hosts = [
            HostRuns(
                ", ".join(dict.fromkeys(rank.host for rank in of_host)),
                tuple(RankPlace(str(rank.run.path), self._ahead_of(rank)) for rank in of_host),
            )
            for of_host in self.counted.values()
        ]
        bound, guess, figures = sum_hosts(hosts, bins)
        low, high, estimate = (sum(of_hosts) for of_hosts in zip(*(one[1:4] for one in figures), strict=True))
        # Later memory of a run is unknown while it goes on, and if its record stops early.
        known = not math.isinf(high) and self.state == "finished"
        evidence = Evidence.HOSTS if len(hosts) > 1 else Evidence.RANKS
        peak = sum_at_one_instant(int(low), math.ceil(high) if known else None, int(estimate), evidence)
        if len(hosts) == 1:
            at = bins.begin + (int(guess.argmax()) + 0.5) * bins.width - self.started
            peak = peak._replace(at=round(max(0.0, at), 3))
        return GroupSum(peak, figures, bins, bound, guess)

    def sum_curve(self, points: int) -> tuple[Array, Bound | None, Array]:
        """Return seconds since the first start, the bounds if there is one host, and the best estimate.

        There are at most `points` points. Each is the largest value of its stretch of time, so no peak is lost.
        """
        import numpy as np

        together = self.together
        edges = np.unique(np.linspace(0, together.bins.number, points + 1).astype(int)[:-1])
        guess = np.maximum.reduceat(together.guess, edges)
        bound = None
        if together.bound is not None:
            low, high = (np.maximum.reduceat(one, edges) for one in together.bound)
            bound = Bound(low, np.maximum(high, guess))
        ends = np.append(edges[1:], together.bins.number)
        seconds = together.bins.begin + (edges + ends) / 2 * together.bins.width - self.started
        return seconds, bound, guess

    def rank_curves(self, points: int) -> tuple[Array, list[tuple[Rank, Array]]]:
        """Return seconds since the first start, and the memory of each rank at these times.

        There are at most `points` points. Each is the largest value of its stretch of time.
        """
        span = self.together.bins
        bins = Bins(span.begin, span.number * span.width / points, points)
        curves = []
        for rank in self.numbered:
            try:
                windows = windows_of(rank.run)
            except OSError:
                continue
            moved = in_wall_time(windows, self._ahead_of(rank))
            curves.append((rank, in_bins(moved._replace(high=moved.guess), bins).high))
        return bins.middles() - self.started, curves

    def end_of(self, rank: Rank) -> float:
        """Return the end of a run in seconds since the first start."""
        return max(0.0, self._wall(rank, rank.run.started + rank.run.seconds) - self.started)

    # -- ends

    @cached_property
    def dead(self) -> tuple[Rank, ...]:
        """Runs that failed, or with a record that stops early, in order of their end."""
        return tuple(
            sorted((rank for rank in self.ranks if rank.died), key=lambda rank: self._end(rank).latest)
        )

    @cached_property
    def first_death(self) -> Death | None:
        """Return the first run that failed; a run around ranks only if no rank failed."""
        dead = [rank for rank in self.dead if rank.rank is not None] or list(self.dead)
        if not dead:
            return None
        first = dead[0]
        end = self._end(first)
        others = tuple(
            rank
            for rank in dead[1:]
            if self._end(rank).earliest - end.latest
            <= (0.0 if rank.clock == first.clock else _CLOCK_TOLERANCE)
        )
        names = [
            one.operation.name for one in first.run.iterate_operations() if one.operation.status == "open"
        ]
        at = max(0.0, end.earliest - self.started)
        return Death(first, at, others, names[-1] if names else None)

    def _end(self, rank: Rank) -> _End:
        """Return the range in which a run ended.

        If the record stops early, only the last sample is known; the next one may have been due or late.
        """
        earliest = self._wall(rank, rank.run.started + rank.run.seconds)
        if rank.run.state != "incomplete":
            return _End(earliest, earliest)
        interval = rank.run.interval or 0.1
        return _End(earliest, earliest + interval + max(interval, rank.run.quality.get("longest_gap") or 0.0))


def rank_of(run: RecordedRun, *, inside: bool) -> Rank:
    """Return a run as a member of its group."""
    fields = run.fields
    host = text(fields.resource.get("k8s.pod.name")) or fields.host.name or "unknown"
    clock = fields.clock.boot_id or f"host {host}"
    return Rank(run, fields.group.rank, fields.group.local_rank, host, clock, inside)


def _shift(run: RecordedRun) -> float:
    """Return the seconds by which a time namespace shifts the run's monotonic clock."""
    return run.fields.clock.monotonic_offset or 0.0
