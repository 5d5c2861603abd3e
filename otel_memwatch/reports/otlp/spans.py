"""The spans of a run as OTLP JSON lines: a file of their own, since a file holds one signal."""

from __future__ import annotations

from otel_memwatch.reports import otlp
from otel_memwatch.runtime.typed import TYPE_CHECKING, BinaryIO

if TYPE_CHECKING:
    from otel_memwatch.analysis import Run
    from otel_memwatch.reports import Options


def render(run: Run, out: BinaryIO, options: Options) -> None:
    """Writes the lines."""
    otlp.render(run, out, {**options, "signal": "traces"})
