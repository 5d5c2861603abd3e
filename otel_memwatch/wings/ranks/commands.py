"""What commands have in common that take a group as they take a run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from otel_memwatch.config import parse_seconds
from otel_memwatch.errors import UsageError
from otel_memwatch.reports import write_data
from otel_memwatch.reports.output import STDOUT, print_bytes, print_text
from otel_memwatch.runtime.terminal import display_of
from otel_memwatch.wings.ranks.rank_group import RankGroup

_F = TypeVar("_F", bound=Callable[..., Any])


def _seconds(_: click.Context, __: click.Parameter, value: str | None) -> float | None:
    if value is None:
        return None
    try:
        return parse_seconds(value)
    except ValueError as error:
        raise UsageError(f"--clock-error: {error}.") from None


def group_options(function: _F) -> _F:
    """Options that say what is known of the clocks of a group's hosts."""
    barrier = click.option(
        "--barrier",
        metavar="NAME",
        help="Of a group: an operation that no rank leaves before all have entered it. It tells how far clocks are apart.",
    )
    clock_error = click.option(
        "--clock-error",
        metavar="SECONDS",
        callback=_seconds,
        help="Of a group: how far the hosts' wall clocks were apart at most, where you know.",
    )
    return barrier(clock_error(function))


def put_group(data: bytes, output: str, *, force: bool) -> None:
    """Writes what was made of a group to a file, and says which; to stdout where it is "-"."""
    if output == STDOUT:
        print_bytes(data)
        return
    click.echo(write_data(data, Path(output), force=force), err=True)


def print_group(group: RankGroup, form: str) -> None:
    """Prints a report of a group. Raises `UsageError` for a form that there is only of a run."""
    import sys

    if form == "json":
        from otel_memwatch.wings.ranks.group_json import text

        print_text(text(group))
    elif form == "text":
        from otel_memwatch.wings.ranks import group_text

        print_text(group_text.text(group, display_of(sys.stdout.fileno())))
    else:
        raise UsageError(
            f"There is no {form} of a group.", "text and json are of groups; name one of its runs for others"
        )
