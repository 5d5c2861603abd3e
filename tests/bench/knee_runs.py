"""Runs under a limit, and a referee of how much the limit cost them. `bench_knee` uses both."""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from otel_memwatch.truth.stalls import SLOWEST_READ
from otel_memwatch.wings.advice.bisection import Trial
from otel_memwatch.wings.index.indexed_run import IndexedRun
from tests.bench.bench_enough import tried

if TYPE_CHECKING:
    from collections.abc import Iterator

SLOW, NOT_SLOWED = 1.5, 1.05
LEAST_SECONDS = 0.05
"""Seconds that two runs of a program differ by in any case."""
READ_AGAIN = 1.02
"""Bytes read over those without a limit, above which the run read something again."""
SIMILAR_CPU = 1.25
"""CPU time over that without a limit, below which other programs may be the reason."""
WROTE = 16 << 20
"""Bytes written from which a run may wait for its data to reach the disk."""


class Pressure:
    """Stalls of a cgroup2 that holds this process and the runs, and nothing else; nothing without such a hierarchy.

    `disk_rate`: limit of the bytes that runs read in a second.
    """

    def __init__(self, disk_rate: int | None = None) -> None:
        self.disk_rate = disk_rate
        mounts = [line.split() for line in Path("/proc/mounts").read_text().splitlines()]
        unified = next((Path(mount[1]) for mount in mounts if mount[2] == "cgroup2"), None)
        self._group: Path | None = None
        if unified is not None and "memory" not in (unified / "cgroup.controllers").read_text().split():
            self._group = unified / f"memwatch-knee-{os.getpid()}"
            self._group.mkdir()
            (self._group / "cgroup.procs").write_text(str(os.getpid()))

    def read(self) -> tuple[float, float, float] | None:
        """Return seconds so far: any task stalled for memory, any for storage, and all waiting for a processor."""
        if self._group is None:
            return None
        found = []
        for resource, kind in (("memory", "some"), ("io", "some"), ("cpu", "full")):
            lines = (self._group / f"{resource}.pressure").read_text().splitlines()
            found.append(next(int(line.split("total=")[1]) / 1e6 for line in lines if line.startswith(kind)))
        return found[0], found[1], found[2]

    def close(self) -> None:
        """Leave the cgroup."""
        if self._group is not None:
            leave(self._group)


class Run(NamedTuple):
    """A trial, with the seconds in which it stalled."""

    trial: Trial
    stalls: tuple[float, float, float] | None
    """For memory, for storage, and for a processor; `None`: not measured."""
    disk_rate: float = SLOWEST_READ
    """Bytes that the disk reads in a second."""

    @property
    def seconds(self) -> float:
        """Duration, less the waiting for a processor."""
        taken = self.trial.seconds or 1e9
        return taken if self.stalls is None else max(LEAST_SECONDS, taken - self.stalls[2])

    @property
    def read(self) -> int:
        """Bytes read from storage."""
        return (self.trial.row.read or 0) if self.trial.row is not None else 0

    @property
    def is_whole(self) -> bool:
        """True if the program ended as usual."""
        trial = self.trial
        whole = (
            not trial.hung and trial.row is not None and not trial.row.exit_code and not trial.row.oom_kills
        )
        return whole and bool(trial.seconds)

    @property
    def wrote(self) -> bool:
        """True if the run may have waited for its data to reach the disk."""
        return self.trial.row is not None and (self.trial.row.written or 0) > WROTE

    def reads_again(self, alone: Run) -> bool:
        """Return whether the run read more than one without a limit."""
        return self.read > READ_AGAIN * alone.read + (1 << 20)


def run(pressure: Pressure, row: IndexedRun, limit: int, files: set[str], before: list[Run]) -> Run:
    """Run a program under a limit in MiB, and measure its stalls."""
    os.sync()
    begun, first = time.monotonic(), pressure.read()
    trial = tried(row, limit, files, [one.trial for one in before])
    last = pressure.read()
    rate = pressure.disk_rate or trial.disk_rate or SLOWEST_READ
    if first is None or last is None:
        return Run(trial, None, rate)
    # The monitor waits for a processor as well, before and after the run.
    contention = (last[2] - first[2]) / (time.monotonic() - begun) * (trial.seconds or 0.0)
    return Run(trial, (last[0] - first[0], last[1] - first[1], contention), rate)


