"""`QEffMemoryProfiler`: phases of a program with their memory, CPU and I/O, from a separate monitor process."""

from __future__ import annotations

import errno
import logging
import os
import time
import uuid
import warnings
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, NoReturn

from otel_memwatch.compat.current_memory import tree_now
from otel_memwatch.compat.qefficient.phases import COLOURS, COMPLETION, INITIALIZATION, MB, OWNER, UNMARKED
from otel_memwatch.compat.qefficient.phases.phase_report import EMPTY
from otel_memwatch.compat.qefficient.profile_samples import (
    MetricsCollector,
    ProfilerConfig,
    ProfileSample,
    local_time,
    samples,
)
from otel_memwatch.compat.shared_recording import (
    ProgramTick,
    TickReader,
    ToolRecording,
    acquire,
    release,
    run_in_own_process,
)
from otel_memwatch.record.format import SAMPLES_FILE

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from otel_memwatch.in_target.operations.operation_values import LiveOperation

_PHASES = "otel_memwatch.compat.qefficient.phases.phase_report"
"""Module of the worker process that makes the report and the picture."""

_KEPT_BYTES = 4 << 20
"""Largest record with cached samples, in bytes: about 12 000 samples, which take 6 MiB."""

logger = logging.getLogger("otel_memwatch.compat.qefficient")


class _OwnPeak(NamedTuple):
    """High-water mark of this process in a phase."""

    bytes: float
    began: float
    """Monotonic seconds."""
    ended: float
    phase: str

    @property
    def time(self) -> float:
        """Middle of the phase, because the kernel does not report the time."""
        return (self.began + self.ended) / 2


class _Part:
    """Part of a recording between a start and a stop.

    Attributes:
        recording: the recording that contains it.
        windows: time windows to include, in monotonic seconds.
        deltas: growth of the tree's memory in a phase in bytes, by operation ID.
        own_peaks: this process's peak in each phase, and before the first mark.
        completed: time at which the end of the last phase was marked.

    """

    def __init__(self, recording: ToolRecording) -> None:
        self.recording = recording
        self.windows: list[tuple[float, float]] = []
        self.deltas: dict[int, float] = {}
        self.own_peaks: list[_OwnPeak] = []
        self.completed: float | None = None

    def ticks(self) -> Iterator[ProgramTick]:
        """Yield the regular samples within the windows, and the largest one."""

        def wanted(tick: ProgramTick) -> bool:
            return tick.rss != 0 and any(since <= tick.time <= until for since, until in self.windows)

        ended = self.windows[-1][1] < float("inf")
        return TickReader(self.recording.path).regular(self.recording.run.interval, wanted, ended=ended)

    def size(self) -> tuple[int, int]:
        """Return a value that changes whenever the record grows."""
        try:
            return len(self.windows), (self.recording.path / SAMPLES_FILE).stat().st_size
        except OSError:
            return len(self.windows), 0


class _Samples(list[ProfileSample]):
    """Read-only list of samples, because they come from the record."""

    def _refuse(self, *_: object, **__: object) -> NoReturn:
        raise TypeError("samples are read from the record: a copy, list(profiler.samples), can be changed")

    def append(self, _sample: object, /) -> None:
        """Do nothing except for a warning: samples come from the record. Some harnesses collect theirs as well."""
        warnings.warn("samples.append() is ignored: otel-memwatch records them", stacklevel=2)

    extend = insert = remove = pop = clear = sort = reverse = _refuse
    __setitem__ = __delitem__ = __iadd__ = __imul__ = _refuse


def _series(field: str, unit: str) -> property:
    """Return a property with this field of all samples."""
    return property(lambda profiler: [getattr(sample, field) for sample in profiler._samples()], doc=unit)  # noqa: SLF001


_SYNCHRONIZED = {
    "rss_memory": "rss_mb",
    "vms_memory": "vms_mb",
    "cpu_usage": "cpu_percent",
    "disk_read_bytes": "disk_read_mb",
    "disk_write_bytes": "disk_write_mb",
    "disk_read_rate": "disk_read_rate",
    "disk_write_rate": "disk_write_rate",
}
"""Series of `get_synchronized_data`, with the field of a sample."""


