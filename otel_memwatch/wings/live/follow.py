"""Run in progress as plain lines: figures once, or a line per interval until the run ends."""

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
"""Longest time in seconds to read a long record for figures once."""
_SHARE = 0.5
"""Part of the interval for reading a long record."""


def one_look(run: LiveRun) -> None:
    """Print the current figures."""
    figures = run.look(_ONE_LOOK)
    printed = [lines.title(figures, _WIDTH), lines.state(figures), ""]
    printed += [
        f"{fact.label:<14}{fact.text}" for fact in lines.facts(figures, run.last_tick_wall, run.interval)
    ]
    rows = lines.process_rows(figures, _PROCESSES, 70)
    if rows:
        printed += ["", *(f"  {pid:>8}  {rss:>10}  {name}" for pid, rss, name in rows)]
    printed += [f"{'open':<14}{text}" for text in lines.operations(figures)]
    printed += [f"{'GPU':<14}{text}" for text in lines.devices(figures)]
    print_text("\n".join(printed) + "\n")


def follow(run: LiveRun, every: float) -> None:
    """Print a line every `every` seconds until the run has ended, then its summary."""
    from otel_memwatch.run import load

    while (figures := run.look(_SHARE * every)).state == "running":
        print_text(lines.one_line(figures) + "\n")
        time.sleep(every)
    print_report("summary", load(run.path))
