"""`mark`: start a phase of a shell script."""

from __future__ import annotations

import os

import click

from otel_memwatch.in_target.operations.shell import mark_phase


@click.command()
@click.argument("name", required=False)
@click.option("--end", is_flag=True, help="End the last phase without starting another.")
def command(name: str | None, end: bool) -> None:
    """Start the phase NAME of a shell script and end the phase before it.

    For scripts in any language under `wrap`: the phase belongs to the calling process. Outside a run the command does
    nothing, so it can stay in the script.
    """
    if (name is None) == (not end):
        raise click.UsageError("Give either a name or --end.")
    mark_phase(None if end else name, os.getppid())
