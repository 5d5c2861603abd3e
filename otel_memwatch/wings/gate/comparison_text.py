"""A compared figure in words, alike for all forms of output."""

from __future__ import annotations

import math

from otel_memwatch.run.figures import unit_of
from otel_memwatch.runtime.typed import TYPE_CHECKING
from otel_memwatch.text import amount, clean, count
from otel_memwatch.wings.gate.comparison import Compared, ComparisonVerdict

if TYPE_CHECKING:
    from collections.abc import Sequence

    from otel_memwatch.wings.gate.comparison import Comparison
    from otel_memwatch.wings.gate.statistics import RunValues


def typical(values: RunValues | None, name: str) -> str:
    """What the figure was in the middle of its runs: "118.0 MiB", "between 100.0 MiB and 140.0 MiB"."""
    if values is None:
        return "-"
    unit = unit_of(name)
    low, high = min(values.lows), max(values.highs)
    if any(a != b for a, b in zip(values.lows, values.highs, strict=True)):
        return (
            f"at least {amount(low, unit)}"
            if math.isinf(high)
            else f"{amount(low, unit)} to {amount(high, unit)}"
        )
    return amount(values.typical, unit)


def signed(value: float, unit: str) -> str:
    """A difference with its sign: "+2.3 MiB"."""
    return ("+" if value >= 0 else "-") + amount(abs(value), unit)


def change(compared: Compared) -> str:
    """From base to head: "+2.3 MiB (+1.9 %)"; "-" where it is not known."""
    if compared.change is None:
        return "-"
    share = "" if compared.share is None else f" ({100 * compared.share:+.1f} %)"
    return signed(compared.change, unit_of(compared.name)) + share


def remark(compared: Compared) -> str:
    """What there is to say of the verdict: how far apart, how many runs it takes, why it is left open."""
    unit, low, high = unit_of(compared.name), compared.low, compared.high
    if compared.verdict is ComparisonVerdict.SAME and low is not None and high is not None:
        return f"no more than {amount(max(abs(low), abs(high)), unit)} apart"
    if compared.verdict in (ComparisonVerdict.REGRESSED, ComparisonVerdict.IMPROVED):
        if low is None or high is None:
            end = low if high is None else high
            return "" if end is None else f"by at least {amount(abs(end), unit)}"
        nearest, farthest = sorted((abs(low), abs(high)))
        first, second = amount(nearest, unit), amount(farthest, unit)
        return f"by {first}" if first == second else f"by {first} to {second}"
    texts = [clean(compared.why)] if compared.why else []
    if compared.more_runs:
        texts.insert(0, f"{count(compared.more_runs, 'more run')} of each")
    return "; ".join(texts)


def headline(comparison: Comparison) -> str:
    """The result in a line: "1 of 6 figures regressed, 4 the same, 1 not enough runs"."""
    words = {
        ComparisonVerdict.REGRESSED: "regressed",
        ComparisonVerdict.IMPROVED: "improved",
        ComparisonVerdict.SAME: "the same",
        ComparisonVerdict.NOT_ENOUGH: "need more runs",
        ComparisonVerdict.NOT_COMPARABLE: "not comparable",
    }
    parts = [(len(comparison.having(verdict)), text) for verdict, text in words.items()]
    found = [f"{number} {text}" for number, text in parts if number]
    return ", ".join(found) if found else "nothing to compare"


def changed(comparison: Comparison) -> list[Compared]:
    """What regressed, then what improved; the largest shares first."""
    regressed = comparison.having(ComparisonVerdict.REGRESSED)
    improved = comparison.having(ComparisonVerdict.IMPROVED)
    return _by_share(regressed) + _by_share(improved)


def unchanged(comparison: Comparison) -> list[Compared]:
    """All others, in the order of tables."""
    verdicts = (ComparisonVerdict.SAME, ComparisonVerdict.NOT_ENOUGH, ComparisonVerdict.NOT_COMPARABLE)
    return comparison.having(*verdicts)


def _by_share(figures: Sequence[Compared]) -> list[Compared]:
    return sorted(figures, key=lambda one: -abs(one.share or 0.0))
