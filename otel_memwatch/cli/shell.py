"""`shell`: a shell that records what it runs, for engines that let one be named but know nothing of us."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from pathlib import Path

import click

from otel_memwatch.errors import UsageError

_SHIM = """#!/bin/sh
# Written by `otel-memwatch shell --install`: {real}, with all that it starts recorded as one run.
# What is recorded already, and what cannot be, runs as it would without this file.
if [ -n "${{OTEL_MEMWATCH_RUN_DIR-}}" ]; then exec {real} "$@"; fi
if [ ! -x {program} ]; then
    echo "otel-memwatch: {program} is gone: nothing is recorded" >&2
    exec {real} "$@"
fi
{runs}exec {program} wrap --quiet --no-report {options}-- {real} "$@"
"""

_RUNS = """runs={runs}
if ! {{ [ -d "$runs" ] || mkdir -p "$runs" 2>/dev/null; }} || ! [ -w "$runs" ]; then
    echo "otel-memwatch: $runs cannot be written: nothing is recorded" >&2
    exec {real} "$@"
fi
"""


_EPILOG = """\b
Use it in:
  make                           make SHELL=DIR/bash
  Snakemake, Airflow, cwltool    PATH=DIR:$PATH snakemake
  Nextflow                       process.shell = ['DIR/bash', '-euo', 'pipefail']"""
"""Click breaks no lines after a backspace."""


@click.command(epilog=_EPILOG)
@click.option("--install", "directory", metavar="DIR", required=True, help="Where the file is written to.")
@click.option(
    "--name", default="bash", show_default=True, help="Name of the file, and of the shell that it runs."
)
@click.option(
    "--runs",
    metavar="DIR",
    help="Where runs are recorded. Default: memwatch-runs, where the shell is started.",
)
@click.option("--force", is_flag=True, help="Replace a file that is there.")
def command(directory: str, *, name: str, runs: str | None, force: bool) -> None:
    """Write a shell into DIR that records each script as a run: for make and workflow engines, without an edit.

    Arguments, exit code, signals and streams are those of the real shell. Engines look at its name: Snakemake leaves out
    `set -euo pipefail` where it is not bash, so that a failing command would go unnoticed. Reports and pages are not made of each: `report` makes
    them of those that somebody looks at.
    """
    if "/" in name or name in ("", ".", ".."):
        raise UsageError(f"{name!r} is no name of a shell.", "as in --name bash")
    place = Path(os.path.abspath(directory))
    real = _real(name, place)
    path = place / name
    if os.path.lexists(path) and not force:
        raise UsageError(f"{path} is there already.", "--force replaces it")
    try:
        place.mkdir(parents=True, exist_ok=True)
        part = place / f".{name}.{os.getpid()}"
        part.write_text(_text(real, runs), encoding="utf-8", errors="surrogateescape")
        part.chmod(0o755)
        part.replace(path)
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}.") from None
    click.echo(path)


def _real(name: str, place: Path) -> str:
    """Path of the shell itself: the first of that name on PATH that does not lie in the directory of the file."""
    elsewhere = [folder for folder in os.get_exec_path() if Path(os.path.abspath(folder)) != place]
    found = shutil.which(name, path=os.pathsep.join(elsewhere))
    if found is None:
        raise UsageError(f"There is no {name} on PATH.")
    return os.path.abspath(found)


def _text(real: str, runs: str | None) -> str:
    quoted = shlex.quote(real)
    program = (
        Path(sys.argv[0])
        if sys.argv[0].endswith("otel-memwatch")
        else Path(sys.executable).with_name("otel-memwatch")
    )
    check = "" if runs is None else _RUNS.format(runs=shlex.quote(os.path.abspath(runs)), real=quoted)
    return _SHIM.format(
        real=quoted,
        program=shlex.quote(os.path.abspath(program)),
        runs=check,
        options="" if runs is None else '--runs "$runs" ',
    )
