"""Recording that the tools of this package share: one monitor process, for any number of tools.

* The program does not sample. It reads samples from the run directory on request, and holds none.
* After its last use, the program removes the directory. The directory remains if the program dies, for diagnosis.
"""

from __future__ import annotations

import os
import shutil
import threading
import time
import weakref
from contextlib import contextmanager, suppress

from otel_memwatch.compat.current_memory import size_of, system_used, tree_now
from otel_memwatch.errors import MemwatchError
from otel_memwatch.record.format import SAMPLES_FILE
from otel_memwatch.runtime.kernel import read_once
from otel_memwatch.runtime.typed import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping


if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path
    from typing import Any

    from numpy.typing import NDArray

    from otel_memwatch.api import Run
    from otel_memwatch.in_target.operations.operation_values import LiveOperation
    from otel_memwatch.model import Column

    Array = NDArray[Any]


class ProgramTick(NamedTuple):
    """Sample of the program and its descendants. Bytes, and seconds of CPU; `None`: unknown at that time."""

    time: float
    """Monotonic seconds."""
    rss: float | None = None
    own: float | None = None
    """Resident memory of this process alone."""
    vms: float | None = None
    system: float | None = None
    """Unavailable memory of the machine."""
    cpu: float | None = None
    read: float | None = None
    """Bytes passed to read calls so far, including pipes and cached files."""
    written: float | None = None
    stored_read: float | None = None
    """Bytes read from storage so far."""
    stored_written: float | None = None


_PUNCTUAL = 0.001
"""Seconds before its time that a sample may have in the record, because the record rounds."""


