"""The whole story of a run as plain text: what ran, how it ended, memory, operations, processes, recording."""

from __future__ import annotations

import time

from otel_memwatch.reports import phrases
from otel_memwatch.reports.text.page import Page
from otel_memwatch.reports.text.sections import memory, processes, recording
from otel_memwatch.runtime.terminal import FILE, Display
from otel_memwatch.runtime.typed import TYPE_CHECKING, BinaryIO
from otel_memwatch.text import clean, command_line, count, duration, size

if TYPE_CHECKING:
    from otel_memwatch.reports import Options
    from otel_memwatch.run import RecordedRun

_WORTH_MARKING = 1.0
"""Seconds from which on one asks in which step of a program something was."""

_HOW_TO_MARK = (
    'No step of the program is marked. Marked steps would tell where that was needed: `with operation("Load"):` in '
    "Python, `otel-memwatch mark Load` in a shell script, or spans of OpenTelemetry."
)


def render(run: RecordedRun, out: BinaryIO, options: Options) -> None:
    """Writes the text in the encoding of `options["encoding"]` (UTF-8); what that cannot hold is escaped."""
    out.write(
        text(run, options.get("display") or FILE).encode(
            options.get("encoding") or "utf-8", "backslashreplace"
        )
    )


def text(run: RecordedRun, display: Display = FILE) -> str:
    """The report, with a newline at its end."""
    page = Page(display)
    _what_ran(run, page)
    memory(run, page)
    if run.marked:
        from otel_memwatch.reports.text.operations import operations

        operations(run, page)
    elif run.seconds >= _WORTH_MARKING:
        page.gap()
        page.paragraph(_HOW_TO_MARK)
    if run.marked or run.info.get("gpus"):
        from otel_memwatch.reports.text.gpus import gpus

        gpus(run, page)
    processes(run, page)
    _totals(run, page)
    recording(run, page)
    return page.text()


def _what_ran(run: RecordedRun, page: Page) -> None:
    page.title(f"otel-memwatch: {clean(run.id)}")
    page.fact("command", command_line(run.command) or "unknown")
    page.fact("directory", clean(run.cwd))
    page.fact("started", f"{_wall(run.started_wall)}{_on(run)}")
    page.fact("ended", phrases.ending(run), "bad" if phrases.ended_badly(run) else "")
    words, largest = phrases.breach(run)
    page.fact("limit", f"{words}: {largest}" if largest else words, "bad")
    for index, entry in enumerate(run.budgets):
        tone = phrases.BUDGET_TONES.get(str(entry.get("verdict")), "")
        page.fact("" if index else "budgets", phrases.budget_sentence(entry), tone)


def _wall(unix: float) -> str:
    try:
        return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(unix)) if unix else "unknown"
    except (OverflowError, OSError, ValueError):
        return "unknown"


def _on(run: RecordedRun) -> str:
    host = run.host
    system = " ".join(clean(str(host[k])) for k in ("system", "release", "machine") if host.get(k))
    cpus, memory_bytes = host.get("cpus"), host.get("memory_bytes")
    parts = [system]
    if isinstance(cpus, int):
        parts.append(count(cpus, "CPU"))
    if isinstance(memory_bytes, int):
        parts.append(size(memory_bytes))
    machine = ", ".join(part for part in parts if part)
    name = clean(str(host.get("name") or ""))
    return (f" on {name}" if name else "") + (f" ({machine})" if machine else "")


def _totals(run: RecordedRun, page: Page) -> None:
    totals = run.totals
    page.section("Totals of all processes")
    page.fact("duration", duration(run.seconds))
    page.fact("CPU time", phrases.cpu(run))
    page.fact("disk", phrases.io_pair(totals.get("read_bytes"), totals.get("write_bytes")))
    page.fact("system calls", phrases.io_pair(totals.get("read_chars"), totals.get("write_chars")))
    page.fact("", "Disk is what reached storage; system calls count pipes and cached files too.")
    if totals.get("major_faults") is not None:
        page.fact(
            "page faults",
            f"{count(totals['major_faults'], 'major fault')}: pages that had to be read from disk",
        )
    page.fact("processes", phrases.processes(run))
    if totals.get("unseen_processes"):
        page.fact(
            "",
            "The larger number has all that may have begun and ended between two ticks, of other programs too.",
        )
