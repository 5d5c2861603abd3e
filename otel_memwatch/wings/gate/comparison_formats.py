"""A comparison as text: a table, Markdown for a comment, JSON, JUnit, and the formats of services that keep histories.

`FORMATS` lists them; each is a function of a comparison.
"""

from __future__ import annotations

import math

from otel_memwatch.reports.markdown import code, escape
from otel_memwatch.run.figures import OPERATION, OPERATION_PROCESS, figure_name, unit_of
from otel_memwatch.runtime import strict_json
from otel_memwatch.runtime.typed import TYPE_CHECKING, Any
from otel_memwatch.text import clean, count, table
from otel_memwatch.wings.gate.comparison import ComparisonVerdict
from otel_memwatch.wings.gate.comparison_text import (
    change,
    changed,
    headline,
    remark,
    typical,
    unchanged,
)
from otel_memwatch.wings.gate.junit import Case, junit

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from otel_memwatch.wings.gate.comparison import Compared, Comparison
    from otel_memwatch.wings.gate.statistics import RunValues

SCHEMA = 1
MARKER = "<!-- otel-memwatch comparison -->"
"""First line of the Markdown: by it an action finds the comment that it has written before."""

_MOST_ROWS = 200
"""Rows of a table in Markdown: a comment may have 65 536 letters."""


def as_table(comparison: Comparison) -> str:
    """For a terminal."""
    rows = [
        (
            figure_name(one.name),
            typical(one.base, one.name),
            typical(one.head, one.name),
            change(one),
            one.verdict.value,
            remark(one),
        )
        for one in (*changed(comparison), *unchanged(comparison))
    ]
    lines = table(rows, ("figure", "base", "head", "change", "verdict", ""), "lrrrll")
    return "\n".join([*lines, "", f"{_runs(comparison)}: {headline(comparison)}"]) + "\n"


def _runs(comparison: Comparison) -> str:
    return f"{count(comparison.base_runs, 'run')} against {count(comparison.head_runs, 'run')}"


def as_markdown(comparison: Comparison) -> str:
    """For a comment under a merge request, and a step's page: what changed first, the rest folded."""
    found, rest = changed(comparison), unchanged(comparison)
    regressed = bool(comparison.having(ComparisonVerdict.REGRESSED))
    mark = ":red_circle:" if regressed else ":green_circle:" if found or rest else ":white_circle:"
    lines = [MARKER, f"### {mark} Memory: {headline(comparison)}", "", f"{_runs(comparison)}."]
    if found:
        lines += ["", *_markdown_table(found)]
    if rest:
        summary = f"<summary>{count(len(rest), 'other figure')}</summary>"
        lines += ["", f"<details>{summary}", "", *_markdown_table(rest), "", "</details>"]
    if comparison.left_out:
        lines += [
            "",
            "Left out:",
            *(f"- {code(clean(one.name))}: {escape(clean(one.why))}" for one in comparison.left_out),
        ]
    return "\n".join(lines) + "\n"


def _markdown_table(figures: Sequence[Compared]) -> list[str]:
    lines = ["| | base | head | change | | |", "| --- | ---: | ---: | ---: | --- | --- |"]
    for one in figures[:_MOST_ROWS]:
        verdict = one.verdict.value
        cells = (
            escape(figure_name(one.name)),
            typical(one.base, one.name),
            typical(one.head, one.name),
            change(one),
            f"**{verdict}**" if one.verdict is ComparisonVerdict.REGRESSED else verdict,
            escape(remark(one)),
        )
        lines.append(f"| {' | '.join(cells)} |")
    if len(figures) > _MOST_ROWS:
        lines += ["", f"and {count(len(figures) - _MOST_ROWS, 'more figure')}"]
    return lines


def as_json(comparison: Comparison) -> str:
    """The contract with other programs: `comparison.schema.json` beside this module describes it."""
    document = {
        "schema": SCHEMA,
        "base_runs": comparison.base_runs,
        "head_runs": comparison.head_runs,
        "regressed": bool(comparison.having(ComparisonVerdict.REGRESSED)),
        "figures": [_figure(one) for one in comparison.figures],
        "left_out": [one._asdict() for one in comparison.left_out],
    }
    return strict_json.dumps(document, indent=2) + "\n"


