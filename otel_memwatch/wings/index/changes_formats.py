"""Changes of jobs as a table, Markdown and JSON. `FORMATS` lists the formats."""

from __future__ import annotations

import os

from otel_memwatch.reports.pages import Columns
from otel_memwatch.reports.pages.markdown import MarkdownPage
from otel_memwatch.runtime import strict_json
from otel_memwatch.runtime.masking import public_name
from otel_memwatch.runtime.typed import TYPE_CHECKING
from otel_memwatch.text import amount, bounds, clean, count, shorten, size_in, size_scale, table
from otel_memwatch.wings.index.commit_subjects import subjects
from otel_memwatch.wings.index.listing import group_name, local

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from otel_memwatch.wings.index.changes import FigureChange

SCHEMA = 1
HEADER = ("name", "figure", "", "before", "after", "change", "99 % interval", "first run", "started", "")
ALIGNED = "lllrrrllll"
_SUBJECT = 80
"""Shown characters of a commit's subject."""
_MOST_ROWS = 200
"""Rows of a Markdown table; a comment may have 65 536 characters."""


def directory_of(found: Sequence[FigureChange]) -> str:
    """Return the directory below which all runs of the changes are; empty if there are none."""
    paths = [os.path.dirname(one.first.path) for one in found] + [
        os.path.dirname(one.last.path) for one in found
    ]
    try:
        return os.path.commonpath(paths) if paths else ""
    except ValueError:  # absolute and relative paths
        return ""


def messages_of(found: Sequence[FigureChange]) -> dict[str, str]:
    """Return the subjects of the commits at which new levels start, if the repository of the working directory has them."""
    return subjects(one.first.commit for one in found if one.is_step and one.first.commit)


def cells(
    change: FigureChange, directory: str = "", messages: Mapping[str, str] | None = None
) -> tuple[str, ...]:
    """Return a change as a row of a table.

    Args:
        change: a step or a drift.
        directory: the paths of runs are relative to it.
        messages: subjects of commits, for those at which a new level starts.
    """
    share = "" if change.share is None else f" ({100 * change.share:+.1f} %)"
    sign = "+" if change.size >= 0 else "-"
    if change.is_step:
        kind, run = "step", change.first.path
        place = f"one of {change.runs} runs" if change.runs > 2 else ""
    else:
        kind, run = "drift", change.last.path
        place = f"over {change.runs} runs"
    certainty = "" if change.is_certain else "the ranges overlap"
    causes = f"also changed: {', '.join(change.notes)}" if change.notes else ""
    subject = (messages or {}).get(change.first.commit or "")
    if subject and change.is_step and change.first.commit != change.last.commit:
        causes += f": {shorten(clean(subject), _SUBJECT)}"
    return (
        clean(change.group),
        change.figure.words,
        kind,
        _amount(change, change.before),
        _amount(change, change.after),
        f"{sign}{_amount(change, abs(change.size))}{share}",
        _interval(change),
        clean(os.path.relpath(run, directory) if directory else run),
        local((change.first if change.is_step else change.last).started),
        "; ".join(filter(None, (place, certainty, causes))),
    )


def _amount(change: FigureChange, value: float) -> str:
    """Return a value of the change. Sizes of one change have the unit of the largest."""
    if change.figure.unit != "By":
        return amount(value, change.figure.unit)
    return size_in(value, *size_scale(max(abs(change.before), abs(change.after))))


def _interval(change: FigureChange) -> str:
    """Return the interval of the change with a sign: "+4.8-5.0 MiB"."""
    low, high = change.low, change.high
    if low < 0 < high:
        return f"-{_amount(change, -low)} to +{_amount(change, high)}"
    nearest, farthest = sorted((abs(low), abs(high)))
    sign = "-" if high <= 0 and low < 0 else "+"
    if change.figure.unit != "By":
        return sign + bounds(nearest, farthest, change.figure.unit).replace(" to ", f" to {sign}")
    first, second = _amount(change, nearest), _amount(change, farthest)
    return sign + (second if first == second else f"{first.split()[0]}-{second}")


def summary(found: Sequence[FigureChange], runs: int) -> str:
    """Return the result in a sentence: "3 changes in 300 runs"."""
    return f"{count(len(found), 'change')} in {count(runs, 'run')}"


def as_table(found: Sequence[FigureChange], runs: int) -> str:
    """Return a table for a terminal, the changes of a name together."""
    directory, messages = directory_of(found), messages_of(found)
    rows = [cells(one, directory, messages) for one in found]
    lines = [*table(rows, HEADER, ALIGNED), ""] if found else []
    where = f", in {clean(directory)}" if directory else ""
    return "\n".join([*lines, summary(found, runs) + where]) + "\n"


def as_markdown(found: Sequence[FigureChange], runs: int) -> str:
    """Return Markdown for a comment, the newest changes first."""
    page = MarkdownPage()
    page.title(summary(found, runs))
    newest = sorted(found, key=lambda one: one.first.started, reverse=True)
    if found:
        directory, messages = directory_of(found), messages_of(found)
        rows = [(_public_group(one), *cells(one, directory, messages)[1:]) for one in newest[:_MOST_ROWS]]
        page.table(rows, Columns(HEADER, ALIGNED))
    if len(found) > _MOST_ROWS:
        page.paragraph(f"{count(len(found) - _MOST_ROWS, 'older change')}.")
    return page.text()


def _public_group(change: FigureChange) -> str:
    """Return the group without arguments if it is a command: a comment leaves the machine."""
    of_command = not change.first.name and change.group == group_name(change.first, None)
    return clean(public_name(change.first.command) if of_command else change.group)


def as_json(found: Sequence[FigureChange], runs: int) -> str:
    """Return JSON: bytes or seconds, times in Unix seconds. `subject` is that of `first_commit`."""
    messages = messages_of(found)
    document = {
        "schema": SCHEMA,
        "runs": runs,
        "changes": [
            {
                "name": one.group,
                "figure": one.figure.name,
                "unit": one.figure.unit,
                "kind": "step" if one.is_step else "drift",
                "before": one.before,
                "after": one.after,
                "change": one.size,
                "share": one.share,
                "low": one.low,
                "high": one.high,
                "certain": one.is_certain,
                "last_run": one.last.path,
                "first_run": one.first.path,
                "last_commit": one.last.commit,
                "first_commit": one.first.commit,
                "subject": messages.get(one.first.commit or "") if one.is_step else None,
                "started": one.first.started,
                "possible_runs": one.runs,
                "also_changed": list(one.notes),
            }
            for one in found
        ],
    }
    return strict_json.dumps(document, indent=2) + "\n"


FORMATS: Mapping[str, Callable[[Sequence[FigureChange], int], str]] = {
    "text": as_table,
    "markdown": as_markdown,
    "json": as_json,
}
