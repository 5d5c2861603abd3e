"""Trade-off between accuracy and footprint of compressed models: a Markdown table and a plot from a CSV file.

The input has one row for each variant of a model, and the columns of `REQUIRED`. The row with the mode "fp32" is
the baseline, at any position. The footprint of a row is its model's size, or the measured peak of a run.
"""

from __future__ import annotations

import csv
import io
import math
from pathlib import Path

from otel_memwatch.errors import RunError, UsageError
from otel_memwatch.model import Peak
from otel_memwatch.runtime.typed import TYPE_CHECKING, NamedTuple
from otel_memwatch.runtime.user_files import read_file
from otel_memwatch.truth.estimates import middle_of_runs

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Mapping, Sequence

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


MODE, INT4, INT8, RANK, NAME = "mode", "%int4", "%int8", "lora rank", "plot name"
SIZE = "model size, Gb"
WIKITEXT, ACCURACY, PERPLEXITY = (
    "wikitext, word perplexity",
    "lambada-openai, acc",
    "lambada-openai, perplexity",
)
SIMILARITY = "WWB, similarity"
RUN = "run"

REQUIRED = (MODE, INT4, INT8, RANK, NAME, SIZE, WIKITEXT, ACCURACY, PERPLEXITY, SIMILARITY)
"""Required columns; with measured footprints, `run` replaces the model's size."""

MODE_WORDS = ("gptq", "int4", "fp32")
"""Words that must each occur in at least one row's mode."""

_ABSENT = {"", "nan", "na", "n/a", "null", "none", "<na>", "#n/a"}


class TradeoffError(UsageError, RuntimeError):
    """Invalid input file; also a `RuntimeError`, which older callers catch."""


class TradeoffFileError(TradeoffError, OSError):
    """File that cannot be read or written; also an `OSError` with `errno` and `filename`, like NNCF's script raises."""

    def __init__(self, error: OSError, path: str | os.PathLike[str], failed: str) -> None:
        super().__init__(f"{path} cannot be {failed}: {error.strerror}.")
        self.errno, self.strerror, self.filename = error.errno, error.strerror, str(path)


class Row(NamedTuple):
    """One variant of the model."""

    mode: str
    int4: float
    """Share of the layers in int4, 0 to 1."""
    int8: float
    rank: float | None
    """Rank of the adapters; `None`: no adapters."""
    name: str
    """Annotation in the plot; may be empty."""
    footprint: float
    """Gb as in the file, or bytes if measured."""
    peak: Peak | None
    """Measured peak, if the footprint is one."""
    wikitext: float
    accuracy: float
    perplexity: float
    similarity: float


class Variant(NamedTuple):
    """Row compared with the baseline."""

    row: Row
    error: float
    """Mean of four relative errors; 0.01 stands for one percent."""
    rate: float
    """Baseline's footprint divided by this one."""
    low: float
    """Lower bound of the rate, from the bounds of both peaks."""
    high: float
    """Upper bound; may be infinite."""


class Tradeoff(NamedTuple):
    """All variants in ascending order of error."""

    model: str
    """First value of the first column."""
    measured: bool
    """True if footprints are measured peaks."""
    variants: tuple[Variant, ...]


def read(path: str | os.PathLike[str], *, measured: bool = False) -> Tradeoff:
    """Read a file and compare each row with the baseline.

    With `measured`, the footprint is the peak of the run directory in the column `run`, relative to the file. Raises
    `TradeoffError` with one sentence that names the file, and the line if one line is at fault.
    """
    path = Path(path)
    header, records = _records(path)
    required = tuple(RUN if measured and column == SIZE else column for column in REQUIRED)
    missing = [column for column in required if column not in header]
    if missing:
        raise TradeoffError(f"The following columns are missing: {missing}", str(path))
    absent = [word for word in MODE_WORDS if not any(word in record[MODE] for _, record in records)]
    if absent:
        words = (
            f"The `{MODE}` column must have at least one entry that includes the following words: {absent}"
        )
        raise TradeoffError(words, str(path))
    rows = [_row(path, line, record, measured=measured) for line, record in records]
    named = [row for row in rows if row.mode == "fp32"] or [row for row in rows if "fp32" in row.mode]
    if len(named) > 1:
        raise TradeoffError(
            f"{path} has {len(named)} rows of the mode {named[0].mode!r}: which one is the baseline?"
        )
    base = named[0]
    if base.accuracy == 0:
        raise TradeoffError(f"{path}: the accuracy of the fp32 row is 0, nothing can be set against it.")
    return Tradeoff(records[0][1][header[0]], measured, _compare(rows, base))


