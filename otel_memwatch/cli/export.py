"""`export`: a recorded run in the format of another program."""

from __future__ import annotations

from pathlib import Path

import click

from otel_memwatch.errors import UsageError
from otel_memwatch.reports import REPORTS, write, write_files
from otel_memwatch.reports.output import STDOUT, put
from otel_memwatch.run import load
from otel_memwatch.runtime.typed import TYPE_CHECKING
from otel_memwatch.wings.index.find import find_run
from otel_memwatch.wings.ranks.commands import put_group
from otel_memwatch.wings.ranks.groups import find_group
from otel_memwatch.wings.trackers import TRACKERS, send

if TYPE_CHECKING:
    from otel_memwatch.wings.ranks.rank_group import RankGroup

_FORMATS = {name: report.help for name, report in REPORTS.items() if report.exported} | {
    name: tracker.help for name, tracker in TRACKERS.items()
}


@click.command(epilog="Formats: " + " ".join(f"{name}: {words}" for name, words in _FORMATS.items()))
@click.argument("run", required=False)
@click.option("--to", "form", type=click.Choice(list(_FORMATS)), default=None, help="The format.")
@click.option(
    "-o", "--output", metavar="FILE", help="Output file; for monitor-log a directory. [default: stdout]"
)
@click.option("--force", is_flag=True, help="Replace FILE.")
@click.option(
    "--into",
    metavar="RUN",
    help="Run of the tracker; for TensorBoard the directory. [default: from the environment]",
)
def command(run: str | None, *, form: str | None, output: str | None, force: bool, into: str | None) -> None:
    """Write the run directory RUN in another format, or send its figures and its page to an experiment tracker.

    Without RUN, or with "latest", it is the newest run below memwatch-runs. FILE is written atomically. For a group, -o names
    a directory, which gets one file for each rank.
    """
    if form is None:
        raise UsageError("Choose a format with --to.", "available: " + ", ".join(_FORMATS))
    if form in TRACKERS:
        if output is not None:
            raise UsageError("A tracker takes no file.", "name one of its runs with --into")
        click.echo(f"{form}: {send(form, load(find_run(run)), into)}", err=True)
        return
    if into is not None:
        raise UsageError("--into is for trackers.", "name the file with -o")
    group = find_group(run)
    if group is not None:
        _export_group(group, form, output, force=force)
        return
    found, directory = load(find_run(run)), REPORTS[form].directory
    if directory and output != STDOUT:
        click.echo(write_files(form, found, output or directory), err=True)
    else:
        put(form, found, output, force=force)


def _export_group(group: RankGroup, form: str, output: str | None, *, force: bool) -> None:
    """Write a file or a directory for each run of a group; for json, one document for the whole group."""
    from otel_memwatch.wings.ranks.group_json import text

    if form == "json":
        put_group(text(group).encode(), output or STDOUT, force=force)
        return
    if output in (None, STDOUT):
        raise UsageError("Say where the files of the ranks are to go.", "with -o DIRECTORY")
    directory = Path(str(output))
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"{directory} cannot be made: {error.strerror}.") from None
    digits = len(str(max((rank.rank or 0 for rank in group.ranks), default=0)))
    for number, rank in enumerate(group.ranks):
        name = f"host-{number}" if rank.rank is None else f"rank-{rank.rank:0{digits}d}"
        if REPORTS[form].directory:
            write_files(form, rank.run, directory / name)
        else:
            write(form, rank.run, directory / f"{name}{REPORTS[form].suffix}", force=force)
    click.echo(str(directory), err=True)
