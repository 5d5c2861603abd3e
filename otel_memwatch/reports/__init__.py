"""Outputs that are made from a recorded run, listed in `REPORTS`: each in a module of its name, or with a similar one.

A report's module has `render(run, out, options)`: it writes to the binary stream `out` and to nothing else.
Files are opened, kept from being overwritten, put in place whole and cleared away after a failure here.
"""

from __future__ import annotations

import contextlib
import os
import stat
import sys
from collections.abc import Iterator, Sequence
from importlib import import_module
from pathlib import Path

from otel_memwatch.errors import RunError, UsageError
from otel_memwatch.record.format import FILE_MODE, UNFINISHED
from otel_memwatch.runtime.address_space import need
from otel_memwatch.runtime.typed import TYPE_CHECKING, BinaryIO, NamedTuple, Protocol

if TYPE_CHECKING:
    from typing import TypedDict

    from typing_extensions import Unpack

    from otel_memwatch.run import RecordedRun
    from otel_memwatch.runtime.terminal import Display

    class Options(TypedDict, total=False):
        """What a report may be told beside the run; each takes what it knows and ignores the rest."""

        encoding: str
        """Of "text"; UTF-8 by default."""
        display: Display
        """Of "text" and "summary": the terminal that they are written for; `terminal.FILE` by default."""
        indent: int | None
        """Blanks of each level of "json"; `None`: all in one line. 2 by default."""
        suffix: str
        """Ending of the file, which decides the format of a picture: ".png" (the default), ".pdf" or ".svg"."""
        style: str
        """Of "plot"; there is one: "memory"."""
        dark: bool
        """Of "plot": light lines on dark paper."""
        size: tuple[float, float | None] | None
        """Of "plot": inches of its width and height; a height of `None` is what its content takes."""
        dpi: int | None
        """Of "plot": dots per inch of a PNG; 150 by default."""
        title: str | None
        """Of "plot": instead of the command."""
        begin: float | None
        """Of "plot": seconds since the start of the run from which on it is drawn."""
        end: float | None
        """Of "plot": seconds up to which it is drawn."""
        others: Sequence[RecordedRun]
        """Of "plot": further runs in the same picture."""
        signal: str
        """Of "otlp": "metrics" (the default) or "traces"."""
        at_end: bool
        """Of "openmetrics": only the figures at the end."""
        memory_type: str
        """Of "monitor-log": "rss" (the default) or "system"."""
        as_json: bool
        """Of "outputs": JSON instead of text."""
        within: int | None
        """Of "outputs": bytes that actions at once have to fit into; `None`: the limit of the run, or its machine."""
        from_zero: bool
        """Of "monitor-log": less the first sample."""


_NUMPY_ROOM = 112 << 20
"""Bytes of address space that numpy takes, and what is made with it."""

_DRAWING_ROOM = 128 << 20
"""Bytes that matplotlib takes, and a picture."""


class Renderer(Protocol):
    """The function `render` of a report's module."""

    def __call__(self, run: RecordedRun, out: BinaryIO, options: Options) -> None:
        """Writes the whole report to `out`. Raises `MemwatchError` for what a person can change."""


class Report(NamedTuple):
    """One output."""

    name: str
    help: str
    suffix: str
    """Usual ending of its files."""
    module: str
    """Name of its module: below this package with a leading dot, else in full, as of the formats of older tools."""
    exported: bool = False
    """A format for other programs: offered by `export --to`, not by `report --format`."""
    binary: bool = False
    """Not text: never written to a terminal."""
    drawn: bool = False
    """Needs matplotlib."""
    directory: str = ""
    """Name of the directory that `write_files` makes by default; empty: the report is one file."""
    options: Options | None = None
    """What its module is always told, where it makes several reports."""


_ROWS = (
    Report("text", "The whole story for a person: memory, operations, processes.", ".txt", ".text"),
    Report("summary", "The few lines that stand at the end of wrap.", ".txt", ".summary"),
    Report("markdown", "The summary for a page in CI: tables of GitHub's Markdown.", ".md", ".markdown"),
    Report(
        "outputs",
        "The largest actions of a build by what they made, and the -j that fits.",
        ".txt",
        ".build_report",
    ),
    Report("html", "The page: one file that opens in any browser, offline.", ".html", ".html", binary=True),
    Report("json", "The figures as JSON, schema 1: a contract.", ".json", ".json", exported=True),
    Report(
        "plot", "Memory, CPU, I/O, GPU and operations over time.", ".png", ".plot", binary=True, drawn=True
    ),
    Report("csv", "Every tick as one row, every metric as one column.", ".csv", ".csv", exported=True),
    Report(
        "snakemake-benchmark",
        "A row of Snakemake's benchmark files, from exact figures.",
        ".tsv",
        "otel_memwatch.wings.engines.snakemake_benchmark",
        exported=True,
    ),
    Report(
        "nextflow-trace",
        "The trace that Nextflow keeps of a task (.command.trace), from exact figures.",
        ".trace",
        "otel_memwatch.wings.engines.nextflow_trace",
        exported=True,
    ),
    Report(
        "otlp",
        "Metrics as OTLP JSON lines, as the file exporter writes them.",
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
        "The figures at the end as OpenMetrics, for GitLab's metrics reports.",
        ".txt",
        ".prometheus_text",
        options={"at_end": True},
    ),
    Report("perfetto", "Trace events for ui.perfetto.dev.", ".json", ".perfetto", exported=True),
    Report(
        "parquet", "Every tick as one row; needs pyarrow.", ".parquet", ".parquet", exported=True, binary=True
    ),
    # the formats of older tools
    Report(
        "qefficient",
        "Peaks, statistics and the phases in their order, as QEfficient's profiler.",
        ".txt",
        "otel_memwatch.compat.qefficient.phases.text",
    ),
    Report(
        "phases",
        "Four panels over the phases, as QEfficient's profiler.",
        ".png",
        "otel_memwatch.compat.qefficient.phases.figure",
        binary=True,
        drawn=True,
    ),
    Report(
        "monitor-log",
        "Memory logs and plots as NNCF's monitor, eight files in a directory.",
        ".txt",
        "otel_memwatch.compat.nncf.monitor_log",
        exported=True,
        drawn=True,
        directory="memory_logs",
    ),
)

