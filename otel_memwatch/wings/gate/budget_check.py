"""Verdicts of a recorded run on its budgets, as the record stores them and reports show them."""

from __future__ import annotations

from otel_memwatch.record.format import BUDGETS_FILE, FILE_MODE
from otel_memwatch.reports.phrases import budget_sentence
from otel_memwatch.run.figures import STALLED, Figure, figures_of, unit_of
from otel_memwatch.runtime import strict_json
from otel_memwatch.runtime.typed import TYPE_CHECKING, Any
from otel_memwatch.runtime.user_files import replace_file
from otel_memwatch.wings.gate.budgets import Budget, Judgement, judge

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from otel_memwatch.run import RecordedRun


def judge_run(
    run: RecordedRun, texts: Iterable[str], baseline: Sequence[Mapping[str, Figure]] | None = None
) -> list[dict[str, Any]]:
    """Judge a run by budgets "NAME=LIMIT". Return an entry for each verdict, as `record.format` describes it."""
    budgets = [Budget.parse(text) for text in texts]
    if not budgets:
        return []
    operations = any(not name.isalpha() for name, *_ in budgets)  # or patterns, which may match them
    figures = dict(figures_of(run, operations=operations, compared=False).figures)
    if (stalled := run.stalls.largest) is not None:
        figures[STALLED] = Figure.measured(stalled)
    entries = []
    for verdict in judge(figures, budgets, baseline):
        figure = verdict.figure
        entries.append(
            {
                "figure": verdict.name,
                "unit": unit_of(verdict.name),
                "limit": verdict.limit,
                "verdict": verdict.judgement.value,
                "value": None if figure is None else figure.value,
                "low": None if figure is None else figure.low,
                "high": None if figure is None else figure.high,
                "certainty": None if figure is None else figure.certainty.value,
                "why": verdict.why,
            }
        )
    return entries


def record(run: RecordedRun, entries: Sequence[Mapping[str, Any]], *, write: bool) -> None:
    """Attach the verdicts to the run and, with `write`, save them in its directory. Raises `OSError`."""
    run.budgets = tuple(entries)
    if not write:
        return
    document = strict_json.dumps({"schema": 1, "budgets": list(entries)}, indent=1)
    replace_file(run.path / BUDGETS_FILE, document.encode(), mode=FILE_MODE)


def over(entries: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return a sentence for each figure that exceeded its budget."""
    return [budget_sentence(entry) for entry in entries if entry["verdict"] == Judgement.OVER.value]


def annotation(level: str, text: str, title: str = "otel-memwatch") -> str:
    """Return a line that GitHub Actions shows on the job's page; `level` is "error", "warning" or "notice"."""
    for character, code in (("%", "%25"), ("\r", "%0D"), ("\n", "%0A")):
        text = text.replace(character, code)
    return f"::{level} title={title}::{text}"