def _figure(one: Compared) -> dict[str, Any]:
    return {
        "figure": one.name,
        "unit": unit_of(one.name),
        "verdict": one.verdict.value,
        "base": _values(one.base),
        "head": _values(one.head),
        "change": one.change,
        "share": one.share,
        "low": one.low,
        "high": one.high,
        "p": one.p,
        "more_runs": one.more_runs,
        "why": one.why,
    }


def _values(values: RunValues | None) -> dict[str, Any] | None:
    if values is None:
        return None
    highest = max(values.highs)
    return {
        "runs": len(values.values),
        "typical": values.typical,
        "low": min(values.lows),
        "high": None if math.isinf(highest) else highest,
    }


def as_junit(comparison: Comparison) -> str:
    """For whatever shows test results: a regression is a failure, what could not be told is skipped."""
    cases = []
    for one in comparison.figures:
        text = "; ".join(filter(None, (change(one), remark(one))))
        failed = one.verdict is ComparisonVerdict.REGRESSED
        told = one.verdict in (ComparisonVerdict.SAME, ComparisonVerdict.IMPROVED)
        message = f"{one.verdict.value}: {text}" if text else one.verdict.value
        cases.append(
            Case(
                "memwatch.compare",
                figure_name(one.name),
                "failure" if failed else "" if told else "skipped",
                message,
            )
        )
    return junit("otel-memwatch compare", cases)


def as_github_action_benchmark(comparison: Comparison) -> str:
    """The head's figures for github-action-benchmark, tool customSmallerIsBetter."""
    return github_action_benchmark({one.name: one.head for one in comparison.figures if one.head is not None})


def github_action_benchmark(figures: Mapping[str, RunValues]) -> str:
    """Figures by their names for github-action-benchmark."""
    entries = []
    for name, values in figures.items():
        mebibytes = unit_of(name) == "By"
        scale, unit = (1 << 20, "MiB") if mebibytes else (1, "s")
        spread = (max(values.values) - min(values.values)) / 2 / scale
        entry = {"name": figure_name(name), "unit": unit, "value": round(values.typical / scale, 6)}
        if len(values.values) > 1:
            entry["range"] = f"± {spread:.3g}"
        entry["extra"] = count(len(values.values), "run")
        entries.append(entry)
    return strict_json.dumps(entries, indent=1) + "\n"


def as_bencher(comparison: Comparison) -> str:
    """The head's figures in Bencher Metric Format."""
    return bencher({one.name: one.head for one in comparison.figures if one.head is not None})


def bencher(figures: Mapping[str, RunValues]) -> str:
    """Figures by their names in Bencher Metric Format: run and operations are benchmarks, what was measured a measure."""
    result: dict[str, dict[str, Any]] = {}
    for name, values in figures.items():
        benchmark, measure = _benchmark(name)
        metric: dict[str, float] = {"value": values.typical, "lower_value": min(values.lows)}
        if not math.isinf(max(values.highs)):
            metric["upper_value"] = max(values.highs)
        result.setdefault(benchmark, {})[measure] = metric
    return strict_json.dumps(result, indent=1) + "\n"


def _benchmark(name: str) -> tuple[str, str]:
    if name.startswith(OPERATION_PROCESS):
        return clean(name.removeprefix(OPERATION_PROCESS)), "process-memory"
    if name.startswith(OPERATION):
        return clean(name.removeprefix(OPERATION)), "memory"
    return "run", {"process": "process-memory", "gpu": "gpu-memory", "written": "written-bytes",
                   "cpu": "cpu-seconds"}.get(name, name)  # fmt: skip


def regressions(comparison: Comparison) -> list[str]:
    """A sentence for each figure that regressed."""
    return [
        f"{figure_name(one.name)} regressed: {typical(one.base, one.name)} to {typical(one.head, one.name)}, {change(one)}"
        for one in changed(comparison)
        if one.verdict is ComparisonVerdict.REGRESSED
    ]


FORMATS: Mapping[str, Callable[[Comparison], str]] = {
    "table": as_table,
    "markdown": as_markdown,
    "json": as_json,
    "junit": as_junit,
    "github-action-benchmark": as_github_action_benchmark,
    "bencher": as_bencher,
}
"""Every form of output by its name."""
