"""`runs`: the recorded runs."""

from __future__ import annotations

import json
import shutil
import sys
import time

import click

from otel_memwatch.cli.output import print_text
from otel_memwatch.record.format import RUNS_DIRECTORY
from otel_memwatch.reports.formatting import (
    certainty,
    clean,
    command_line,
    duration,
    peak_figure,
    shorten,
    table,
)
from otel_memwatch.runs.listing import list_runs
from otel_memwatch.runtime.typed import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from otel_memwatch.runs.listing import ListedRun

_LEAST_COMMAND = 20
"""Columns that a command gets on a terminal at least."""
_END = 34
"""Columns of how a run ended, on a terminal."""
_OTHERS = 19 + 12 + 22 + 10
"""Columns of the start, the duration and the memory, and between all columns."""


@click.command()
@click.argument("directories", metavar="[DIR]...", nargs=-1)
@click.option("--json", "as_json", is_flag=True, help="As JSON, one object for each run.")
def command(directories: tuple[str, ...], *, as_json: bool) -> None:
    """List the runs in each DIR, the newest last; a DIR may be a run itself. Without DIR: those in memwatch-runs.

    Runs that cannot be read are listed too, with the reason.
    """
    listed = list_runs(directories)
    if as_json:
        print_text(json.dumps([_as_json(entry) for entry in listed], indent=2) + "\n")
    elif listed:
        print_text("\n".join(_lines(listed)) + "\n")
    else:
        where = ", ".join(directories) or RUNS_DIRECTORY
        # "." would run into the sentence's end.
        where = f"'{where}'" if where.endswith(".") else where
        click.echo(f"otel-memwatch: There is no run below {clean(where)}.", err=True)


def _lines(listed: list[ListedRun]) -> list[str]:
    width = _command_width(listed)
    header = ("run", "started", "duration", "memory", "", "end", "command")
    return table([_row(entry, width) for entry in listed], header, "llrrlll")


def _command_width(listed: list[ListedRun]) -> int | None:
    """Columns left for the command on a terminal; `None` elsewhere: all of it."""
    if sys.stdout is None or not sys.stdout.isatty():
        return None
    used = max(len(str(entry.path)) for entry in listed) + _OTHERS + _END
    return max(_LEAST_COMMAND, shutil.get_terminal_size().columns - used)


def _row(entry: ListedRun, width: int | None) -> tuple[str, ...]:
    when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(entry.started))
    run = entry.run
    if run is None:
        return (clean(str(entry.path)), when, "-", "-", "", f"broken: {clean(entry.error or '')}", "")
    end = shorten(run.ending.reason, _END) if width is not None else clean(run.ending.reason)
    peak = run.peaks.tree
    return (
        clean(str(entry.path)),
        when,
        duration(run.seconds),
        peak_figure(peak),
        certainty(peak),
        run.state if run.state != "finished" else end,
        command_line(run.command, width),
    )


def _as_json(entry: ListedRun) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "path": str(entry.path),
        "id": entry.path.name,
        "state": "broken",
        "error": entry.error,
    }
    run = entry.run
    if run is None:
        return fields
    return fields | {
        "id": run.id,
        "state": run.state,
        "started": run.started_wall or None,
        "seconds": round(run.seconds, 6),
        "command": list(run.command),
        "ended": run.ending._asdict(),
        "peaks": run.peaks.to_json(),
    }
