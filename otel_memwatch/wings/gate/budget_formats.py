"""Verdicts on budgets as text: `FORMATS` lists the forms; each is a function of the runs with their verdicts."""

from __future__ import annotations

from otel_memwatch.reports.markdown import code, escape
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
    """Runs by their names, each with its verdicts as `wings.gate.budget_check.judge_run` gives them."""


def as_table(checked: Checked) -> str:
    """For a terminal: one row for each run and budget."""
    rows = [
        (
            clean(name),
            figure_name(entry["figure"]),
            _known(entry),
            amount(entry["limit"], entry["unit"]) if entry["limit"] is not None else "-",
            entry["verdict"],
            clean(entry["why"]),
        )
        for name, entries in checked
        for entry in entries
    ]
    return "\n".join(table(rows, ("run", "figure", "was", "budget", "verdict", ""), "llrrll")) + "\n"


def _known(entry: Mapping[str, Any]) -> str:
    if entry["value"] is None:
        return "-"
    if entry["certainty"] == "exact":
        return amount(entry["value"], entry["unit"])
    if entry["certainty"] == "sampled":
        return f"{amount(entry['value'], entry['unit'])} seen"
    return bounds(entry["low"], entry["high"], entry["unit"])


def as_markdown(checked: Checked) -> str:
    """For a comment, and a step's page."""
    lines = ["### Budgets", "", "| run | | was | budget | | |", "| --- | --- | ---: | ---: | --- | --- |"]
    for name, entries in checked:
        for entry in entries:
            verdict = entry["verdict"]
            limit = "-" if entry["limit"] is None else amount(entry["limit"], entry["unit"])
            shown = f"**{verdict}**" if verdict == Judgement.OVER.value else verdict
            figure = escape(figure_name(entry["figure"]))
            why = escape(clean(entry["why"]))
            lines.append(f"| {code(clean(name))} | {figure} | {_known(entry)} | {limit} | {shown} | {why} |")
    return "\n".join(lines) + "\n"


def as_json(checked: Checked) -> str:
    """The contract with other programs: `budgets.schema.json` beside this module describes it."""
    runs = [{"run": name, "budgets": list(entries)} for name, entries in checked]
    return strict_json.dumps({"schema": 1, "runs": runs}, indent=2) + "\n"


def as_junit(checked: Checked) -> str:
    """For whatever shows test results."""
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
"""Every form of output by its name."""
