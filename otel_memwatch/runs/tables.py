"""Verdicts as tables for a terminal."""

from __future__ import annotations

from otel_memwatch.reports.formatting import amount, bounds, clean, table
from otel_memwatch.reports.phrases import figure_name
from otel_memwatch.runtime.typed import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


def budget_table(checked: Iterable[tuple[str, Iterable[Mapping[str, Any]]]]) -> list[str]:
    """One row for each run and budget: the run's name with its entries, as `runs.gate.judge_run` gives them."""
    rows = [
        (
            clean(name),
            figure_name(entry["figure"]),
            known(entry),
            amount(entry["limit"], entry["unit"]) if entry["limit"] is not None else "-",
            entry["verdict"],
            clean(entry["why"]),
        )
        for name, entries in checked
        for entry in entries
    ]
    return table(rows, ("run", "figure", "was", "budget", "verdict", ""), "llrrll")


def known(entry: Mapping[str, Any]) -> str:
    """What is known of a figure."""
    if entry["value"] is None:
        return "-"
    if entry["certainty"] == "exact":
        return amount(entry["value"], entry["unit"])
    if entry["certainty"] == "sampled":
        return f"{amount(entry['value'], entry['unit'])} seen"
    return bounds(entry["low"], entry["high"], entry["unit"])
