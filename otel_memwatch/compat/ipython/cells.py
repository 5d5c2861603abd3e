"""Figures of one cell, their text, and a ranking of a notebook's cells."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, NamedTuple

from otel_memwatch.model import Certainty
from otel_memwatch.text import CERTAINTY_WORDS

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from otel_memwatch.compat.ipython.perf import Count

MIB = 2**20


class Cell(NamedTuple):
    """Figures of one cell, in bytes and seconds. The properties have MiB and the names of older tools."""

    number: int
    source: str
    used: int
    """Resident memory at the cell's end minus that at the end of the previous cell, including children."""
    seconds: float
    cpu_mean: float
    """Percent of all the machine's processors over the cell, including the work of other programs."""
    cpu_max: float
    """Percent of the busiest processor."""
    peaked: int
    """Largest resident memory in the cell minus that at its end; never negative."""
    current: int
    """Resident memory at the cell's end, including children."""
    certainty: str = "exact"
    """Certainty of the peak: "exact", "interval" or "sampled"; see `model.Certainty`."""
    failed: bool = False
    """True if the cell raised an exception."""
    counts: tuple[Count, ...] = ()
    """Counters of `perf stat`, if requested."""

    @property
    def peak(self) -> int:
        """Largest resident memory in the cell, in bytes."""
        return self.current + self.peaked

    @property
    def memory_delta(self) -> float:
        """`used` in MiB."""
        return self.used / MIB

    @property
    def time_delta(self) -> float:
        """`seconds`."""
        return self.seconds

    @property
    def memory_peak(self) -> float:
        """`peaked` in MiB."""
        return self.peaked / MIB

    @property
    def memory_usage(self) -> float:
        """`current` in MiB."""
        return self.current / MIB

    def __str__(self) -> str:
        return (
            f"In [{self.number}] used {self.memory_delta:0.1f} MiB RAM in {self.seconds:0.2f}s "
            f"(system mean cpu {self.cpu_mean:0.0f}%, single max cpu {self.cpu_max:0.0f}%), "
            f"peaked {self.memory_peak:0.1f} MiB above final usage, current RAM usage now {self.memory_usage:0.1f} MiB"
        )

    @property
    def told(self) -> str:
        """The figures in one line, with the peak and its certainty."""
        kept = (
            f"{abs(self.memory_delta):,.1f} MiB {'more' if self.used >= 0 else 'less'} than before".replace(
                ",", " "
            )
        )
        peak = f"{self.peak / MIB:,.1f} MiB".replace(",", " ")
        failed = ", failed" if self.failed else ""
        word = CERTAINTY_WORDS[Certainty(self.certainty)]
        return f"peak {peak} ({word}), {kept}, {self.seconds:.2f} s{failed}"

    def _repr_pretty_(self, printer: object, cycle: object) -> None:  # noqa: ARG002 - IPython's signature
        """Print the figures in an IPython terminal."""
        printer.text(self.told)  # type: ignore[attr-defined]

    def _repr_html_(self) -> str:
        return f"<p>{escape(self.told)}</p>{_html_table([self])}"


class Summary:
    """Cells of a session, the largest peak first."""

    def __init__(self, cells: Iterable[Cell]) -> None:
        self.cells = tuple(sorted(cells, key=lambda cell: cell.peak, reverse=True))

    def __len__(self) -> int:
        return len(self.cells)

    def __str__(self) -> str:
        if not self.cells:
            return "No cell has been measured."
        rows = [_HEADER, *map(_row, self.cells)]
        widths = [max(len(row[i]) for row in rows) for i in range(len(_HEADER) - 1)]
        lines = (
            "  ".join([*(c.rjust(w) for c, w in zip(row, widths, strict=False)), row[-1]]) for row in rows
        )
        return "\n".join(line.rstrip() for line in lines)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return _html_table(self.cells) if self.cells else f"<p>{self}</p>"


_HEADER = ("In", "peak MiB", "used MiB", "peaked MiB", "now MiB", "seconds", "cpu %", "cell")


def _row(cell: Cell) -> tuple[str, ...]:
    source = next((line.strip() for line in cell.source.splitlines() if line.strip()), "")
    return (
        str(cell.number),
        f"{cell.peak / MIB:.1f}",
        f"{cell.memory_delta:+.1f}",
        f"{cell.memory_peak:.1f}",
        f"{cell.memory_usage:.1f}",
        f"{cell.seconds:.2f}",
        f"{cell.cpu_mean:.0f}",
        (source if len(source) <= 60 else source[:57] + "...") + (" (failed)" if cell.failed else ""),
    )


def _html_table(cells: Sequence[Cell]) -> str:
    head = "".join(f"<th>{name}</th>" for name in _HEADER)
    body = []
    largest = max((cell.peak for cell in cells), default=0) or 1
    for cell in cells:
        *figures, source = map(escape, _row(cell))
        share = 100 * cell.peak / largest
        bar = f'style="background:linear-gradient(to right,#2E86AB33 {share:.0f}%,transparent {share:.0f}%)"'
        numbers = "".join(f"<td {bar if i == 1 else ''}>{text}</td>" for i, text in enumerate(figures))
        body.append(f'<tr>{numbers}<td style="text-align:left"><code>{source}</code></td></tr>')
    return f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(body)}</tbody></table>"
