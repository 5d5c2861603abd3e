"""Types of the keywords of `watch()`, `attach()`, `Run.report()` and `Run.plot()`, for type checkers and editors.

Nothing imports this module at run time. `config.OPTIONS` holds the settings with defaults and help; a test compares
both.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Literal, TypedDict

from otel_memwatch.run import RecordedRun


class AttachSettings(TypedDict, total=False):
    """Settings of `otel-memwatch attach`; `None` selects the default.

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
    stacks: bool | None
    quiet: bool | None
    summary: Literal["text", "markdown", "json"] | None
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
    """Settings of `watch()`: the settings of `attach`, and those that apply to this program."""

    torch_snapshot: bool | None
    exact_gpu: bool | None
    predicted: Mapping[str, object] | Sequence[str] | None


class CommandSettings(WatchSettings, total=False):
    """Settings of `run_command()`: the options of `wrap`, without `events`, `repeat` and `warmup`."""

    cgroup: Literal["auto", "off", "require"] | None
    step_summary: bool | None
    termination_log: str | os.PathLike[str] | None
    tracker: Literal["auto", "mlflow", "wandb", "tensorboard", "trackio"] | None
    receive_otlp: bool | None
    budget: Mapping[str, object] | Sequence[str] | None
    baseline: str | os.PathLike[str] | None
    budget_exit_code: int | None
    limit: int | str | None
    limit_fallback: Literal["none", "rlimit"] | None
    warn: str | Sequence[str] | None
    stalled: float | str | None
    leave: int | str | None
    timeout: float | str | None
    kill_after: float | str | None
    limit_exit_code: int | None
    strict: bool | None


class ReportOptions(TypedDict, total=False):
    """Options of `Run.report`; each format ignores the options of other formats."""

    indent: int | None
    """For "json": spaces per level, 2 by default; `None` writes a single line."""
    signal: Literal["metrics", "traces"]
    """For "otlp": "metrics" by default."""
    memory_type: Literal["rss", "system"]
    """For "monitor-log": "rss" by default."""
    from_zero: bool
    """For "monitor-log": subtract the first sample from all samples."""


class PlotOptions(TypedDict, total=False):
    """Options of `Run.plot`."""

    suffix: Literal[".png", ".pdf", ".svg"]
    """Format of the picture; by default the extension of the path, or PNG without one."""
    style: Literal["memory"]
    """Style of the picture; only "memory" exists."""
    dark: bool
    """Draw light lines on a dark background."""
    size: tuple[float, float | None]
    """Width and height in inches; with a height of `None`, the height depends on the content."""
    dpi: int
    """Dots per inch of a PNG, 150 by default."""
    title: str
    """Title of the picture; by default the command."""
    begin: float
    """Start of the drawn period, in seconds since the start of the run."""
    end: float
    """End of the drawn period, in seconds since the start of the run."""
    others: Sequence[RecordedRun]
    """Further runs in the same picture, all aligned at their starts."""
    force: bool
    """Replace an existing file (the default). If false, an existing file raises `UsageError`."""
