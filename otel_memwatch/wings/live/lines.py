"""What a running run tells, in words: the same for the view of a terminal, for one look, and for lines that go on."""

from __future__ import annotations

import time

from otel_memwatch.reports import phrases
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

    from otel_memwatch.model import RecordedOperation
    from otel_memwatch.wings.live.live_run import LiveFigures, LiveProcess

_SILENT = 5
"""Intervals without a tick from which on it is said."""
_LEAST_SILENCE = 3.0
_FAR = 86400.0
"""Seconds beyond which nobody asks when a limit will be reached."""
_FULL = 0.9
_OPERATION = 40


class Fact(NamedTuple):
    """A figure with its name, and its tone of `terminal.TONES`."""

    label: str
    text: str
    tone: str = ""


def title(figures: LiveFigures, width: int) -> str:
    """The command."""
    return command_line(figures.command, width)


def state(figures: LiveFigures) -> str:
    """How far it is."""
    if figures.state == "running":
        return f"recording for {duration(figures.seconds)}"
    return f"{clean(figures.ending.reason)}, after {duration(figures.seconds)}"


def facts(figures: LiveFigures, last_tick_wall: float | None, interval: float) -> Iterator[Fact]:
    """The figures that everybody looks for, the most wanted first."""
    what = "needed now" if figures.needed else "resident now"
    remark = "" if figures.needed or figures.now is None else " (shared pages counted once a process)"
    yield Fact(what, size(figures.now) + remark, "strong")
    peak = figures.peaks.tree
    operation = f", in {shorten(peak.operation, _OPERATION)}" if peak is not None and peak.operation else ""
    at = "" if peak is None or peak.at is None else f", at {duration(min(peak.at, figures.seconds))}"
    yield Fact("peak so far", peak_sentence(peak, source=False) + at + operation, "strong")
    if figures.read < 1:
        # What is now stands at the end of the record; what was before is still being read.
        yield Fact(
            "record", f"{100 * figures.read:.0f} % of it read so far: the peak may be higher", "warning"
        )
    yield from _limit(figures)
    silence = None if last_tick_wall is None else time.time() - last_tick_wall
    if (
        figures.state == "running"
        and silence is not None
        and silence > max(_LEAST_SILENCE, _SILENT * interval)
    ):
        yield Fact("silence", f"no tick for {duration(silence)}", "warning")


def _limit(figures: LiveFigures) -> Iterator[Fact]:
    if figures.limit is None or figures.now is None:
        return
    used = figures.now / figures.limit
    whose = "of the machine" if figures.limit_of == "machine" else "allowed"
    text = f"{size(figures.limit)} {whose}, {share(figures.now, figures.limit)} in use"
    left = figures.to_limit
    soon = left is not None and left < _FAR
    if soon:
        text += f", reached in {duration(left)} at this pace ({size(figures.pace)}/s)"
    yield Fact(
        "limit",
        text,
        "bad" if used >= _FULL else "warning" if soon and left is not None and left < 600 else "",
    )


def operations(figures: LiveFigures) -> list[str]:
    """The operations that are open, the innermost of each process last."""
    now = figures.started + figures.seconds
    return [_operation(operation, now) for operation in figures.operations]


def _operation(operation: RecordedOperation, now: float) -> str:
    peak = "" if operation.peak is None else f", peak so far {peak_figure(operation.peak)}"
    return f"{shorten(operation.name, _OPERATION)} (pid {operation.pid}) for {duration(max(0.0, now - operation.start))}{peak}"


def process_rows(figures: LiveFigures, number: int, width: int) -> list[tuple[str, str, str]]:
    """Pid, resident size and name of the largest processes."""
    shown = figures.processes[:number]
    names = phrases.process_names([_as_figures(process) for process in figures.processes[:100]], width)
    return [
        (str(process.pid), "-" if process.rss is None else size(process.rss), name)
        for process, name in zip(shown, names, strict=False)
    ]


def _as_figures(process: LiveProcess) -> phrases.Named:
    return phrases.Named(process.command, process.argv)


def devices(figures: LiveFigures) -> list[str]:
    """The GPUs."""
    told = []
    for device in figures.devices:
        words = [f"{size(device.used)} of {size(device.limit)}" if device.limit else size(device.used)]
        if device.ours is not None:
            words.append(f"{size(device.ours)} of it this run's")
        if device.busy is not None:
            words.append(f"{100 * device.busy:.0f} % busy")
        told.append(f"{shorten(device.id, 24)}: {', '.join(words)}")
    return told


def one_line(figures: LiveFigures) -> str:
    """All of it in one line, for a log."""
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
