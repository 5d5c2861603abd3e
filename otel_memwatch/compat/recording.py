"""The recording that the tools of this package share: one monitor beside the program, however many of them are in use.

Nothing is sampled in the program. Ticks are read back from the run directory when somebody asks for them; the program
holds none. The directory is removed when nobody needs it any more, and stays when the program dies: that is when it
is wanted.
"""

from __future__ import annotations

import os
import shutil
import threading
import time
import weakref
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, NamedTuple

from otel_memwatch.compat.current_memory import size_of, system_used, tree_now
from otel_memwatch.record.format import SAMPLES_FILE

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from otel_memwatch.api import Run
    from otel_memwatch.in_target.operations.values import LiveOperation
    from otel_memwatch.model import Column


class ProgramTick(NamedTuple):
    """One moment of the program and its descendants. Bytes, and seconds of CPU; `None`: not known at that moment."""

    time: float
    """Monotonic seconds."""
    rss: float | None = None
    own: float | None = None
    """Resident memory of this process alone."""
    vms: float | None = None
    system: float | None = None
    """Memory of the machine that is not available."""
    cpu: float | None = None
    read: float | None = None
    """Bytes passed to read calls so far; pipes and cached files are in it."""
    written: float | None = None
    stored_read: float | None = None
    """Bytes read from storage so far."""
    stored_written: float | None = None
    processes: float | None = None


class TickReader:
    """Reads the ticks of a run directory that may still grow."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / SAMPLES_FILE
        self._begin = 0
        self._columns: tuple[Column, ...] | None = None

    def skip(self) -> None:
        """Leaves out what has been recorded so far. Costs 1 ms for each MiB since the last call."""
        from otel_memwatch.record.samples import last_columns

        with suppress(OSError):
            end = self._path.stat().st_size
            self._columns = last_columns(self._path, self._begin) or self._columns
            # Should a line be in the middle of its writing, its rest will be no JSON, and left out.
            self._begin = end

    def read(self) -> Iterator[ProgramTick]:
        """The ticks as far as they have been recorded."""
        # Importing a tool must not import what reads records.
        from otel_memwatch.record.jsonl import Damage
        from otel_memwatch.record.samples import sample_blocks
        from otel_memwatch.record.schema import sample_maker

        # The reports of the run say what could not be read; here it is only left out.
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
                    processes=s.processes,
                )


class ToolRecording:
    """A run that goes on, beside this program."""

    def __init__(self, run: Run, *, own: bool) -> None:
        self.run = run
        self.path = run.path
        self.users = 0
        self.is_ours = run.latest.info.get("target", {}).get("pid") == os.getpid()
        """Whether the run is about this program; else it is about one that contains it, as under `wrap`."""
        self._unwanted: list[tuple[float, float]] = []
        # At the end of the program this comes after the program's own exit functions, which may still read.
        self.remove = weakref.finalize(self, _remove if own else _leave, run, os.getpid())

    def ticks(self, since: float, until: float = float("inf")) -> Iterator[ProgramTick]:
        """The ticks between two moments of the monotonic clock."""
        for tick in TickReader(self.path).read():
            if since <= tick.time <= until and not any(a <= tick.time <= b for a, b in self._unwanted):
                yield tick

    @contextmanager
    def unwanted(self) -> Iterator[None]:
        """What is done meanwhile, such as drawing, is not part of what is measured."""
        begun = time.monotonic()
        try:
            yield
        finally:
            self._unwanted.append((begun, time.monotonic()))

    def stop(self) -> None:
        """Ends the recording; what was recorded stays readable as long as this object lives."""
        self.run.stop()


def _leave(run: Run, owner: int) -> None:
    """The run is somebody else's."""


def _remove(run: Run, owner: int) -> None:
    """Removes a run directory that nobody named, when its program ended in an orderly way."""
    if os.getpid() != owner:
        return  # in a forked child the directory is the parent's
    run.stop()
    shutil.rmtree(run.path, ignore_errors=True)
    with suppress(OSError):
        run.path.parent.rmdir()  # only when it is empty


_lock = threading.Lock()
_shared: ToolRecording | None = None


def acquire(interval: float) -> ToolRecording:
    """The recording of this program, begun if there is none; to be released.

    The first who asks sets the pace. In a program that is recorded already (`wrap`, `watch()`) that run is used.
    """
    global _shared  # noqa: PLW0603 - one monitor for a program
    # Importing a tool must not import what records.
    from otel_memwatch.api import watch
    from otel_memwatch.in_target.operations import RUN_DIRECTORY_VARIABLE

    with _lock:
        if _shared is None or not _goes_on(_shared):
            joined = os.environ.get(RUN_DIRECTORY_VARIABLE)
            run = watch(interval=interval, report=False, plot=False, quiet=True)
            _shared = ToolRecording(run, own=joined != str(run.path))
        _shared.users += 1
        return _shared


def _goes_on(recording: ToolRecording) -> bool:
    return recording.run.state == "running"


def release(recording: ToolRecording, *, keep: bool = True) -> None:
    """Ends the recording when its last user has released it. With `keep` it is readable as long as somebody has it."""
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
    """A part of the program's life with an exact peak: ticks from the monitor, the ends and the peak from here.

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
        """Ends the operation that is open, and keeps its peak where that is the largest so far."""
        if self._live is not None:
            self._live.recorder.close(self._live)
            figures = self._live.figures
            if figures is not None and figures.peak is not None:
                self._own_peak = max(self._own_peak, figures.peak)

    def close(self) -> None:
        """Ends the period."""
        if self.end is None:
            self._close()
            self.end = tick_now()

    def own_peak(self) -> int:
        """Largest resident memory of this process in it, in bytes: exact where the kernel lets us; at least the ends'."""
        if self.end is None:
            self._close()
            self._live = self._open()
        return self._own_peak

    def ticks(self) -> list[ProgramTick]:
        """All that is known of it in the order of time: its beginning, the monitor's ticks, its end or this moment."""
        end = self.end or tick_now()
        ticks = list(self.recording.ticks(self.start.time, end.time))
        # The beginning and the end stand for the ticks next to them, but for one that alone saw most.
        near = self.recording.run.interval or 0.0
        since, until = self.start.time + near, end.time - near
        apart = [tick for tick in ticks if since <= tick.time <= until]
        seen = max(tick.rss or 0.0 for tick in (self.start, *apart, end))
        alone = max(ticks, key=lambda tick: tick.rss or 0.0, default=end)
        if (alone.rss or 0.0) > seen:
            apart = sorted([*apart, alone], key=lambda tick: tick.time)
        return [self.start, *apart, end]


def tick_now(*, counters: bool = False) -> ProgramTick:
    """A tick of this very moment.

    `counters`: with CPU time and I/O of this process and the children that it has waited for, where they are known.
    """
    own, tree = size_of(os.getpid()), tree_now()
    tick = ProgramTick(time.monotonic(), tree.rss, own.rss if own else None, tree.vms, system_used())
    if not counters:
        return tick
    spent = os.times()
    tick = tick._replace(cpu=spent.user + spent.system + spent.children_user + spent.children_system)
    with suppress(OSError, ValueError), open("/proc/self/io", "rb") as file:
        lines = dict(line.split(b": ") for line in file.read().splitlines())
        tick = tick._replace(
            read=float(lines[b"rchar"]),
            written=float(lines[b"wchar"]),
            stored_read=float(lines[b"read_bytes"]),
            stored_written=float(lines[b"write_bytes"]),
        )
    return tick
