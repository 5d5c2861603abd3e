"""Comparison as a table, Markdown, JSON, JUnit, and in the formats of services that keep histories.

`FORMATS` lists the formats; each is a function of a comparison.
"""

from __future__ import annotations

import math
import os

from otel_memwatch.reports.pages import Columns
from otel_memwatch.reports.pages.markdown import MarkdownPage
from otel_memwatch.run.figures import (
    CPU,
    GPU,
    OPERATION,
    OPERATION_PROCESS,
    PROCESS,
    WRITTEN,
    figure_name,
    unit_of,
)
from otel_memwatch.runtime import strict_json
from otel_memwatch.runtime.masking import public_name
from otel_memwatch.runtime.typed import TYPE_CHECKING, Any
from otel_memwatch.text import (
    amount,
    bounds,
    clean,
    command_line,
    count,
    digits,
    size_beside,
    size_in,
    size_scale,
    table,
)
from otel_memwatch.wings.gate.comparison import TOO_WIDE, VARIES, ComparisonVerdict
from otel_memwatch.wings.gate.junit import Case, junit

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from otel_memwatch.wings.gate.causes import Explanation
    from otel_memwatch.wings.gate.comparison import ComparedFigure, Comparison
    from otel_memwatch.wings.gate.statistics import RunValues

SCHEMA = 1
MARKER = "<!-- otel-memwatch comparison -->"
"""First line of the Markdown, by which an action finds its earlier comment."""

VERDICT_WORDS = {
    ComparisonVerdict.REGRESSED: "regressed",
    ComparisonVerdict.IMPROVED: "improved",
    ComparisonVerdict.SAME: "unchanged",
    ComparisonVerdict.NOT_ENOUGH: "inconclusive",
    ComparisonVerdict.NOT_COMPARABLE: "not comparable",
}

_MOST_ROWS = 200
"""Largest number of rows in a Markdown table; a comment may have 65 536 characters."""


_FEW = 3
"""Inconclusive figures from which on the runs that they lack are said once, not in each row."""

_MEASURES = {PROCESS: "process-memory", GPU: "gpu-memory", WRITTEN: "written-bytes", CPU: "cpu-seconds"}
"""Names of figures as measures of Bencher; other figures keep their names."""

_COMMAND, _NAMED, _COMMIT = 60, 3, 10
"""Columns of a command, runs of a side that are named, and characters of a commit."""
HEADER, ALIGNED = ("figure", "base", "head", "change", "verdict", ""), "lrrrll"


def typical(values: RunValues | None, name: str) -> str:
    """Return the median of the runs, or the range of all: "118.0 MiB", "100-140 MiB", "at least 100.0 MiB"."""
    if values is None:
        return "-"
    unit = unit_of(name)
    if any(a != b for a, b in zip(values.lows, values.highs, strict=True)):
        return bounds(min(values.lows), max(values.highs), unit)
    return amount(values.typical, unit)


def change(compared: ComparedFigure) -> str:
    """Return the change from base to head: "+2.3 MiB (+1.9 %)"; "-" if it is unknown or the bounds are too wide."""
    if compared.change is None or compared.why == TOO_WIDE:
        return "-"
    if not compared.change:
        return "0"
    share = "" if compared.share is None else f" ({100 * compared.share:+.1f} %)"
    sign = "+" if compared.change > 0 else "-"
    return f"{sign}{_beside(abs(compared.change), compared)}{share}"


def _beside(value: float, compared: ComparedFigure) -> str:
    """Return a difference of a figure in words, a size in the unit of base and head."""
    unit = unit_of(compared.name)
    sides = [side.typical for side in (compared.base, compared.head) if side is not None]
    return size_beside(value, max(sides)) if unit == "By" and math.isfinite(value) else amount(value, unit)


