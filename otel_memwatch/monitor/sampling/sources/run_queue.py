"""Time that the tree's threads waited for a processor, and CPU time of the whole machine."""

from __future__ import annotations

import math
import os

from otel_memwatch import catalog
from otel_memwatch.errors import Unavailable
from otel_memwatch.model import Column
from otel_memwatch.runtime.kernel import read_once
from otel_memwatch.runtime.light import suppress
from otel_memwatch.runtime.procfs.system import parse_busy, parse_run_delay
from otel_memwatch.runtime.typed import TYPE_CHECKING
from otel_memwatch.truth.stalls import BRIEF

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from otel_memwatch.model import Value
    from otel_memwatch.monitor.sampling.repeated import Repetition
    from otel_memwatch.monitor.sampling.sources import Context

_THREADS = 128
"""Threads that one reading includes (15 us each)."""
_FEW = 4
"""Threads up to which every sample of the first seconds reads them: a short run has few others."""
_LINKS_OF_ONE = 3
"""Links of a folder with one folder in it, on file systems that count them. Others have 1."""


class RunQueue:
    """/proc/PID/task/TID/schedstat, about once a second, and at first with every sample.

    Only growth since the last reading counts. A thread without one counts if it can have started since. The sum excludes
    the last part of each thread, and threads beyond `_THREADS`.
    """

    name = "run_queue"

    def __init__(self, context: Context) -> None:
        self._context = context
        self._proc = str(context.proc)
        try:
            self._stat = os.open(f"{self._proc}/stat", os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            raise Unavailable(f"{error.filename} cannot be read.", "is /proc mounted?") from None
        if not os.path.exists(f"{self._proc}/self/schedstat"):
            os.close(self._stat)
            raise Unavailable(
                "The kernel does not measure waiting for processors.", "it requires CONFIG_SCHED_INFO"
            )
        self._ticks = os.sysconf("SC_CLK_TCK")
        self._delays: dict[int, float] = {}
        """Seconds of each thread at the last reading."""
        self._total = 0.0
        self._first = self._read = math.inf
        """Monotonic seconds of the first and the last reading."""
        self._runs: int | None = None
        """`TreeSource.runs` at the last reading."""
        period = context.slow_period(1.0)
        self.pace = context.pace(1.0)
        self.paces = (self.pace,)
        """Schedule that the run's last sample overrides."""
        metrics = (catalog.MEMWATCH_TREE_CPU_DELAY, catalog.MEMWATCH_SYSTEM_CPU_BUSY)
        self.columns: Sequence[Column] = tuple(Column(metric, (), period) for metric in metrics)
        self.idle: Sequence[Value] = (None, None)
        """Values while nothing is due."""

    def read(self, now: float) -> Sequence[Value]:
        """Return both sums, in seconds."""
        due = self.pace.due(now)
        if not due and (now > self._first + BRIEF or len(self._delays) > _FEW):
            return self.idle
        tree, runs = self._context.tree, self._runs
        self._runs = None if tree is None else tree.runs
        if runs is None or runs != self._runs:
            self._add_delays(now)
        delay = round(self._total, 6)
        return delay, parse_busy(os.pread(self._stat, 512, 0), self._ticks) if due else None

    def _add_delays(self, now: float) -> None:
        """Add the waiting of each thread since the last reading."""
        before, self._delays, every = self._delays, {}, os.sched_getaffinity(0)
        elapsed, self._read = now - self._read, now
        self._first = min(self._first, now)
        for tid, path in self._threads():
            with suppress(OSError, ValueError, IndexError):
                self._delays[tid] = delay = parse_run_delay(read_once(path))
                grown = delay - before.get(tid, 0.0 if delay <= elapsed else delay)
                # Threads that are bound to some processors may wait for each other.
                if grown > 0 and os.sched_getaffinity(tid) == every:
                    self._total += grown

    def _threads(self) -> Iterator[tuple[int, str]]:
        """Yield threads of the tree and their files."""
        left = _THREADS
        for pid in self._context.pids():
            folder = f"{self._proc}/{pid}/task"
            with suppress(OSError):
                # Listing takes five calls, and the number of links shows that there is only one.
                alone = os.stat(folder).st_nlink == _LINKS_OF_ONE
                for tid in (str(pid),) if alone else os.listdir(folder)[:left]:
                    left -= 1
                    yield int(tid), f"{folder}/{tid}/schedstat"
            if left <= 0:
                return

    def repeats(self) -> Repetition:
        """Return until when the next samples have no values, if the tree rests."""
        from otel_memwatch.monitor.sampling.repeated import Repetition

        return Repetition(self._context.at_rest(self.pace.next), self.idle)

    def close(self) -> None:
        """Close the file."""
        os.close(self._stat)


open_source = RunQueue
"""Raises `Unavailable` if the kernel does not measure it."""
