"""`runs`: the recorded runs as one table."""

from __future__ import annotations

import io
import os
import shutil
import sys
import textwrap
from pathlib import Path

import click

from otel_memwatch.errors import RunError, UsageError
from otel_memwatch.reports import write_data
from otel_memwatch.reports.output import print_bytes, print_text
from otel_memwatch.runtime import strict_json
from otel_memwatch.runtime.masking import mask_url
from otel_memwatch.runtime.terminal import say
from otel_memwatch.runtime.typed import TYPE_CHECKING, Any
from otel_memwatch.text import clean, count, size
from otel_memwatch.wings.index import listing, run_fields
from otel_memwatch.wings.index.filter import where
from otel_memwatch.wings.index.find import paths_of
from otel_memwatch.wings.index.index import index, runs_home
from otel_memwatch.wings.index.page_options import RedactingCommand, open_option, redact_option
from otel_memwatch.wings.index.remote import here, is_remote

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from otel_memwatch.wings.index.indexed_run import IndexedRun
    from otel_memwatch.wings.index.prune import Removal
    from otel_memwatch.wings.index.run_fields import RunField

_LIST = "list"
_WASTED = "run,name,duration,asked,memory,unused_gib_hours,asked_cores,cores,unused_core_hours,command"
"""Columns of `--wasted`."""
_NO_REQUEST = "No run has a known request: --limit, or the limit of a container or scheduler."
_EPILOG = "\n".join(
    (
        "\b",
        "Fields (peak is memory, key the command without its arguments):",
        *textwrap.wrap(
            ", ".join((*run_fields.COLUMNS, "tag.NAME")), 76, initial_indent="  ", subsequent_indent="  "
        ),
    )
)
"""Click breaks no lines after a backspace."""