def remark(compared: ComparedFigure, *, lacks_runs: bool = True) -> str:
    """Explain the verdict: bounds of the change, runs that are missing, or why it is inconclusive.

    Args:
        compared: the figure.
        lacks_runs: say how many runs are missing; not where `missing_runs` says it for all figures.
    """
    unit, low, high = unit_of(compared.name), compared.low, compared.high
    if compared.verdict is ComparisonVerdict.SAME and low is not None and high is not None:
        most = max(abs(low), abs(high))
        return f"at most {_beside(most, compared)} apart" if most else ""
    if compared.verdict in (ComparisonVerdict.REGRESSED, ComparisonVerdict.IMPROVED):
        if low is None or high is None:
            end = low if high is None else high
            return "" if end is None else f"by at least {amount(abs(end), unit)}"
        nearest, farthest = sorted((abs(low), abs(high)))
        return f"by {bounds(nearest, farthest, unit)}"
    if not compared.more_runs:
        return clean(compared.why)
    if not lacks_runs:
        return "" if compared.why == VARIES else clean(compared.why)
    return "; ".join(
        filter(None, (f"record {count(compared.more_runs, 'more run')} of each", clean(compared.why)))
    )


def missing_runs(comparison: Comparison) -> str:
    """Return a sentence with the runs that all inconclusive figures lack; "" if they are few or lack different numbers."""
    figures = comparison.having(ComparisonVerdict.NOT_ENOUGH)
    lacking = {one.more_runs for one in figures}
    if len(figures) < _FEW or len(lacking) > 1 or None in lacking:
        return ""
    why = (
        ": figures of several processes or threads vary" if any(one.why == VARIES for one in figures) else ""
    )
    return f"Record {count(lacking.pop() or 0, 'more run')} of each{why}."


def headline(comparison: Comparison) -> str:
    """Return the result in a line: "1 regressed, 4 unchanged, 1 inconclusive"."""
    numbers = [(len(comparison.having(verdict)), words) for verdict, words in VERDICT_WORDS.items()]
    return ", ".join(f"{number} {words}" for number, words in numbers if number) or "nothing to compare"


def changed(comparison: Comparison) -> list[ComparedFigure]:
    """Return regressed, then improved figures, the largest shares first."""
    regressed = comparison.having(ComparisonVerdict.REGRESSED)
    improved = comparison.having(ComparisonVerdict.IMPROVED)
    return _by_share(regressed) + _by_share(improved)


def unchanged(comparison: Comparison) -> list[ComparedFigure]:
    """Return all other figures in the order of tables."""
    verdicts = (ComparisonVerdict.SAME, ComparisonVerdict.NOT_ENOUGH, ComparisonVerdict.NOT_COMPARABLE)
    return comparison.having(*verdicts)


def _by_share(figures: Sequence[ComparedFigure]) -> list[ComparedFigure]:
    return sorted(figures, key=lambda one: -abs(one.share or 0.0))


def figure_rows(figures: Sequence[ComparedFigure], *, lacks_runs: bool = True) -> list[tuple[str, ...]]:
    """Return a row of each figure, as `HEADER` names its cells; `lacks_runs` as for `remark`."""
    return [
        (
            figure_name(one.name),
            typical(one.base, one.name),
            typical(one.head, one.name),
            change(one),
            VERDICT_WORDS[one.verdict],
            remark(one, lacks_runs=lacks_runs),
        )
        for one in figures
    ]


def as_table(comparison: Comparison) -> str:
    """Return a table for a terminal, changed figures first."""
    missing = missing_runs(comparison)
    figures = [*changed(comparison), *unchanged(comparison)]
    lines = table(figure_rows(figures, lacks_runs=not missing), HEADER, ALIGNED)
    base, head = count(comparison.base_runs, "base run"), count(comparison.head_runs, "head run")
    sides = compared_runs(comparison, lambda argv: command_line(argv, _COMMAND))
    if comparison.explanation is not None:
        lines += ["", "Why memory differs:", *(f"  {line}" for line in causes(comparison.explanation))]
    result = f"{headline(comparison)} ({base}, {head})" + (f". {missing}" if missing else "")
    return "\n".join([*lines, "", *sides, result]) + "\n"