def _records(path: Path) -> tuple[list[str], list[tuple[int, Mapping[str, str]]]]:
    """Return the header, and the rows with their line numbers."""
    try:
        text = read_file(path, pipe=True).decode("utf-8-sig")
        lines = csv.reader(io.StringIO(text, newline=""), strict=True)
        header = next(lines, [])
        records = [
            (lines.line_num, _record(path, lines.line_num, header, cells)) for cells in lines if any(cells)
        ]
    except OSError as error:
        raise TradeoffFileError(error, path, "read") from None
    except UnicodeDecodeError:
        raise TradeoffError(f"{path} is not a text file in UTF-8.") from None
    except ValueError as error:  # a name that no file can have
        raise TradeoffError(f"{str(path)!r} cannot be read: {error}.") from None
    except csv.Error as error:
        raise TradeoffError(f"{path} is not a CSV file: {error}.") from None
    if not header:
        raise TradeoffError(
            f"{path} is empty.", "it needs a line of column names and a line for each variant"
        )
    repeated = sorted({column for column in header if column in REQUIRED and header.count(column) > 1})
    if repeated:
        raise TradeoffError(f"{path} has the column {repeated[0]!r} more than once.")
    return header, records


def _record(path: Path, line: int, header: Sequence[str], cells: Sequence[str]) -> Mapping[str, str]:
    if len(cells) != len(header):
        raise TradeoffError(f"{path}, line {line}: {len(cells)} fields where the header has {len(header)}.")
    return dict(zip(header, (cell.strip() for cell in cells), strict=True))


def _row(path: Path, line: int, record: Mapping[str, str], *, measured: bool) -> Row:
    def number(column: str, accept: Callable[[float], bool], expected: str) -> float:
        text = record[column]
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not math.isfinite(value) or not accept(value):
            raise TradeoffError(f"{path}, line {line}: {column!r} is {text!r}, which is not {expected}.")
        return value

    if record[MODE].lower() in _ABSENT:
        raise TradeoffError(f"{path}, line {line}: {MODE!r} is empty.")
    share = (lambda value: 0 <= value <= 1), "a share between 0 and 1"
    positive = (lambda value: value > 0), "a number above 0"
    peak = _measured_peak(path, line, record[RUN]) if measured else None
    return Row(
        mode=record[MODE],
        int4=number(INT4, *share),
        int8=number(INT8, *share),
        rank=None if record[RANK].lower() in _ABSENT else number(RANK, *positive),
        name="" if record[NAME].lower() in _ABSENT else record[NAME],
        footprint=number(SIZE, *positive) if peak is None else float(peak.bytes),
        peak=peak,
        wikitext=number(WIKITEXT, *positive),
        accuracy=number(ACCURACY, lambda value: 0 <= value <= 1, "an accuracy between 0 and 1"),
        perplexity=number(PERPLEXITY, *positive),
        similarity=number(SIMILARITY, lambda value: abs(value) <= 1, "a similarity of at most 1"),
    )


def _measured_peak(path: Path, line: int, name: str) -> Peak:
    if name.lower() in _ABSENT:
        raise TradeoffError(
            f"{path}, line {line}: {RUN!r} is empty.", "it names the run directory of this variant"
        )
    # Only a table of measured footprints needs the reader of runs.
    from otel_memwatch.wings.index.run_search import run_directories

    named = [path.parent / part.strip() for part in name.split(";") if part.strip()]
    try:
        runs = [Path(found) for one in named for found in run_directories(str(one)) or [str(one)]]
        peaks = [_peak_of(path, line, run) for run in runs]
    except RunError as error:
        raise TradeoffError(f"{path}, line {line}: {error.message}", error.hint) from None
    if len(peaks) == 1:
        return peaks[0]
    # Several runs of one variant: their median, between the lowest and highest bound of all.
    ends = [ceiling(peak) for peak in peaks]
    high = None if math.inf in ends else round(max(ends))
    low = round(min(floor(peak) for peak in peaks))
    return middle_of_runs([peak.bytes for peak in peaks], low, high)