class TickReader:
    """Reader of the samples of a run directory that may still grow."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / SAMPLES_FILE
        self._begin = 0
        self._columns: tuple[Column, ...] | None = None

    def skip(self) -> None:
        """Skip all samples recorded so far. Takes 1 ms for each MiB since the last call."""
        from otel_memwatch.record.sample_lines import last_columns

        with suppress(OSError):
            end = self._path.stat().st_size
            self._columns = last_columns(self._path, self._begin) or self._columns
            # If the monitor is writing a line now, the rest of the line is invalid JSON, which is skipped.
            self._begin = end

    def read(self) -> Iterator[ProgramTick]:
        """Yield the samples recorded so far."""
        # Importing a tool must not import the reader of records.
        from otel_memwatch.record.jsonl import Damage
        from otel_memwatch.record.sample_lines import sample_blocks
        from otel_memwatch.record.schema import sample_maker

        # Skip unreadable parts; the reports of the run list them.
        damage = Damage(self._path.name)
        blocks = sample_blocks(self._path, damage, self._begin, self._columns, plain=True)
        for columns, rows, _ in blocks:
            for s in map(sample_maker(columns), rows):
                yield ProgramTick(
                    s.time,
                    rss=s.rss,
                    own=s.main,
                    vms=s.virtual,
                    system=s.system,
                    cpu=s.cpu_seconds,
                    read=s.read_chars,
                    written=s.write_chars,
                    stored_read=s.read_bytes,
                    stored_written=s.write_bytes,
                )

    def regular(
        self,
        interval: float | None,
        wanted: Callable[[ProgramTick], bool],
        field: str = "rss",
        *,
        ended: bool = False,
    ) -> Iterator[ProgramTick]:
        """Yield the wanted samples, one for each interval, and the one with the largest `field`.

        With `ended`, also yield the last one: the recording ends with a sample at any time, and counters are complete
        only there.

        While memory moves, the monitor takes early samples between the regular ones. With them, a mean over the samples
        would be the mean over the moments at which memory moved.
        """
        largest = max(filter(wanted, self.read()), key=lambda tick: getattr(tick, field) or 0.0, default=None)
        origin: float | None = None
        number = -1
        last: ProgramTick | None = None
        for tick in self.read():
            origin = tick.time if origin is None else origin
            # Regular samples are due at whole intervals after the first one, and the first in each interval is regular.
            before, number = (
                number,
                int((tick.time - origin + _PUNCTUAL) / interval) if interval else number + 1,
            )
            is_largest = largest is not None and tick.time == largest.time
            if not wanted(tick):
                continue
            last = None if number > before or is_largest else tick
            if last is None:
                yield tick
        if ended and last is not None:
            yield last


def regular_samples(times: Array, values: Array, interval: float | None, *, ended: bool = False) -> Array:
    """Return which samples of a finished run `TickReader.regular` would yield, as booleans; NaN values: not wanted."""
    import numpy as np

    if not interval or not len(times):
        return np.ones(len(times), dtype=bool)
    number = np.floor((times - times[0] + _PUNCTUAL) / interval)
    chosen: Array = np.diff(number, prepend=-1.0) > 0
    if not np.isnan(values).all():
        chosen[np.nanargmax(values)] = True
        if ended:
            chosen[np.flatnonzero(~np.isnan(values))[-1]] = True
    return chosen


class ToolRecording:
    """Running recording of this program."""

    def __init__(self, run: Run, *, own: bool) -> None:
        self.run = run
        self.path = run.path
        self.users = 0
        self.is_ours = run.latest.info.get("target", {}).get("pid") == os.getpid()
        """True if the run's target is this program; otherwise it is an ancestor, as under `wrap`."""
        self._unwanted: list[tuple[float, float]] = []
        # When the program ends, this runs after the program's exit functions, which may still read.
        self.remove = weakref.finalize(self, _remove if own else _leave, run, os.getpid())

    def ticks(self, since: float, until: float, field: str) -> Iterator[ProgramTick]:
        """Yield the regular samples between two monotonic times, and the one with the largest `field`."""

        def wanted(tick: ProgramTick) -> bool:
            return since <= tick.time <= until and not any(a <= tick.time <= b for a, b in self._unwanted)

        return TickReader(self.path).regular(self.run.interval, wanted, field)

    @contextmanager
    def unwanted(self) -> Iterator[None]:
        """Exclude the samples within the block from the measurement, for example while drawing."""
        begun = time.monotonic()
        try:
            yield
        finally:
            self._unwanted.append((begun, time.monotonic()))

    def stop(self) -> None:
        """End the recording. The record remains readable as long as this object lives."""
        self.run.stop()


def _leave(run: Run, owner: int) -> None:
    """Keep the run, because this recording did not start it."""


def _remove(run: Run, owner: int) -> None:
    """Remove a temporary run directory after an orderly end of its program."""
    if os.getpid() != owner:
        return  # in a forked child, the parent owns the directory
    run.stop()
    shutil.rmtree(run.path, ignore_errors=True)
    with suppress(OSError):
        run.path.parent.rmdir()  # only when it is empty


_lock = threading.Lock()
_shared: ToolRecording | None = None


def acquire(interval: float) -> ToolRecording:
    """Return the recording of this program, started if necessary. The caller must release it.

    The first caller sets the interval. If the program is already recorded (`wrap`, `watch()`), use that run.
    """
    global _shared  # noqa: PLW0603 - one monitor for a program
    # Importing a tool must not import the recorder.
    from otel_memwatch.api import watch
    from otel_memwatch.in_target.operations import RUN_DIRECTORY_VARIABLE

    with _lock:
        if _shared is None or _shared.run.state != "running":
            joined = os.environ.get(RUN_DIRECTORY_VARIABLE)
            run = watch(interval=interval, report=False, plot=False, quiet=True)
            _shared = ToolRecording(run, own=joined != str(run.path))
        _shared.users += 1
        return _shared


def release(recording: ToolRecording, *, keep: bool = True) -> None:
    """End the recording after its last user releases it. With `keep`, it remains readable while referenced."""
    global _shared  # noqa: PLW0603 - one monitor for a program
    with _lock:
        recording.users -= 1
        if recording.users == 0:
            recording.stop()
            if _shared is recording:
                _shared = None
            if not keep:
                recording.remove()


