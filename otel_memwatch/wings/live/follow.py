"""A running run as lines, without a terminal library: one look, or one line after the other until it ends."""

from __future__ import annotations

import time

from otel_memwatch.reports.output import print_report, print_text
from otel_memwatch.runtime.typed import TYPE_CHECKING
from otel_memwatch.wings.live import lines

if TYPE_CHECKING:
    from otel_memwatch.wings.live.live_run import LiveRun

_WIDTH = 100
_PROCESSES = 6
_ONE_LOOK = 2.0
"""Seconds that a person waits for one look at a long record."""
_SHARE = 0.5
"""Part of the time between two looks in which a long record is read."""


def one_look(run: LiveRun) -> None:
    """Prints what is known now."""
    figures = run.look(_ONE_LOOK)
    told = [lines.title(figures, _WIDTH), lines.state(figures), ""]
    told += [
        f"{fact.label:<14}{fact.text}" for fact in lines.facts(figures, run.last_tick_wall, run.interval)
    ]
    rows = lines.process_rows(figures, _PROCESSES, 70)
    if rows:
        told += ["", *(f"  {pid:>8}  {rss:>10}  {name}" for pid, rss, name in rows)]
    told += [f"{'open':<14}{text}" for text in lines.operations(figures)]
    told += [f"{'GPU':<14}{text}" for text in lines.devices(figures)]
    print_text("\n".join(told) + "\n")


def follow(run: LiveRun, every: float) -> None:
    """Prints a line every so many seconds until the run has ended, then its summary."""
    from otel_memwatch.run import load

    while (figures := run.look(_SHARE * every)).state == "running":
        print_text(lines.one_line(figures) + "\n")
        time.sleep(every)
    print_report("summary", load(run.path))