def _peak_of(path: Path, line: int, run: Path) -> Peak:
    from otel_memwatch.run import load

    peaks = load(run).peaks
    peak: Peak | None = peaks.tree or peaks.cgroup
    if peak is None or peak.bytes <= 0:
        raise TradeoffError(
            f"{path}, line {line}: the run {run.name!r} has no peak.", "it ended before its first sample"
        )
    return peak


def _compare(rows: Sequence[Row], base: Row) -> tuple[Variant, ...]:
    def variant(row: Row) -> Variant:
        error = (
            (base.accuracy - row.accuracy) / base.accuracy
            + (row.perplexity - base.perplexity) / base.perplexity
            + (1 - row.similarity)
            + (row.wikitext - base.wikitext) / base.wikitext
        ) / 4
        rate = base.footprint / row.footprint
        if row is base or base.peak is None or row.peak is None:
            return Variant(row, error, rate, rate, rate)
        return Variant(
            row, error, rate, floor(base.peak) / ceiling(row.peak), ceiling(base.peak) / floor(row.peak)
        )

    return tuple(sorted(map(variant, rows), key=lambda variant: variant.error))


def floor(peak: Peak) -> float:
    """Return the lower bound of a peak in bytes."""
    return float(peak.low or peak.bytes)


def ceiling(peak: Peak) -> float:
    """Return the upper bound of a peak in bytes; may be infinite."""
    return math.inf if peak.high is None else float(peak.high)


def markdown(tradeoff: Tradeoff) -> str:
    """Return the table without a final newline; columns are as wide as their widest cell."""
    # Ranks are aligned at the decimal point, and at the right if there is one.
    texts = ["" if one.row.rank is None else f"{one.row.rank:g}" for one in tradeoff.variants]
    tails = [len(text) - text.index(".") if "." in text else 0 for text in texts]
    widest = max(tails, default=0)
    ranks = [text + " " * (widest - tail) if text else "" for text, tail in zip(texts, tails, strict=True)]
    columns: list[tuple[str, list[str], bool]] = [
        ("mode", [variant.row.mode.replace("|", "\\|") for variant in tradeoff.variants], False),
        ("%int4", [f"{variant.row.int4 * 100:.0f}%" for variant in tradeoff.variants], False),
        ("%int8", [f"{variant.row.int8 * 100:.0f}%" for variant in tradeoff.variants], False),
        ("lora<br>rank", ranks, any(texts)),
        (
            "average<br>relative<br>error",
            # Without the addition, a value that rounds to zero may be "-0.0%".
            [f"{round(variant.error * 100, 1) + 0.0:.1f}%" for variant in tradeoff.variants],
            False,
        ),
        ("compression<br>rate", [f"{variant.rate:.1f}x" for variant in tradeoff.variants], False),
    ]
    if tradeoff.measured:
        columns.insert(
            5, ("peak<br>memory", [_memory(variant.row.peak) for variant in tradeoff.variants], False)
        )
    cells, rules = [], []
    for header, values, right in columns:
        width = max([len(header) + 2, *map(len, values)])
        cells.append([text.rjust(width) if right else text.ljust(width) for text in [header, *values]])
        rules.append("-" * (width + 1) + ":" if right else ":" + "-" * (width + 1))
    lines = ["| " + " | ".join(line) + " |" for line in zip(*cells, strict=True)]
    lines.insert(1, "|" + "|".join(rules) + "|")
    return "\n".join(lines)


def _memory(peak: Peak | None) -> str:
    if peak is None:
        return ""
    low, high = floor(peak), ceiling(peak)
    if math.isinf(high):
        return f"at least {low / 2**20:.1f} MiB"
    if high - low <= 0.01 * high:
        return f"{peak.bytes / 2**20:.1f} MiB"
    return f"{low / 2**20:.1f} to {high / 2**20:.1f} MiB"


class _MarkerSeries(NamedTuple):
    colour: str
    label: str
    offset: tuple[int, int]
    """Distance from a marker to its annotation, in points."""
    variants: list[Variant]


