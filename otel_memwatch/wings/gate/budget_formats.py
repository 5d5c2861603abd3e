"""Verdicts on budgets as text; `FORMATS` lists the formats, each a function of the runs with their verdicts."""

from __future__ import annotations

from otel_memwatch.reports.pages import Columns
from otel_memwatch.reports.pages.markdown import MarkdownPage
from otel_memwatch.reports.phrases import budget_sentence
from otel_memwatch.run.figures import figure_name
from otel_memwatch.runtime import strict_json
from otel_memwatch.runtime.typed import TYPE_CHECKING, Any
from otel_memwatch.text import amount, bounds, clean, table
from otel_memwatch.wings.gate.budgets import Judgement
from otel_memwatch.wings.gate.junit import Case, junit

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    Checked = Sequence[tuple[str, Sequence[Mapping[str, Any]]]]
    """Runs by their names, each with its verdicts as `wings.gate.budgets.judge_run` returns them."""

_HEADER, _ALIGNED = ("run", "figure", "measured", "budget", "verdict", ""), "llrrll"


def _rows(checked: Checked) -> list[tuple[str, ...]]:
    """Return one row for each run and budget."""
    return [
        (
            clean(name),
            figure_name(entry["figure"]),
            _known(entry),
            amount(entry["limit"], entry["unit"]) if entry["limit"] is not None else "-",
            "inconclusive" if entry["verdict"] == Judgement.UNKNOWN.value else entry["verdict"],
            clean(entry["why"]),
        )
        for name, entries in checked
        for entry in entries
    ]


def _known(entry: Mapping[str, Any]) -> str:
    """Return the measured value: a figure, or its bounds."""
    if entry["value"] is None:
        return "-"
    if entry["certainty"] == "exact":
        return amount(entry["value"], entry["unit"])
    if entry["certainty"] == "sampled":
        return f"{amount(entry['value'], entry['unit'])} (sampled)"
    return bounds(entry["low"], entry["high"], entry["unit"])


def as_table(checked: Checked) -> str:
    """Return a table for a terminal."""
    return "\n".join(table(_rows(checked), _HEADER, _ALIGNED)) + "\n"


def as_markdown(checked: Checked) -> str:
    """Return Markdown for a comment or the page of a CI step."""
    page = MarkdownPage()
    page.title("Budgets")
    page.table(_rows(checked), Columns(_HEADER, _ALIGNED, strong=Judgement.OVER.value))
    return page.text()


def as_json(checked: Checked) -> str:
    """Return JSON as `budgets.schema.json` beside this module describes it."""
    runs = [{"run": name, "budgets": list(entries)} for name, entries in checked]
    return strict_json.dumps({"schema": 1, "runs": runs}, indent=2) + "\n"


def as_junit(checked: Checked) -> str:
    """Return JUnit's XML; a figure over its budget is a failure, an inconclusive one is skipped."""
    results = {Judgement.OVER.value: "failure", Judgement.UNKNOWN.value: "skipped"}
    cases = [
        Case(
            f"memwatch.{clean(name)}",
            figure_name(e["figure"]),
            results.get(e["verdict"], ""),
            budget_sentence(e),
        )
        for name, entries in checked
        for e in entries
    ]
    return junit("otel-memwatch check", cases)


FORMATS: Mapping[str, Callable[[Checked], str]] = {
    "table": as_table,
    "markdown": as_markdown,
    "json": as_json,
    "junit": as_junit,
}
"""Formats by name."""