REPORTS: dict[str, Report] = {row.name: row for row in _ROWS}
"""Every output by its name."""


def need_numpy(*, drawing: bool = False) -> None:
    """Raises `Unavailable` where the address space is limited to less than numpy takes, with `drawing` a picture too.

    OpenBLAS ends the process where it gets no memory, or tries for ever.
    """
    loaded = "numpy" in sys.modules
    need((0 if loaded else _NUMPY_ROOM) + (_DRAWING_ROOM if drawing else 0))


_PICTURES = ("png", "pdf", "svg")


def picture_format(options: Options) -> str:
    """In which format a picture is written: that of `options["suffix"]`, PNG without one. Raises `UsageError`."""
    form = str(options.get("suffix") or ".png").removeprefix(".")
    if form not in _PICTURES:
        raise UsageError(
            f"A plot cannot be written as {form!r}.", f"its file ends in .{', .'.join(_PICTURES)}"
        )
    return form


def renderer(name: str) -> Renderer:
    """The function that makes the report `name`. Raises `UsageError` when there is none of that name."""
    if name not in REPORTS:
        raise UsageError(f"There is no report {name!r}.", "there are " + ", ".join(REPORTS))
    if REPORTS[name].drawn:
        need_numpy(drawing=True)
    render: Renderer = import_module(REPORTS[name].module, __name__).render
    return render


def render(name: str, run: RecordedRun, out: BinaryIO, **options: Unpack[Options]) -> None:
    """Writes the report `name` of `run` to a binary stream."""
    renderer(name)(run, out, {**options, **(REPORTS[name].options or {})})


def write(
    name: str,
    run: RecordedRun,
    path: str | os.PathLike[str],
    *,
    force: bool = True,
    **options: Unpack[Options],
) -> Path:
    """Writes the report `name` of `run` to a file, whole or not at all, and gives its path.

    An existing file is replaced; with `force=False` it is kept and `UsageError` is raised. In the run directory
    the file is for its owner alone, as all files there; elsewhere the umask decides. What is no regular file,
    as /dev/stdout or a named pipe, is written to directly.
    """
    make = renderer(name)
    target = Path(path)
    options.setdefault("suffix", target.suffix.lower())
    with _destination(target, run.path, force=force) as out:
        make(run, out, {**options, **(REPORTS[name].options or {})})
    return target


def clear_away(path: Path) -> None:
    """Removes what is left of a `write` to this file whose process has died. Raises nothing."""
    with contextlib.suppress(OSError):
        for name in os.listdir(path.parent):
            if name.startswith(f".{path.name[:200]}.") and name.endswith(UNFINISHED):
                path.with_name(name).unlink()


def write_data(data: bytes, path: Path, *, force: bool = False) -> str:
    """Writes what a report has made, whole or not at all; gives the path, for a message. Raises as `write`."""
    with _destination(path, path.parent / "-", force=force) as out:
        out.write(data)
    return str(path)


def write_files(name: str, run: RecordedRun, directory: str | os.PathLike[str]) -> Path:
    """Writes the files of a report that has several into a directory, and gives its path.

    Its module has `render_files(run, directory)`. Files of earlier times are replaced.
    """
    target = Path(directory)
    if REPORTS[name].drawn:
        need_numpy(drawing=True)
    import_module(REPORTS[name].module, __name__).render_files(run, target)
    return target


@contextlib.contextmanager
def _destination(path: Path, run_directory: Path, *, force: bool) -> Iterator[BinaryIO]:
    try:
        with _opened(path, run_directory, force=force) as out:
            yield out
    except BrokenPipeError:
        raise
    except OSError as error:
        raise RunError(f"{path} cannot be written: {error.strerror or error}.") from None


@contextlib.contextmanager
def _opened(path: Path, run_directory: Path, *, force: bool) -> Iterator[BinaryIO]:
    kind = _kind(path)
    if kind is not None and stat.S_ISDIR(kind):
        raise UsageError(f"{path} is a directory.", "name a file in it")
    if kind is not None and not stat.S_ISREG(kind):
        with path.open("wb") as out:
            yield out
        return
    if kind is not None and not force:
        raise _exists(path)
    # A symbolic link stays: what it leads to is replaced.
    real = Path(os.path.realpath(path))
    mode = FILE_MODE if real.parent == Path(os.path.realpath(run_directory)) else 0o666
    temporary = real.with_name(f".{real.name[:200]}.{os.urandom(4).hex()}{UNFINISHED}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    try:
        with os.fdopen(descriptor, "wb") as out:
            yield out
        _move(temporary, real, force=force)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise


def _kind(path: Path) -> int | None:
    try:
        return path.stat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        return None


def _move(temporary: Path, target: Path, *, force: bool) -> None:
    if force:
        temporary.replace(target)
        return
    try:
        # Unlike a rename, a link never replaces what somebody else has put there in the meantime.
        os.link(temporary, target)
    except FileExistsError:
        raise _exists(target) from None
    except OSError:
        # This file system has no links.
        temporary.replace(target)
        return
    temporary.unlink()


def _exists(path: Path) -> UsageError:
    return UsageError(f"{path} exists already.", "give --force to replace it")
