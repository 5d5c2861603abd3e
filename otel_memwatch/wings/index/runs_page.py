"""Page of many runs: one HTML file that works offline, with the table of runs and a chart of each group over time.

The static page has the table of groups and the newest runs, for readers without scripts. The script replaces it.
"""

from __future__ import annotations

import json
import os
from urllib.parse import quote

from otel_memwatch.errors import Unavailable
from otel_memwatch.record.redaction import Redactor
from otel_memwatch.reports.html import document
from otel_memwatch.reports.pages import Columns
from otel_memwatch.reports.pages.html import HtmlPage
from otel_memwatch.reports.pages.markup import escaped, tag
from otel_memwatch.run.figures import FIGURES, MEMORY, PROCESS
from otel_memwatch.runtime.typed import TYPE_CHECKING, Any
from otel_memwatch.text import clean, command_line, count, shorten
from otel_memwatch.wings.index import changes, changes_formats, listing
from otel_memwatch.wings.index.commit_subjects import subjects

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from otel_memwatch.wings.index.changes import FigureChange
    from otel_memwatch.wings.index.indexed_run import IndexedRun
    from otel_memwatch.wings.index.run_fields import RunField

_MOST = 10_000
"""Runs on a page. Of more, each group keeps its newest, its extremes and its failures."""
_STATIC = 50
"""Newest runs in the static table."""
_GROUPS = 200
"""Groups in the table, those with the largest memory."""
_COMMAND, _TEXT = 160, 300
_COMMIT = 10
"""Shown characters of a commit."""
_PAGE = "report.html"


def html(
    rows: Sequence[IndexedRun], by: Sequence[RunField] | None, file: str, *, redacted: bool = False
) -> bytes:
    """Return the page of the runs, oldest first.

    Args:
        rows: the runs; at least one.
        by: fields of a group. Default: the name, or the command if a run has no name.
        file: path of the page, to which links to pages of runs are relative.
        redacted: replace texts with placeholders, and leave out links.

    """
    if redacted:
        rows = redacted_rows(rows, {one.name.removeprefix("tag.") for one in by or ()})
    found, missing = _changes(rows, by)
    messages = {} if redacted else subjects(row.commit for row in rows if row.commit)
    kept = thinned(rows, by, {id(row) for one in found for row in (one.last, one.first)})
    page = HtmlPage()
    groups = listing.groups(rows, by)
    page.section(f"Groups ({len(groups)})")
    page.raw('<div id="charts"></div>')
    page.table(
        listing.group_cells(groups[:_GROUPS]),
        Columns(
            (", ".join(one.name for one in by or ()) or "group", *listing.GROUP_HEADER),
            "lrrrrrrr",
            wide=("median", "spread", "duration", "CPU"),
        ),
    )
    if len(groups) > _GROUPS:
        page.paragraph(f"The {_GROUPS} groups with the largest memory; {len(groups) - _GROUPS} left out.")
    directory = changes_formats.directory_of(found)
    page.section(f"Changes ({len(found)})")
    page.table(
        [changes_formats.cells(one, directory, messages) for one in found],
        Columns(changes_formats.HEADER, changes_formats.ALIGNED, wide=("started",)),
    )
    page.paragraph(missing)
    page.section(f"Runs ({len(rows)})")
    cells = [listing.cells(row, 60) for row in kept[-_STATIC:][::-1]]
    page.table(cells, Columns(listing.HEADER, listing.ALIGNED))
    if len(rows) > len(kept):
        page.paragraph(
            f"{count(len(rows) - len(kept), 'run')} of {len(rows)} left out: "
            "the newest, the extremes and the failures of each group are here. All of them: otel-memwatch runs."
        )
    elif len(kept) > _STATIC:
        page.paragraph(f"Without scripts, this page lists the newest {_STATIC} runs.")
    first, last = (listing.local(one.started) for one in (rows[0], rows[-1]))
    period = f"From {first} to {last}." if len(rows) > 1 else f"Started {first}."
    head = tag(
        "header", tag("h1", escaped(listing.totals(rows))) + tag("p", escaped(period), class_="second")
    )
    if redacted:
        head += tag("p", "Redacted: texts are placeholders, figures are unchanged.", class_="second")
    foot = tag("footer", tag("p", "This page loads nothing and sends nothing."))
    body = f'<main id="page">\n{head}\n{page.text()}{foot}</main>\n'
    return document(
        count(len(rows), "run"), body, _data(kept, by, None if redacted else file, found, messages), "runs.js"
    )


def redacted_rows(rows: Iterable[IndexedRun], kept: Collection[str] = ()) -> list[IndexedRun]:
    """Return the runs with placeholders for their texts. They may be any text, so a run's name is one of them.

    `kept`: names of tags that stay, because runs are grouped by them.
    """
    redactor = Redactor()

    def hidden(row: IndexedRun) -> IndexedRun:
        tags = {
            key if key in kept else redactor.text(key, "tag"): redactor.text(value)
            for key, value in row.tags.items()
        }
        return row._replace(
            path=redactor.text(row.path, "run"),
            id=redactor.text(row.id, "run"),
            error=redactor.text(row.error or "", "error") or None,
            name=redactor.text(row.name or "", "name") or None,
            tags_json=json.dumps(tags) if tags else "{}",
            command_json=json.dumps([redactor.text(" ".join(row.command), "command")]),
            key=redactor.text(row.key, "command"),
            cwd=redactor.text(row.cwd or "", "path") or None,
            host=redactor.text(row.host or "", "host") or None,
            reason=redactor.value(row.reason),
            group=redactor.text(row.group or "", "group") or None,
            commit=redactor.text(row.commit or "", "commit") or None,
        )

    return [hidden(row) for row in rows]


