"""`live`: show a run in progress in a terminal. It only reads the record."""

from __future__ import annotations

import os
import sys
from importlib.util import find_spec

import click

from otel_memwatch.errors import Unavailable
from otel_memwatch.reports.output import print_report, print_text
from otel_memwatch.run import load
from otel_memwatch.wings.index.find import find_running
from otel_memwatch.wings.live import lines
from otel_memwatch.wings.live.live_run import LiveRun
from otel_memwatch.wings.live.seconds import Seconds
from otel_memwatch.wings.ranks.groups import find_group


@click.command()
@click.argument("run", metavar="[RUN|PID|latest]", required=False)
@click.option(
    "--every",
    type=Seconds(0.1, 60),
    default=0.5,
    show_default=True,
    help="Seconds between frames.",
)
@click.option(
    "--once", is_flag=True, help="Print the current figures once and exit. Default without a terminal."
)
def command(run: str | None, *, every: float, once: bool) -> None:
    """Show a run in progress: current memory, peak so far, time until the limit, and the largest processes.

    This works from any terminal, also over ssh: only the record is read. PID is a process of the run. Without RUN, or
    with "latest", it is the newest run below memwatch-runs. RUN may be a group. Needs rich: pip install 'otel-memwatch[live]'.
    """
    once = once or not (sys.stdin.isatty() and sys.stdout.isatty()) or os.environ.get("TERM") == "dumb"
    group = find_group(run)
    if group is not None:
        from otel_memwatch.wings.live import group as of_group

        if not once:
            _need_rich("otel-memwatch live --once")
        of_group.show(group, every, once=once)
        return
    found = LiveRun(find_running(run))
    if once:
        lines.one_look(found)
        return
    _need_rich("otel-memwatch report --follow")
    from otel_memwatch.wings.live.screen import show

    ended_by = show(found, every)
    if ended_by is not None:
        sys.exit(128 + ended_by)
    figures = found.look(0.0)
    if figures.state == "running":
        # The live view is gone; keep its last figures on the terminal.
        print_text(lines.one_line(figures).strip() + "\n")
    else:
        print_report("summary", load(found.path))


def _need_rich(instead: str) -> None:
    """Raise `Unavailable` if rich is not installed, and name a command that works without it."""
    if find_spec("rich") is None:
        raise Unavailable("The live view needs rich.", f"pip install 'otel-memwatch[live]', or: {instead}")
