"""`export`: a recorded run in a format of other programs."""

from __future__ import annotations

import click

from otel_memwatch.analysis import load
from otel_memwatch.cli.output import STDOUT, put
from otel_memwatch.errors import UsageError
from otel_memwatch.reports import REPORTS, write_files
from otel_memwatch.runs.find import find_run
from otel_memwatch.runs.trackers import TRACKERS, send

_FORMATS = {name: report.help for name, report in REPORTS.items() if report.exported} | {
    name: tracker.help for name, tracker in TRACKERS.items()
}


@click.command(epilog="Formats: " + " ".join(f"{name}: {words}" for name, words in _FORMATS.items()))
@click.argument("run", required=False)
@click.option("--to", "form", type=click.Choice(list(_FORMATS)), default=None, help="The format.")
@click.option("-o", "--output", metavar="FILE", help="Where to; monitor-log: a directory. [default: stdout]")
@click.option("--force", is_flag=True, help="Replace FILE.")
@click.option(
    "--into",
    metavar="RUN",
    help="Of a tracker: which of its runs; TensorBoard: the directory. [default: what the environment names]",
)
def command(run: str | None, *, form: str | None, output: str | None, force: bool, into: str | None) -> None:
    """Write the run directory RUN in another format, or send its figures and its page to an experiment tracker.

    Without RUN, or with "latest", it is the newest run below memwatch-runs. A FILE is there whole or not at all.
    """
    if form is None:
        raise UsageError("Say in which format, with --to.", "there are " + ", ".join(_FORMATS))
    if form in TRACKERS:
        if output is not None:
            raise UsageError("A tracker takes no file.", "--into says which of its runs is meant")
        click.echo(f"{form}: {send(form, load(find_run(run)), into)}", err=True)
        return
    if into is not None:
        raise UsageError("--into is for trackers.", "-o names the file")
    found, directory = load(find_run(run)), REPORTS[form].directory
    if directory and output != STDOUT:
        click.echo(write_files(form, found, output or directory), err=True)
    else:
        put(form, found, output, force=force)
