"""A group: the runs of one job on several ranks or hosts, as one. What every report of a group gets.

Nothing of it was measured together: each run was recorded by a monitor of its own, and what they say of one instant is added
up here (`instant_sum`), with what bounds their clocks (`clock_bounds`).
"""

from __future__ import annotations

import math
from functools import cached_property

from otel_memwatch.errors import RunError
from otel_memwatch.record.fields import mapping, moment, number, text, whole
from otel_memwatch.record.format import CLOCK_FILE, CLOCK_UPLOAD_FILE
from otel_memwatch.record.jsonl import Damage, objects
from otel_memwatch.runtime.typed import TYPE_CHECKING, NamedTuple
from otel_memwatch.truth import certainty
from otel_memwatch.truth.ranks import Bins, in_bins
from otel_memwatch.wings.ranks.clock_bounds import ClockRecord, Distance, common_reference, of_stamp
from otel_memwatch.wings.ranks.host_sums import (
    HostFigures,
    HostRuns,
    RankPlace,
    in_reference,
    sum_of_hosts,
)
from otel_memwatch.wings.ranks.rank_windows import windows_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from otel_memwatch.model import Peak
    from otel_memwatch.run.recorded_run import RecordedRun
    from otel_memwatch.wings.ranks.clock_bounds import Reference

    Array = NDArray[np.float64]

_MOST_BINS = 1 << 16
_BINS_A_TICK = 4
"""Bins between two ticks, where the run is short enough: the finer, the less the interval is widened by them."""


class Rank(NamedTuple):
    """One run of a group."""

    run: RecordedRun
    rank: int | None
    """`None`: a run that has none, as one around all ranks of a host."""
    local_rank: int | None
    host: str
    """Name of the host, or of the pod."""
    clock: str
    """The clock that its ticks are of: the start of a machine."""
    inside: bool
    """Whether another run of the group on the same machine has all of it too, so that it is not added up twice."""

    @property
    def peak(self) -> Peak | None:
        """What it needed."""
        return self.run.peaks.tree

    @property
    def label(self) -> str:
        """As in "rank 3"; of one without a number the name of its host."""
        return f"rank {self.rank}" if self.rank is not None else f"all of {self.host}"

    @property
    def died(self) -> bool:
        """Whether it did not end well, as far as is known."""
        if self.run.state == "running":
            return False
        ending = self.run.ending
        return bool(ending.exit_code or ending.signal or ending.oom_kills) or self.run.state == "incomplete"


class Death(NamedTuple):
    """The first of a group to end badly."""

    rank: Rank
    at: float
    """Seconds after the start of the group."""
    others: tuple[Rank, ...]
    """Those that may have been the first as well, for all that clocks and records that stop tell."""
    operation: str | None
    """The innermost operation that was open then."""


class _End(NamedTuple):
    """When a run ended by the clock of reference, as far as its record tells; Unix seconds."""

    earliest: float
    latest: float


class GroupSum(NamedTuple):
    """What all needed together at one instant, and what is known of the hosts."""

    peak: Peak | None
    """`None`: no record tells anything."""
    reference: Reference
    hosts: Sequence[HostFigures]
    bins: Bins
    low: Array
    """Bounds of the sum in each bin."""
    high: Array
    guess: Array


