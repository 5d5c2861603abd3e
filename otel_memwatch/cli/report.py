"""`report`: what a recorded run tells."""

from __future__ import annotations

import click

from otel_memwatch.analysis import load
from otel_memwatch.cli.output import print_report, put
from otel_memwatch.errors import UsageError
from otel_memwatch.reports import REPORTS
from otel_memwatch.runs.find import find_run

_FORMATS = [
    name for name, report in REPORTS.items() if not report.binary and (name == "json" or not report.exported)
]


@click.command()
@click.argument("run", required=False)
@click.option(
    "--json", "as_json", is_flag=True, help="The figures as JSON, schema 1; the same as --format json."
)
@click.option("--html", "page", metavar="FILE", help="The page: one file that opens in any browser, offline.")
@click.option("--force", is_flag=True, help="Replace FILE.")
@click.option(
    "--format", "form", type=click.Choice(_FORMATS), default=None, help="What to print. [default: text]"
)
def command(run: str | None, *, as_json: bool, page: str | None, force: bool, form: str | None) -> None:
    """Print what the run directory RUN tells: memory, operations, processes, quality of the record.

    Without RUN, or with "latest", it is the newest run below memwatch-runs. A run that is still going on, and one
    that was cut off, can be reported too.
    """
    if as_json and form not in (None, "json"):
        raise UsageError(f"--json and --format {form} exclude each other.", "give one of them")
    if page is not None:
        if as_json or form is not None:
            raise UsageError("--html and another format exclude each other.", "give one of them")
        put("html", load(find_run(run)), page, force=force)
        return
    print_report("json" if as_json else form or "text", load(find_run(run)))
