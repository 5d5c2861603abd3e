"""Budgets: what a figure may be at most, and whether it was.

A figure is within if its upper bound is, over if its lower bound is beyond; else nobody can tell. What was only sampled
is never over: a sum of resident sizes counts shared pages more than once, a device's samples are not only ours.
"""

from __future__ import annotations

import enum
from fnmatch import fnmatchcase

from otel_memwatch.config import parse_budget
from otel_memwatch.errors import UsageError
from otel_memwatch.model import Certainty
from otel_memwatch.run.figures import NAMES, OPERATION, TIMES, order, unit_of
from otel_memwatch.runtime.typed import TYPE_CHECKING, NamedTuple
from otel_memwatch.text import amount

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from otel_memwatch.run.figures import Figure


class Budget(NamedTuple):
    """What one figure, or each of those whose names fit a pattern, may be at most."""

    name: str
    """Of a figure; `*`, `?` and `[...]` stand for any text, as in a shell."""
    limit: float
    """Bytes or seconds; of a `growth` the share by which it may exceed the baseline: 0.05 for +5 %."""
    growth: bool = False

    @classmethod
    def parse(cls, text: str) -> Budget:
        """From "memory=2GiB", "operation:Train=1.5GiB", "seconds=600" or "memory=+5%". Raises `UsageError`."""
        try:
            return cls(*parse_budget(text))
        except ValueError as error:
            raise UsageError(f"The budget {text!r} cannot be used: {error}.") from None

    def fits(self, name: str) -> bool:
        """Whether it is a budget of the figure of this name. A pattern is one of sizes."""
        return name == self.name or (name not in TIMES and fnmatchcase(name, self.name))


class Judgement(str, enum.Enum):
    """What is known of a figure and its budget."""

    WITHIN = "within"
    OVER = "over"
    UNKNOWN = "cannot tell"


class BudgetVerdict(NamedTuple):
    """One figure held against one budget."""

    name: str
    """Of the figure."""
    budget: Budget
    limit: float | None
    """Bytes or seconds; `None`: a growth against a baseline that does not have the figure."""
    figure: Figure | None
    """`None`: the run does not have it."""
    judgement: Judgement
    why: str = ""
    """Why nobody can tell, in words."""


def judge(
    figures: Mapping[str, Figure],
    budgets: Iterable[Budget],
    baseline: Sequence[Mapping[str, Figure]] | None = None,
) -> list[BudgetVerdict]:
    """Holds the figures of one run against the budgets, in their order.

    Args:
        figures: by their names.
        budgets: what they may be. One that fits no figure gives a verdict of its own: cannot tell.
        baseline: figures of earlier runs, for budgets that say "+5%". A growth is over where the lower bound is beyond
            what the largest of them may grow to, within where the upper bound is below what the smallest of them may.

    """
    verdicts = []
    for budget in budgets:
        exactly = budget.name in figures
        names = [budget.name] if exactly else sorted(filter(budget.fits, figures), key=order)
        if not names:
            verdicts.append(
                BudgetVerdict(budget.name, budget, _limit(budget), None, Judgement.UNKNOWN, _absent(budget))
            )
        for name in names:
            if budget.growth:
                verdicts.append(_judge_growth(name, figures[name], budget, baseline))
            else:
                verdicts.append(_judge(name, figures[name], budget, budget.limit, budget.limit))
    return verdicts


def _limit(budget: Budget) -> float | None:
    return None if budget.growth else budget.limit


def _absent(budget: Budget) -> str:
    if budget.name.startswith(OPERATION):
        return "no operation of this name was recorded"
    return "this was not measured" if budget.name in NAMES else "no figure has this name"


def _judge_growth(
    name: str, figure: Figure, budget: Budget, baseline: Sequence[Mapping[str, Figure]] | None
) -> BudgetVerdict:
    earlier = [figures[name] for figures in baseline or () if name in figures]
    known = [one for one in earlier if one.basis == figure.basis and one.certainty is not Certainty.SAMPLED]
    if not known:
        why = "there is no baseline" if baseline is None else "the baseline does not have this figure"
        if earlier:
            why = "the baseline's is sampled, or of another kind"
        return BudgetVerdict(name, budget, None, figure, Judgement.UNKNOWN, why)
    most = None if any(one.high is None for one in known) else max(one.high or 0 for one in known)
    least = min(one.low or 0 for one in known)
    factor = 1 + budget.limit
    return _judge(name, figure, budget, None if most is None else most * factor, least * factor)


def _judge(name: str, figure: Figure, budget: Budget, over: float | None, within: float) -> BudgetVerdict:
    """Over above `over` (`None`: nothing is), within up to `within`; between the two nobody can tell."""
    limit = within if over is None else over
    if figure.high is not None and figure.high <= within:
        return BudgetVerdict(name, budget, limit, figure, Judgement.WITHIN)
    if figure.certainty is Certainty.SAMPLED:
        return BudgetVerdict(name, budget, limit, figure, Judgement.UNKNOWN, "it was only sampled")
    if figure.low is not None and over is not None and figure.low > over:
        return BudgetVerdict(name, budget, limit, figure, Judgement.OVER)
    if figure.high is None:
        why = "only a lower bound is known"
    elif over != within:
        why = "the runs of the baseline differ by more than that, or are not known exactly enough"
    else:
        why = f"it is only known to within {amount(figure.high - (figure.low or 0), unit_of(name))}"
    return BudgetVerdict(name, budget, limit, figure, Judgement.UNKNOWN, why)
