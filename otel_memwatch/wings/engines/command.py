"""`engine`: correct a workflow engine's measurement files with the runs of its jobs."""

from __future__ import annotations

import os
from pathlib import Path

import click

from otel_memwatch.errors import RunError
from otel_memwatch.record.format import RUNS_DIRECTORY
from otel_memwatch.text import count
from otel_memwatch.wings.engines import ENGINES, ORIGINAL, correct

_EPILOG = "\n".join(("\b", "Files:", *(f"  {name:<10} {files}" for name, files in ENGINES.items())))
"""Click breaks no lines after a backspace."""


@click.command(epilog=_EPILOG)
@click.argument("engine", type=click.Choice(list(ENGINES)))
@click.argument("directory", default=".", metavar="[DIRECTORY]")
@click.option(
    "--runs",
    metavar="DIR",
    help=f"Directory of the runs. [default: {RUNS_DIRECTORY} in DIRECTORY, or anywhere below]",
)
def command(engine: str, directory: str, *, runs: str | None) -> None:
    """Replace ENGINE's measurements of the workflow in DIRECTORY with those of its runs.

    The first version of each file stays beside it with the suffix .orig. Files keep their times, so no job is repeated. Files
    without a run, and incomplete files, are left unchanged and counted.
    """
    place = Path(directory)
    if not place.is_dir():
        raise RunError(f"There is no directory {directory}.")
    usual = place / RUNS_DIRECTORY
    where = Path(runs) if runs else usual if usual.is_dir() else place
    corrected = list(correct(engine, place, where))
    left = [(path, why) for path, why in corrected if why]
    for path, why in left:
        click.echo(f"{os.path.relpath(path, place)} is left as it is: {why}", err=True)
    made = count(len(corrected) - len(left), "file")
    click.echo(f"{made} corrected, {len(left)} left; originals: *{ORIGINAL}")