class MeasuredPeriod:
    """Period of the program with an exact peak: samples from the monitor, ends and peak from this process.

    Periods may overlap in any way, in any thread.
    """

    def __init__(self, recording: ToolRecording, name: str) -> None:
        self.recording = recording
        self.name = name
        self.start = tick_now()
        self.end: ProgramTick | None = None
        self._own_peak = 0
        self._live = self._open()

    def _open(self) -> LiveOperation | None:
        from otel_memwatch.in_target.operations.recorder import get_recorder

        current = get_recorder()
        return None if current is None else current.open(self.name, None, None)

    def _close(self) -> None:
        """End the open operation and keep its peak if it is the largest so far."""
        if self._live is not None:
            self._live.recorder.close(self._live)
            figures = self._live.figures
            if figures is not None and figures.peak is not None:
                self._own_peak = max(self._own_peak, figures.peak)

    def close(self) -> None:
        """End the period."""
        if self.end is None:
            self._close()
            self.end = tick_now()

    def own_peak(self) -> int:
        """Return this process's peak in bytes: exact if the kernel permits, otherwise a lower bound."""
        if self.end is None:
            self._close()
            self._live = self._open()
        return self._own_peak

    def ticks(self, field: str = "rss") -> list[ProgramTick]:
        """Return its samples in order of time: its start, the monitor's samples, and its end or the current moment.

        The sample with the largest `field` is always included.
        """
        end = self.end or tick_now()
        ticks = list(self.recording.ticks(self.start.time, end.time, field))
        # The start and the end replace the samples next to them, except one that alone has the maximum.
        near = self.recording.run.interval or 0.0
        since, until = self.start.time + near, end.time - near
        apart = [tick for tick in ticks if since <= tick.time <= until]

        def size(tick: ProgramTick) -> float:
            return getattr(tick, field) or 0.0

        alone = max(ticks, key=size, default=end)
        if size(alone) > max(map(size, (self.start, *apart, end))):
            apart = sorted([*apart, alone], key=lambda tick: tick.time)
        return [self.start, *apart, end]


def tick_now(*, counters: bool = False) -> ProgramTick:
    """Return a sample of the current moment.

    `counters`: include CPU time and I/O of this process and the children that it waited for, if known.
    """
    own, tree = size_of(os.getpid()), tree_now()
    tick = ProgramTick(time.monotonic(), tree.rss, own.rss if own else None, tree.vms, system_used())
    if not counters:
        return tick
    from otel_memwatch.runtime.procfs.process import parse_io

    spent = os.times()
    tick = tick._replace(cpu=spent.user + spent.system + spent.children_user + spent.children_system)
    with suppress(OSError, ValueError):
        read, written, stored_read, stored_written = parse_io(read_once("/proc/self/io"))
        tick = tick._replace(
            read=read, written=written, stored_read=stored_read, stored_written=stored_written
        )
    return tick


_SECONDS = 600.0


def run_in_own_process(module: str, job: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the last answer of a worker process, empty if it gave none. Raise `MemwatchError` if it fails.

    Reports and pictures are made there: their memory is not part of the measurement.
    """
    from otel_memwatch.runtime.worker import Worker, ended_by

    try:
        with Worker(module) as worker:
            worker.give(job)
            answers = list(worker.answers(_SECONDS))
            if not worker.finished:
                raise MemwatchError(f"The report cannot be made: it took more than {_SECONDS:.0f} s.")
            code = worker.end()
    except (OSError, MemoryError) as error:
        raise MemwatchError(f"The report cannot be made: {error}.") from None
    if code != 0:
        raise MemwatchError(f"The report cannot be made: {worker.last_words or ended_by(code)}")
    return answers[-1] if answers else {}
