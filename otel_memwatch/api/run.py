"""A run as a Python program sees it: its figures, at any time, and what can be made of them."""

from __future__ import annotations

import io
import os
from importlib import import_module
from pathlib import Path

from otel_memwatch import run as analysis
from otel_memwatch.api.picture import Picture
from otel_memwatch.errors import MemwatchError, Unavailable, UsageError
from otel_memwatch.record.samples import column_name
from otel_memwatch.runtime.typed import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from types import TracebackType

    from typing_extensions import Unpack

    from otel_memwatch.api.keywords import PlotOptions, ReportOptions
    from otel_memwatch.api.monitor_process import MonitorProcess

    Signature = tuple[tuple[str, int, int], ...]


class Run(analysis.RecordedRun):
    """A recorded run, or one that is being recorded: every figure is that of the record as it is when it is asked for.

    Reading raises `RunError` when the run directory cannot be read. As a context manager (from `watch`) it ends the
    recording with the block.

    Attributes:
        path: the run directory.
        id: name of the run.
        command: argv of what is watched.
        host: of the machine, keys "name", "system", "release", "machine", "cpus", "memory_bytes", "swap_bytes".
        state: "running"; "finished"; "incomplete": the monitor died before the end.
        started_wall: Unix seconds of the start.
        interval: seconds between ticks, as asked for.
        peak: how much memory all needed at the worst moment: a `Peak` with `bytes`, `certainty`, `low`, `high`, `at`.
        limits: memory limits in bytes, keys "cgroup_bytes", "host_bytes", "rlimit_as_bytes"; absent or `None`: none known.

    """

    def __init__(self, path: Path, monitor: MonitorProcess | None = None) -> None:
        self.path = path
        self._monitor = monitor
        self._read: tuple[Signature, analysis.RecordedRun] | None = None

    if not TYPE_CHECKING:  # a type checker would believe in any attribute

        def __getattribute__(self, name: str) -> Any:
            """What `analysis.RecordedRun` knows is asked of the run as its files are now, so that all parts of a figure agree."""
            if name.startswith("_") or name in _OWN:
                return super().__getattribute__(name)
            return getattr(self.latest, name)

    @property
    def latest(self) -> analysis.RecordedRun:
        """All that is known at this moment, which does not change any more; read again only when the files have changed."""
        signature = _signature(self.path)
        if self._read is None or self._read[0] != signature:
            self._read = signature, analysis.load(self.path)
        return self._read[1]

    def __repr__(self) -> str:
        return f"Run({str(self.path)!r})"

    def __enter__(self) -> Run:  # noqa: PYI034 - `Self` is in `typing` from 3.11 on only
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    def stop(self, timeout: float = 30.0) -> bool:
        """Ends the recording, if it was begun by this object, and waits until record and report are complete.

        False when that took longer than `timeout` seconds: the monitor then completes it by itself.
        """
        monitor, self._monitor = self._monitor, None
        return True if monitor is None else monitor.stop(timeout)

    def report(self, format: str = "text", **options: Unpack[ReportOptions]) -> str:  # noqa: A002 - the word that people expect
        """A report as text.

        Args:
            format: its name, as of `otel-memwatch report --format` and `export --to`: "text", "summary", "markdown",
                "json", "csv", "otlp", "otlp-traces", "openmetrics", "metrics", "perfetto" ...
            options: `indent` of "json" (2; `None`: all in one line), `signal` of "otlp" ("metrics" or "traces"),
                `memory_type` ("rss" or "system") and `from_zero` of "monitor-log".

        Raises:
            UsageError: for a report that does not exist, or that is no text.

        """
        from otel_memwatch.reports import REPORTS, render

        if format in REPORTS and REPORTS[format].binary:
            raise UsageError(f"The report {format!r} is no text.", "plot() writes the picture to a file")
        out = io.BytesIO()
        render(format, self.latest, out, **options)
        return out.getvalue().decode("utf-8")

    def plot(self, path: str | os.PathLike[str] | None = None, **options: Unpack[PlotOptions]) -> Picture:
        """Draws the run into a file, and gives its path, which a notebook shows as the picture.

        Args:
            path: the file, by default `memory.png` in the run directory. Its ending decides the format: .png, .pdf, .svg.
            options: `dark`, `size` (inches), `dpi`, `title`, `begin` and `end` (seconds since the start), `others` (further
                runs for the same picture); `suffix`, for a path whose ending says another format or none; `force=False`
                to keep a file that is there; `style`, of which there is one, "memory".

        Raises:
            UsageError: for a format or style that does not exist, or where the file is there and is to be kept.
            Unavailable: where drawing is not possible here.
            RunError: where the file cannot be written.

        """
        from otel_memwatch.record.format import PLOT_FILE
        from otel_memwatch.reports import write

        options["others"] = [run.latest if isinstance(run, Run) else run for run in options.get("others", ())]
        return Picture(write("plot", self.latest, self.path / PLOT_FILE if path is None else path, **options))

    def _repr_html_(self) -> str | None:
        """What a notebook shows: the curve, the figures, the largest operations; `None` where the run cannot be read."""
        from otel_memwatch.api.card import card

        try:
            return card(self.latest)
        except MemwatchError:
            return None

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


_OWN = frozenset(vars(Run)) | {"path"}
"""Names that `Run` answers itself."""


def load_run(path: str | os.PathLike[str] = "latest") -> Run:
    """The run that a directory holds, ended or going on; "latest" is the newest one below memwatch-runs.

    Raises `RunError` when the directory holds none, `UsageError` where there is no newest one.
    """
    from otel_memwatch.wings.index.find import LATEST, find_run

    run = Run(find_run(LATEST) if path == LATEST else Path(path))
    run.latest  # noqa: B018 - a wrong path is reported now, not at the first figure
    return run


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