class RankGroup:
    """The runs of one job.

    Args:
        name: of the group.
        ranks: the runs that count, by rank.
        earlier: runs of attempts before, which do not.
        size: ranks that the launcher has told of; `None`: it did not.
        missing: numbers of ranks of which there is no record.
        more: other names of the group.
        launcher: what started the ranks, as `record.identity` names it; "": nobody told.
        barrier: name of an operation that no rank leaves before all have entered it.
        clock_error: seconds that the wall clocks are apart at most, as somebody knows.

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
        barrier: str | None = None,
        clock_error: float | None = None,
    ) -> None:
        self.name = name
        self.ranks = tuple(ranks)
        self.earlier = tuple(earlier)
        self.size = size
        self.missing = tuple(missing)
        self.more = tuple(more)
        self.launcher = launcher
        self._barrier = barrier
        self._clock_error = clock_error

    @property
    def numbered(self) -> tuple[Rank, ...]:
        """The ranks: not the runs around them."""
        return tuple(rank for rank in self.ranks if rank.rank is not None) or self.ranks

    @property
    def state(self) -> str:
        """The state "running" while one is, else "finished"; "incomplete": the record of one stops early."""
        states = {rank.run.state for rank in self.ranks}
        return next((state for state in ("running", "incomplete") if state in states), "finished")

    @property
    def command(self) -> tuple[str, ...]:
        """The command of the first rank."""
        return self.numbered[0].run.command

    @cached_property
    def started(self) -> float:
        """Unix seconds of the first start, by the reference's clock."""
        return min(self._wall(rank, rank.run.started) for rank in self.ranks)

    @cached_property
    def seconds(self) -> float:
        """From the first start to the last end."""
        return (
            max(self._wall(rank, rank.run.started + rank.run.seconds) for rank in self.ranks) - self.started
        )

    @cached_property
    def hosts(self) -> tuple[str, ...]:
        """Names of the hosts."""
        return tuple(dict.fromkeys(rank.host for rank in self.ranks))

    def by_memory(self) -> list[tuple[Rank, int]]:
        """The ranks with their largest memory, the largest first; those of which nothing is known are left out."""
        known = [(rank, peak.bytes) for rank in self.numbered if (peak := rank.peak) is not None]
        return sorted(known, key=lambda one: -one[1])

    @property
    def median(self) -> float | None:
        """The median of what the ranks needed, in bytes."""
        known = sorted(value for _, value in self.by_memory())
        if not known:
            return None
        middle = len(known) // 2
        return known[middle] if len(known) % 2 else (known[middle - 1] + known[middle]) / 2

    # -- clocks

    @cached_property
    def clocks(self) -> Mapping[str, ClockRecord]:
        """What each start of a machine recorded of its clock."""
        found: dict[str, tuple[list[tuple[float, float, float | None]], list[tuple[str, Distance]]]] = {}
        for rank in self.ranks:
            walls, stamps = found.setdefault(rank.clock, ([], []))
            shift = _shift(rank.run)
            started = mapping(rank.run.info.get("started"))
            wall, monotonic = moment(started.get("wall")), moment(started.get("monotonic"))
            if wall is not None and monotonic is not None:
                walls.append((monotonic - shift, wall, None))
            for name in (CLOCK_FILE, CLOCK_UPLOAD_FILE):
                for line in objects(rank.run.path / name, Damage(name)):
                    _take_clock(line, shift, walls, stamps)
        return {clock: ClockRecord(sorted(w, key=lambda one: one[0]), s) for clock, (w, s) in found.items()}

    @cached_property
    def reference(self) -> Reference:
        """The clock that all are laid beside."""
        spans: dict[str, tuple[float, float]] = {}
        for rank in self.ranks:
            begin, end = _span(rank)
            before = spans.get(rank.clock, (begin, end))
            spans[rank.clock] = min(begin, before[0]), max(end, before[1])
        return common_reference(self.clocks, spans, self._barriers(), self._clock_error)

    def _barriers(self) -> dict[str, list[tuple[float, float]]]:
        """When each clock's ranks entered and left the same barriers: the last one of a clock to enter, the first to leave."""
        if self._barrier is None:
            return {}
        passed: dict[str, list[list[tuple[float, float]]]] = {}
        for rank in self.numbered:
            begin = rank.run.started - _shift(rank.run)
            moments = [
                (begin + one.start, begin + one.start + one.seconds)
                for one in rank.run.iterate_operations()
                if one.operation.name == self._barrier and one.seconds is not None
            ]
            passed.setdefault(rank.clock, []).append(sorted(moments))
        # A rank that passed fewer may have missed any of them: then nobody knows which were the same.
        counts = {len(moments) for of_clock in passed.values() for moments in of_clock}
        if counts == {0}:
            raise RunError(f"No rank has an operation {self._barrier!r}.", "name one that all ranks enter")
        if len(counts) > 1:
            few, many = min(counts), max(counts)
            raise RunError(
                f"Some ranks passed {self._barrier!r} {few} times, others {many} times: which were the same is not known."
            )
        return {
            clock: [
                (max(one[0] for one in same), min(one[1] for one in same))
                for same in zip(*lists, strict=True)
            ]
            for clock, lists in passed.items()
        }

    def _wall(self, rank: Rank, monotonic: float) -> float:
        """A moment of a rank by the reference's clock."""
        own = monotonic - _shift(rank.run)
        return own + self.reference.alignments[rank.clock].distance(own)

    # -- memory

    @cached_property
    def counted(self) -> Mapping[str, Sequence[Rank]]:
        """The runs that are added up, by their clock: in the order of `together.hosts`."""
        found: dict[str, list[Rank]] = {}
        for rank in self.ranks:
            if not rank.inside:
                found.setdefault(rank.clock, []).append(rank)
        return found

    @cached_property
    def together(self) -> GroupSum:
        """What all needed together at one instant. Reads all ticks: 3.6 million (1000 ranks of an hour at 1 Hz) in some 5 s."""
        alignments, of_clock = self.reference.alignments, self.counted
        bins = self._bins([rank for ranks in of_clock.values() for rank in ranks])
        hosts = [
            HostRuns(
                _host_name(ranks),
                alignments[clock],
                tuple(RankPlace(str(one.run.path), _shift(one.run)) for one in ranks),
            )
            for clock, ranks in of_clock.items()
        ]
        total, figures = sum_of_hosts(hosts, bins)
        return GroupSum(self._peak(total, figures, bins), self.reference, figures, bins, *total)

    def _bins(self, ranks: Sequence[Rank]) -> Bins:
        """The time of those runs whose clocks are known, in bins."""
        known = [r for r in ranks if not math.isinf(self.reference.alignments[r.clock].error)] or list(ranks)
        begin = min(self._wall(rank, rank.run.started) for rank in known)
        end = max(self._wall(rank, rank.run.started + rank.run.seconds) for rank in known)
        interval = min((rank.run.interval or 0.1 for rank in known), default=0.1)
        margin = max((self.reference.alignments[rank.clock].error for rank in known), default=0.0)
        margin = interval if math.isinf(margin) else margin + interval
        begin, end = begin - margin, end + margin
        width = max(interval / _BINS_A_TICK, (end - begin) / _MOST_BINS, 1e-6)
        return Bins(begin, width, max(1, math.ceil((end - begin) / width)))

    def _peak(
        self, total: tuple[Array, Array, Array], hosts: Sequence[HostFigures], bins: Bins
    ) -> Peak | None:
        low_bins, high_bins, guess_bins = total
        low = max([float(low_bins.max()), *(host.low for host in hosts)])
        high = min(float(high_bins.max()), sum(host.high for host in hosts))
        guess_at = int(guess_bins.argmax())
        guess = float(guess_bins[guess_at])
        at = max(0.0, bins.begin + (guess_at + 0.5) * bins.width - self.started)
        # What a run had after its record stops, or will have, is not known.
        known = not math.isinf(high) and self.state == "finished"
        peak = certainty.sum_at_one_instant(int(low), math.ceil(high) if known else None, int(guess))
        return peak._replace(at=round(at, 3), how="sum of what each run needed at one instant")

    def sum_curve(self, points: int) -> tuple[Array, Array, Array, Array]:
        """Seconds since the first start, and at most so many points of the lower bound, the upper bound and the likely sum.

        Each point is the largest value of its stretch of time, so that no peak is lost.
        """
        import numpy as np

        together = self.together
        edges = np.unique(np.linspace(0, together.bins.number, points + 1).astype(int)[:-1])
        low, high, guess = (
            np.maximum.reduceat(one, edges) for one in (together.low, together.high, together.guess)
        )
        ends = np.append(edges[1:], together.bins.number)
        seconds = together.bins.begin + (edges + ends) / 2 * together.bins.width - self.started
        return seconds, low, np.maximum(high, guess), guess

    def rank_curves(self, points: int) -> tuple[Array, list[tuple[Rank, Array]]]:
        """Seconds since the first start, and at most so many points of each rank's memory, each the largest of its stretch."""
        span = self.together.bins
        bins = Bins(span.begin, span.number * span.width / points, points)
        curves = []
        for rank in self.numbered:
            try:
                windows = windows_of(rank.run)
            except OSError:
                continue
            moved = in_reference(windows, _shift(rank.run), self.reference.alignments[rank.clock])
            curves.append((rank, in_bins(moved._replace(high=moved.guess), bins).high))
        return bins.middles() - self.started, curves

    def end_of(self, rank: Rank) -> float:
        """When a run ended, in seconds since the first start."""
        return max(0.0, self._wall(rank, rank.run.started + rank.run.seconds) - self.started)

    # -- ends

    @cached_property
    def dead(self) -> tuple[Rank, ...]:
        """Those that did not end well, the first first."""
        return tuple(
            sorted((rank for rank in self.ranks if rank.died), key=lambda rank: self._end(rank).latest)
        )

    @cached_property
    def first_death(self) -> Death | None:
        """The first that did not end well, and why; those around ranks are asked only where no rank died."""
        dead = [rank for rank in self.dead if rank.rank is not None] or list(self.dead)
        if not dead:
            return None
        first = dead[0]
        end = self._end(first)
        others = tuple(
            rank for rank in dead[1:] if self._end(rank).earliest - end.latest <= self._apart(first, rank)
        )
        names = [
            one.operation.name for one in first.run.iterate_operations() if one.operation.status == "open"
        ]
        at = max(0.0, end.earliest - self.started)
        return Death(first, at, others, names[-1] if names else None)

    def _end(self, rank: Rank) -> _End:
        """When a run ended. A record that stops tells only of its last tick: the next may have been due or late."""
        earliest = self._wall(rank, rank.run.started + rank.run.seconds)
        if rank.run.state != "incomplete":
            return _End(earliest, earliest)
        interval = rank.run.interval or 0.1
        return _End(earliest, earliest + interval + max(interval, rank.run.quality.get("longest_gap") or 0.0))

    def _apart(self, one: Rank, other: Rank) -> float:
        """Seconds by which what two ranks say of one instant may differ."""
        if one.clock == other.clock:
            return 0.0
        return sum(self.reference.alignments[rank.clock].error for rank in (one, other))


