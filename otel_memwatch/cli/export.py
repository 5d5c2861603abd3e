"""`export`: a recorded run in a format of other programs."""

from __future__ import annotations

import click

from otel_memwatch.analysis import load
from otel_memwatch.cli.output import STDOUT, put
from otel_memwatch.errors import UsageError
from otel_memwatch.reports import REPORTS, write_files
from otel_memwatch.runs.find import find_run

_FORMATS = {name: report.help for name, report in REPORTS.items() if report.exported}


@click.command(epilog="Formats: " + " ".join(f"{name}: {words}" for name, words in _FORMATS.items()))
@click.argument("run", required=False)
@click.option("--to", "form", type=click.Choice(list(_FORMATS)), default=None, help="The format.")
@click.option("-o", "--output", metavar="FILE", help="Where to; monitor-log: a directory. [default: stdout]")
@click.option("--force", is_flag=True, help="Replace FILE.")
def command(run: str | None, *, form: str | None, output: str | None, force: bool) -> None:
    """Write the run directory RUN in another format.

    Without RUN, or with "latest", it is the newest run below memwatch-runs. A FILE is there whole or not at all.
    """
    if form is None:
        raise UsageError("Say in which format, with --to.", "there are " + ", ".join(_FORMATS))
    found, directory = load(find_run(run)), REPORTS[form].directory
    if directory and output != STDOUT:
        click.echo(write_files(form, found, output or directory), err=True)
    else:
        put(form, found, output, force=force)
