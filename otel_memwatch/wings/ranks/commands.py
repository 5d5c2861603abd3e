"""Parts shared by the commands that take a group as well as a run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from otel_memwatch.errors import UsageError
from otel_memwatch.reports import write_data
from otel_memwatch.reports.output import STDOUT, print_bytes, print_text
from otel_memwatch.runtime.terminal import display_of
from otel_memwatch.wings.ranks.rank_group import RankGroup

_F = TypeVar("_F", bound=Callable[..., Any])


def _note_ignored(_: click.Context, option: click.Parameter, value: str | None) -> None:
    if value is not None:
        click.echo(
            f"otel-memwatch: {option.opts[0]} is ignored. Across hosts the hosts' own peaks are added up.",
            err=True,
        )


def old_clock_options(function: _F) -> _F:
    """Accept options of releases that compared the clocks of hosts, with a note."""
    for name in ("--barrier", "--clock-error"):
        function = click.option(name, hidden=True, expose_value=False, callback=_note_ignored)(function)
    return function


def put_group(data: bytes, output: str, *, force: bool) -> None:
    """Write a report of a group to a file and name the file, or write to stdout if it is "-"."""
    if output == STDOUT:
        print_bytes(data)
        return
    click.echo(write_data(data, Path(output), force=force), err=True)


def print_group(group: RankGroup, form: str) -> None:
    """Print a report of a group. Raises `UsageError` for a format that only runs have."""
    import sys

    if form == "json":
        from otel_memwatch.wings.ranks.group_json import text

        print_text(text(group))
    elif form == "text":
        from otel_memwatch.wings.ranks import group_text

        print_text(group_text.text(group, display_of(sys.stdout.fileno())))
    else:
        raise UsageError(f"A group has no {form} report.", "use text or json, or name one of its runs")