class QEffMemoryProfiler:
    """Profiles this program and its descendants; see the package's documentation.

    Args:
        sampling_interval: seconds between samples.
        output_file: default file of the figure; "qeff_memory_profile.png" if omitted.
        verbose: log each step.
        kwargs: further settings of `ProfilerConfig`. An unknown one raises `TypeError`.

    Attributes:
        operations: marks in order, each with its wall-clock time.
        operation_durations, operation_memory_deltas: seconds and MB of the last phase of each name.

    """

    SEGMENT_COLORS: ClassVar[dict[str, str]] = COLOURS

    def __init__(
        self,
        sampling_interval: float = 0.05,
        output_file: str | None = None,
        verbose: bool = False,
        **kwargs: Any,
    ) -> None:
        file = output_file or "qeff_memory_profile.png"
        self.config = ProfilerConfig(sampling_interval, file, verbose, **kwargs)
        if verbose:
            # Print also in a program that has not configured logging.
            logger.setLevel(logging.INFO)
            if not logger.hasHandlers():
                handler = logging.StreamHandler()
                handler.setFormatter(logging.Formatter("%(levelname)s - %(message)s"))
                logger.addHandler(handler)
        self.monitoring = False
        self.monitor_thread = None
        self.metrics_collector = MetricsCollector(self.config)
        self.operations: list[tuple[datetime, str]] = []
        self.current_operation = INITIALIZATION
        self.operation_start_time = datetime.now()  # noqa: DTZ005 - local, as people expect
        self.operation_durations: dict[str, float] = {}
        self.operation_memory_deltas: dict[str, float] = {}
        self._id = uuid.uuid4().hex
        self._parts: list[_Part] = []
        self._read: tuple[object, list[ProfileSample]] = None, []
        self._phase: LiveOperation | None = None
        self._phase_began = time.monotonic()
        self._phase_rss = 0.0

    # -- measurement

    def start_monitoring(self) -> None:
        """Begin to record; no effect if already recording. After a stop, append to the existing samples."""
        if self.monitoring:
            return
        # The monitor took the first sample while the recording began, so include one interval before.
        begun = time.monotonic() - self.config.sampling_interval
        recording = acquire(self.config.sampling_interval)
        if not self._parts or self._parts[-1].recording is not recording:
            self._parts.append(_Part(recording))
        self._parts[-1].windows.append((begun, float("inf")))
        self._parts[-1].completed = None
        self.monitoring = True
        # Until the first mark, measure the peak as in a phase.
        self._phase = _open(self.current_operation, {UNMARKED: self._id})
        self._log("QEff Memory monitoring started (sampling every %ss)", self.config.sampling_interval)

    def stop_monitoring(self) -> None:
        """End the recording, and end the last phase with the mark "Completion"."""
        if not self.monitoring:
            return
        self.mark_operation(COMPLETION)
        self.monitoring = False
        # The recording ends with a final sample, which includes everything since the previous one.
        part = self._parts[-1]
        release(part.recording)
        part.windows[-1] = (part.windows[-1][0], time.monotonic())
        self._log("QEff Memory monitoring stopped")

    def mark_operation(self, operation_name: str) -> None:
        """End the current phase and begin another."""
        now, rss = time.monotonic(), float(tree_now().rss)
        if self._phase is not None:
            self._phase.recorder.close(self._phase)
            self._parts[-1].deltas[self._phase.id] = rss - self._phase_rss
            figures = self._phase.figures
            if figures is not None and figures.peak is not None:
                part, name = self._parts[-1], self.current_operation
                began = max(self._phase_began, part.windows[-1][0])
                phase = self._operation_at(local_time(now)) if name == COMPLETION else name
                part.own_peaks.append(_OwnPeak(float(figures.peak), began, now, phase))
        self._phase = None
        if self.current_operation != INITIALIZATION and self.monitoring:
            self.operation_durations[self.current_operation] = now - self._phase_began
            self.operation_memory_deltas[self.current_operation] = (rss - self._phase_rss) / MB
        self.current_operation, self._phase_began, self._phase_rss = operation_name, now, rss
        self.operation_start_time = local_time(now)
        if operation_name == COMPLETION:
            if self._parts:
                self._parts[-1].completed = now
        elif self.monitoring:
            self._phase = _open(operation_name, {OWNER: self._id})
        self.operations.append((local_time(now), operation_name))
        self._log("%s | Memory: %.1f MB RSS", operation_name, rss / MB)

    def mark_segment(self, segment_name: str) -> None:
        """Call `mark_operation`."""
        self.mark_operation(segment_name)

    # -- results

    def _own_peaks(self) -> list[_OwnPeak]:
        return [peak for part in self._parts for peak in part.own_peaks]

    def _samples(self) -> Iterable[ProfileSample]:
        """Return all samples. Cache those of a short record until it grows; keep nothing of a long record."""
        sizes = [part.size() for part in self._parts]
        if sum(size for _, size in sizes) > _KEPT_BYTES:
            return self._with_peak()
        state = sizes, len(self._own_peaks())
        if self._read[0] != state:
            self._read = state, list(self._with_peak())
        return self._read[1]

    def _recorded(self) -> Iterator[ProfileSample]:
        return samples((tick for part in self._parts for tick in part.ticks()), self.config)

    def _with_peak(self) -> Iterator[ProfileSample]:
        """Yield all samples, and the kernel's high-water mark of this process if it exceeds all of them."""
        own = max(self._own_peaks(), default=_OwnPeak(0.0, 0.0, 0.0, ""))
        peak, at = own.bytes, local_time(own.time)
        above = peak and peak / MB > max((sample.rss_mb for sample in self._recorded()), default=peak)
        before: ProfileSample | None = None
        for sample in self._recorded():
            if above and before is not None and sample.timestamp > at:
                yield _at_the_peak(before, at, peak / MB)
                above = False
            yield sample
            before = sample
        if above and before is not None:
            yield _at_the_peak(before, max(at, before.timestamp), peak / MB)

    @property
    def samples(self) -> list[ProfileSample]:
        """All samples, as a new read-only list at each access."""
        return _Samples(self._samples())

    timestamps = _series("timestamp", "Wall-clock time of each sample.")
    rss_memory = _series("rss_mb", "MB.")
    vms_memory = _series("vms_mb", "MB.")
    cpu_usage = _series("cpu_percent", "Percent.")
    disk_read_bytes = _series("disk_read_mb", "MB so far.")
    disk_write_bytes = _series("disk_write_mb", "MB so far.")
    disk_read_rate = _series("disk_read_rate", "MB a second.")
    disk_write_rate = _series("disk_write_rate", "MB a second.")

    @property
    def sampling_interval(self) -> float:
        """Seconds, as configured."""
        return self.config.sampling_interval

    @property
    def output_file(self) -> str | None:
        """Default file of the figure."""
        return self.config.output_file

    @property
    def verbose(self) -> bool:
        """True if the profiler logs each step."""
        return self.config.verbose

    def get_synchronized_data(self) -> dict[str, list[float]]:
        """Return all series with the seconds since the first sample; empty without samples. `disk_*_bytes` are in MB."""
        known = self.samples
        if not known:
            return {}
        seconds = [(sample.timestamp - known[0].timestamp).total_seconds() for sample in known]
        series = {name: [getattr(one, field) for one in known] for name, field in _SYNCHRONIZED.items()}
        return {"timestamps": seconds} | series

    def get_memory_usage(self) -> tuple[float, float]:
        """Return the current RSS and VMS in MB."""
        size = tree_now()
        return size.rss / MB, size.vms / MB

    def _peak(self) -> tuple[float, datetime | None, str | None]:
        """Return MB, time and phase of the largest sample, or of the kernel's high-water mark if that is larger."""
        best: tuple[float, datetime | None, str | None] = (0.0, None, None)
        for sample in self._samples():
            if sample.rss_mb > best[0]:
                best = (sample.rss_mb, sample.timestamp, None)
        if best[1] is not None:
            best = (best[0], best[1], self._operation_at(best[1]))
        for peak in self._own_peaks():
            if peak.bytes / MB > best[0]:
                best = (peak.bytes / MB, local_time(peak.time), peak.phase)
        return best

    def _operation_at(self, moment: datetime) -> str:
        """Return the phase of a sample. The sample at the stop, after the last mark, belongs to the last phase."""
        name = INITIALIZATION
        for began, operation in self.operations:
            if began <= moment and operation != COMPLETION:
                name = operation
        return name

    @property
    def peak_rss(self) -> float:
        """Largest RSS in MB: exact for this process, sampled if children had more."""
        return self._peak()[0]

    @property
    def peak_rss_time(self) -> datetime | None:
        """Time of the largest RSS; `None` without samples."""
        return self._peak()[1]

    @property
    def peak_operation(self) -> str | None:
        """Phase of the largest RSS."""
        return self._peak()[2]

    @property
    def peak_vms(self) -> float:
        """Largest VMS in MB."""
        return max((sample.vms_mb for sample in self._samples()), default=0.0)

    @property
    def peak_vms_time(self) -> datetime | None:
        """Time of the largest VMS."""
        largest = max(self._samples(), key=lambda sample: sample.vms_mb, default=None)
        return None if largest is None else largest.timestamp

    # -- output

    def _selection(self) -> list[dict[str, Any]]:
        """Return the parts of the job of the worker process that reports."""
        config = self.config
        common = {
            "owner": self._id,
            "cpu": config.enable_cpu_monitoring,
            "disk": config.enable_disk_monitoring,
            "interval": config.sampling_interval,
        }
        return [
            {
                **common,
                "run": str(part.recording.path),
                "windows": [(a, time.monotonic() if b == float("inf") else b) for a, b in part.windows],
                "own_peak": max(part.own_peaks, default=None),
                "deltas": part.deltas,
                "completed": part.completed,
            }
            for part in self._parts
        ]

    def _has_samples(self) -> bool:
        return next(iter(self._recorded()), None) is not None

    def get_memory_report(self) -> str:
        """Return the report. A separate process makes it, at no cost in memory for this one."""
        if not self._has_samples():
            return EMPTY
        with self._parts[-1].recording.unwanted():
            answer = run_in_own_process(_PHASES, {"parts": self._selection()})
        return str(answer.get("text", EMPTY))

    def generate_memory_graph(self, filename: str | None = None) -> None:
        """Write the figure as PNG, drawn in a separate process. Without samples, only log a warning.

        Raises `FileNotFoundError` if the directory does not exist, and `MemwatchError` if drawing fails.
        """
        if not self._has_samples():
            logger.warning("No data to plot")
            return
        file = filename or self.config.output_file or "qeff_memory_profile.png"
        if not Path(file).absolute().parent.is_dir():
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(file))
        with self._parts[-1].recording.unwanted():
            run_in_own_process(_PHASES, {"parts": self._selection(), "picture": str(file)})
        self._log("Enhanced synchronized memory profile saved: %s", file)

    def stop_and_save(self, filename: str | None = None) -> str:
        """Stop, draw the figure, and return the report."""
        self.stop_monitoring()
        self.generate_memory_graph(filename)
        return self.get_memory_report()

    def _update_peaks(self, *_: object) -> None:
        """Do nothing: peaks come from the record. Some harnesses call this private method of the older tool."""

    def _log(self, text: str, *arguments: object) -> None:
        if self.config.verbose:
            logger.info(text, *arguments)


def _open(name: str, attributes: dict[str, str]) -> LiveOperation | None:
    """Open an operation that resets and reads the high-water mark; `None` if this program is not recorded."""
    from otel_memwatch.in_target.operations.recorder import get_recorder

    here = get_recorder()
    return None if here is None else here.open(name, attributes, None)


def _at_the_peak(before: ProfileSample, at: datetime, peak: float) -> ProfileSample:
    return replace(before, timestamp=at, rss_mb=peak, vms_mb=max(before.vms_mb, peak))


class QEffMemoryVisualizer:
    """Not supported: the profiler draws by itself."""

    def __init__(self, *_: object, **__: object) -> None:
        raise NotImplementedError(
            "Use QEffMemoryProfiler.generate_memory_graph, or otel-memwatch plot RUN --style phases."
        )
