"""Figures of one day of a run, as text or JSON: the tree's peak with its bounds, CPU time, disk, waiting."""

from __future__ import annotations

import time

from otel_memwatch.errors import UsageError
from otel_memwatch.reports.pages.terminal_page import TerminalPage
from otel_memwatch.run.operations import figures_between
from otel_memwatch.runtime import strict_json
from otel_memwatch.runtime.terminal import FILE, Display
from otel_memwatch.runtime.typed import TYPE_CHECKING, Any
from otel_memwatch.text import clean, duration, peak_sentence, size
from otel_memwatch.truth.operation import part_of_tree
from otel_memwatch.units import parse_local_time

if TYPE_CHECKING:
    from otel_memwatch.model import Peak
    from otel_memwatch.run import OperationFigures, RecordedRun

_FORM = "%Y-%m-%d %H:%M:%S"
_AGO = {"today": 0, "yesterday": 1}


def figures_of_day(run: RecordedRun, day: str) -> OperationFigures:
    """Return the figures of a day in local time. Raises `UsageError` if it is none, or the run did not last into it."""
    if day in _AGO:
        day = time.strftime("%Y-%m-%d", time.localtime(_midnight(time.localtime(), -_AGO[day])))
    begin = parse_local_time(day) if len(day) == len("2026-11-01") else None
    if begin is None:
        raise UsageError(f"--day: {day!r} is not a day.", "write 2026-11-01, today or yesterday")
    end = _midnight(time.localtime(begin), 1)
    first, last = begin - run.started_wall, end - run.started_wall
    if last <= 0 or first >= run.seconds:
        lasted = " to ".join(
            time.strftime(_FORM, time.localtime(run.started_wall + seconds)) for seconds in (0, run.seconds)
        )
        raise UsageError(f"The run was not recorded on {day}.", f"it lasted from {lasted}")
    start, until = run.started + max(0.0, first), run.started + min(run.seconds, last)
    found = figures_between(start, until, day, run.operation_context, run.peaks)
    return found._replace(tree_peak=_with_run_peak(found.tree_peak, run, start, until))


def _midnight(date: time.struct_time, days: int) -> float:
    """Return the midnight before a local time, or one so many days later. Days have 23 to 25 hours."""
    return time.mktime((date.tm_year, date.tm_mon, date.tm_mday + days, 0, 0, 0, 0, 0, -1))


def _with_run_peak(peak: Peak | None, run: RecordedRun, start: float, until: float) -> Peak | None:
    """Return the tree's peak between two monotonic times, at least the run's lower bound if that was seen meanwhile."""
    whole, context = run.peaks.tree, run.operation_context
    from_start, to_end = start <= run.started, until >= run.started + run.seconds
    if whole is None:
        return peak
    if from_start and to_end:
        return whole
    at = whole.at if whole.low_at is None else whole.low_at
    if at is None:
        return peak
    at += run.started
    began = from_start or start <= at - context.window
    ended = to_end or at + context.series.longest_reading <= until
    return part_of_tree(peak, whole, throughout=began and ended)


def text(run: RecordedRun, day: OperationFigures, display: Display = FILE) -> str:
    """Return the report, with a newline at its end."""
    page, totals = TerminalPage(display), day.totals
    page.title(f"otel-memwatch: {clean(run.id)} on {day.operation.name}")
    begin, end = (
        time.strftime(_FORM, time.localtime(run.started_wall + seconds)) for seconds in (day.start, day.end)
    )
    page.fact("recorded", f"{begin} to {end} ({duration(day.seconds)})")
    page.fact("peak memory", peak_sentence(day.tree_peak), "strong")
    cpu = totals.get("tree_cpu_seconds")
    if cpu is not None and day.seconds > 0:
        page.fact("CPU", f"{duration(cpu)} ({cpu / day.seconds:.2f} cores on average)")
    moved = [
        f"{size(totals[name])} {verb}"
        for name, verb in (("tree_read_bytes", "read"), ("tree_write_bytes", "written"))
        if name in totals
    ]
    page.fact("disk", ", ".join(moved))
    waited = [f"{100 * share:.1f} % for {name}" for name, share in day.stalled.items() if share]
    page.fact("waited", ", ".join(waited))
    return page.text()


def json(day: OperationFigures) -> str:
    """Return the figures as one object, with the keys of an operation in the report's contract."""
    peak = day.tree_peak
    document: dict[str, Any] = {
        "schema": 1, "day": day.operation.name, "start": day.start, "seconds": day.seconds,
        "tree_peak": None if peak is None else peak.to_json(), "totals": day.totals, "stalled": day.stalled,
    }  # fmt: skip
    return strict_json.dumps(document, indent=2) + "\n"
