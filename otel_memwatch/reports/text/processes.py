"""The processes section: those that needed most memory."""

from __future__ import annotations

from otel_memwatch.model import ProcessNote
from otel_memwatch.reports.formatting import certainty, clean, count, duration, peak_figure, signal_name, size
from otel_memwatch.reports.phrases import process_name
from otel_memwatch.runtime.typed import TYPE_CHECKING

if TYPE_CHECKING:
    from otel_memwatch.analysis import ProcessFigures, Run
    from otel_memwatch.reports.text.page import Page

SHOWN = 15

_HEADER = ("pid", "peak", "", "start", "life", "CPU", "read", "written", "end", "process")
_ALIGNED = "rrlrrrrrll"
_NAME = 60


def processes(run: Run, page: Page) -> None:
    """Writes the section; nothing when no process was seen."""
    listed = sorted(run.processes, key=lambda p: (-_need(p), p.start, p.pid))
    if not listed:
        return
    page.section("Processes")
    page.table([_row(run, process) for process in listed[:SHOWN]], _HEADER, _ALIGNED)
    rest = listed[SHOWN:]
    if rest:
        page.gap()
        most = rest[0].peak
        above = f", none above {size(most.bytes if most.high is None else most.high)}" if most else ""
        page.paragraph(f"{count(len(rest), 'more process', 'more processes')}{above}.")


def _need(process: ProcessFigures) -> int:
    return -1 if process.peak is None else process.peak.bytes


def _row(run: Run, process: ProcessFigures) -> tuple[str, ...]:
    end = run.seconds if process.end is None else process.end
    return (
        str(process.pid),
        peak_figure(process.peak),
        certainty(process.peak),
        duration(process.start),
        duration(max(0.0, end - process.start)),
        "-" if process.cpu_seconds is None else duration(process.cpu_seconds),
        "-" if process.read_bytes is None else size(process.read_bytes),
        "-" if process.write_bytes is None else size(process.write_bytes),
        _end(process),
        process_name(process.command, process.argv, _NAME),
    )


def _end(process: ProcessFigures) -> str:
    """How it ended, as far as we were told; with what is special about it."""
    if process.signal is not None:
        words = signal_name(process.signal)
    elif process.exit_code is not None:
        words = f"exit {process.exit_code}"
    else:
        words = "alive" if process.end is None else "ended"
    note = clean(process.note or "")
    return f"{words}, {note}" if note and note != ProcessNote.ALIVE_AT_END else words
