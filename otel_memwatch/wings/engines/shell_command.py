"""`shell`: a shell that records its commands, for engines with a configurable shell."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from pathlib import Path

import click

from otel_memwatch.errors import UsageError
from otel_memwatch.runtime.own_python import PACKAGE_PARENT
from otel_memwatch.runtime.user_files import replace_file

_SHIM = """#!/bin/sh
# Written by `otel-memwatch shell --install`: {real}, with all that it starts recorded as one run.
# What is recorded already, and what cannot be, runs as it would without this file.
if [ -n "${{OTEL_MEMWATCH_RUN_DIR-}}" ]; then exec {real} "$@"; fi
{present}{runs}exec {recorder}{python} -I -S -c {program} {real} {package} {options}-- "$@"
"""

_PROGRAM = """
import os, sys
real, package, *words = sys.argv[1:]
end = words.index("--")
class SiteOnDemand:
    def find_spec(name, path=None, target=None):
        if path is None and name not in sys.stdlib_module_names:
            sys.meta_path.remove(SiteOnDemand)
            import importlib.util, site
            site.main()
            return importlib.util.find_spec(name)
sys.meta_path.append(SiteOnDemand)
started = words[0] == "@"
try:
    sys.path.append(package)
    from otel_memwatch.cli.recorded_shell import record, record_started
    if started:
        record_started(real, words[1:10], words[10:end], words[end + 1:])
except Exception as error:
    import signal
    why = str(error) or type(error).__name__
    for number in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores them
        signal.signal(number, signal.SIG_DFL)
else:
    why = record(real, words[:end], words[end + 1:])
try:
    os.write(2, f"otel-memwatch: nothing is recorded: {why}\\n".encode(errors="backslashreplace"))
except OSError:
    pass
if started:
    status = os.waitstatus_to_exitcode(os.waitpid(int(words[1]), 0)[1])
    os._exit(status if status >= 0 else 128 - status)
os.execv(real, [real, *words[end + 1:]])
"""
"""Python's part of the file, alone or as the successor of `monitor/launcher/recipe.c`. It runs isolated: PYTHONHOME and PYTHONPATH are the command's own.

Without `site` it starts 3 ms earlier. The first import from outside the standard library, such as OpenTelemetry's, runs it.
"""

_PRESENT = """if [ ! -x {file} ]; then
    echo "otel-memwatch: "{file}" is gone: nothing is recorded" >&2
    exec {real} "$@"
fi
"""
"""The file sets no variable: an exported one of that name would reach the command changed."""

_RUNS = """if ! {{ [ -d {runs} ] || mkdir -p {runs} 2>/dev/null; }} || ! [ -w {runs} ]; then
    echo "otel-memwatch: "{runs}" cannot be written: nothing is recorded" >&2
    exec {real} "$@"
fi
"""


_RECORDER = "otel_memwatch/monitor/launcher/recipe"
"""Compiled recorder of short recipes, below the parent of the package."""

_EPILOG = """\b
Use it in:
  make                           make SHELL=DIR/bash
  Snakemake, Airflow, cwltool    PATH=DIR:$PATH snakemake
  Nextflow                       process.shell = ['DIR/bash', '-euo', 'pipefail']"""
"""Click breaks no lines after a backspace."""


@click.command(epilog=_EPILOG)
@click.option("--install", "directory", metavar="DIR", required=True, help="Directory for the file.")
@click.option(
    "--name",
    metavar="NAME",
    default="bash",
    show_default=True,
    help="Name of the file and of the real shell.",
)
@click.option(
    "--runs",
    metavar="DIR",
    help="Directory for the runs. Default: memwatch-runs in the shell's working directory.",
)
@click.option("--force", is_flag=True, help="Replace an existing file.")
def command(directory: str, *, name: str, runs: str | None, force: bool) -> None:
    """Write a shell into DIR that records each script as a run. No changes to the Makefile or workflow are needed.

    Arguments, exit code, signals and streams are those of the real shell. Keep the name bash for Snakemake: otherwise it
    omits `set -euo pipefail`, and a failing command goes unnoticed. Runs have no report or page; `report` makes them on demand.
    """
    if "/" in name or name in ("", ".", ".."):
        raise UsageError(f"{name!r} is no name of a shell.", "as in --name bash")
    place = Path(os.path.abspath(directory))
    # The real shell is the first of this name on PATH outside the directory of the file.
    elsewhere = [folder for folder in os.get_exec_path() if Path(os.path.abspath(folder)) != place]
    found = shutil.which(name, path=os.pathsep.join(elsewhere))
    if found is None:
        raise UsageError(f"There is no {name} on PATH.")
    path = place / name
    if os.path.lexists(path) and not force:
        raise UsageError(f"{path} is there already.", "--force replaces it")
    real, python = shlex.quote(os.path.abspath(found)), shlex.quote(os.path.abspath(sys.executable))
    place_of_runs = shlex.quote(os.path.abspath(runs or ""))
    compiled = f"{PACKAGE_PARENT}/{_RECORDER}"
    recorder = (
        shlex.quote(compiled) if os.access(compiled, os.X_OK) else ""
    )  # empty if this installation has none
    text = _SHIM.format(
        real=real,
        python=python,
        present="".join(_PRESENT.format(file=file, real=real) for file in (python, recorder) if file),
        recorder=recorder and f"{recorder} ",
        program=shlex.quote(_PROGRAM),
        package=shlex.quote(PACKAGE_PARENT),
        runs=_RUNS.format(runs=place_of_runs, real=real) if runs else "",
        options=f"--runs {place_of_runs} " if runs else "",
    )
    try:
        place.mkdir(parents=True, exist_ok=True)
        replace_file(path, text.encode("utf-8", "surrogateescape"), mode=0o755)
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}.") from None
    click.echo(path)
