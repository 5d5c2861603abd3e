"""Reports of a recorded run, listed in `REPORTS`.

A report's module has `render(run, out, options)`, which writes only to the binary stream `out`. `atomic_file.py` opens its
file.
"""

from __future__ import annotations

import os
import sys

from otel_memwatch.errors import UsageError
from otel_memwatch.record.format import UNFINISHED
from otel_memwatch.runtime.lazy import load_module
from otel_memwatch.runtime.light import suppress
from otel_memwatch.runtime.threads import need
from otel_memwatch.runtime.typed import TYPE_CHECKING, Any, BinaryIO, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path
    from typing import TypedDict

    from typing_extensions import Unpack

    from otel_memwatch.run import RecordedRun
    from otel_memwatch.runtime.terminal import Display

    class Options(TypedDict, total=False):
        """Options of reports; each report ignores those that it does not know."""

        encoding: str
        """Encoding for "text"; default UTF-8."""
        display: Display
        """Terminal for "text" and "summary"; default `terminal.FILE`."""
        indent: int | None
        """Indentation for "json"; `None`: one line. Default 2."""
        suffix: str
        """Suffix of the file, which selects the format of a picture: ".png" (default), ".pdf" or ".svg"."""
        style: str
        """Style for "plot": "memory"."""
        dark: bool
        """Dark background for "plot"."""
        size: tuple[float, float | None] | None
        """Width and height of "plot" in inches; a height of `None` depends on content."""
        dpi: int | None
        """Dots per inch of a PNG for "plot"; default 150."""
        title: str | None
        """Title for "plot" instead of the command."""
        begin: float | None
        """Start of "plot" in seconds since the start of the run."""
        end: float | None
        """End of "plot" in seconds since the start of the run."""
        others: Sequence[RecordedRun]
        """Further runs for the same "plot"."""
        signal: str
        """Signal for "otlp": "metrics" (default) or "traces"."""
        at_end: bool
        """Only final figures for "openmetrics"."""
        memory_type: str
        """Memory for "monitor-log": "rss" (default) or "system"."""
        as_json: bool
        """JSON instead of text for "outputs"."""
        within: int | None
        """Memory in bytes for all actions of "outputs"; `None`: limit of the run or its machine."""
        from_zero: bool
        """Subtract the first sample for "monitor-log"."""


_NUMPY_ROOM = 112 << 20
"""Address space for numpy and its arrays, in bytes."""

_DRAWING_ROOM = 128 << 20
"""Address space for matplotlib and a picture, in bytes."""


if TYPE_CHECKING:

    class Renderer(Protocol):
        """Function `render` of a report's module."""

        def __call__(self, run: RecordedRun, out: BinaryIO, options: Options) -> None:
            """Write the whole report to `out`. Raises `MemwatchError` for errors that a user can fix."""


class Report(NamedTuple):
    """Row of `REPORTS`."""

    name: str
    help: str
    suffix: str
    """Usual suffix of its files."""
    module: str
    """Name of its module; a leading dot means below this package."""
    exported: bool = False
    """Format for other programs, offered by `export --to` instead of `report --format`."""
    binary: bool = False
    """Never written to a terminal."""
    drawn: bool = False
    """Needs matplotlib."""
    directory: str = ""
    """Default directory for `write_files`; empty if the report is one file."""
    options: Options | None = None
    """Options that select this report if its module makes several."""


_ROWS = (
    Report("text", "Full report: memory, operations, processes.", ".txt", ".text_report"),
    Report("summary", "The lines at the end of wrap.", ".txt", ".summary"),
    Report("markdown", "Summary for CI, in GitHub's Markdown.", ".md", ".markdown_summary"),
    Report(
        "outputs",
        "Largest actions of a build by output file, and the -j that fits.",
        ".txt",
        ".build_report",
    ),
    Report("html", "Page for any browser, one file, works offline.", ".html", ".html", binary=True),
    Report("verdict", "The line of JSON at the end of wrap --summary json.", ".json", ".verdict"),
    Report("json", "Figures as JSON, schema 1 (stable).", ".json", ".json", exported=True),
    Report(
        "plot", "Memory, CPU, I/O, GPU and operations over time.", ".png", ".plot", binary=True, drawn=True
    ),
    Report("csv", "One row per sample, one column per metric.", ".csv", ".csv", exported=True),
    Report(
        "snakemake-benchmark",
        "Row of a Snakemake benchmark file, with the memory needed.",
        ".tsv",
        "otel_memwatch.wings.engines.snakemake",
        exported=True,
    ),
    Report(
        "nextflow-trace",
        "Nextflow's trace of a task (.command.trace).",
        ".trace",
        "otel_memwatch.wings.engines.nextflow",
        exported=True,
    ),
    Report(
        "otlp",
        "Metrics as OTLP JSON lines, like the file exporter.",
        ".jsonl",
        ".otlp",
        exported=True,
    ),
    Report(
        "otlp-traces",
        "Spans as OTLP JSON lines.",
        ".jsonl",
        ".otlp",
        exported=True,
        options={"signal": "traces"},
    ),
    Report(
        "openmetrics",
        "For promtool tsdb create-blocks-from openmetrics.",
        ".om",
        ".prometheus_text",
        exported=True,
    ),
    Report(
        "metrics",
        "Final figures as OpenMetrics, for GitLab's metrics reports.",
        ".txt",
        ".prometheus_text",
        options={"at_end": True},
    ),
    Report(
        "otlp-profiles",
        "Stacks of --stacks as OTLP profiles, JSON lines.",
        ".jsonl",
        ".otlp",
        exported=True,
        options={"signal": "profiles"},
    ),
    Report("folded", "Stacks of --stacks for flamegraph.pl.", ".txt", ".profiles.folded", exported=True),
    Report(
        "speedscope", "Stacks of --stacks for speedscope.app.", ".json", ".profiles.speedscope", exported=True
    ),
    Report(
        "pprof",
        "Stacks of --stacks for pprof.",
        ".pb.gz",
        ".profiles.pprof",
        exported=True,
        binary=True,
    ),
    Report(
        "gperftools", "Stacks of --stacks for google-pprof.", ".heap", ".profiles.gperftools", exported=True
    ),
    Report("perfetto", "Trace events for ui.perfetto.dev.", ".json", ".perfetto", exported=True),
    Report(
        "parquet", "One row per sample; requires pyarrow.", ".parquet", ".parquet", exported=True, binary=True
    ),
    # the formats of older tools
    Report(
        "qefficient",
        "Peaks, statistics and phases in QEfficient's format.",
        ".txt",
        "otel_memwatch.compat.qefficient.phases.phase_report",
    ),
    Report(
        "phases",
        "Four panels over the phases in QEfficient's format.",
        ".png",
        "otel_memwatch.compat.qefficient.phases.figure",
        binary=True,
        drawn=True,
    ),
    Report(
        "monitor-log",
        "Memory logs and plots in the format of NNCF's monitor (eight files).",
        ".txt",
        "otel_memwatch.compat.nncf.monitor_log",
        exported=True,
        drawn=True,
        directory="memory_logs",
    ),
)