def rank_of(run: RecordedRun, *, inside: bool) -> Rank:
    """One run as a member of its group."""
    told, clock = mapping(run.info.get("group")), mapping(run.info.get("clock"))
    resource = mapping(run.info.get("resource"))
    host = text(resource.get("k8s.pod.name")) or text(run.host.get("name")) or "unknown"
    return Rank(
        run,
        whole(told.get("rank")),
        whole(told.get("local_rank")),
        host,
        text(clock.get("boot_id")) or f"host {host}",
        inside,
    )


def _host_name(ranks: Sequence[Rank]) -> str:
    return ", ".join(dict.fromkeys(rank.host for rank in ranks))


def _shift(run: RecordedRun) -> float:
    """Seconds by which a time namespace has moved its monotonic clock."""
    return number(mapping(run.info.get("clock")).get("monotonic_offset")) or 0.0


def _span(rank: Rank) -> tuple[float, float]:
    begin = rank.run.started - _shift(rank.run)
    return begin, begin + rank.run.seconds


def _take_clock(
    line: Mapping[str, object],
    shift: float,
    walls: list[tuple[float, float, float | None]],
    stamps: list[tuple[str, Distance]],
) -> None:
    monotonic, wall, by = moment(line.get("monotonic")), moment(line.get("wall")), text(line.get("by"))
    if monotonic is not None and wall is not None:
        error = number(line.get("error"))
        walls.append((monotonic - shift, wall, error if error is not None and error >= 0 else None))
        return
    before, stamp, after = (moment(line.get(name)) for name in ("before", "stamp", "after"))
    resolution = number(line.get("resolution"))
    if by is None or before is None or stamp is None or after is None or resolution is None:
        return
    if before <= after and resolution >= 0:
        stamps.append((by, of_stamp(before - shift, stamp, resolution, after - shift)))
