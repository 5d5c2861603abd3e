"""Two-column logs of memory over time with a plot each: `{rss,system}_memory_usage{,_from-zero}.{txt,png}`.

The text has one line `<seconds> <memory>` for each sample, then `Total time: ...` and `Max memory: ... (<unit>)`.
Memory "rss" is the resident memory of the process tree, and "system" is the unavailable memory of the machine.
"""

from __future__ import annotations

import re
from pathlib import Path

from otel_memwatch.compat.shared_recording import regular_samples
from otel_memwatch.errors import RunError
from otel_memwatch.model import Certainty
from otel_memwatch.record.format import DIRECTORY_MODE, FILE_MODE
from otel_memwatch.record.schema import FIELDS
from otel_memwatch.runtime.typed import TYPE_CHECKING, NamedTuple
from otel_memwatch.runtime.user_files import write_file

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any, BinaryIO

    from matplotlib.figure import Figure

    from otel_memwatch.reports import Options
    from otel_memwatch.run import RecordedRun

UNITS: dict[str, int] = {
    "B": 1,
    "KiB": 2**10,
    "MiB": 2**20,
    "GiB": 2**30,
    "KB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
}
"""Bytes in each unit."""

KINDS = ("rss", "system")
FROM_ZERO = "_from-zero"

EMPTY = "No measurements recorded.\nPlease make sure logging duration or interval were enough."
"""Text of a log without samples."""


class Log(NamedTuple):
    """Content of a log file."""

    times: list[float]
    """Seconds since the first sample."""
    memory: list[float]
    """In `unit`."""
    total_time: float
    maximum: float
    unit: str


class MemoryCurve(NamedTuple):
    """Memory over time for a log."""

    times: Sequence[float]
    """Seconds; any origin."""
    memory: Sequence[float]
    """Bytes."""


def values(
    curve: MemoryCurve, unit: str = "MiB", *, from_zero: bool = False
) -> tuple[list[float], list[float]]:
    """Return seconds since the first sample and memory in `unit`; with `from_zero` relative to the first sample."""
    if not len(curve.times):
        return [], []
    start, base = curve.times[0], curve.memory[0] if from_zero else 0.0
    # The first time has always been written as "0", without a decimal point.
    return [0, *(float(time) - start for time in curve.times[1:])], [
        (value - base) / UNITS[unit] for value in curve.memory
    ]


def text(times: Sequence[float], memory: Sequence[float], unit: str) -> str:
    """Return the content of a log file."""
    if not times:
        return EMPTY
    lines = [f"{time} {value:.3f}\n" for time, value in zip(times, memory, strict=True)]
    lines.append(f"Total time: {times[-1] - times[0]}\nMax memory: {max(memory):.3f} ({unit})")
    return "".join(lines)


def parse(content: str) -> Log:
    """Parse the output of `text`. Raises `RunError` for other text, or without samples."""
    if content.startswith(EMPTY.splitlines()[0]):
        raise RunError("The log contains no measurements.", "the recording was shorter than one interval")
    tail = re.search(r"^Total time: (\S+)\nMax memory: (\S+) \((\w+)\)\s*\Z", content, re.MULTILINE)
    try:
        if tail is None:
            raise ValueError  # noqa: TRY301 - one sentence for all that is no log
        pairs = [line.split() for line in content[: tail.start()].splitlines()]
        times, memory = [float(time) for time, _ in pairs], [float(value) for _, value in pairs]
        return Log(times, memory, float(tail[1]), float(tail[2]), tail[3])
    except ValueError:
        raise RunError(
            "This is not a memory log.", "its last lines are 'Total time: ...' and 'Max memory: ...'"
        ) from None


def figure(log: Log, kind: str, title: str = "") -> Figure:
    """Return the plot of a log, 1000 x 600 pixels. Does not change global state of matplotlib."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    drawn = Figure(figsize=(10, 6), dpi=100)
    FigureCanvasAgg(drawn)
    axes = drawn.add_subplot()
    axes.plot(*_thinned(log.times, log.memory))
    axes.set_xlabel("Time (seconds)")
    axes.set_ylabel(f"Memory Usage ({kind}, {log.unit})")
    axes.set_title(f"{title} Max_{kind}: {max(log.memory):.2f} {log.unit}")
    axes.grid(visible=True)
    drawn.tight_layout()
    return drawn


_POINTS = 4000
"""Maximum number of points of a line, because the picture is 1000 pixels wide."""


def _thinned(times: Sequence[float], memory: Sequence[float]) -> tuple[Sequence[float], Sequence[float]]:
    """Return all values; if there are too many to draw, the smallest and largest value of each section."""
    step = -(-len(times) // (_POINTS // 2))
    if step <= 2:
        return times, memory
    kept: list[int] = []
    for start in range(0, len(times), step):
        stretch = range(start, min(start + step, len(times)))
        kept += sorted({min(stretch, key=memory.__getitem__), max(stretch, key=memory.__getitem__)})
    return [times[i] for i in kept], [memory[i] for i in kept]


def plot(log_file: Path, image: Path, title: str = "") -> None:
    """Draw a log file. Raises `RunError` if it is not a log or is empty."""
    kind = log_file.name.split("_", 1)[0]
    figure(parse(log_file.read_text(encoding="utf-8")), kind, title).savefig(image, format="png", dpi=100)


def main(_arguments: list[str]) -> None:
    """Draw a log in a worker process; the job names the `log`, its `image` and its `title`."""
    from otel_memwatch.runtime.worker import serve

    serve(lambda job, _: plot(Path(job["log"]), Path(job["image"]), job["title"]))


def log_name(kind: str, suffix: str = "") -> str:
    """Return the name of a log file."""
    return f"{kind}_memory_usage{suffix}.txt"


def write_text(path: Path, times: Sequence[float], memory: Sequence[float], unit: str) -> Path:
    """Write one log file and return its path. Creates the directory if necessary."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_file(path, text(times, memory, unit).encode())
    return path