def figure(tradeoff: Tradeoff) -> Figure:
    """Return the scatter plot of all compressed variants, without the fp32 and int8 rows. Does not change global state."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    drawn = Figure(figsize=(6.4, 4.8), dpi=100)
    FigureCanvasAgg(drawn)
    axes = drawn.add_subplot()
    lora = [variant for variant in tradeoff.variants if variant.row.rank is not None]
    gptq = [variant for variant in tradeoff.variants if "gptq" in variant.row.mode]
    data_free = [variant for variant in tradeoff.variants if variant.row.mode == "int4"]
    drawn_otherwise = {"fp32", "int8", "int4"}
    rest = [
        v
        for v in tradeoff.variants
        if v.row.mode not in drawn_otherwise and v not in lora and v not in gptq and "fp32" not in v.row.mode
    ]
    algorithm = rest[0].row.mode.rpartition("int4 + ")[2] if rest else ""
    with_algorithm = f" + {algorithm}" if algorithm else ""
    markers = [
        _MarkerSeries("r", f"100% int4, lora correction{with_algorithm}", (10, -10), lora),
        _MarkerSeries("green", f"100% int4, gptq{with_algorithm}", (10, 2), gptq),
        _MarkerSeries("gray", "100% int4, data-free", (0, -10), data_free),
        _MarkerSeries("b", f"mixed-precision, {algorithm}", (10, -10), rest),
    ]
    for series in markers:
        if series.variants:
            _draw(axes, series)
    what = "Peak memory" if tradeoff.measured else "Compression"
    axes.set_xlabel("Relative error to fp32 model on 3 tasks, %")
    axes.set_ylabel(
        f"{what} reduction relative to fp32 model"
        if tradeoff.measured
        else f"{what} rate relative to fp32 model"
    )
    axes.set_title(f"Footprint/Accuracy tradeoff for {_plain(tradeoff.model)}")
    if axes.lines:
        axes.legend()
    return drawn


def _draw(axes: Axes, series: _MarkerSeries) -> None:
    errors = [variant.error * 100 for variant in series.variants]
    rates = [variant.rate for variant in series.variants]
    axes.plot(errors, rates, "o-", color=series.colour, label=_plain(series.label))
    spread = [
        (v, [[v.rate - v.low], [v.high - v.rate]])
        for v in series.variants
        if v.high > v.low and math.isfinite(v.high)
    ]
    for variant, reach in spread:
        # Certain range of a measured peak, if it is not exact.
        axes.errorbar(
            [variant.error * 100], [variant.rate], yerr=reach, color=series.colour, alpha=0.4, capsize=3
        )
    for variant, error in zip(series.variants, errors, strict=True):
        if variant.row.name:
            axes.annotate(
                _plain(variant.row.name),
                (error, variant.rate),
                textcoords="offset points",
                xytext=series.offset,
                ha="center",
            )


def _plain(text: str) -> str:
    """Return text that matplotlib does not parse as a formula."""
    return text.replace("$", r"\$")


def write(
    path: str | os.PathLike[str], directory: str | os.PathLike[str] | None, *, measured: bool = False
) -> tuple[Path, Path]:
    """Write `<stem>.md` and `<stem>.png` into `directory` (default: that of the file), created if necessary.

    Everything is computed before anything is written. Raises `TradeoffError`, also if writing fails.
    """
    path = Path(path)
    tradeoff = read(path, measured=measured)
    text, drawn = markdown(tradeoff), figure(tradeoff)
    target = Path(directory) if directory else path.parent
    table, image = target / f"{path.stem}.md", target / f"{path.stem}.png"
    try:
        target.mkdir(parents=True, exist_ok=True)
        table.write_text(text, encoding="utf-8")
        with image.open("wb") as file:
            drawn.savefig(file, format="png", dpi=100)
    except OSError as error:
        raise TradeoffFileError(error, error.filename or target, "written") from None
    return table, image


def visualize(input_file: str | os.PathLike[str], output_dir: str | os.PathLike[str] | None = "") -> None:
    """Write `<stem>.md` and `<stem>.png` into `output_dir` (default: that of the file), and print the path.

    Raises `TradeoffError`, a `RuntimeError`, with one sentence for an invalid file; also an `OSError` if a file cannot be read or written.
    """
    _, image = write(input_file, output_dir)
    print("Saving image to :", image)  # noqa: T201 - NNCF's script prints it too
