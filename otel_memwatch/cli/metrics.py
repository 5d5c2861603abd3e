"""`metrics`: table of all metrics, for people, manuals and programs."""

from __future__ import annotations

import json
from pathlib import Path

import click

from otel_memwatch.catalog import METRICS, prometheus_names
from otel_memwatch.errors import MemwatchError
from otel_memwatch.runtime.user_files import read_file

BEGIN, END = "<!-- metrics:begin -->", "<!-- metrics:end -->"
"""Lines of a document that enclose the table."""


@click.command()
@click.option("--markdown", "form", flag_value="markdown", help="Print a Markdown table.")
@click.option("--json", "form", flag_value="json", help="Print JSON: an array of objects.")
@click.option(
    "--check",
    metavar="FILE",
    help=f"Compare the table in FILE, between {BEGIN} and {END}, with this version's.",
)
@click.option("--update", metavar="FILE", help="Replace the table in FILE with this version's.")
def command(form: str | None, check: str | None, update: str | None) -> None:
    """Print every metric: name, instrument, unit, attributes, Prometheus name, meaning and caveats."""
    if check or update:
        path = Path(check or update or "")
        try:
            text = read_file(path, pipe=True).decode()
        except OSError as error:
            raise MemwatchError(f"{path} cannot be read: {error.strerror}.") from None
        except UnicodeDecodeError:
            raise MemwatchError(f"{path} is not a text file in UTF-8.") from None
        replaced = with_table(text, path)
        if update:
            path.write_text(replaced, encoding="utf-8")
        elif replaced != text:
            raise MemwatchError(
                f"The table of metrics in {path} is out of date.", f"otel-memwatch metrics --update {path}"
            )
        return
    click.echo({"markdown": markdown, "json": as_json, None: plain}[form](), nl=False)


def with_table(text: str, path: Path | str = "the document") -> str:
    """Return the document with this version's table between its two lines. Raises `MemwatchError` if they are missing."""
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise MemwatchError(
            f"{path} has no place for the table of metrics.", f"add the lines {BEGIN} and {END}"
        )
    return f"{before}{BEGIN}\n\n{markdown()}\n{END}{after}"


def markdown() -> str:
    """Return a Markdown table with a row for each metric."""
    head = ("Metric", "Sent by", "Instrument", "Unit", "Attributes", "In Prometheus", "Meaning", "Name")
    rows = [head, ("---",) * len(head)]
    for row in METRICS.values():
        meaning = f"{row.description} {row.note}".strip()
        rows.append(
            (
                f"`{row.name}`",
                row.profile.value,
                row.instrument.value,
                f"`{row.unit}`",
                ", ".join(f"`{name}`" for name in row.attributes),
                " or ".join(f"`{name}`" for name in prometheus_names(row)),
                meaning,
                "own" if row.stability.value == "memwatch" else f"convention, {row.stability.value}",
            )
        )
    return "".join("| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |\n" for row in rows)


def as_json() -> str:
    """Return a JSON array with an object for each metric."""
    documents = [
        {
            "name": row.name,
            "instrument": row.instrument.value,
            "unit": row.unit,
            "attributes": list(row.attributes),
            "prometheus": list(prometheus_names(row)),
            "description": row.description,
            "note": row.note,
            "source": row.source,
            "stability": row.stability.value,
            "profile": row.profile.value,
        }
        for row in METRICS.values()
    ]
    return json.dumps(documents, indent=1) + "\n"


def plain() -> str:
    """Return a paragraph for each metric."""
    paragraphs = []
    for row in METRICS.values():
        attributes = f" {{{', '.join(row.attributes)}}}" if row.attributes else ""
        lines = [
            f"{row.name}{attributes}",
            f"    {row.instrument.value}, unit {row.unit}, {row.stability.value}; in Prometheus {' or '.join(prometheus_names(row))}",
            f"    sent by --metrics {row.profile.value}",
            f"    {row.description}",
        ]
        if row.note:
            lines.append(f"    Note: {row.note}")
        paragraphs.append("\n".join(lines) + "\n")
    return "\n".join(paragraphs)