def lost(limited: Run, alone: Run, quickest: float) -> float:
    """Return the share of a run's time that a limit cost, at most.

    `quickest`: seconds of the quickest run so far, with or without a limit. Beside other programs that is not always `alone`.

    | measurement | alone it is too high, because |
    | --- | --- |
    | time less waiting for a processor | other programs use caches, the other thread of a core, and the disk |
    | stalls for memory, as a share of the time | reclaimed pages are in caches, so a scan at its limit saves what reclaim costs |
    | stalls for storage, if more was read than without a limit | the disk is busy |
    | CPU time beyond a quarter more than without a limit, beside these two | other programs use caches |
    | CPU time and the time that the disk needs for what was read again, if little was written | other programs use caches, and the program computes while the disk reads |

    Stalls for memory and for storage overlap, so the larger of these two counts. Stalls for memory also include reclaim that waits
    for a processor. They are a share of the time without such waiting: as a share of all of it, Python's imports
    lost 7 to 16 % at 80 MiB beside other programs, where they took 1.3 to 2.5 times as long and read four times as much.
    """
    if not limited.trial.limit or limited.trial.is_free:
        return 0.0
    longer = max(0.0, 1 - (quickest + (0 if alone.stalls else LEAST_SECONDS)) / limited.seconds)
    if limited.stalls is None or alone.stalls is None:
        return longer
    again = limited.reads_again(alone)
    storage = (limited.stalls[1] - alone.stalls[1]) / limited.seconds if again else 0.0
    cpu = [0.0 if one.trial.row is None else one.trial.row.cpu or 0.0 for one in (limited, alone)]
    reclaim = max(0.0, cpu[0] - SIMILAR_CPU * cpu[1]) / limited.seconds
    found = min(longer, max(limited.stalls[0] / limited.seconds, storage) + reclaim)
    if limited.trial.row is None or limited.wrote:
        return found
    counted = max(0.0, cpu[0] - cpu[1]) + max(0, limited.read - alone.read) / limited.disk_rate
    return min(found, counted / limited.seconds)


class Verdict(NamedTuple):
    """One run under a limit."""

    limit: int
    """MiB; 0: none."""
    slowed: float
    """Its time over that without a limit; infinite: it hung or was killed."""
    recognized: bool
    reads_again: bool
    """It read more than without a limit."""
    words: str

    @property
    def is_slow(self) -> bool:
        """True if the verdict has to be "short of memory" or "killed"."""
        return self.slowed >= SLOW

    @property
    def is_quick(self) -> bool:
        """True if the verdict must not be "short of memory".

        Beside other programs, times do not show a loss of 5 %. So a quick run that read more than without a limit is no evidence.
        """
        return self.slowed < NOT_SLOWED and not self.reads_again

    @property
    def is_unclear(self) -> bool:
        """True if the run took no longer and yet read more than without a limit."""
        return self.slowed < NOT_SLOWED and self.reads_again

    @property
    def is_wrong(self) -> bool:
        """True if the verdict is wrong."""
        return (self.is_slow and not self.recognized) or (self.is_quick and self.recognized)


def verdict_of(one: Run, alone: Run, quickest: float) -> Verdict:
    """Return the verdict on a run, and the referee's."""
    factor, called = slowed(one, alone, quickest), recognized(one.trial)
    row = one.trial.row
    words = (
        f"in {one.trial.limit} MiB: {factor:.2f} times slower, {one.seconds:.2f} s instead of {quickest:.2f}, read {one.read >> 20} MiB"
        f" instead of {alone.read >> 20}, called {'slow' if called else 'quick'} ({None if row is None else row.starved})"
    )
    return Verdict(one.trial.limit, factor, called, one.reads_again(alone), words)


def slowed(limited: Run, alone: Run, quickest: float) -> float:
    """Return the factor by which a limit made a run slower; infinite if it did not end as usual."""
    if not limited.is_whole:
        return float("inf")
    return 1 / max(1e-3, 1 - lost(limited, alone, quickest))


def recognized(trial: Trial) -> bool:
    """Return whether the run was called short of memory, killed or hanging."""
    return (
        trial.hung
        or trial.row is None
        or trial.row.short_of_memory
        or bool(trial.row.oom_kills or trial.row.exit_code)
    )


@contextlib.contextmanager
def limited_reads(work: Path, bytes_in_a_second: int | None) -> Iterator[None]:
    """Limit what this process and its runs read in a second from the disk of a directory."""
    if not bytes_in_a_second:
        yield
        return
    group = Path(f"/sys/fs/cgroup/blkio/memwatch-knee-{os.getpid()}")
    group.mkdir()
    try:
        device = work.stat().st_dev
        limit = f"{os.major(device)}:{os.minor(device)} {bytes_in_a_second}"
        (group / "blkio.throttle.read_bps_device").write_text(limit)
        (group / "cgroup.procs").write_text(str(os.getpid()))
        yield
    finally:
        leave(group)


def leave(group: Path) -> None:
    """Move this process to the parent of its cgroup, and remove the cgroup."""
    (group.parent / "cgroup.procs").write_text(str(os.getpid()))
    group.rmdir()
