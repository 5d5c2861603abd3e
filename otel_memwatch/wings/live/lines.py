"""Figures of a run in progress in words: for the live view, and printed as lines by `--once` and `report --follow`."""

from __future__ import annotations

import time

from otel_memwatch.reports import phrases
from otel_memwatch.reports.output import print_report, print_text
from otel_memwatch.reports.sections.growth import handle_words, kept_words, leak_words
from otel_memwatch.runtime.typed import TYPE_CHECKING, NamedTuple
from otel_memwatch.text import (
    clean,
    command_line,
    count,
    duration,
    peak_figure,
    peak_sentence,
    share,
    shorten,
    size,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from otel_memwatch.wings.live.live_run import LiveFigures, LiveRun

_SILENT = 5
"""Sampling intervals without a sample before a warning is shown."""
_LEAST_SILENCE = 3.0
_FAR = 86400.0
"""Longest time until the limit, in seconds, that is worth showing."""
_SOON = 600.0
"""Time until the limit, in seconds, below which it is a warning."""
_FULL = 0.9
_OPERATION = 40
_WIDTH = 100
_PROCESSES = 6
_FINDINGS = 3
_ONE_LOOK = 2.0
"""Longest time in seconds to read a long record for figures once."""
_SHARE = 0.5
"""Part of the interval for reading a long record."""


class Fact(NamedTuple):
    """Figure with its name and a tone of `terminal.TONES`."""

    label: str
    text: str
    tone: str = ""


def title(figures: LiveFigures, width: int) -> str:
    """Return the command."""
    return command_line(figures.command, width)


def state(figures: LiveFigures) -> str:
    """Describe the state and the duration of the run."""
    if figures.state == "running":
        return f"recording for {duration(figures.seconds)}"
    return f"{clean(figures.ending.reason)}, after {duration(figures.seconds)}"


def facts(figures: LiveFigures, last_tick_wall: float | None, interval: float) -> Iterator[Fact]:
    """Yield the main figures, the most important first."""
    label = "needed now" if figures.needed else "resident now"
    remark = ""
    if not figures.needed and figures.now is not None:
        remark = " (with file pages; shared pages counted once per process)"
    yield Fact(label, size(figures.now) + remark, "strong")
    peak = figures.peaks.tree
    operation = f", in {shorten(peak.operation, _OPERATION)}" if peak is not None and peak.operation else ""
    at = "" if peak is None or peak.at is None else f", at {duration(min(peak.at, figures.seconds))}"
    yield Fact("peak so far", peak_sentence(peak, source=False) + at + operation, "strong")
    if figures.read < 1:
        # Current figures come from the end of the record; the earlier part is still being read.
        yield Fact("record", f"{100 * figures.read:.0f} % read so far; the peak may be higher", "warning")
    if figures.limit is not None and figures.now is not None:
        owner = "of the machine" if figures.limit_of == "machine" else "allowed"
        text = f"{size(figures.limit)} {owner}, {share(figures.now, figures.limit)} in use"
        left, tone = figures.to_limit, ""
        if left is not None and left < _FAR:
            text += f", reached in {duration(left)} at this pace ({size(figures.pace)}/s)"
            tone = "warning" if left < _SOON else ""
        yield Fact("limit", text, "bad" if figures.now / figures.limit >= _FULL else tone)
    alone = len(figures.processes) < 2
    for one in figures.findings[:_FINDINGS]:
        if one.counted is not None:
            yield Fact("handles", handle_words(one), "bad")
        elif one.allocator is None:
            yield Fact("leak", leak_words(one, alone=alone), "bad")
        else:
            yield Fact("kept", kept_words(one, alone=alone), "warning")
    silence = None if last_tick_wall is None else time.time() - last_tick_wall
    if (
        figures.state == "running"
        and silence is not None
        and silence > max(_LEAST_SILENCE, _SILENT * interval)
    ):
        yield Fact("silence", f"no sample for {duration(silence)}", "warning")


def operations(figures: LiveFigures) -> list[str]:
    """Return a line for each open operation, the innermost of each process last."""
    now = figures.started + figures.seconds
    shown = []
    for operation in figures.operations:
        peak = "" if operation.peak is None else f", peak so far {peak_figure(operation.peak)}"
        lasted = duration(max(0.0, now - operation.start))
        shown.append(f"{shorten(operation.name, _OPERATION)} (pid {operation.pid}) for {lasted}{peak}")
    return shown


def process_rows(figures: LiveFigures, number: int, width: int) -> list[tuple[str, str, str]]:
    """Return pid, resident size and name of the largest processes."""
    shown = figures.processes[:number]
    named = [phrases.ProcessCommand(process.command, process.argv) for process in figures.processes[:100]]
    names = phrases.process_names(named, width)
    return [
        (str(process.pid), "-" if process.rss is None else size(process.rss), name)
        for process, name in zip(shown, names, strict=False)
    ]


def devices(figures: LiveFigures) -> list[str]:
    """Return a line for each GPU."""
    shown = []
    for device in figures.devices:
        words = [f"{size(device.used)} of {size(device.limit)}" if device.limit else size(device.used)]
        if device.ours is not None:
            words.append(f"{size(device.ours)} of it by this run")
        if device.busy is not None:
            words.append(f"{100 * device.busy:.0f} % busy")
        shown.append(f"{shorten(device.id, 24)}: {', '.join(words)}")
    return shown


def one_line(figures: LiveFigures) -> str:
    """Return all figures in one line, for a log."""
    peak = figures.peaks.tree
    parts = [
        f"{duration(figures.seconds):>10}",
        f"{'needed' if figures.needed else 'resident'} {size(figures.now)}",
        f"peak {peak_figure(peak)}",
        count(len(figures.processes), "process", "processes"),
    ]
    if figures.read < 1:
        parts.append(f"{100 * figures.read:.0f} % of the record read")
    if figures.to_limit is not None and figures.to_limit < _FAR:
        parts.append(f"limit in {duration(figures.to_limit)}")
    if figures.operations:
        parts.append("in " + shorten(figures.operations[-1].name, _OPERATION))
    return "  ".join(parts)


def one_look(run: LiveRun) -> None:
    """Print the current figures; the summary if the run has ended."""
    figures = run.look(_ONE_LOOK)
    if figures.state != "running":
        _print_summary(run)
        return
    printed = [title(figures, _WIDTH), state(figures), ""]
    printed += [f"{fact.label:<14}{fact.text}" for fact in facts(figures, run.last_tick_wall, run.interval)]
    rows = process_rows(figures, _PROCESSES, 70)
    if rows:
        printed += ["", *(f"  {pid:>8}  {rss:>10}  {name}" for pid, rss, name in rows)]
    printed += [f"{'open':<14}{text}" for text in operations(figures)]
    printed += [f"{'GPU':<14}{text}" for text in devices(figures)]
    print_text("\n".join(printed) + "\n")


def follow(run: LiveRun, every: float) -> None:
    """Print a line every `every` seconds until the run has ended, then its summary."""
    while (figures := run.look(_SHARE * every)).state == "running":
        print_text(one_line(figures) + "\n")
        time.sleep(every)
    _print_summary(run)


def _print_summary(run: LiveRun) -> None:
    from otel_memwatch.run import load

    print_report("summary", load(run.path))
