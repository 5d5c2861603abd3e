"""The keywords of `watch()`, `attach()`, `Run.report()` and `Run.plot()`, for type checkers and editors.

Nothing imports this module at run time. `config.OPTIONS` holds the settings with their defaults and their help; a test keeps the two alike.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Literal, TypedDict

from otel_memwatch.run import RecordedRun


class AttachSettings(TypedDict, total=False):
    """The settings of `otel-memwatch attach`; `None` stands for the default, as leaving it out does.

    Durations are seconds, or text with a unit: "50ms", "1s", "2min".
    """

    out: str | os.PathLike[str] | None
    runs: str | os.PathLike[str] | None
    name: str | None
    tag: Mapping[str, object] | Sequence[str] | None
    group: str | None
    rank: int | str | None
    upload: str | None
    interval: float | str | None
    exact: bool | None
    quiet: bool | None
    summary: Literal["text", "markdown"] | None
    summary_file: str | os.PathLike[str] | None
    report: bool | None
    plot: bool | None
    prometheus: int | str | None
    prometheus_cert: str | os.PathLike[str] | None
    prometheus_key: str | os.PathLike[str] | None
    prometheus_client_ca: str | os.PathLike[str] | None
    linger: float | None
    textfile: str | os.PathLike[str] | None
    otlp: str | None
    otlp_protocol: Literal["http/protobuf", "grpc"] | None
    otlp_metrics: bool | None
    metrics: str | None
    operation_metrics: Literal["off", "gauges", "histograms"] | None
    metric_interval: float | str | None
    log_dir: str | os.PathLike[str] | None


class WatchSettings(AttachSettings, total=False):
    """The settings of `watch()`: those of `attach`, and one that is this program's own."""

    exact_gpu: bool | None


class ReportOptions(TypedDict, total=False):
    """Options of `Run.report`; each format knows its own and ignores the rest."""

    indent: int | None
    """Of "json": blanks of each level, 2 by default; `None`: all in one line."""
    signal: Literal["metrics", "traces"]
    """Of "otlp": "metrics" by default."""
    memory_type: Literal["rss", "system"]
    """Of "monitor-log": "rss" by default."""
    from_zero: bool
    """Of "monitor-log": less the first sample."""


class PlotOptions(TypedDict, total=False):
    """Options of `Run.plot`."""

    suffix: Literal[".png", ".pdf", ".svg"]
    """Format of the picture; by default that of the path's ending, PNG without one."""
    style: Literal["memory"]
    """What is drawn; there is one style."""
    dark: bool
    """Light lines on dark paper."""
    size: tuple[float, float | None]
    """Inches of width and height; a height of `None`: as high as what there is to show."""
    dpi: int
    """Dots per inch of a PNG, 150 by default."""
    title: str
    """Instead of the command."""
    begin: float
    """Seconds since the start of the run from which on it is drawn."""
    end: float
    """Seconds up to which it is drawn."""
    others: Sequence[RecordedRun]
    """Further runs in the same picture, each from its own start."""
    force: bool
    """Whether a file that is there is replaced: true by default; else `UsageError`."""
