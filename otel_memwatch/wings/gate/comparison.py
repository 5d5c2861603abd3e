"""Comparison of a program's runs with runs of an earlier version, figure by figure.

The noise is estimated from the runs. Fewer than five runs do not suffice for that. Then only figures of one process
with one thread count, because these repeat exactly, and only if the available runs confirm it.

==============================  =======================================================================================
verdict                         few runs: every difference of two runs ...     five or more of each: the interval ...
==============================  =======================================================================================
same                            is less than the smallest effect               lies within the smallest effect
regressed                       exceeds it, and the bounds do not meet         lies above zero, and the test confirms it
improved                        likewise, downward                             lies below zero, likewise
not enough runs                 neither, or the figure is not alone            anything else
==============================  =======================================================================================

A figure is not comparable in these cases:

* It was measured on another machine, kernel or allocator, or in another way.
* It was only sampled, its bounds are too wide, or it is missing.
* It is a time that changed, and the runs were not interleaved. Such times may reflect the machine's load.
"""

from __future__ import annotations

import enum
import math
from collections import Counter
from itertools import pairwise

from otel_memwatch.model import Certainty
from otel_memwatch.run.figures import TIMES, order, unit_of
from otel_memwatch.runtime.typed import TYPE_CHECKING, NamedTuple
from otel_memwatch.wings.gate.judged_runs import LeftOut
from otel_memwatch.wings.gate.statistics import (
    ERROR,
    RunValues,
    corrected,
    difference,
    reach,
    runs_needed,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from otel_memwatch.run.figures import Conditions, Figure, RunFigures
    from otel_memwatch.wings.gate.causes import Explanation

ENOUGH = 5
"""Runs of each side from which noise can be estimated."""

TOO_WIDE = "bounds too wide"
VARIES = "varies with several processes or threads"
"""Reason of a verdict if the values of a figure are not known well enough for a difference."""

_RESOLUTION = {"By": 4096.0, "s": 0.001}
"""The step in which figures are counted: a page, a millisecond."""


class Effect(NamedTuple):
    """Smallest difference of interest: a change must exceed both numbers."""

    share: float = 0.01
    size: float = 1 << 20
    """Bytes or seconds."""

    def of(self, value: float) -> float:
        """Return the effect in the unit of a figure with this value."""
        return max(self.share * abs(value), self.size)


MEMORY_EFFECT = Effect()
TIME_EFFECT = Effect(0.05, 0.05)


def usual_effect(name: str) -> Effect:
    """Return the default smallest effect of a figure."""
    return TIME_EFFECT if name in TIMES else MEMORY_EFFECT


class ComparisonVerdict(str, enum.Enum):
    """Verdict on a difference."""

    REGRESSED = "regressed"
    IMPROVED = "improved"
    SAME = "same"
    NOT_ENOUGH = "not enough runs"
    NOT_COMPARABLE = "not comparable"


class ComparedFigure(NamedTuple):
    """One figure of base and head, with the verdict on their difference. Bytes or seconds."""

    name: str
    verdict: ComparisonVerdict
    base: RunValues | None
    """`None`: no run of the base has the figure."""
    head: RunValues | None
    low: float | None = None
    """Lower bound of the difference, head less base, with a confidence of 99 %; `None`: unknown."""
    high: float | None = None
    """Upper bound, likewise."""
    p: float | None = None
    """Corrected for the number of figures; `None`: no test was made."""
    more_runs: int | None = None
    """Estimated number of further runs of each side that would decide; `None`: further runs would not help."""
    why: str = ""
    """Reason of an inconclusive verdict, in words."""

    @property
    def change(self) -> float | None:
        """Median of the head less median of the base."""
        return None if self.base is None or self.head is None else self.head.typical - self.base.typical

    @property
    def share(self) -> float | None:
        """Change as a share of the base."""
        if self.change is None or self.base is None or not self.base.typical:
            return None
        return self.change / self.base.typical


class Comparison(NamedTuple):
    """Result of one comparison."""

    figures: Sequence[ComparedFigure]
    """In the order of tables."""
    left_out: Sequence[LeftOut]
    base_runs: int
    head_runs: int
    base: Sequence[RunFigures] = ()
    """Compared runs of the base."""
    head: Sequence[RunFigures] = ()
    """Compared runs of the head."""
    explanation: Explanation | None = None
    """Causes of the difference in memory; `None`: there is none, or a side is a baseline."""

    def having(self, *verdicts: ComparisonVerdict) -> list[ComparedFigure]:
        """Return the figures with these verdicts."""
        return [compared for compared in self.figures if compared.verdict in verdicts]


def compare(
    base: Sequence[RunFigures],
    head: Sequence[RunFigures],
    effect: Callable[[str], Effect] = usual_effect,
    wanted: Callable[[str], bool] = lambda _: True,
) -> Comparison:
    """Compare all figures of the head's runs with the base's. The p-values of one call are corrected together.

    Args:
        base: runs of the earlier state, one or more.
        head: runs of the state in question, one or more.
        effect: returns the smallest effect of a figure, by name.
        wanted: selects the figures to compare, by name.

    Raises `Unavailable` without scipy if each side has five runs or more.
    """
    left_out: list[LeftOut] = []
    differs: str | None = None
    if head:
        # Keep the runs under the head's most common conditions. If no run of the base matches, all of its runs stay,
        # and each figure gives the reason.
        kinds = [(one.system, one.cpus, one.allocator) for one in (run.conditions for run in head)]
        usual = head[kinds.index(Counter(kinds).most_common(1)[0][0])].conditions
        head, left_out = _split(head, usual)
        kept, others = _split(base, usual)
        if base and not kept:
            differs = others[0].why
        else:
            base, left_out = kept, left_out + others
    names = sorted({name for run in (*base, *head) for name in run.figures if wanted(name)}, key=order)
    # If the two sides were interleaved, an hour on a slow machine affects both.
    starts = sorted([*((run.started, 0) for run in base), *((run.started, 1) for run in head)])
    switches = sum(one[1] != other[1] for one, other in pairwise(starts))
    in_turns = switches > min(len(base), len(head)) // 2 and switches > 1
    one_host = len({run.conditions.host for run in (*base, *head)}) == 1
    compared = []
    for name in names:
        why = differs
        if name in TIMES and not one_host:
            why = why or "times from different machines"
        compared.append(
            _compare(name, _named(base, name), _named(head, name), effect(name), why, in_turns=in_turns)
        )
    return Comparison(_corrected(compared), left_out, len(base), len(head), base, head)


def settled(runs: Sequence[RunFigures]) -> bool:
    """Return whether more runs would add little: each figure is known to within the smallest effect.

    These figures do not count:

    * Times, because their noise is the machine's.
    * Sampled figures.
    * Figures with wide bounds in single runs, because further runs would not narrow them.

    Raises `Unavailable` without scipy.
    """
    for name in {name for run in runs for name in run.figures if name not in TIMES}:
        figures = _named(runs, name)
        group = _group(figures)
        if group is None:
            continue
        smallest = usual_effect(name).of(group.typical)
        if _known_roughly(group, group, smallest):
            continue
        alone = all(figure.alone for figure in figures) and group.spread <= smallest
        if not alone and (len(runs) < ENOUGH or reach(group, _RESOLUTION[unit_of(name)]) > smallest):
            return False
    return True


def _named(runs: Iterable[RunFigures], name: str) -> list[Figure]:
    """Return one figure of the runs that have it."""
    return [run.figures[name] for run in runs if name in run.figures]


def _split(runs: Sequence[RunFigures], usual: Conditions) -> tuple[list[RunFigures], list[LeftOut]]:
    """Return the runs under comparable conditions, and the others with the reason."""
    kept, left_out = [], []
    for run in runs:
        why = usual.differ_from(run.conditions)
        if why is None:
            kept.append(run)
        else:
            left_out.append(LeftOut(run.name, why))
    return kept, left_out


def _compare(
    name: str,
    base: Sequence[Figure],
    head: Sequence[Figure],
    effect: Effect,
    differs: str | None,
    *,
    in_turns: bool,
) -> ComparedFigure:
    """Compare one figure; `differs` is the reason why the sides are not comparable."""
    base_group, head_group = _group(base), _group(head)
    if base_group is None or head_group is None:
        why = "only sampled" if base else "not in the base"
        if not head:
            why = "only in the base"
        return ComparedFigure(name, ComparisonVerdict.NOT_COMPARABLE, base_group, head_group, why=why)
    was, now = ({figure.basis for figure in side} for side in (base, head))
    if not differs and (was != now or len(was) > 1):
        texts = [" or ".join(sorted(basis or "other readings" for basis in side)) for side in (was, now)]
        differs = f"measured by {texts[0]} and by {texts[1]}"
    if differs:
        return ComparedFigure(name, ComparisonVerdict.NOT_COMPARABLE, base_group, head_group, why=differs)
    smallest = effect.of(base_group.typical)
    if min(len(base), len(head)) < ENOUGH:
        return _compare_few(name, base, head, smallest)
    found = _compare_many(name, base_group, head_group, smallest)
    if name in TIMES and not in_turns and found.verdict is not ComparisonVerdict.SAME:
        why = "not interleaved; may reflect changes in machine load"
        return found._replace(verdict=ComparisonVerdict.NOT_COMPARABLE, why=why, more_runs=None)
    return found


def _group(figures: Sequence[Figure]) -> RunValues | None:
    """Return the figures as a group. Exact ones are points: their error is part of the estimated noise.

    `None`: the group is empty, or one figure was only sampled.
    """
    if not figures or any(figure.certainty is Certainty.SAMPLED for figure in figures):
        return None
    values = [figure.value for figure in figures]
    lows = [f.value if f.certainty is Certainty.EXACT else f.low or 0.0 for f in figures]
    highs = [
        f.value if f.certainty is Certainty.EXACT else math.inf if f.high is None else f.high for f in figures
    ]
    return RunValues(values, lows, highs)


def _compare_few(
    name: str, base: Sequence[Figure], head: Sequence[Figure], smallest: float
) -> ComparedFigure:
    """Compare too few runs for an estimate of the noise: only figures of one process and thread count."""
    was, now = _group(base), _group(head)
    assert was is not None
    assert now is not None
    more = ENOUGH - min(len(base), len(head))
    low, high = min(now.lows) - max(was.highs), max(now.highs) - min(was.lows)
    # Certain bounds of the difference of any two runs; `None`: unknown.
    base_high, head_high = (
        max(math.inf if figure.high is None else figure.high for figure in side) for side in (base, head)
    )
    base_low, head_low = (min(figure.low or 0.0 for figure in side) for side in (base, head))
    ends = (
        None if math.isinf(base_high) else head_low - base_high,
        None if math.isinf(head_high) else head_high - base_low,
    )
    if not all(figure.alone for figure in (*base, *head)):
        if low <= 0 <= high and _known_roughly(was, now, smallest):
            return ComparedFigure(name, ComparisonVerdict.NOT_COMPARABLE, was, now, *ends, why=TOO_WIDE)
        why = "" if name in TIMES else VARIES
        return ComparedFigure(name, ComparisonVerdict.NOT_ENOUGH, was, now, more_runs=more, why=why)
    if was.spread > smallest or now.spread > smallest:
        return ComparedFigure(
            name,
            ComparisonVerdict.NOT_ENOUGH,
            was,
            now,
            *ends,
            more_runs=more,
            why="runs of one side differ",
        )
    if -smallest <= low and high <= smallest:
        return ComparedFigure(name, ComparisonVerdict.SAME, was, now, *ends)
    # The values differ by more than the smallest effect, and the certain bounds do not overlap.
    if low > smallest and (ends[0] or 0) > 0:
        return ComparedFigure(name, ComparisonVerdict.REGRESSED, was, now, *ends)
    if high < -smallest and (ends[1] or 0) < 0:
        return ComparedFigure(name, ComparisonVerdict.IMPROVED, was, now, *ends)
    if _known_roughly(was, now, smallest):
        return ComparedFigure(name, ComparisonVerdict.NOT_COMPARABLE, was, now, *ends, why=TOO_WIDE)
    return ComparedFigure(name, ComparisonVerdict.NOT_ENOUGH, was, now, *ends, more_runs=more)


def _known_roughly(base: RunValues, head: RunValues, smallest: float) -> bool:
    """Return whether wide bounds of single runs, not noise, prevent a verdict. More runs would not help."""
    widths = [high - low for group in (base, head) for low, high in zip(group.lows, group.highs, strict=True)]
    return max(widths) > smallest


def _compare_many(name: str, base: RunValues, head: RunValues, smallest: float) -> ComparedFigure:
    """Compare by the noise of the runs. `_corrected` corrects the p-values once all figures are compared."""
    resolution = _RESOLUTION[unit_of(name)]
    found = difference(base, head, resolution)
    ends = None if math.isinf(found.low) else found.low, None if math.isinf(found.high) else found.high
    if -smallest <= found.low and found.high <= smallest:
        return ComparedFigure(name, ComparisonVerdict.SAME, base, head, *ends, p=found.p)
    if found.low > 0:
        return ComparedFigure(name, ComparisonVerdict.REGRESSED, base, head, *ends, p=found.p)
    if found.high < 0:
        return ComparedFigure(name, ComparisonVerdict.IMPROVED, base, head, *ends, p=found.p)
    open_ = ComparedFigure(name, ComparisonVerdict.NOT_ENOUGH, base, head, *ends, p=found.p)
    if _known_roughly(base, head, smallest):
        return open_._replace(verdict=ComparisonVerdict.NOT_COMPARABLE, why=TOO_WIDE)
    return _open(open_, smallest)


def _open(compared: ComparedFigure, smallest: float) -> ComparedFigure:
    """Add the number of runs that would decide, if further runs resemble these."""
    base, head = compared.base, compared.head
    assert base is not None
    assert head is not None
    seen = abs(sum(head.values) / len(head.values) - sum(base.values) / len(base.values))
    wanted = max(seen, smallest - seen)
    needed = runs_needed(base, head, wanted, _RESOLUTION[unit_of(compared.name)])
    have = min(len(base.values), len(head.values))
    if needed is None:
        return compared._replace(why="too noisy")
    return compared._replace(more_runs=max(1, needed - have))


def _corrected(compared: Sequence[ComparedFigure]) -> list[ComparedFigure]:
    """Correct the p-values for their number. A difference that is no longer significant becomes inconclusive."""
    tested = [one for one in compared if one.p is not None]
    by_name = dict(
        zip((one.name for one in tested), corrected([one.p or 0.0 for one in tested]), strict=True)
    )
    result = []
    for one in compared:
        p = by_name.get(one.name)
        if p is None:
            result.append(one)
            continue
        changed = one.verdict in (ComparisonVerdict.REGRESSED, ComparisonVerdict.IMPROVED)
        if changed and p > ERROR:
            open_ = one._replace(verdict=ComparisonVerdict.NOT_ENOUGH, p=p)
            result.append(_open(open_, abs(one.change or 0.0)))
        else:
            result.append(one._replace(p=p))
    return result
