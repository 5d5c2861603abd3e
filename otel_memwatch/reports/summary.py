"""The few lines at the end of `wrap`: what was needed, what that means, how it ended, where to look.

`LINES` has the makers of the lines, in their order; each gives lines only where it has something to say.
"""

from __future__ import annotations

import os

from otel_memwatch.config import OPTIONS
from otel_memwatch.record.fields import mapping
from otel_memwatch.record.format import PAGE_FILE, RUN_FILE
from otel_memwatch.reports import phrases
from otel_memwatch.run.operation_digest import needed_most
from otel_memwatch.runtime.masking import public_name
from otel_memwatch.runtime.terminal import FILE, Display
from otel_memwatch.runtime.typed import TYPE_CHECKING, BinaryIO, NamedTuple
from otel_memwatch.text import (
    cells,
    clean,
    command_line,
    count,
    from_here,
    peak_figure,
    peak_sentence,
    shell_word,
    shorten,
    size,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

    from otel_memwatch.reports import Options
    from otel_memwatch.run import OperationFigures, RecordedRun

WIDTH = 100
"""Columns of a line where no terminal says otherwise."""
_LEAST_WIDTH = 40
_LABEL = 13
_INDENT = "  "

_OPERATIONS = 3
_OPERATIONS_WIDTH = 82
"""Columns within which a further operation is named."""
_DEVICES = 2
_NAME = 40
_LEAST_NAME = 24

_TIGHT = 0.5
"""Share of the machine's memory from which on it is worth a line."""
_FULL = 0.9
"""Share of a limit from which on it is a warning."""
_MISSED = 0.02
"""Share of ticks that were missed from which on the record is not what was asked for."""


class SummaryLine(NamedTuple):
    """One line of the summary; those after the first of a label have none."""

    label: str
    text: str
    """Figures and words, which are never cut."""
    name: str = ""
    """What may be cut in its middle, after a colon."""
    tone: str = ""
    """Of `terminal.TONES`."""


def render(run: RecordedRun, out: BinaryIO, options: Options) -> None:
    """Writes the summary as UTF-8, for the terminal of `options["display"]`."""
    text = summary(run, options.get("display") or FILE) + "\n"
    out.write(text.encode("utf-8", "backslashreplace"))


def summary(
    run: RecordedRun, display: Display = FILE, *, public: bool = False, more: Iterable[SummaryLine] = ()
) -> str:
    """The summary, without a newline at its end.

    Args:
        run: which.
        display: what it is read on.
        public: without arguments of commands, for what leaves the machine.
        more: lines of others, as of what runs before this one needed; they stand before the last.

    """
    width = max(_LEAST_WIDTH, display.width or WIDTH)
    lines = [display.paint(_title(run, width, public=public), "strong")]
    made = [line for maker in LINES for line in maker(run, public)]
    for line in (*made, *more, *_record(run)):
        lines += _written(line, width, display)
    return "\n".join(lines)


def _title(run: RecordedRun, width: int, *, public: bool) -> str:
    own = "otel-memwatch"
    command = clean(public_name(run.command)) if public else command_line(run.command)
    program, _, rest = command.partition(" ")
    # "otel-memwatch: otel-memwatch demo" would say it twice.
    return shorten(f"{own}: {rest if os.path.basename(program) == own and rest else command}", width)


def _written(line: SummaryLine, width: int, display: Display) -> list[str]:
    """A line as it is shown; on a terminal that is too narrow for it, broken at blanks."""
    text = line.text
    if line.name:
        room = width - len(_INDENT) - _LABEL
        left = room - cells(text) - 2
        # Where a terminal has no room beside the figures, a line of its own has.
        text += f": {shorten(line.name, left if left >= _LEAST_NAME else max(_LEAST_NAME, room))}"
    indent = " " * (len(_INDENT) + _LABEL)
    pieces = [text] if display.width is None else _broken(text, width - len(indent))
    head = _INDENT + display.paint(f"{line.label:<{_LABEL}}", "faint") if line.label else indent
    return [
        (head if index == 0 else indent) + display.paint(piece, line.tone)
        for index, piece in enumerate(pieces)
    ]


def _broken(text: str, room: int) -> list[str]:
    pieces: list[str] = [""]
    for word in text.split(" "):
        if pieces[-1] and cells(pieces[-1]) + 1 + cells(word) > room:
            pieces.append(word)
        else:
            pieces[-1] = f"{pieces[-1]} {word}" if pieces[-1] else word
    return pieces


# -- the lines


def _memory(run: RecordedRun, public: bool) -> Iterator[SummaryLine]:  # noqa: ARG001 - every maker is called alike
    peak = run.peaks.tree
    where = phrases.when_and_where(run, peak)
    so_far = " so far" if run.state == "running" and peak is not None else ""
    yield SummaryLine(
        "memory",
        peak_sentence(peak, source=False) + so_far + (f", {where}" if where else ""),
        tone="" if peak is None else "strong",
    )
    hint = phrases.would_be_exact(run)
    if hint:
        yield SummaryLine("", hint)
    beside = phrases.hugetlb(run)
    if beside:
        yield SummaryLine("", beside)


def _budgets(run: RecordedRun, public: bool) -> Iterator[SummaryLine]:  # noqa: ARG001 - as above
    for index, entry in enumerate(run.budgets):
        tone = phrases.BUDGET_TONES.get(str(entry.get("verdict")), "")
        yield SummaryLine("" if index else "budgets", phrases.budget_sentence(entry), tone=tone)


def _limit(run: RecordedRun, public: bool) -> Iterator[SummaryLine]:  # noqa: ARG001 - as above
    """What that means against the limit that applies; the machine's memory only where it is nearly all."""
    words, largest = phrases.breach(run)
    if words:
        yield SummaryLine("limit", words, largest, tone="bad")
        return
    limit, peak = phrases.limit(run), run.peaks.tree
    used = phrases.limit_share(peak, limit) if limit else None
    if limit and used and peak is not None:
        # Where the truth lies within bounds, the larger one has to fit.
        most = max(peak.bytes, peak.high or 0)
        if limit.whose != "machine" or most >= _TIGHT * limit.bytes:
            whole = (
                f"machine's {size(limit.bytes)}"
                if limit.whose == "machine"
                else f"{size(limit.bytes)} allowed"
            )
            tone = "warning" if most >= _FULL * limit.bytes else ""
            yield SummaryLine("limit", f"{used} of the {whole}", tone=tone)
    space = phrases.address_space(run)
    if space:
        yield SummaryLine("limit", space)


def _ended(run: RecordedRun, public: bool) -> Iterator[SummaryLine]:  # noqa: ARG001 - as above
    text = phrases.ending(run)
    cpu = run.totals.get("cpu_seconds")
    badly = phrases.ended_badly(run)
    if cpu is not None and run.seconds >= 1 and not badly:
        text += f"; CPU {phrases.cpu(run)}"
    yield SummaryLine("ended", text, tone="bad" if badly else "")


def _operations(run: RecordedRun, public: bool) -> Iterator[SummaryLine]:  # noqa: ARG001 - as above
    """The names of the operations that needed most, that of the run's peak first."""
    largest: dict[str, OperationFigures] = {}
    told = run.operation_digest.largest if run.too_many_operations else run.operations
    for figures in sorted(told, key=needed_most, reverse=True):
        largest.setdefault(figures.operation.name, figures)
    if not largest:
        return
    first, *others = [_operation(figures) for figures in largest.values()]
    text, shown = first, 1
    for words in others[: _OPERATIONS - 1]:
        if cells(text) + cells(words) > _OPERATIONS_WIDTH:
            break
        text, shown = f"{text}, {words}", shown + 1
    rest = len(largest) - shown
    yield SummaryLine("operations", text + (f" and {rest} more" if rest else ""))


def _operation(figures: OperationFigures) -> str:
    peak = figures.tree_peak or figures.operation.peak
    status = {"error": "failed", "open": "open at the end"}.get(figures.operation.status, "")
    remarks = ", ".join(filter(None, ("the peak" if figures.sets_run_peak else "", status)))
    # Its own bounds are those of the ticks around it, so that its figure may be a little off the run's, which stands above.
    figure = "" if peak is None or figures.sets_run_peak else f" {peak_figure(peak)}"
    return f"{shorten(figures.operation.name, _NAME)}{figure}" + (f" ({remarks})" if remarks else "")


def _largest(run: RecordedRun, public: bool) -> Iterator[SummaryLine]:
    """The process that needed most, where there were several."""
    peak = run.peaks.process
    if peak is None or run.totals.get("processes") == 1:
        return
    text = f"{peak_sentence(peak, source=False)}{phrases.of_processes(run)}"
    yield SummaryLine("largest", text, phrases.holder(run, peak, 200, public=public))
    why = phrases.above_needed(run)
    if why:
        yield SummaryLine("", why)


def _gpu(run: RecordedRun, public: bool) -> Iterator[SummaryLine]:  # noqa: ARG001 - as above
    devices = sorted(run.peaks.gpu.items(), key=lambda item: (-item[1].bytes, item[0]))
    for index, (device, peak) in enumerate(devices[:_DEVICES]):
        yield SummaryLine("" if index else "GPU", peak_sentence(peak, source=False), device)
    if len(devices) > _DEVICES:
        yield SummaryLine("", f"and {count(len(devices) - _DEVICES, 'more device')}")


def _misplaced(run: RecordedRun, public: bool) -> Iterator[SummaryLine]:  # noqa: ARG001 - as above
    """An option of ours that stands after the command, which got it, and failed."""
    if not phrases.ended_badly(run) or run.mode != "wrap":
        return
    ours = {option.flag for option in OPTIONS.values() if "wrap" in option.commands}
    word = next((word.partition("=")[0] for word in run.command[1:] if word.partition("=")[0] in ours), None)
    if word is not None:
        yield SummaryLine(
            "hint", f"{word} stands after the command, which got it; options of ours stand before it"
        )


def _recorded(run: RecordedRun, public: bool) -> Iterator[SummaryLine]:  # noqa: ARG001 - as above
    """How well it was recorded, where that is not what was asked for."""
    missed, ticks = run.quality.get("missed_ticks") or 0, run.quality.get("ticks") or 0
    if missed > max(2, _MISSED * (missed + ticks)):
        yield SummaryLine("recorded", phrases.recording(run), tone="warning")


def _trouble(run: RecordedRun, public: bool) -> Iterator[SummaryLine]:  # noqa: ARG001 - as above
    texts = [text for _, text in run.marks] + list(run.damage)
    if texts:
        others = f" (and {len(texts) - 1} more)" if len(texts) > 1 else ""
        yield SummaryLine("trouble", clean(texts[-1]) + others, tone="warning")


def _group(run: RecordedRun, public: bool) -> Iterator[SummaryLine]:  # noqa: ARG001 - all lines are made alike
    told = mapping(run.info.get("group"))
    name, rank, size = told.get("group"), told.get("rank"), told.get("size")
    if isinstance(name, str) and isinstance(rank, int) and (size is None or size != 1):
        of = f" of {size}" if isinstance(size, int) else ""
        together = f"; together: otel-memwatch report {_near(run.path.parent)}" if run.path.exists() else ""
        yield SummaryLine("group", f"rank {rank}{of} of {shorten(clean(name), _NAME)}{together}")


LINES: Sequence[Callable[[RecordedRun, bool], Iterator[SummaryLine]]] = (
    _memory,
    _limit,
    _budgets,
    _ended,
    _operations,
    _largest,
    _gpu,
    _group,
    _misplaced,
    _recorded,
    _trouble,
)
"""What makes the lines between the title and the last: each of the run, and of whether arguments are left out."""


def _record(run: RecordedRun) -> Iterator[SummaryLine]:
    if (run.path / RUN_FILE).exists():  # it may have been taken away
        yield SummaryLine("more", f"otel-memwatch report {_near(run.path)}", tone="faint")
        if (run.path / PAGE_FILE).exists():
            yield SummaryLine("page", _near(run.path / PAGE_FILE), tone="faint")


def _near(path: Path) -> str:
    """The path as one would type it in a shell here; bytes that are no text as bash, zsh and ksh take them."""
    near = from_here(path)
    if near.isprintable():
        return shell_word(near)
    return "$'" + "".join(_escaped(byte) for byte in os.fsencode(near)) + "'"


def _escaped(byte: int) -> str:
    character = chr(byte)
    plain = 0x20 <= byte < 0x7F and character not in "'\\"
    return character if plain else f"\\{byte:03o}"