def _changes(rows: Sequence[IndexedRun], by: Sequence[RunField] | None) -> tuple[list[FigureChange], str]:
    """Return the changes, and a sentence that explains their absence."""
    try:
        found = changes.changes(rows, by)
    except Unavailable as error:
        return [], f"{error.message} {error.hint}"
    absent = f"No step or drift is certain. Each side of a step needs {changes.LEAST_RUNS} runs."
    return found, "" if found else absent


def thinned(
    rows: Sequence[IndexedRun], by: Sequence[RunField] | None, needed: Collection[int] = ()
) -> list[IndexedRun]:
    """Return at most about 10 000 runs: of each part of a group's time the extremes, and all that failed.

    `needed`: ids of the rows that stay in any case.
    """
    if len(rows) <= _MOST:
        return list(rows)
    groups: dict[str, list[int]] = {}
    for place, row in enumerate(rows):
        groups.setdefault(listing.group_name(row, by), []).append(place)
    kept = {place for place, row in enumerate(rows) if id(row) in needed}
    for places in groups.values():
        share = max(8, _MOST * len(places) // len(rows))
        length = max(1, -(-len(places) * 4 // share))
        for start in range(0, len(places), length):
            part = places[start : start + length]
            kept.update((part[0], part[-1]))
            kept.add(max(part, key=lambda place: rows[place].upper_bound or rows[place].memory or 0))
            kept.add(min(part, key=lambda place: rows[place].low or rows[place].memory or 0))
    bad = [place for place, row in enumerate(rows) if listing.failed(row) and place not in kept]
    kept.update(bad[-_MOST // 4 :])
    return [rows[place] for place in sorted(kept)]


def _data(
    rows: Sequence[IndexedRun],
    by: Sequence[RunField] | None,
    file: str | None,
    found_changes: Sequence[FigureChange],
    messages: Mapping[str, str],
) -> dict[str, Any]:
    figures = [row for row in FIGURES if row.field and row.name != "exit"]
    found: dict[str, Any] = {
        "group": _texts(listing.group_name(row, by) for row in rows),
        "run": [shorten(row.path, _TEXT) for row in rows],
        "started": [round(row.started, 3) for row in rows],
        "end": _texts((row.error or "broken") if row.state == "broken" else
                      row.reason if row.state == "finished" else row.state for row in rows),
        "bad": [2 if row.killed_for_memory else int(listing.failed(row)) for row in rows],
        "command": _texts(command_line(row.command, _COMMAND) for row in rows),
        "host": _texts(row.host or "" for row in rows),
        "tags": _texts(", ".join(f"{key}={value}" for key, value in row.tags.items()) for row in rows),
        "commit": _texts((row.commit or "")[:_COMMIT if file is not None else None] for row in rows),
        "subject": _texts(clean(messages.get(row.commit or "", "")) for row in rows),
        "limit": [row.limit for row in rows],
        "asked": [row.asked for row in rows],
        "link": _links(rows, file) if file is not None else [],
    }  # fmt: skip
    bounds: dict[str, tuple[Callable[[IndexedRun], int | None], Callable[[IndexedRun], int | None]]] = {
        MEMORY: (lambda row: row.low, lambda row: row.upper_bound),
        PROCESS: (lambda row: row.process_low, lambda row: row.process_high),
    }
    made = []
    for figure in figures:
        values = [getattr(row, figure.field) for row in rows]
        if not any(values):
            continue
        document = {"name": figure.name, "words": figure.words, "unit": figure.unit, "values": values}
        if figure.name in bounds:
            low, high = bounds[figure.name]
            document |= {"low": [low(row) for row in rows], "high": [high(row) for row in rows]}
        made.append(document)
    place = {id(row): at for at, row in enumerate(rows)}
    return {
        "count": len(rows),
        "runs": found,
        "figures": made,
        "certainty": _texts(row.certainty or "" for row in rows),
        "changes": [
            {
                "figure": one.figure.name,
                "step": one.is_step,
                "last": place[id(one.last)],
                "first": place[id(one.first)],
                "text": changes_formats.cells(one)[5],
            }
            for one in found_changes
        ],
    }


def _texts(values: Iterable[str]) -> dict[str, Any]:
    """Return a column of text: the different texts, and the place of each run's one."""
    places: dict[str, int] = {}
    at = [places.setdefault(value, len(places)) for value in values]
    return {"words": [shorten(value, _TEXT) for value in places], "at": at}


def _links(rows: Iterable[IndexedRun], file: str) -> list[str]:
    """Return the page of each run relative to this page; empty if there is none."""
    parent = os.path.dirname(os.path.abspath(file))
    found = []
    for row in rows:
        page = f"{row.path}/{_PAGE}"
        # With "./" in front, no path can be taken for a scheme.
        found.append("./" + quote(os.fsencode(os.path.relpath(page, parent))) if os.path.exists(page) else "")
    return found
