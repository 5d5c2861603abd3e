"""A run as a Python program sees it: its figures, at any time, and what can be made of them."""

from __future__ import annotations

import io
import os
from importlib import import_module

from otel_memwatch.errors import Unavailable, UsageError
from otel_memwatch.runtime.typed import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path
    from types import TracebackType

    from otel_memwatch.analysis import OperationFigures, Peaks, ProcessFigures
    from otel_memwatch.analysis import Run as Analysed
    from otel_memwatch.api.monitor_process import Monitor
    from otel_memwatch.model import Ending
    from otel_memwatch.record.samples import Samples

    Signature = tuple[tuple[str, int, int], ...]


class Run:
    """A recorded run, or one that is being recorded: every figure is that of the record as it is when it is asked for.

    Reading raises `RunError` when the run directory cannot be read. As a context manager (from `watch`) it ends the
    recording with the block.
    """

    def __init__(self, path: Path, monitor: Monitor | None = None) -> None:
        self.path = path
        """The run directory."""
        self._monitor = monitor
        self._read: tuple[Signature, Analysed] | None = None

    def __repr__(self) -> str:
        return f"Run({str(self.path)!r})"

    def __enter__(self) -> Run:  # noqa: PYI034 - `Self` is in `typing` from 3.11 on only
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    def stop(self, timeout: float = 30.0) -> bool:
        """End the recording, if it was begun by this object, and wait until record and report are complete.

        False when that took longer than `timeout` seconds: the monitor then completes it by itself.
        """
        monitor, self._monitor = self._monitor, None
        return True if monitor is None else monitor.stop(timeout)

    @property
    def latest(self) -> Analysed:
        """All that is known at this moment; read again only when the files have changed."""
        from otel_memwatch.analysis import load

        signature = _signature(self.path)
        if self._read is None or self._read[0] != signature:
            self._read = signature, load(self.path)
        return self._read[1]

    @property
    def id(self) -> str:
        """Name of the run."""
        return self.latest.id

    @property
    def command(self) -> tuple[str, ...]:
        """Argv of what is watched."""
        return self.latest.command

    @property
    def host(self) -> Mapping[str, Any]:
        """The machine."""
        return self.latest.host

    @property
    def state(self) -> str:
        """Either "running"; "finished"; "incomplete": the monitor died before the end."""
        return self.latest.state

    @property
    def seconds(self) -> float:
        """How long it lasted; of a run that goes on, until the last thing recorded."""
        return self.latest.seconds

    @property
    def ending(self) -> Ending:
        """How it ended."""
        return self.latest.ending

    @property
    def peaks(self) -> Peaks:
        """Peaks of the main process, the largest process, the tree, the control group and each GPU."""
        return self.latest.peaks

    @property
    def totals(self) -> Mapping[str, float | None]:
        """CPU seconds, bytes and faults of the whole tree."""
        return self.latest.totals

    @property
    def quality(self) -> Mapping[str, Any]:
        """How well it was recorded."""
        return self.latest.quality

    @property
    def operations(self) -> tuple[OperationFigures, ...]:
        """All operations by their start."""
        return self.latest.operations

    @property
    def processes(self) -> tuple[ProcessFigures, ...]:
        """All processes that were seen, by their start."""
        return self.latest.processes

    @property
    def marks(self) -> tuple[tuple[float | None, str], ...]:
        """What went wrong with the recording: seconds since the start, and a sentence."""
        return self.latest.marks

    @property
    def damage(self) -> list[str]:
        """What of the files could not be read, in sentences."""
        return self.latest.damage

    def samples(self, metrics: Iterable[str] | None = None) -> Samples:
        """The ticks as numpy columns; naming the metrics that are needed saves time and memory for long runs."""
        return self.latest.samples(metrics)

    def report(self, format: str = "text", **options: Any) -> str:  # noqa: A002 - the word that people expect
        """A report as text: "text", "summary", "json", "csv" ...

        Raises `UsageError` for one that does not exist, or that is no text.
        """
        from otel_memwatch.reports import REPORTS, render

        if format in REPORTS and REPORTS[format].binary:
            raise UsageError(f"The report {format!r} is no text.", "plot() writes the picture to a file")
        out = io.BytesIO()
        render(format, self.latest, out, **options)
        return out.getvalue().decode("utf-8")

    def plot(self, path: str | os.PathLike[str] | None = None, **options: Any) -> Path:
        """Draw the run into a file, by default `memory.png` in the run directory; gives its path."""
        from otel_memwatch.record.format import PLOT_FILE
        from otel_memwatch.reports import write

        return write("plot", self.latest, self.path / PLOT_FILE if path is None else path, **options)

    def to_pandas(self) -> Any:
        """The ticks as a `pandas.DataFrame`: seconds since the start as its index, one column for each series.

        A column is named as its metric, its attributes in braces. Raises `Unavailable` without pandas.
        """
        try:
            pd: Any = import_module("pandas")
        except ImportError:
            raise Unavailable("pandas is not installed.", "pip install 'otel-memwatch[pandas]'") from None
        samples = self.samples()
        series = {
            column_name(column.metric, column.attributes): samples.values(column)
            for column in samples.columns
        }
        return pd.DataFrame(series, index=pd.Index(samples.time, name="seconds"))


def column_name(metric: str, attributes: Iterable[tuple[str, str]]) -> str:
    """`name{key=value,...}`, or the name alone."""
    text = ",".join(f"{key}={value}" for key, value in attributes)
    return f"{metric}{{{text}}}" if text else metric


def _signature(path: Path) -> Signature:
    """Changes whenever something has been recorded."""
    try:
        with os.scandir(path) as entries:
            kept = [
                (entry.name, entry.stat()) for entry in entries if entry.name.endswith((".json", ".jsonl"))
            ]
    except OSError:
        return ()
    return tuple(sorted((name, status.st_size, status.st_mtime_ns) for name, status in kept))