def write(
    directory: Path, curves: Mapping[str, MemoryCurve], unit: str = "MiB"
) -> dict[tuple[str, bool], float | None]:
    """Write a text and a plot for each kind, both from zero and absolute.

    Returns the maximum of each in `unit`, by kind and from-zero, in the order of the summary. Without samples the
    maximum is `None`, and no plot is written.
    """
    maxima: dict[tuple[str, bool], float | None] = {}
    for kind in KINDS:
        for from_zero in (True, False):
            times, memory = values(curves[kind], unit, from_zero=from_zero)
            name = log_name(kind, FROM_ZERO if from_zero else "")
            path = directory / name
            for file in (path, path.with_suffix(".png")) if times else (path,):
                # Only the owner may read new files. Existing ones keep their permissions.
                file.parent.mkdir(mode=DIRECTORY_MODE, parents=True, exist_ok=True)
                write_file(file, b"", append=True, mode=FILE_MODE)
            write_text(path, times, memory, unit)
            if times:
                plot(path, path.with_suffix(".png"))
            maxima[kind, from_zero] = max(memory, default=None)
    return maxima


def summary(maxima: Mapping[tuple[str, bool], float | None], unit: str = "MiB") -> str:
    """Return the table of maxima with its heading."""
    rows = [("Memory type", "From zero", "Peak value")]
    rows += [
        (kind, str(from_zero), "not known" if value is None else f"{int(value)} {unit}")
        for (kind, from_zero), value in maxima.items()
    ]
    # A header is at least two characters wider than its text, because users parse such tables.
    widths = [max(len(rows[0][i]) + 2, *(len(row[i]) for row in rows)) for i in range(3)]
    rows.insert(1, ("-" * widths[0], "-" * widths[1], "-" * widths[2]))
    lines = [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    ]
    return "\nMemory summary:\n" + "\n".join(lines)


_METRICS = tuple(FIELDS[field][0] for field in ("rss", "system"))


def curves_of(run: RecordedRun) -> dict[str, MemoryCurve]:
    """Return both kinds of memory of a run.

    The first sample of a wrapped command is zero. If the tree's peak exceeds all samples, it is an additional sample at
    its known time.
    """
    samples = run.samples(_METRICS)
    # A process that is ending has no memory any more, and a sample after the command's end has no process.
    alive = samples.field("rss") > 0
    rss = _known_points(samples.time[alive], samples.field("rss")[alive], run.interval)
    peak = run.peaks.tree
    if run.mode == "wrap" and run.state != "running" and (not rss or rss[0][0] > 0):
        rss.insert(0, (0.0, 0.0))
    known = 0 if peak is None else (peak.low or 0) if peak.certainty is Certainty.CENSORED else peak.bytes
    if rss and peak is not None and known > max(memory for _, memory in rss):
        largest = max(range(len(rss)), key=lambda i: rss[i][1])
        at = rss[largest][0] if peak.at is None else max(rss[0][0], peak.at)
        # If no sample saw the command, only its end is known.
        rss.append((at or run.seconds, float(known)))
        rss.sort(key=lambda point: point[0])
    system = _known_points(samples.time, samples.field("system"), run.interval)
    return {"rss": _curve(rss), "system": _curve(system)}


def _known_points(time: Any, memory: Any, interval: float | None) -> list[tuple[float, float]]:
    chosen = regular_samples(time, memory, interval)
    pairs = zip(time[chosen].tolist(), memory[chosen].tolist(), strict=True)
    return [(moment, value) for moment, value in pairs if value == value]  # noqa: PLR0124 - NaN is unknown


def _curve(points: list[tuple[float, float]]) -> MemoryCurve:
    return MemoryCurve([time for time, _ in points], [memory for _, memory in points])


def render(run: RecordedRun, out: BinaryIO, options: Options) -> None:
    """Write one log. `options["memory_type"]` is "rss" (the default) or "system"."""
    kind = options.get("memory_type") or KINDS[0]
    times, memory = values(curves_of(run)[kind], from_zero=bool(options.get("from_zero")))
    out.write(text(times, memory, "MiB").encode())


def render_files(run: RecordedRun, directory: Path) -> None:
    """Write all eight files into a directory, which is created if necessary. Raises `RunError` if that fails."""
    try:
        write(directory, curves_of(run))
    except OSError as error:
        raise RunError(f"{error.filename or directory} cannot be written: {error.strerror}.") from None
