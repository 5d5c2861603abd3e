"""Runs for Python programs: current figures, reports, pictures and data frames."""

from __future__ import annotations

import base64
import io
import os
from contextlib import suppress
from importlib import import_module
from pathlib import Path, PosixPath

from otel_memwatch import run as analysis
from otel_memwatch.errors import MemwatchError, Unavailable, UsageError
from otel_memwatch.record.samples import column_name
from otel_memwatch.runtime.typed import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from types import TracebackType

    from typing_extensions import Unpack

    from otel_memwatch.api.keywords import PlotOptions, ReportOptions
    from otel_memwatch.api.monitor_process import MonitorProcess

    Signature = tuple[tuple[str, int, int], ...]


class Picture(PosixPath):
    """Path of a picture. As the value of a notebook cell it shows the picture."""

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, Any]:  # noqa: ARG002 - IPython's signature
        """Return the path and the picture by media type; for a PDF or a missing file, only the path."""
        bundle: dict[str, Any] = {"text/plain": str(self)}
        try:
            if self.suffix == ".svg":
                bundle["image/svg+xml"] = self.read_text("utf-8")
            elif self.suffix == ".png":
                bundle["image/png"] = base64.b64encode(self.read_bytes()).decode("ascii")
        except OSError:
            pass
        return bundle


_recorded_here: list[Path] = []
"""The last run that this program started with `watch` or `attach`; empty: none."""


class Run(analysis.RecordedRun):
    """A recorded run, finished or still running. Every access reads the current state of the record.

    Reading raises `RunError` if the run directory cannot be read. As a context manager (from `watch`) it ends the
    recording with the block.

    Attributes:
        path: the run directory.
        id: name of the run.
        command: argv of the recorded command.
        host: the machine, keys "name", "system", "release", "machine", "cpus", "memory_bytes", "swap_bytes", "disk_rate".
        state: "running", "finished", or "incomplete" if the monitor died before the end.
        started_wall: Unix time of the start, in seconds.
        interval: sampling interval in seconds, as configured.
        peak: peak memory of the whole process tree, a `Peak` with `bytes`, `certainty`, `low`, `high`, `at`.
        limits: memory limits in bytes, keys "cgroup_bytes", "host_bytes", "rlimit_as_bytes". A limit is absent or `None`
            if unknown.

    """

    def __init__(self, path: Path, monitor: MonitorProcess | None = None) -> None:
        self.path = path
        self._monitor = monitor
        if monitor is not None:
            _recorded_here[:] = [path]
        self._read: tuple[Signature, analysis.RecordedRun] | None = None

    if not TYPE_CHECKING:  # with this method, type checkers would accept any attribute

        def __getattribute__(self, name: str) -> Any:
            """Read attributes of `analysis.RecordedRun` from `latest`, so all parts of a figure are consistent."""
            if name.startswith("_") or name in _OWN:
                return super().__getattribute__(name)
            return getattr(self.latest, name)

    @property
    def latest(self) -> analysis.RecordedRun:
        """Return an immutable snapshot of the run. Files are read again only if they have changed."""
        # Names, sizes and modification times of the record's files change with every recording.
        signature: Signature = ()
        with suppress(OSError), os.scandir(self.path) as entries:
            files = [
                (entry.name, entry.stat()) for entry in entries if entry.name.endswith((".json", ".jsonl"))
            ]
            signature = tuple(sorted((name, status.st_size, status.st_mtime_ns) for name, status in files))
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
        """End the recording if this object started it, and wait until record and report are complete.

        Returns false after `timeout` seconds; the monitor then completes the record without being waited for.
        """
        monitor, self._monitor = self._monitor, None
        return True if monitor is None else monitor.stop(timeout)

    def report(self, format: str = "text", **options: Unpack[ReportOptions]) -> str:  # noqa: A002 - the name that users expect
        """Return a report as text.

        Args:
            format: name of the format in `otel-memwatch report --format` and `export --to`: "text", "summary", "markdown",
                "json", "csv", "otlp", "otlp-traces", "openmetrics", "metrics", "perfetto" ...
            options: options of the format, see `ReportOptions`: `indent` for "json", `signal` for "otlp" ("metrics" or
                "traces"), `memory_type` ("rss" or "system") and `from_zero` for "monitor-log".

        Raises:
            UsageError: the report does not exist or is binary.

        """
        from otel_memwatch.reports import REPORTS, render

        if format in REPORTS and REPORTS[format].binary:
            raise UsageError(f"The report {format!r} is binary.", "use plot() to write the picture to a file")
        out = io.BytesIO()
        render(format, self.latest, out, **options)
        return out.getvalue().decode("utf-8")

    def plot(self, path: str | os.PathLike[str] | None = None, **options: Unpack[PlotOptions]) -> Picture:
        """Draw the run into a file and return its path, which notebooks show as the picture.

        Args:
            path: the file, by default `memory.png` in the run directory. Its extension selects the format: .png, .pdf,
                .svg.
            options: options of the picture, see `PlotOptions`. Appearance: `dark`, `size` in inches, `dpi`, `title`,
                `style` (only "memory"). Content: `begin` and `end` in seconds since the start, and `others`, further runs
                for the same picture. File: `suffix`, the format if it differs from the extension, and `force=False`, which
                keeps an existing file.

        Raises:
            UsageError: unknown format or style, or the file exists with `force=False`.
            Unavailable: drawing is not possible on this machine.
            RunError: the file cannot be written.

        """
        from otel_memwatch.record.format import PLOT_FILE
        from otel_memwatch.reports import write

        options["others"] = [run.latest if isinstance(run, Run) else run for run in options.get("others", ())]
        return Picture(write("plot", self.latest, self.path / PLOT_FILE if path is None else path, **options))

    def _repr_html_(self) -> str | None:
        """Return the notebook view: curve, figures, largest operations; `None` if the run cannot be read."""
        from otel_memwatch.api.card import card

        try:
            return card(self.latest)
        except MemwatchError:
            return None

    def to_pandas(self) -> Any:
        """Return the samples as a `pandas.DataFrame`, with seconds since the start as index and a column per series.

        A column has the name of its metric, with attributes in braces. Raises `Unavailable` without pandas.
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
"""Attributes of `Run` itself."""


def load_run(path: str | os.PathLike[str] = "latest") -> Run:
    """Return the run in a directory, finished or still running.

    "latest" is the newest run below memwatch-runs, or the last run that this program recorded, if that is newer.

    Raises `RunError` if the directory contains no run, `UsageError` if there is no newest run.
    """
    from otel_memwatch.wings.index.find import LATEST, find_run

    if path == LATEST:
        found = [Run(place) for place in _recorded_here if place.is_dir()]
        try:
            found.append(Run(find_run(LATEST)))
        except UsageError:
            if not found:
                raise
        return max(found, key=lambda run: run.started_wall)
    run = Run(Path(path))
    run.latest  # noqa: B018 - report a wrong path now, not at the first access
    return run
