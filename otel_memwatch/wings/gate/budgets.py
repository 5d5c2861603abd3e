"""Budgets: upper limits of figures, and verdicts of a recorded run, as the record stores them and reports show them.

A figure is within if its upper bound is, and over if its lower bound exceeds the budget; otherwise it is inconclusive.
A sampled figure is never over: a sum of resident sizes counts shared pages more than once, and samples of a device
include other programs.
"""

from __future__ import annotations

import enum
from fnmatch import fnmatchcase

from otel_memwatch.config import parse_budget
from otel_memwatch.errors import UsageError
from otel_memwatch.model import Certainty
from otel_memwatch.record.format import BUDGETS_FILE, FILE_MODE
from otel_memwatch.reports.phrases import budget_sentence
from otel_memwatch.run.figures import NAMES, OPERATION, STALLED, Figure, figures_of, order, unit_of
from otel_memwatch.runtime import strict_json
from otel_memwatch.runtime.typed import TYPE_CHECKING, Any, NamedTuple
from otel_memwatch.runtime.user_files import replace_file
from otel_memwatch.text import amount

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from otel_memwatch.run import RecordedRun


class Budget(NamedTuple):
    """Upper limit of one figure, or of each figure with a matching name."""

    name: str
    """Name of a figure; `*`, `?` and `[...]` match as in a shell."""
    limit: float
    """Bytes, seconds or a share; for a `growth` the share by which the figure may exceed the baseline: 0.05 for +5 %."""
    growth: bool = False

    @classmethod
    def parse(cls, text: str) -> Budget:
        """Parse "memory=2GiB", "operation:Train=1.5GiB", "seconds=600" "stalled=5%" or "memory=+5%". Raises `UsageError`."""
        try:
            return cls(*parse_budget(text))
        except ValueError as error:
            raise UsageError(f"Invalid budget {text!r}: {error}.") from None

    def fits(self, name: str) -> bool:
        """Return whether the budget applies to the figure of this name. Patterns match sizes only."""
        return name == self.name or (unit_of(name) == "By" and fnmatchcase(name, self.name))


class Judgement(str, enum.Enum):
    """Verdict on a figure and its budget."""

    WITHIN = "within"
    OVER = "over"
    UNKNOWN = "cannot tell"


class BudgetVerdict(NamedTuple):
    """Verdict on one figure and one budget."""

    name: str
    """Name of the figure."""
    budget: Budget
    limit: float | None
    """Bytes or seconds; `None`: a growth over a baseline without the figure."""
    figure: Figure | None
    """`None`: unknown."""
    judgement: Judgement
    why: str = ""
    """Reason of an inconclusive verdict, in words."""


def judge(
    figures: Mapping[str, Figure],
    budgets: Iterable[Budget],
    baseline: Sequence[Mapping[str, Figure]] | None = None,
) -> list[BudgetVerdict]:
    """Judge the figures of one run by the budgets, in the order of the budgets.

    Args:
        figures: the figures by name.
        budgets: their limits. A budget that matches no figure gives one inconclusive verdict.
        baseline: figures of earlier runs, for budgets such as "+5%". A growth is over if the lower bound exceeds the
            grown largest of them, and within if the upper bound is below the grown smallest.

    """
    verdicts = []
    for budget in budgets:
        exactly = budget.name in figures
        names = [budget.name] if exactly else sorted(filter(budget.fits, figures), key=order)
        if not names:
            limit = None if budget.growth else budget.limit
            why = "not measured" if budget.name in (*NAMES, STALLED) else "no figure has this name"
            if budget.name.startswith(OPERATION):
                why = "no operation with this name was recorded"
            verdicts.append(BudgetVerdict(budget.name, budget, limit, None, Judgement.UNKNOWN, why))
        for name in names:
            if budget.growth:
                verdicts.append(_judge_growth(name, figures[name], budget, baseline))
            else:
                verdicts.append(_judge(name, figures[name], budget, budget.limit, budget.limit))
    return verdicts


def _judge_growth(
    name: str, figure: Figure, budget: Budget, baseline: Sequence[Mapping[str, Figure]] | None
) -> BudgetVerdict:
    earlier = [figures[name] for figures in baseline or () if name in figures]
    known = [one for one in earlier if one.basis == figure.basis and one.certainty is not Certainty.SAMPLED]
    if not known:
        why = "there is no baseline" if baseline is None else "not in the baseline"
        if earlier:
            why = "the baseline was sampled or measured in another way"
        return BudgetVerdict(name, budget, None, figure, Judgement.UNKNOWN, why)
    most = None if any(one.high is None for one in known) else max(one.high or 0 for one in known)
    least = min(one.low or 0 for one in known)
    factor = 1 + budget.limit
    return _judge(name, figure, budget, None if most is None else most * factor, least * factor)


def _judge(name: str, figure: Figure, budget: Budget, over: float | None, within: float) -> BudgetVerdict:
    """Judge a figure: over above `over` (`None`: never), within up to `within`, else inconclusive."""
    limit = within if over is None else over
    if figure.high is not None and figure.high <= within:
        return BudgetVerdict(name, budget, limit, figure, Judgement.WITHIN)
    if figure.certainty is Certainty.SAMPLED:
        return BudgetVerdict(name, budget, limit, figure, Judgement.UNKNOWN, "only sampled")
    if figure.low is not None and over is not None and figure.low > over:
        return BudgetVerdict(name, budget, limit, figure, Judgement.OVER)
    if figure.high is None:
        why = "no upper bound is known"
    elif over != within:
        why = "the baseline's runs differ by more, or their bounds are too wide"
    else:
        why = f"its bounds are {amount(figure.high - (figure.low or 0), unit_of(name))} apart"
    return BudgetVerdict(name, budget, limit, figure, Judgement.UNKNOWN, why)


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


def annotation(text: str) -> str:
    """Return a line that GitHub Actions shows as an error on the job's page."""
    for character, code in (("%", "%25"), ("\r", "%0D"), ("\n", "%0A")):
        text = text.replace(character, code)
    return f"::error title=otel-memwatch::{text}"
