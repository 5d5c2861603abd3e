"""`export`: a recorded run in the format of another program."""

from __future__ import annotations

import click

from otel_memwatch.errors import UsageError
from otel_memwatch.reports import REPORTS, write_files
from otel_memwatch.reports.output import STDOUT, put
from otel_memwatch.run import load
from otel_memwatch.wings.index.find import find_run
from otel_memwatch.wings.index.page_options import RedactingCommand, redact_option, redacted
from otel_memwatch.wings.ranks.group_commands import export_group, redacted_group
from otel_memwatch.wings.ranks.groups import find_group
from otel_memwatch.wings.trackers import TRACKERS, send

_FORMATS = {name: report.help for name, report in REPORTS.items() if report.exported} | {
    name: tracker.help for name, tracker in TRACKERS.items()
}
_EPILOG = "\n".join(("\b", "Formats:", *(f"  {name:<20} {words}" for name, words in _FORMATS.items())))
"""Click breaks no lines after a backspace."""


@click.command(cls=RedactingCommand, epilog=_EPILOG)
@click.argument("run", required=False)
@click.option(
    "--to",
    "form",
    type=click.Choice(list(_FORMATS)),
    metavar="FORMAT",
    default=None,
    help=f"Format: {', '.join(_FORMATS)}.",
)
@click.option(
    "-o", "--output", metavar="FILE", help="Output file; for monitor-log a directory. [default: stdout]"
)
@click.option("--force", is_flag=True, help="Replace FILE.")
@click.option(
    "--into",
    metavar="RUN",
    help="Run of the tracker; for TensorBoard the directory. [default: from the environment]",
)
@redact_option
def command(
    run: str | None, *, form: str | None, output: str | None, force: bool, into: str | None, redact: str
) -> None:
    """Write the run directory RUN in another format, or send its figures and its page to an experiment tracker.

    Without RUN, or with "latest", it is the newest run below memwatch-runs. FILE is written atomically. For a group, -o names
    a directory, which gets one file for each rank.
    """
    if form is None:
        raise UsageError("Choose a format with --to.", "available: " + ", ".join(_FORMATS))
    if form in TRACKERS:
        if redact:
            raise UsageError("--redact is for files.")
        if output is not None:
            raise UsageError("A tracker takes no file.", "name one of its runs with --into")
        click.echo(f"{form}: {send(form, load(find_run(run)), into)}", err=True)
        return
    if into is not None:
        raise UsageError("--into is for trackers.", "name the file with -o")
    group = find_group(run)
    if group is not None:
        with redacted_group(group, redact) as exported:
            export_group(exported, form, output, force=force)
        return
    directory = REPORTS[form].directory
    with redacted(find_run(run), redact) as path:
        found = load(path)
        if directory and output != STDOUT:
            click.echo(write_files(form, found, output or directory), err=True)
        else:
            put(form, found, output, force=force)