REPORTS: dict[str, Report] = {row.name: row for row in _ROWS}
"""Reports by name."""


def need_numpy(*, drawing: bool = False) -> None:
    """Raise `Unavailable` if the limit on address space is too low for numpy, or with `drawing` for a picture.

    Without memory OpenBLAS kills the process or retries for ever.
    """
    loaded = "numpy" in sys.modules
    need((0 if loaded else _NUMPY_ROOM) + (_DRAWING_ROOM if drawing else 0))


_PICTURES = ("png", "pdf", "svg")


def picture_format(options: Options) -> str:
    """Return the picture format of `options["suffix"]`, default PNG. Raises `UsageError`."""
    form = str(options.get("suffix") or ".png").removeprefix(".")
    if form not in _PICTURES:
        raise UsageError(
            f"Plots cannot be written as {form!r}.", f"use a file name that ends in .{', .'.join(_PICTURES)}"
        )
    return form


def renderer(name: str) -> Renderer:
    """Return the function for the report `name`. Raises `UsageError` if it is unknown."""
    if name not in REPORTS:
        raise UsageError(f"Unknown report {name!r}.", "available: " + ", ".join(REPORTS))
    if REPORTS[name].drawn:
        need_numpy(drawing=True)
    render: Renderer = _module(name).render
    return render


def _module(name: str) -> Any:
    module = REPORTS[name].module
    return load_module(__name__ + module if module.startswith(".") else module)


def render(name: str, run: RecordedRun, out: BinaryIO, **options: Unpack[Options]) -> None:
    """Write the report `name` of `run` to a binary stream."""
    renderer(name)(run, out, {**options, **(REPORTS[name].options or {})})


def write(
    name: str,
    run: RecordedRun,
    path: str | os.PathLike[str],
    *,
    force: bool = True,
    **options: Unpack[Options],
) -> Path:
    """Write the report `name` of `run` to a file atomically, and return its path.

    An existing file is replaced; with `force=False` it is kept and `UsageError` is raised. In the run directory only the
    owner can read the file; elsewhere the umask applies. Devices and named pipes are written to directly.
    """
    make = renderer(name)
    from pathlib import Path

    from otel_memwatch.reports.atomic_file import destination

    target = Path(path)
    options.setdefault("suffix", target.suffix.lower())
    with destination(target, run.path, force=force) as out:
        make(run, out, {**options, **(REPORTS[name].options or {})})
    return target


def clear_away(path: str) -> None:
    """Remove temporary files of a `write` to this file that was killed. Raises nothing."""
    with suppress(OSError):
        directory, own = os.path.split(path)
        for name in os.listdir(directory):
            if name.startswith(f".{own[:200]}.") and name.endswith(UNFINISHED):
                os.unlink(f"{directory}/{name}")


def write_data(data: bytes, path: Path, *, force: bool = False) -> str:
    """Write the bytes of a report atomically, and return the path. Raises like `write`."""
    from otel_memwatch.reports.atomic_file import destination

    with destination(path, path.parent / "-", force=force) as out:
        out.write(data)
    return str(path)


def write_files(name: str, run: RecordedRun, directory: str | os.PathLike[str]) -> Path:
    """Write a report of several files into a directory, and return its path.

    Its module has `render_files(run, directory)`. Existing files are replaced.
    """
    from pathlib import Path

    target = Path(directory)
    if REPORTS[name].drawn:
        need_numpy(drawing=True)
    _module(name).render_files(run, target)
    return target
