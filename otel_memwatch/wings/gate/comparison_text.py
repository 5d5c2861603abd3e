"""Words for a compared figure, shared by all formats."""

from __future__ import annotations

from otel_memwatch.run.figures import unit_of
from otel_memwatch.runtime.typed import TYPE_CHECKING
from otel_memwatch.text import amount, bounds, clean, count
from otel_memwatch.wings.gate.comparison import Compared, ComparisonVerdict

if TYPE_CHECKING:
    from collections.abc import Sequence

    from otel_memwatch.wings.gate.comparison import Comparison
    from otel_memwatch.wings.gate.statistics import RunValues


VERDICT_WORDS = {
    ComparisonVerdict.REGRESSED: "regressed",
    ComparisonVerdict.IMPROVED: "improved",
    ComparisonVerdict.SAME: "unchanged",
    ComparisonVerdict.NOT_ENOUGH: "inconclusive",
    ComparisonVerdict.NOT_COMPARABLE: "not comparable",
}


def typical(values: RunValues | None, name: str) -> str:
    """Return the median of the runs, or the range of all: "118.0 MiB", "100-140 MiB", "at least 100.0 MiB"."""
    if values is None:
        return "-"
    unit = unit_of(name)
    if any(a != b for a, b in zip(values.lows, values.highs, strict=True)):
        return bounds(min(values.lows), max(values.highs), unit)
    return amount(values.typical, unit)


def signed(value: float, unit: str) -> str:
    """Return a difference with its sign: "+2.3 MiB"."""
    return ("+" if value >= 0 else "-") + amount(abs(value), unit)


def change(compared: Compared) -> str:
    """Return the change from base to head: "+2.3 MiB (+1.9 %)"; "-" if it is unknown."""
    if compared.change is None:
        return "-"
    share = "" if compared.share is None else f" ({100 * compared.share:+.1f} %)"
    return signed(compared.change, unit_of(compared.name)) + share


def remark(compared: Compared) -> str:
    """Explain the verdict: bounds of the change, runs that are missing, or why it is inconclusive."""
    unit, low, high = unit_of(compared.name), compared.low, compared.high
    if compared.verdict is ComparisonVerdict.SAME and low is not None and high is not None:
        return f"at most {amount(max(abs(low), abs(high)), unit)} apart"
    if compared.verdict in (ComparisonVerdict.REGRESSED, ComparisonVerdict.IMPROVED):
        if low is None or high is None:
            end = low if high is None else high
            return "" if end is None else f"by at least {amount(abs(end), unit)}"
        nearest, farthest = sorted((abs(low), abs(high)))
        return f"by {bounds(nearest, farthest, unit)}"
    texts = [clean(compared.why)] if compared.why else []
    if compared.more_runs:
        texts.insert(0, f"record {count(compared.more_runs, 'more run')} of each")
    return "; ".join(texts)


def headline(comparison: Comparison) -> str:
    """Return the result in a line: "1 regressed, 4 unchanged, 1 inconclusive"."""
    numbers = [(len(comparison.having(verdict)), words) for verdict, words in VERDICT_WORDS.items()]
    return ", ".join(f"{number} {words}" for number, words in numbers if number) or "nothing to compare"


def changed(comparison: Comparison) -> list[Compared]:
    """Return regressed, then improved figures, the largest shares first."""
    regressed = comparison.having(ComparisonVerdict.REGRESSED)
    improved = comparison.having(ComparisonVerdict.IMPROVED)
    return _by_share(regressed) + _by_share(improved)


def unchanged(comparison: Comparison) -> list[Compared]:
    """Return all other figures in the order of tables."""
    verdicts = (ComparisonVerdict.SAME, ComparisonVerdict.NOT_ENOUGH, ComparisonVerdict.NOT_COMPARABLE)
    return comparison.having(*verdicts)


def _by_share(figures: Sequence[Compared]) -> list[Compared]:
    return sorted(figures, key=lambda one: -abs(one.share or 0.0))
