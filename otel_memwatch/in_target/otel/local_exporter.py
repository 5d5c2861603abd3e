"""Exporters that write metrics and spans of any OpenTelemetry program into a run directory, as OTLP JSON lines.

Entry point `memwatch`: `OTEL_METRICS_EXPORTER=memwatch`, `OTEL_TRACES_EXPORTER=memwatch`. Under `otel-memwatch wrap`
they write into that run. Otherwise the first export creates a run directory. One call writes each complete line, so
nothing is lost if the program is killed.
"""

from __future__ import annotations

import json
import logging
import os
import platform
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from opentelemetry.exporter.otlp.proto.common.metrics_encoder import encode_metrics
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.sdk.metrics.export import MetricExporter, MetricExportResult, MetricsData
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

from otel_memwatch._version import __version__
from otel_memwatch.record.format import (
    DIRECTORY_MODE,
    FILE_MODE,
    METRICS_OTLP_FILE,
    RUN_DIRECTORY_VARIABLE,
    RUN_FILE,
    RUNNING,
    SCHEMA,
    TRACES_OTLP_FILE,
)
from otel_memwatch.record.otlp_json import to_json
from otel_memwatch.runtime.typed import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from google.protobuf.message import Message
    from opentelemetry.sdk.trace import ReadableSpan

_logger = logging.getLogger(__name__)

OUT_VARIABLE = "OTEL_MEMWATCH_OUT"
"""Environment variable with the run directory to create if no run exists yet."""

_started = time.time(), time.monotonic()
_lock = threading.Lock()
_made: dict[int, Path] = {}


def _renew_lock() -> None:
    """Replace the lock in a forked child, because a thread of the parent may hold it."""
    global _lock  # noqa: PLW0603 - one lock for each process
    _lock = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_lock)


class _Lines:
    """A file of the run directory to which messages are appended. A failure is logged once and never raised."""

    def __init__(self, name: str, directory: str | os.PathLike[str] | None) -> None:
        self._name = name
        self._directory = None if directory is None else Path(directory)
        self._failed = False

    def append(self, message: Message) -> bool:
        """Write one line, and return whether that succeeded."""
        text = json.dumps(to_json(message), separators=(",", ":")) + "\n"
        try:
            directory = self._directory or _default_directory()
            _describe(directory)
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
            descriptor = os.open(directory / self._name, flags, FILE_MODE)
            try:
                data = text.encode()
                return os.write(descriptor, data) == len(data)
            finally:
                os.close(descriptor)
        except OSError as error:
            if not self._failed:
                self._failed = True
                _logger.warning("otel-memwatch cannot write %s: %s", self._name, error.strerror)
            return False


def _default_directory() -> Path:
    """Return the enclosing run, the requested one, or a new one. A forked child gets a separate one."""
    inherited = os.environ.get(RUN_DIRECTORY_VARIABLE)
    if inherited:
        return Path(inherited)
    with _lock:
        directory = _made.get(os.getpid())
        if directory is None:
            program = os.path.basename(sys.argv[0] if sys.argv and sys.argv[0] else "python") or "python"
            stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(_started[0]))
            out = os.environ.get(OUT_VARIABLE) if not _made else None
            directory = Path(out or Path("memwatch-runs") / f"{stamp}-{program}-{os.getpid()}").absolute()
            _made[os.getpid()] = directory
    return directory


def _describe(directory: Path) -> None:
    """Write `run.json` unless the directory is already a run."""
    directory.mkdir(mode=DIRECTORY_MODE, parents=True, exist_ok=True)
    info: dict[str, Any] = {
        "schema": SCHEMA,
        "id": directory.name,
        "state": RUNNING,
        "command": [sys.argv[0] or "python"] if sys.argv else ["python"],
        "cwd": os.getcwd(),
        "target": {"pid": os.getpid()},
        "host": {
            "name": platform.node(),
            "system": platform.system(),
            "release": platform.release(),
            "machine": platform.machine(),
            "cpus": os.cpu_count(),
        },
        "monitor": {"version": __version__, "pid": os.getpid(), "mode": "export"},
        "started": {"wall": _started[0], "monotonic": _started[1]},
        "ended": None,
        "marks": [],
    }
    try:
        descriptor = os.open(directory / RUN_FILE, os.O_WRONLY | os.O_CREAT | os.O_EXCL, FILE_MODE)
    except FileExistsError:
        return
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        json.dump(info, file, indent=1)


class LocalMetricExporter(MetricExporter):
    """Exporter of metrics into `metrics.otlp.jsonl`.

    Args:
        directory: run directory; `None` selects the enclosing run, `OTEL_MEMWATCH_OUT`, or a new one.
    """

    def __init__(self, directory: str | os.PathLike[str] | None = None, **options: Any) -> None:
        super().__init__(**options)
        self._lines = _Lines(METRICS_OTLP_FILE, directory)

    def export(
        self,
        metrics_data: MetricsData,
        timeout_millis: float = 10_000,  # noqa: ARG002 - the base class's signature
        **_: Any,
    ) -> MetricExportResult:
        """Append one line."""
        written = self._lines.append(encode_metrics(metrics_data))
        return MetricExportResult.SUCCESS if written else MetricExportResult.FAILURE

    def force_flush(self, timeout_millis: float = 10_000) -> bool:  # noqa: ARG002
        """Return true, because nothing is buffered."""
        return True

    def shutdown(self, timeout_millis: float = 30_000, **_: Any) -> None:
        """Do nothing, because no file is open."""


class LocalSpanExporter(SpanExporter):
    """Exporter of spans into `traces.otlp.jsonl`.

    Args:
        directory: run directory; `None` selects the enclosing run, `OTEL_MEMWATCH_OUT`, or a new one.
    """

    def __init__(self, directory: str | os.PathLike[str] | None = None) -> None:
        self._lines = _Lines(TRACES_OTLP_FILE, directory)

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Append one line."""
        written = self._lines.append(encode_spans(spans))
        return SpanExportResult.SUCCESS if written else SpanExportResult.FAILURE

    def force_flush(self, timeout_millis: int = 30_000) -> bool:  # noqa: ARG002
        """Return true, because nothing is buffered."""
        return True

    def shutdown(self) -> None:
        """Do nothing, because no file is open."""