def causes(explanation: Explanation) -> list[str]:
    """Return a line for each cause of the difference in memory, one for the rest, and the notes."""
    rest = explanation.rest
    parts = [(one.bytes, one.text) for one in explanation.causes]
    if rest and abs(rest) >= max(1 << 20, abs(explanation.change) // 20):
        parts.append((rest, "not explained"))
    # One unit, in which the smallest part can be read.
    scale = size_scale(min((abs(value) for value, _ in parts), default=0))
    lines = [f"{'-' if value < 0 else '+'}{size_in(abs(value), *scale)} {words}" for value, words in parts]
    return [*lines, *explanation.notes]


def compared_runs(
    comparison: Comparison, name: Callable[[tuple[str, ...]], str], *, public: bool = False
) -> list[str]:
    """Return a line for each side: commands, runs, commits, and the ratio to the predicted memory.

    Args:
        comparison: what was compared.
        name: returns a command in words.
        public: leave out the paths of the runs.
    """
    lines, commands = [], []
    for label, runs in (("base", comparison.base), ("head", comparison.head)):
        if not runs:
            continue
        found = dict.fromkeys(run.command for run in runs if run.command)
        commands.append(set(found))
        more = f" and {count(len(found) - 1, 'other command')}" if len(found) > 1 else ""
        words = name(next(iter(found))) + more if found else "saved figures"
        paths = ", ".join(clean(run.name) for run in runs[:_NAMED])
        paths += f", {len(runs) - _NAMED} more" if len(runs) > _NAMED else ""
        commits = list(dict.fromkeys(run.commit for run in runs if run.commit))
        # A placeholder of a redacted run stays whole.
        at = "".join(f", commit {clean(one[:_COMMIT] if one.isalnum() else one)}" for one in commits[:1])
        at += f" and {count(len(commits) - 1, 'other')}" if len(commits) > 1 else ""
        ratios = [run.ratio for run in runs if run.ratio is not None]
        ratio = f"; {digits(max(ratios), 3)} times the predicted memory" if ratios else ""
        lines.append(f"{label}: {words}{'' if public else f' ({paths})'}{at}{ratio}")
    if len(commands) > 1 and all(commands) and commands[0].isdisjoint(commands[1]):
        lines.append("The commands differ.")
    return lines


def as_markdown(comparison: Comparison) -> str:
    """Return Markdown for a comment or the page of a CI step: changed figures first, the others folded."""
    found, rest = changed(comparison), unchanged(comparison)
    page = MarkdownPage()
    page.raw(MARKER)
    known = comparison.having(ComparisonVerdict.SAME, ComparisonVerdict.IMPROVED)
    regressed = comparison.having(ComparisonVerdict.REGRESSED)
    mark = "\U0001f534" if regressed else "\U0001f7e2" if known else "\u26aa"
    page.title(f"{mark} Memory: {headline(comparison)}")
    missing = missing_runs(comparison)
    runs = f"{count(comparison.base_runs, 'base run')}, {count(comparison.head_runs, 'head run')}."
    page.paragraph(" ".join(filter(None, (runs, missing))))
    for line in compared_runs(comparison, public_name, public=True):  # a comment leaves the machine
        page.item(line)
    if found:
        _markdown_table(found, page, lacks_runs=not missing)
    if comparison.explanation is not None:
        page.paragraph("Why memory differs:")
        for line in causes(comparison.explanation):
            page.item(line)
    if rest:
        page.fold(count(len(rest), "other figure"))
        _markdown_table(rest, page, lacks_runs=not missing)
        page.unfold()
    if comparison.left_out:
        page.paragraph("Excluded:")
        for one in comparison.left_out:
            page.item(f"{os.path.basename(one.name)}: {one.why}")
    return page.text()


def _markdown_table(figures: Sequence[ComparedFigure], page: MarkdownPage, *, lacks_runs: bool) -> None:
    regressed = VERDICT_WORDS[ComparisonVerdict.REGRESSED]
    page.table(
        figure_rows(figures[:_MOST_ROWS], lacks_runs=lacks_runs), Columns(HEADER, ALIGNED, strong=regressed)
    )
    if len(figures) > _MOST_ROWS:
        page.paragraph(f"{count(len(figures) - _MOST_ROWS, 'more figure')}.")


def as_json(comparison: Comparison) -> str:
    """Return JSON as `comparison.schema.json` beside this module describes it."""
    found = comparison.explanation
    document = {
        "schema": SCHEMA,
        "base_runs": comparison.base_runs,
        "head_runs": comparison.head_runs,
        "regressed": bool(comparison.having(ComparisonVerdict.REGRESSED)),
        "figures": [
            {
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
            for one in comparison.figures
        ],
        "left_out": [one._asdict() for one in comparison.left_out],
        "runs": {
            side: [{"name": run.name, "command": list(run.command), "ratio": run.ratio} for run in runs]
            for side, runs in (("base", comparison.base), ("head", comparison.head))
        },
        "why": None
        if found is None
        else found._asdict()
        | {"causes": [one._asdict() for one in found.causes], "explained": found.is_explained},
    }
    return strict_json.dumps(document, indent=2) + "\n"


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
    """Return JUnit's XML; a regression is a failure, an inconclusive figure is skipped."""
    cases = []
    for one in comparison.figures:
        text = "; ".join(filter(None, (change(one), remark(one))))
        failed = one.verdict is ComparisonVerdict.REGRESSED
        passed = one.verdict in (ComparisonVerdict.SAME, ComparisonVerdict.IMPROVED)
        words = VERDICT_WORDS[one.verdict]
        message = f"{words}: {text}" if text else words
        cases.append(
            Case(
                "memwatch.compare",
                figure_name(one.name),
                "failure" if failed else "" if passed else "skipped",
                message,
            )
        )
    return junit("otel-memwatch compare", cases)


def as_github_action_benchmark(comparison: Comparison) -> str:
    """Return the head's figures for github-action-benchmark, tool customSmallerIsBetter."""
    entries = []
    for name, values in _of_head(comparison):
        mebibytes = unit_of(name) == "By"
        scale, unit = (1 << 20, "MiB") if mebibytes else (1, "s")
        spread = (max(values.values) - min(values.values)) / 2 / scale
        entry = {"name": figure_name(name), "unit": unit, "value": round(values.typical / scale, 6)}
        if len(values.values) > 1:
            entry["range"] = f"± {digits(spread, 3)}"
        entry["extra"] = count(len(values.values), "run")
        entries.append(entry)
    return strict_json.dumps(entries, indent=1) + "\n"


def as_bencher(comparison: Comparison) -> str:
    """Return the head's figures in Bencher Metric Format: run and operations are benchmarks, figures are measures."""
    result: dict[str, dict[str, Any]] = {}
    for name, values in _of_head(comparison):
        benchmark, measure = "run", _MEASURES.get(name, name)
        if name.startswith(OPERATION_PROCESS):
            benchmark, measure = clean(name.removeprefix(OPERATION_PROCESS)), "process-memory"
        elif name.startswith(OPERATION):
            benchmark, measure = clean(name.removeprefix(OPERATION)), "memory"
        metric: dict[str, float] = {"value": values.typical, "lower_value": min(values.lows)}
        if not math.isinf(max(values.highs)):
            metric["upper_value"] = max(values.highs)
        result.setdefault(benchmark, {})[measure] = metric
    return strict_json.dumps(result, indent=1) + "\n"


def _of_head(comparison: Comparison) -> list[tuple[str, RunValues]]:
    return [(one.name, one.head) for one in comparison.figures if one.head is not None]


def regressions(comparison: Comparison) -> list[str]:
    """Return a sentence for each figure that regressed."""
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
"""Formats by name."""
