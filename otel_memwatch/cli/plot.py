"""`plot`: a recorded run as a picture."""

from __future__ import annotations

from pathlib import Path

import click

from otel_memwatch.analysis import load
from otel_memwatch.cli.output import put
from otel_memwatch.record.format import PLOT_FILE
from otel_memwatch.reports.plot import STYLES
from otel_memwatch.runs.find import find_run


@click.command()
@click.argument("run", required=False)
@click.option(
    "-o", "--output", metavar="FILE", help="Where to: a .png, .pdf or .svg file. [default: memory.png in RUN]"
)
@click.option(
    "--style",
    type=click.Choice((*STYLES, "phases")),
    default=STYLES[0],
    show_default=True,
    help="What to draw.",
)
@click.option("--force", is_flag=True, help="Replace FILE.")
def command(run: str | None, *, output: str | None, style: str, force: bool) -> None:
    """Draw the run directory RUN: memory, CPU, I/O, GPUs and operations over time.

    Without RUN, or with "latest", it is the newest run below memwatch-runs.
    """
    found = load(find_run(run))
    name, file = ("phases", "phases.png") if style == "phases" else ("plot", PLOT_FILE)
    if output is None:
        put(name, found, str(Path(found.path) / file), force=True, style=style)
    else:
        put(name, found, output, force=force, style=style)
