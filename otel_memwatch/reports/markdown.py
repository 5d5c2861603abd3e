"""The summary as GitHub-flavoured Markdown: for a job's page in CI, for a comment under a merge request."""

from __future__ import annotations

import re

from otel_memwatch.reports import phrases
from otel_memwatch.run.operation_digest import needed_most
from otel_memwatch.runtime.masking import public_name
from otel_memwatch.runtime.typed import TYPE_CHECKING, BinaryIO
from otel_memwatch.text import (
    certainty,
    clean,
    count,
    duration,
    peak_figure,
    peak_sentence,
    shorten,
    size,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from otel_memwatch.reports import Options
    from otel_memwatch.run import RecordedRun

_OPERATIONS = 12
_DEVICES = 8
_NAME = 80


def render(run: RecordedRun, out: BinaryIO, options: Options) -> None:  # noqa: ARG001 - every report is called alike
    """Writes the summary as UTF-8."""
    out.write(markdown(run).encode("utf-8", "backslashreplace"))


def markdown(run: RecordedRun) -> str:
    """The summary: a heading, a table of figures, a table of the operations that needed most.

    It is made for pages that others read: no arguments of commands are in it.
    """
    lines = [f"### Memory of {code(shorten(clean(public_name(run.command)), _NAME))}", ""]
    lines += _table(("", ""), [(label, escape(value)) for label, value in _rows(run) if value], "ll")
    if run.marked:
        lines += ["", *_operations(run)]
    texts = [text for _, text in run.marks] + list(run.damage)
    if texts:
        lines += ["", "**The record is not whole:**", *(f"- {escape(clean(text))}" for text in texts)]
    return "\n".join(lines) + "\n\n"


def _rows(run: RecordedRun) -> Iterator[tuple[str, str]]:
    yield "Ended", phrases.ending(run)
    words, largest = phrases.breach(run)
    yield "**Limit reached**", f"{words}: {largest}" if largest else words
    for entry in run.budgets:
        mark = "**Budget broken**" if entry.get("verdict") == "over" else "Budget"
        yield mark, phrases.budget_sentence(entry)
    peak = run.peaks.tree
    where = phrases.when_and_where(run, peak)
    yield "**Memory needed**", peak_sentence(peak, source=False) + (f", {where}" if where else "")
    hint = phrases.would_be_exact(run)
    if hint:
        yield "", escape(hint)
    limit = phrases.limit(run)
    used = phrases.limit_share(peak, limit) if limit else None
    if limit and used:
        yield "Of what there was", f"{used} of the {limit.whose}'s {size(limit.bytes)}"
    space = phrases.address_space(run)
    if space:
        yield "Limit", space
    yield "Largest process", _largest(run)
    devices = sorted(run.peaks.gpu.items(), key=lambda item: (-item[1].bytes, item[0]))
    for device, figure in devices[:_DEVICES]:
        yield f"GPU {escape(shorten(device, 44))}", peak_sentence(figure, source=False)
    yield "CPU", phrases.cpu(run)
    read, written = run.totals.get("read_bytes"), run.totals.get("write_bytes")
    yield "Disk", phrases.io_pair(read, written) if read or written else ""
    yield "Recorded", phrases.recording(run)


def _largest(run: RecordedRun) -> str:
    peak = run.peaks.process
    if peak is None:
        return ""
    of = phrases.of_processes(run)
    name = phrases.holder(run, peak, _NAME, public=True)
    return f"{peak_sentence(peak, source=False)}{of}" + (f": {name}" if name else "")


def _operations(run: RecordedRun) -> list[str]:
    """The operations that needed most, the one of the run's peak first."""
    if run.too_many_operations:
        ranked, number = run.operation_digest.largest, run.operation_digest.number
    else:
        ranked, number = tuple(sorted(run.operations, key=needed_most, reverse=True)), len(run.operations)
    rows = []
    for figures in ranked[:_OPERATIONS]:
        peak = figures.tree_peak or figures.operation.peak
        name = code(shorten(figures.operation.name, _NAME))
        if figures.sets_run_peak:
            name = f"**{name}**, the peak"
        status = "" if figures.operation.status == "ok" else figures.operation.status
        rows.append((name, peak_figure(peak), certainty(peak), duration(figures.seconds), escape(status)))
    lines = _table(("Operation", "Peak", "", "Time", ""), rows, "lrlrl")
    left_out = number - min(_OPERATIONS, len(ranked))
    if left_out:
        lines += ["", f"and {count(left_out, 'more operation')}"]
    return lines


def _table(header: Sequence[str], rows: Sequence[Sequence[str]], align: str) -> list[str]:
    rule = ["---:" if side == "r" else "---" for side in align]
    return [f"| {' | '.join(cells)} |" for cells in (header, rule, *rows)]


def escape(text: str) -> str:
    """Text that Markdown shows as it is, in one cell of a table."""
    return re.sub(r"([\\`*_\[\]<>|~#@!])", r"\\\1", text.replace("&", "&amp;"))


def code(text: str) -> str:
    """Text in a code span, in one cell of a table; a bar would end the cell even there."""
    ticks = "`" * (max((len(run) for run in re.findall("`+", text)), default=0) + 1)
    pad = " " if text.startswith("`") or text.endswith("`") or not text else ""
    return f"{ticks}{pad}{text}{pad}{ticks}".replace("|", "\\|")
