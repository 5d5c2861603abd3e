"""Parts shared by the commands that take a group as well as a run."""

from __future__ import annotations

import contextlib
import io
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import click

from otel_memwatch.errors import UsageError
from otel_memwatch.record.redaction import REDACTED, Redactor, redacted_copy
from otel_memwatch.reports import REPORTS, write, write_data, write_files
from otel_memwatch.reports.output import STDOUT, print_bytes, print_text
from otel_memwatch.runtime.terminal import display_of
from otel_memwatch.wings.ranks.groups import find_group
from otel_memwatch.wings.ranks.rank_group import RankGroup

_F = TypeVar("_F", bound=Callable[..., Any])


def old_clock_options(function: _F) -> _F:
    """Accept options of releases that compared the clocks of hosts, with a note."""

    def note(_: click.Context, option: click.Parameter, value: str | None) -> None:
        if value is not None:
            click.echo(
                f"otel-memwatch: {option.opts[0]} is ignored. Across hosts the hosts' own peaks are added up.",
                err=True,
            )

    for name in ("--barrier", "--clock-error"):
        function = click.option(name, hidden=True, expose_value=False, callback=note)(function)
    return function


def rank_directories(group: RankGroup) -> dict[str, Path]:
    """Return the run directories of a group by a name for each.

    Names: "rank-0", "host-4" around ranks, "run-5" without a rank, "earlier-6" of earlier attempts.
    """
    digits = len(str(max((rank.rank or 0 for rank in group.ranks), default=0)))
    names = [
        f"rank-{rank.rank:0{digits}d}"
        if rank.rank is not None
        else f"{'host' if rank.around else 'run'}-{place}"
        for place, rank in enumerate(group.ranks)
    ]
    names += [f"earlier-{place}" for place in range(len(group.earlier))]
    return dict(zip(names, (rank.run.path for rank in (*group.ranks, *group.earlier)), strict=True))


@contextlib.contextmanager
def redacted_group(group: RankGroup, redact: str, redactor: Redactor | None = None) -> Iterator[RankGroup]:
    """Yield the group, or with `redact` ("names" or "all") a temporary redacted copy. Raises `RunError`.

    `redactor`: placeholders shared with other copies.
    """
    if not redact:
        yield group
        return
    redactor = redactor or Redactor(everything=redact == "all")
    with tempfile.TemporaryDirectory() as place:
        for name, path in rank_directories(group).items():
            copy = Path(place, REDACTED, name)
            copy.mkdir(parents=True)
            redacted_copy(path, copy, redactor)
        found = find_group(str(Path(place, REDACTED)))
        assert found is not None
        yield found


def put_group(data: bytes, output: str, *, force: bool) -> None:
    """Write a report of a group to a file and name the file, or write to stdout if it is "-"."""
    if output == STDOUT:
        print_bytes(data)
        return
    click.echo(write_data(data, Path(output), force=force), err=True)


def print_group(group: RankGroup, form: str) -> None:
    """Print a report of a group. Raises `UsageError` for a format that only runs have."""
    if form == "json":
        from otel_memwatch.wings.ranks.group_json import text

        print_text(text(group))
    elif form == "text":
        from otel_memwatch.wings.ranks import group_text

        print_text(group_text.text(group, display_of(sys.stdout.fileno())))
    else:
        raise UsageError(f"A group has no {form} report.", "use text or json, or name one of its runs")


def export_group(group: RankGroup, form: str, output: str | None, *, force: bool) -> None:
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
    for name, rank in zip(rank_directories(group), group.ranks, strict=False):
        if REPORTS[form].directory:
            write_files(form, rank.run, directory / name)
        else:
            write(form, rank.run, directory / f"{name}{REPORTS[form].suffix}", force=force)
    click.echo(str(directory), err=True)


def draw_group(
    group: RankGroup,
    output: str | None,
    *,
    force: bool,
    title: str | None,
    dark: bool,
    size: tuple[float, float | None] | None,
    dpi: int | None,
) -> None:
    """Draw a group into a file. Raises `UsageError` without a file, and for a format that is no picture."""
    from otel_memwatch.wings.ranks.group_picture import draw

    if output is None:
        raise UsageError("Say where a picture of a group is to go.", "with -o FILE")
    form = Path(output).suffix.lstrip(".").lower() or "png"
    if form not in ("png", "pdf", "svg"):
        raise UsageError(f"{output}: a picture is a .png, .pdf or .svg file.")
    made = io.BytesIO()
    draw(group, made, form=form, title=title, dark=dark, size=size, dpi=dpi)
    put_group(made.getvalue(), output, force=force)