class _RunsGroup(click.Group):
    """Group in which `runs PATH...` lists runs; only the other subcommands need their names."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if not args or args[0] not in self.commands:
            args = [_LIST, *args]
        return super().parse_args(ctx, args)


@click.group(cls=_RunsGroup)
def command() -> None:
    """List recorded runs."""


@command.command(_LIST, cls=RedactingCommand, epilog=_EPILOG)
@click.argument("directories", metavar="[PATH|NAME]...", nargs=-1)
@click.option("--where", "condition", metavar="CONDITION", help="List only runs that match.")
@click.option("--last", type=click.IntRange(min=1), metavar="N", help="List only the newest N of these.")
@click.option(
    "--sort", metavar="FIELD", help="Sort by this field; -FIELD sorts the largest first. Default: started."
)
@click.option("--columns", metavar="FIELD,...", help="Show these fields.")
@click.option(
    "--wasted",
    is_flag=True,
    help="Show requested but unused resources, sorted by GiB-hours, then by core-hours.",
)
@click.option("--group", "group", metavar="FIELD,...", help="Group runs by these fields.")
@click.option(
    "--json", "as_json", is_flag=True, help="Print JSON, one object for each run; same as --format json."
)
@click.option(
    "--format",
    "form",
    type=click.Choice(["text", "json", "csv", "parquet", "markdown"]),
    help="Output format; markdown is for --changes. Default: text.",
)
@click.option("-o", "--output", metavar="FILE", help="Write to FILE.")
@click.option(
    "--changes", "show_changes", is_flag=True, help="List the runs at which a figure stepped or drifted."
)
@click.option(
    "--page",
    metavar="FILE",
    help="Write a page with the table and charts: one file for any browser, without a network.",
)
@redact_option
@open_option("--page")
def list_command(
    directories: tuple[str, ...],
    *,
    condition: str | None,
    last: int | None,
    sort: str | None,
    columns: str | None,
    wasted: bool,
    group: str | None,
    as_json: bool,
    form: str | None,
    output: str | None,
    show_changes: bool,
    page: str | None,
    redact: str,
) -> None:
    """List the runs in each PATH or of each NAME, the newest last. PATH is a run or a directory tree. Default: memwatch-runs.

    Unreadable runs are listed with the reason. `runs prune` removes runs, `runs import` adds measurements of other tools.

    CONDITION: tag.rule=align and peak>2GiB and started>14d; = != < <= > >=, ~ (contains), and, or, not, parentheses.
    """
    if as_json and form not in (None, "json"):
        raise UsageError(f"--json and --format {form} exclude each other.", "pass one of them")
    if page is not None and bool(as_json or form or output or columns or show_changes):
        raise UsageError("--page excludes --columns, --output, --changes and formats.", "pass one of them")
    if redact and page is None:
        raise UsageError("--redact is for --page.", "name the file with --page")
    form = "json" if as_json else form or "text"
    _check_changes(form, show_changes, others=bool(columns or wasted or sort))
    chosen = None if columns is None else run_fields.columns(columns, "--columns")
    by = None if group is None else run_fields.columns(group, "--group")
    found, looked_at = _selected(directories, condition, last)
    recorded = bool(found)
    if wasted:
        chosen = chosen or run_fields.columns(_WASTED, "--wasted")
        found = [row for row in found if row.asked is not None or row.asked_cores is not None]
        found.sort(key=lambda row: (-(row.unused_gib_hours or 0), -(row.unused_core_hours or 0)))
    if sort is not None:
        found = _sorted(found, sort)
    if page is not None:
        if not found:
            raise RunError(_no_runs(directories, looked_at))
        from otel_memwatch.wings.index.runs_page import html

        _write(html(sorted(found, key=lambda row: row.started), by, page, redacted=bool(redact)), page)
        say(clean(page))
        return
    if form in ("text", "markdown") and not found:
        said = _NO_REQUEST if recorded else _no_runs(directories, looked_at)
        click.echo(f"otel-memwatch: {said}", err=True)
        return
    if show_changes:
        from otel_memwatch.wings.index import changes, changes_formats

        _write(changes_formats.FORMATS[form](changes.changes(found, by), len(found)), output)
        return
    _write(_rendered(form, found, chosen, by, wasted=wasted), output)


def _selected(
    directories: tuple[str, ...], condition: str | None, last: int | None
) -> tuple[list[IndexedRun], int]:
    """Return the runs that match, and the number of runs that were checked against the condition."""
    accepts = where(condition) if condition else None
    looked_at = 0

    def matches(row: IndexedRun) -> bool:
        nonlocal looked_at
        looked_at += 1
        return accepts is None or accepts(row)

    paths = [path for given in directories for path in paths_of(here(given))]
    return index(paths, newest=last, accepts=matches if accepts else None), looked_at


def _sorted(rows: list[IndexedRun], sort: str) -> list[IndexedRun]:
    """Return the rows in the order of `--sort`; unknown values come last."""
    field, *more = run_fields.columns(sort.lstrip("-"), "--sort")
    if more:
        raise UsageError(f"--sort takes one field, not {sort!r}.", "as in --sort -memory")
    key: Callable[[IndexedRun], Any] = field.of
    known = sorted((row for row in rows if key(row) is not None), key=key, reverse=sort.startswith("-"))
    return known + [row for row in rows if key(row) is None]


def _no_runs(directories: Sequence[str], looked_at: int) -> str:
    place = ", ".join(directories) or runs_home()
    # A "." at the end would merge with the sentence's period.
    place = clean(f"'{place}'" if place.endswith(".") else place)
    return (
        f"No matching runs ({looked_at} checked in {place})."
        if looked_at
        else f"There is no run below {place}."
    )


def _check_changes(form: str, show_changes: bool, *, others: bool) -> None:
    if show_changes and others:
        raise UsageError("--changes excludes --columns, --sort and --wasted.", "pass one of them")
    if show_changes and form in ("csv", "parquet"):
        raise UsageError(f"--changes and --format {form} exclude each other.", "use --format json")
    if form == "markdown" and not show_changes:
        raise UsageError("--format markdown is for --changes.", "add --changes")


def _rendered(
    form: str,
    rows: list[IndexedRun],
    chosen: list[RunField] | None,
    by: list[RunField] | None,
    *,
    wasted: bool = False,
) -> bytes | str:
    """Return the runs in a format, or with `by` their groups."""
    if by:
        found = listing.groups(rows, by)
        title = ", ".join(one.name for one in by)
        if form == "text":
            return "\n".join([*listing.group_lines(found, title), listing.totals(rows)]) + "\n"
        if form == "json":
            return strict_json.dumps([one._asdict() for one in found], indent=2) + "\n"
        raise UsageError(
            f"--group and --format {form} exclude each other.", "group the exported rows instead"
        )
    if form == "text":
        width = shutil.get_terminal_size().columns if sys.stdout is not None and sys.stdout.isatty() else None
        shown = listing.column_lines(rows, chosen) if chosen else listing.lines(rows, width)
        below = [listing.unused(rows)] if wasted else [listing.totals(rows)] if len(rows) > 1 else []
        return "\n".join([*shown, *below]) + "\n"
    if form == "json":
        if chosen:
            return strict_json.dumps([listing.fields(row, chosen) for row in rows], indent=2) + "\n"
        return strict_json.dumps([one for row in rows if (one := _as_json(row))], indent=2) + "\n"
    chosen = chosen or listing.exported_columns(rows)
    if form == "csv":
        text = io.StringIO()
        listing.write_csv(rows, chosen, text)
        return text.getvalue()
    data = io.BytesIO()
    listing.write_parquet(rows, chosen, data)
    return data.getvalue()


def _write(content: bytes | str, output: str | None) -> None:
    """Write to stdout, or atomically to a file. Raises `RunError`, `UsageError`."""
    if output in (None, "-"):
        if isinstance(content, str):
            print_text(content)
        else:
            print_bytes(content)
        return
    data = content.encode("utf-8", "backslashreplace") if isinstance(content, str) else content
    write_data(data, Path(str(output)), force=True)


def _as_json(row: IndexedRun) -> dict[str, Any] | None:
    """Return the run as an object; `None` if it was removed after it was listed."""
    document: dict[str, Any] = {"path": row.path, "id": row.id, "state": row.state, "error": row.error}
    if row.state == "broken":
        return document
    from otel_memwatch.run import load

    try:
        peaks = load(row.path).peaks.to_json()
    except RunError as error:
        return document | {"state": "broken", "error": error.message} if os.path.lexists(row.path) else None
    return document | {
        "name": row.name,
        "tags": dict(row.tags),
        "started": row.started or None,
        "seconds": row.seconds,
        "command": list(row.command),
        "ended": {
            "exit_code": row.exit_code,
            "signal": row.signal,
            "oom_kills": row.oom_kills,
            "reason": row.reason,
        },
        "peaks": peaks,
        "host": row.host,
        "measured_by": row.by,
        "input_bytes": row.input_bytes,
        "totals": {
            "cpu_seconds": row.cpu,
            "read_bytes": row.read,
            "write_bytes": row.written,
            "processes": row.processes,
        },
    }


@command.command("prune")
@click.argument("directories", metavar="[PATH]...", nargs=-1)
@click.option("--keep", type=click.IntRange(min=0), metavar="N", help="Keep the newest N runs.")
@click.option("--older", metavar="DURATION", help="Remove only older runs: 14d, 6h.")
@click.option("--where", "condition", metavar="CONDITION", help="Consider only runs that match.")
@click.option("--dry-run", is_flag=True, help="List the runs without removing them.")
def prune_command(
    directories: tuple[str, ...], *, keep: int | None, older: str | None, condition: str | None, dry_run: bool
) -> None:
    """Remove old runs in each PATH. Running and unreadable runs stay.

    Only files that otel-memwatch wrote are removed. If a run directory contains other files or another run, it stays with
    these, and a message names them. Symbolic links below PATH are not followed. PATH itself may be a link that you or root own.
    """
    from otel_memwatch.config import parse_seconds, parsed
    from otel_memwatch.wings.index.prune import old_runs, resolve

    remote = next((one for one in directories if is_remote(one)), None)
    if remote is not None:
        raise UsageError(
            f"{mask_url(remote)} is in a store: prune only removes local runs.",
            "remove them with the store's own client",
        )
    if keep is None and older is None:
        raise UsageError("Pass --keep N, --older DURATION, or both.", "for example --keep 30 --older 14d")
    seconds = parsed(parse_seconds, older, "--older")
    accepts = where(condition) if condition else None
    roots = [resolve(directory) for directory in directories or (runs_home(),)]
    there = [
        root for root in roots if directories or os.path.lexists(root)
    ]  # the default directory may be missing
    rows = index(there, accepts=accepts, for_removal=True) if there else []
    old, foreign = old_runs(rows, keep, seconds)
    freed, removed = 0, 0
    for paths, outcome in _removals([*old, *foreign], roots, dry_run=dry_run):
        if outcome.removed:
            freed, removed = freed + outcome.size, removed + len(paths)
            for path in paths:
                click.echo(clean(path))
        if outcome.note:
            say(f"otel-memwatch: {clean(outcome.note)}")
    done = "would be removed" if dry_run else "removed"
    say(f"otel-memwatch: {count(removed, 'run')} of {len(rows)} {done}, {size(freed)}")


def _removals(
    rows: Sequence[IndexedRun], roots: Sequence[str], *, dry_run: bool
) -> Iterator[tuple[Sequence[str], Removal]]:
    """Remove runs; yield the paths of each removal and its result. The recipes of one file are one removal."""
    from otel_memwatch.wings.index.prune import is_recipe, remove, remove_recipes

    recipes: dict[str, list[str]] = {}
    for row in rows:
        if is_recipe(row.path):
            recipes.setdefault(os.path.dirname(row.path), []).append(row.id)
        else:
            yield [row.path], remove(row, roots, dry_run=dry_run)
    for parent, ids in recipes.items():
        yield [f"{parent}/{name}" for name in ids], remove_recipes(parent, ids, roots, dry_run=dry_run)


@command.command("import")
@click.argument("files", metavar="FILE...", nargs=-1, required=True)
@click.option("--into", metavar="DIR", help="Directory for the runs. Default: memwatch-runs.")
@click.option(
    "--tag", "tags", multiple=True, metavar="KEY=VALUE", help="Tag for all of these runs; may be repeated."
)
def import_command(files: tuple[str, ...], *, into: str | None, tags: tuple[str, ...]) -> None:
    """Import measurements of other tools: Snakemake benchmarks, Nextflow traces, sacct -P, GNU time -v, con-duct's info.

    Each row becomes a run that is marked as sampled, with the name of the tool.
    """
    from otel_memwatch.config import parse_tag, parsed
    from otel_memwatch.wings.index.importing import import_file

    given = dict(pair for tag in tags if (pair := parsed(parse_tag, tag, "--tag")))
    for file in files:
        done = import_file(file, into or runs_home(), given)
        parts = [f"{count(done.added, 'run')} of {done.by}"]
        parts += [f"{done.known} already imported"] if done.known else []
        parts += [f"{count(done.left_out, 'row')} without a memory figure skipped"] if done.left_out else []
        say(f"otel-memwatch: {clean(file)}: {', '.join(parts)}")
