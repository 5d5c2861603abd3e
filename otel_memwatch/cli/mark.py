"""`mark`: start a phase of a shell script."""

from __future__ import annotations

import os

import click

from otel_memwatch.in_target.operations.shell import mark_phase


@click.command()
@click.argument("name", required=False)
@click.option("--end", is_flag=True, help="Only end the phase that was begun last.")
def command(name: str | None, end: bool) -> None:
    """Begin the phase NAME of a shell script; the phase before it ends.

    For scripts in any language that run under `wrap`: the phase is one of the process that calls this. Outside a
    run nothing happens, so that it may stay in the script.
    """
    if (name is None) == (not end):
        raise click.UsageError("Give either a name or --end.")
    mark_phase(None if end else name, os.getppid())
