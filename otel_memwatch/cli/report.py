"""`report`: print the figures of a recorded run."""

from __future__ import annotations

import click

from otel_memwatch.config import parse_size, parsed
from otel_memwatch.errors import UsageError
from otel_memwatch.reports import REPORTS
from otel_memwatch.reports.output import print_report, print_text, put
from otel_memwatch.run import load
from otel_memwatch.runtime.terminal import display_of
from otel_memwatch.wings.index.find import find_run, find_running, runs_below
from otel_memwatch.wings.index.page_options import RedactingCommand, open_option, redact_option, redacted
from otel_memwatch.wings.live.live_run import LiveRun
from otel_memwatch.wings.live.seconds import Seconds
from otel_memwatch.wings.ranks.group_commands import old_clock_options, print_group, put_group, redacted_group
from otel_memwatch.wings.ranks.groups import find_group, groups_of

_FORMATS = [
    name for name, report in REPORTS.items() if not report.binary and (name == "json" or not report.exported)
]
_NAMED = "|".join(name for name in _FORMATS if REPORTS[name].module.startswith("."))
"""Formats in help. Formats of older tools are accepted too."""
_SHORT = {"md": "markdown"}
"""Other names of formats."""


@click.command(cls=RedactingCommand)
@click.argument("run", required=False)
@click.option(
    "--json", "as_json", is_flag=True, help="Print the figures as JSON, schema 1, as --format json does."
)
@click.option(
    "--html", "page", metavar="FILE", help="Write the page: one file for any browser, without a network."
)
@click.option("--force", is_flag=True, help="Replace FILE.")
@click.option(
    "--format",
    "form",
    type=click.Choice([*_FORMATS, *_SHORT]),
    metavar=_NAMED,
    default=None,
    help="Output format. [default: text]",
)
@click.option(
    "--follow", is_flag=True, help="For a running job: print periodic status lines, then the summary."
)
@click.option(
    "--every",
    type=Seconds(0.1, 3600),
    default=2.0,
    show_default=True,
    help="Seconds between the lines of --follow.",
)
@click.option(
    "--by",
    type=click.Choice(["output"]),
    help="For a build: list its largest actions by output file, and the -j that fits.",
)
@click.option(
    "--day",
    metavar="DATE",
    help="Print the figures of one day in local time: 2026-11-01, today or yesterday.",
)
@click.option("--within", metavar="SIZE", help="Memory available to the build, for --by output.")
@redact_option
@old_clock_options
@open_option("--html")
def command(
    run: str | None,
    *,
    as_json: bool,
    page: str | None,
    force: bool,
    form: str | None,
    follow: bool,
    every: float,
    by: str | None,
    within: str | None,
    day: str | None,
    redact: str,
) -> None:
    """Print the report of the run directory RUN: memory, operations, processes, quality of the record.

    Without RUN, or with "latest", it is the newest run below memwatch-runs. RUN may still be running, or its record may stop
    early. RUN may also be a group, by its name or by the directory of its runs: the report then covers all ranks. With --html,
    RUN may be a directory of runs: the page then covers all of them, as runs --page does.
    """
    form = None if form is None else _SHORT.get(form, form)
    if as_json and form not in (None, "json"):
        raise UsageError(f"--json and --format {form} exclude each other.", "pass one of them")
    if redact and (follow or by is not None):
        raise UsageError("--redact excludes --follow and --by.")
    if by is not None or within is not None:
        other = by is None or form is not None or page is not None or follow or day is not None
        _print_outputs(run, within, as_json=as_json, other=other)
        return
    if day is not None:
        other = form not in (None, "text", "json") or page is not None or follow or bool(redact)
        _print_day(run, day, as_json=as_json or form == "json", other=other)
        return
    if page is not None:
        if as_json or form is not None or follow:
            raise UsageError("--html excludes other formats.", "pass one of them")
        _put_page(run, page, redact, force=force)
        return
    if follow:
        from otel_memwatch.wings.live import lines

        lines.follow(LiveRun(find_running(run)), every)
        return
    form = "json" if as_json else form or "text"
    group = find_group(run)
    if group is not None:
        with redacted_group(group, redact) as shown:
            print_group(shown, form)
        return
    with redacted(find_run(run), redact) as path:
        print_report(form, load(path))


def _print_outputs(run: str | None, within: str | None, *, as_json: bool, other: bool) -> None:
    """Print the actions of a build; `other`: an option excludes that."""
    if other:
        raise UsageError("--by output goes with --json and --within only.")
    room = parsed(parse_size, within, "--within")
    print_report("outputs", load(find_run(run)), as_json=as_json, within=room)


def _print_day(run: str | None, day: str, *, as_json: bool, other: bool) -> None:
    """Print the figures of one day; `other`: an option excludes that."""
    from otel_memwatch.reports import day_report

    if other:
        raise UsageError("--day goes with --json only.")
    found = load(find_run(run))
    figures = day_report.figures_of_day(found, day)
    print_text(day_report.json(figures) if as_json else day_report.text(found, figures, display_of(1)))


def _put_page(run: str | None, page: str, redact: str, *, force: bool) -> None:
    """Write the page of a run, a group, or the runs of a directory. A directory with one group alone is that group."""
    rows = runs_below(run)
    groups = groups_of(rows)
    if rows and not (len(groups) == 1 and len(groups[0].rows) == len(rows)):
        from otel_memwatch.wings.index import runs_page

        put_group(runs_page.html(rows, None, page, redacted=bool(redact)), page, force=force)
    elif (group := find_group(run)) is not None:
        from otel_memwatch.wings.ranks.group_page import html

        with redacted_group(group, redact) as shown:
            put_group(html(shown).encode("utf-8", "backslashreplace"), page, force=force)
    else:
        with redacted(find_run(run), redact) as path:
            put("html", load(path), page, force=force)
