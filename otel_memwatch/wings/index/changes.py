"""Changes in the history of a job: steps and drifts of its figures.

`ruptures` proposes where the level of a figure changes. A step is reported only if it also passes these checks:

* It is larger than the smallest effect: 1 % and 1 MiB, for times 5 % and 50 ms.
* It exceeds the noise that is left between the steps, which includes heavy tails and noise that lasts for several runs.
* It explains the values better than a dependence of each run on the run before it.
* A run after it exceeds a run before it in 82 % of the pairs, or the difference is beyond doubt. Jobs with two modes fail this.

Only runs that ended well count. Thresholds come from `python -m tests.bench.changes`, which prints recall and false rates.
"""

from __future__ import annotations

import itertools

from otel_memwatch.errors import Unavailable
from otel_memwatch.run.figures import FIGURES, MEMORY, PROCESS
from otel_memwatch.runtime.typed import TYPE_CHECKING, Any, NamedTuple
from otel_memwatch.wings.index.listing import group_name

if TYPE_CHECKING:
    from collections.abc import Sequence

    from otel_memwatch.run.figures import FigureRow
    from otel_memwatch.wings.index.indexed_run import IndexedRun
    from otel_memwatch.wings.index.run_fields import RunField

LEAST_RUNS = 4
"""Smallest number of runs on each side of a step."""
_MOST_RUNS = 2000
"""Newest runs of a job that are searched; the cost grows with the square."""
_PROPOSED = 6.0
"""Gain in squared error, in units of the noise's variance, that proposes a step."""
_DRIFT = 12.0
"""Gain that each parameter must add to prefer steps to a drift, or a drift to a step."""
_KEPT, _KEPT_NEW = 18.0, {4: 15.0, 5: 9.5, 6: 12.5, 7: 15.0, 8: 17.0, 9: 18.0}
"""Gain that confirms a step; that of the newest step by the runs on its shorter side.

A growing history is judged again at each run, so noise has many chances, most of them with the fewest runs. A step that has
just been found may lie up to three runs beside the true one, hence no jump between neighbours.
"""
_SHORT = 10.0
"""A history with this number of runs requires twice the gain: its noise is badly known."""
_SEPARATED, _BEYOND_DOUBT = 0.82, 33.0
"""Share of pairs in the direction of a step; gain that replaces it for long, small steps."""
_OUTLIERS = 3.0
"""Standard deviations from a running median beyond which a value is clipped."""
_NEIGHBOURS = 7
"""Width of the running median, in runs."""
_EXPLAINED, _EXPLAINED_SHORT = 9.5, 120.0
"""Twice the log-likelihood that each step adds to a dependence of each run on the run before it, and what short histories add.

Noise that lasts for several runs is rarely seen as such in few runs: the second number is divided by the number of runs. This
comparison needs no estimate of the noise in advance.
"""
_TAILS, _TAILED, _MOST_TAILED = 0.2, 5.0, 3.0
"""Share of the noise's excess kurtosis that is added to its variance, the smallest that counts, in 1 / sqrt(runs), the largest.

Means of few runs of heavy tails are larger than their variance lets expect.
"""
_SKEWED = 2.0
"""Excess of the scatter on one side over the variance, in units of 1 / sqrt(runs), from which it counts for that side."""
_GRID = 25
"""Places at which a drift may start or end, for one search."""
_COMMIT = 10
"""Shown characters of a commit."""
_ERROR = 0.01
_EFFECTS = {"By": (0.01, float(1 << 20)), "s": (0.05, 0.05)}
"""Smallest effect by unit: a share and a size."""


class FigureChange(NamedTuple):
    """A change of one figure of one job. Values are in the unit of the figure."""

    group: str
    figure: FigureRow
    is_step: bool
    """False: a drift, which grew over many runs."""
    before: float
    """Median of the runs before the step; at the start of a drift, its fitted value."""
    after: float
    low: float
    """Lower bound of the change, with a confidence of 99 %."""
    high: float
    is_certain: bool
    """False: the ranges of the runs before and after allow that nothing changed; only the best estimates differ."""
    last: IndexedRun
    """Last run before the change; for a drift, its first run."""
    first: IndexedRun
    """First run after it; for a drift, its last run."""
    runs: int
    """Runs of a drift; for a step, runs among which it may lie with a confidence of 99 %, at least 2."""
    notes: tuple[str, ...]
    """Facts that changed at the same run, in words: "host", "kernel"."""

    @property
    def size(self) -> float:
        """Difference from before to after."""
        return self.after - self.before

    @property
    def share(self) -> float | None:
        """Size as a share of the value before; `None`: it was 0."""
        return self.size / self.before if self.before else None


def changes(rows: Sequence[IndexedRun], by: Sequence[RunField] | None) -> list[FigureChange]:
    """Return the changes in the history of each group, in the order of their runs.

    Args:
        rows: the runs, oldest first.
        by: fields of a group. Default: the name, or the command if a run has no name.

    Raises `Unavailable` without ruptures.
    """
    histories: dict[str, list[IndexedRun]] = {}
    for row in rows:
        if row.ended_well:
            histories.setdefault(group_name(row, by), []).append(row)
    found = []
    for group, history in histories.items():
        for figure in FIGURES:
            if figure.judged and figure.field:
                known = [row for row in history if getattr(row, figure.field) is not None][-_MOST_RUNS:]
                if len(known) >= 2 * LEAST_RUNS:
                    found += _changes_of(group, figure, known)
    return sorted(found, key=lambda one: (one.group, one.first.started))


def _changes_of(group: str, figure: FigureRow, rows: Sequence[IndexedRun]) -> list[FigureChange]:
    _ruptures()  # requires numpy and scipy
    import numpy as np
    from scipy import stats

    values = np.array([float(getattr(row, figure.field)) for row in rows])
    share, least = _EFFECTS[figure.unit]
    lows, highs = _bounds(figure, rows)
    found = []
    for part in parts(values, share, least):
        # The ends of a drift may be a single run: then their neighbours stand for the bounds too.
        one = slice(part.start, max(part.last + 1, part.start + LEAST_RUNS))
        other = slice(min(part.first, part.end - LEAST_RUNS), part.end)
        before, after = part.before, part.after
        certain = _interval(highs[one], lows[other])[0] > 0 or _interval(lows[one], highs[other])[1] < 0
        if part.is_step:
            low, high = _interval(values[one], values[other])
            before, after = float(np.median(values[one])), float(np.median(values[other]))
            runs = _possible_runs(values, part.start, part.first, part.end)
        else:
            risen = np.clip((np.arange(part.start, part.end) - part.last) / (part.first - part.last), 0, 1)
            fitted = stats.linregress(risen, values[part.start : part.end])
            half = float(stats.t.isf(_ERROR / 2, max(1, len(risen) - 2)) * fitted.stderr)
            low, high = float(fitted.slope) - half, float(fitted.slope) + half
            runs = part.first - part.last + 1
        last, first = rows[part.last], rows[part.first]
        found.append(
            FigureChange(group, figure, part.is_step, before, after, low, high, certain, last, first, runs,
                   _notes(figure, last, first))
        )  # fmt: skip
    return found


class SeriesChange(NamedTuple):
    """A change in a series of values, as places in it."""

    start: int
    """First value of the level before."""
    last: int
    """Last value of that level."""
    first: int
    """First value of the level after: `last` + 1, unless it drifted."""
    end: int
    """The place after the last value of the level after."""
    before: float
    after: float

    @property
    def is_step(self) -> bool:
        """True if it changed between two runs."""
        return self.first == self.last + 1


def parts(values: Any, share: float, least: float) -> list[SeriesChange]:
    """Return the changes of a series.

    Args:
        values: an array with at least eight values.
        share: smallest effect as a share of the value before.
        least: smallest effect in the unit of the values.
    """
    import numpy as np
    from scipy.ndimage import median_filter

    floor = max(share * abs(float(np.median(values))), least) / 5
    # Standard deviation between neighbours. Larger differences count as three deviations: steps, outliers.
    apart = np.abs(np.diff(values)) / np.sqrt(2)
    deviation = float(np.sqrt((np.minimum(apart, 3 * float(np.median(apart)) / 0.6745) ** 2).mean()))
    noise = max(deviation, floor, 1e-300)
    # Mirrored without the value at the end: an outlier that appears twice may be the median.
    middle = median_filter(values, size=_NEIGHBOURS, mode="mirror")
    clipped = np.clip(values, middle - _OUTLIERS * noise, middle + _OUTLIERS * noise)
    found = _ruptures().KernelCPD(kernel="linear", min_size=LEAST_RUNS).fit((clipped / noise).reshape(-1, 1))
    steps = [int(step) for step in found.predict(pen=_PROPOSED)[:-1]]
    result: list[SeriesChange] = []
    for start, end, together in _same_direction(clipped, _confirmed(values, clipped, noise, steps)):
        ends = (start, *together, end)
        error = sum(float(clipped[a:b].var()) * (b - a) for a, b in itertools.pairwise(ends))
        ramp, drift = _ramp(clipped, start, end)
        # A drift has one parameter more than a step, and fewer than several steps.
        if ramp < error + _DRIFT * noise**2 * (len(together) - 1 or -1):
            if abs(drift.after - drift.before) > max(share * abs(drift.before), least):
                result.append(drift)
            continue
        # Small steps that are large together: each needs half of the smallest effect, all together the whole.
        inside, levels = _large(clipped, ends, share / 2, least / 2)
        if abs(levels[-1] - levels[0]) <= max(share * abs(levels[0]), least):
            continue
        for place, step in enumerate(inside):
            a, b = (start, *inside)[place], (*inside[1:], end)[place]
            result.append(SeriesChange(a, step - 1, step, b, levels[place], levels[place + 1]))
    return result


def _large(values: Any, ends: Sequence[int], share: float, least: float) -> tuple[list[int], list[float]]:
    """Return the steps between the first and the last end, without those below the smallest effect, and the levels.

    Steps that are small alone may be large together, so one stays in any case.
    """
    ends = list(ends)
    while True:
        levels = [float(values[a:b].mean()) for a, b in itertools.pairwise(ends)]
        excess = [
            abs(after - before) - max(share * abs(before), least)
            for before, after in itertools.pairwise(levels)
        ]
        smallest = min(range(len(excess)), key=excess.__getitem__)
        if len(excess) == 1 or excess[smallest] > 0:
            return ends[1:-1], levels
        del ends[smallest + 1]


def _ramp(values: Any, start: int, end: int) -> tuple[float, SeriesChange]:
    """Return the squared error of the best drift from one level to another, and the drift."""
    import numpy as np

    part, places = values[start:end], np.arange(end - start)
    centred = part - part.mean()
    best = (np.inf, SeriesChange(start, start, end - 1, end, 0.0, 0.0))
    grid = np.unique(np.linspace(0, end - start - 1, _GRID).astype(int))
    for a, b in itertools.combinations(grid, 2):
        if b - a >= LEAST_RUNS:
            risen = np.clip((places - a) / (b - a), 0, 1)
            middle = risen.mean()
            risen -= middle
            height = float(centred @ risen / (risen @ risen))
            error = float(((centred - height * risen) ** 2).sum())
            if error < best[0]:
                before = float(part.mean() - height * middle)
                best = (
                    error,
                    SeriesChange(start, start + int(a), start + int(b), end, before, before + height),
                )
    return best


def _confirmed(values: Any, clipped: Any, noise: float, steps: list[int]) -> list[int]:
    """Return the steps that exceed the noise between them: the weakest is dropped until all do."""
    import numpy as np

    steps = list(steps)
    separated: dict[tuple[int, int, int], bool] = {}
    while steps:
        ends = (0, *steps, len(values))
        variances = _variances(values, ends, noise)
        gains = []
        for a, b, c in zip(ends, ends[1:], ends[2:], strict=False):
            if (a, b, c) not in separated:
                before, after = values[a:b], values[b:c]
                ordered = np.sort(before)
                below = np.searchsorted(ordered, after, "left") + np.searchsorted(ordered, after, "right")
                pairs = float(below.sum()) / (2 * len(before) * len(after))
                separated[a, b, c] = max(pairs, 1 - pairs) >= _SEPARATED
            # The squared error that the step saves, in units of the variance in its direction.
            change = float(clipped[b:c].mean() - clipped[a:b].mean())
            gain = (b - a) * (c - b) / (c - a) * change**2 / variances[change < 0]
            kept = _KEPT_NEW.get(min(b - a, c - b), _KEPT) if c == len(values) else _KEPT
            required = kept * (1 + _SHORT / len(values))
            gains.append(gain / required if separated[a, b, c] or gain >= _BEYOND_DOUBT else 0.0)
        weakest = min(range(len(steps)), key=gains.__getitem__)
        if gains[weakest] >= 1:
            others = (*ends[: weakest + 1], *ends[weakest + 2 :])
            if _explains(clipped, ends, (0, len(values))) and _explains(clipped, ends, others):
                break
        del steps[weakest]
    return steps


def _variances(values: Any, ends: Sequence[int], noise: float) -> tuple[float, float]:
    """Return the variances that are left between the steps, for steps up and down.

    They are larger if consecutive runs resemble each other. Skewed noise has a larger one for its long side.
    """
    import numpy as np

    left = np.concatenate([values[a:b] - np.median(values[a:b]) for a, b in itertools.pairwise(ends)])
    runs = len(left)
    tails = float(((left - left.mean()) ** 4).mean()) / max(float(left.var()), 1e-100) ** 2 - 3
    left = np.clip(left, *np.quantile(left, (0.02, 0.98)))
    centred = left - left.mean()
    variance = max(float(left.var()), 1e-300)
    alike = float((centred[1:] * centred[:-1]).mean()) / variance
    # Noise alone reaches 2 / sqrt(n). Steps that follow the noise make it smaller than it is: hence half as much again.
    alike = 0.0 if alike < 2 / float(np.sqrt(runs)) else min(0.9, 1.5 * alike)
    variance *= runs / max(1, runs - len(ends) + 1)
    heavier = 1 + _TAILS * min(tails, _MOST_TAILED) if tails > _TAILED / float(np.sqrt(runs)) else 1.0

    def side(part: Any) -> float:
        wide = float((part**2).mean()) if len(part) else 0.0
        found = wide if wide > variance * (1 + _SKEWED / float(np.sqrt(runs))) else variance
        return max(0.8 * noise**2, found * heavier) * (1 + alike) / (1 - alike)

    return side(left[left > 0]), side(left[left < 0])


def _explains(values: Any, ends: Sequence[int], fewer: Sequence[int]) -> bool:
    """Return whether steps explain more than fewer of them and a dependence of each run on the run before it."""
    import numpy as np

    def unexplained(ends: Sequence[int]) -> float:
        left = np.concatenate([values[a:b] - values[a:b].mean() for a, b in itertools.pairwise(ends)])
        alike = float(left[1:] @ left[:-1]) / max(float(left @ left), 1e-300)
        return max(float(((left[1:] - alike * left[:-1]) ** 2).sum()), 1e-300)

    saved = np.log(unexplained(fewer) / unexplained(ends))
    # Each level that is fitted makes the rest smaller than the noise.
    required = _EXPLAINED + _EXPLAINED_SHORT / len(values)
    return bool((len(values) - len(ends) + 1) * saved >= required * (len(ends) - len(fewer)))


def _same_direction(values: Any, steps: Sequence[int]) -> list[tuple[int, int, list[int]]]:
    """Return stretches of consecutive steps in one direction: start, end, steps. Many small ones may be a drift."""
    ends = (0, *steps, len(values))
    means = [float(values[a:b].mean()) for a, b in itertools.pairwise(ends)]
    found: list[tuple[int, int, list[int]]] = []
    for place, step in enumerate(steps):
        up = means[place + 1] > means[place]
        if found and place and up == (means[place] > means[place - 1]):
            start, _, inside = found.pop()
            found.append((start, ends[place + 2], [*inside, step]))
        else:
            found.append((ends[place], ends[place + 2], [step]))
    return found


def _interval(before: Any, after: Any) -> tuple[float, float]:
    """Return the 99 % interval of the difference of the means, by Welch's method."""
    from scipy import stats

    parts = [max(float(side.var(ddof=1)), 1e-12) / len(side) for side in (before, after)]
    freedom = sum(parts) ** 2 / sum(
        part**2 / (len(side) - 1) for part, side in zip(parts, (before, after), strict=True)
    )
    middle = float(after.mean() - before.mean())
    half = float(stats.t.isf(_ERROR / 2, max(freedom, 1.0))) * sum(parts) ** 0.5
    return middle - half, middle + half


def _bounds(figure: FigureRow, rows: Sequence[IndexedRun]) -> tuple[Any, Any]:
    """Return lower and upper bounds of the figure; the value itself if there are none or it is exact."""
    import numpy as np

    lows, highs = [], []
    for row in rows:
        value = float(getattr(row, figure.field))
        low = high = None
        if figure.name == MEMORY and not row.is_exact:
            low, high = row.low, row.upper_bound
        elif figure.name == PROCESS:
            low, high = row.process_low, row.process_high
        lows.append(value if low is None else low)
        highs.append(value if high is None else high)
    return np.array(lows, float), np.array(highs, float)


def _possible_runs(values: Any, start: int, middle: int, end: int) -> int:
    """Return among how many runs the step may lie: the likelihood elsewhere is less than 1 % of the best."""
    import numpy as np

    before, after = float(np.median(values[start:middle])), float(np.median(values[middle:end]))
    left = np.concatenate((values[start:middle] - before, values[middle:end] - after))
    variance = max(float(np.var(left)), ((after - before) / 20) ** 2)
    wrong = (values[start:end] - after) ** 2 - (values[start:end] - before) ** 2
    # Moving the step to later runs counts them as before, to earlier ones as after.
    later, earlier = np.cumsum(-wrong[middle - start :]), np.cumsum(wrong[: middle - start][::-1])
    limit = 2 * np.log(100) * variance
    return 2 + int((later < limit).sum() + (earlier < limit).sum())


def _notes(figure: FigureRow, last: IndexedRun, first: IndexedRun) -> tuple[str, ...]:
    """Return facts that changed between the two runs and may be the cause, or make them not comparable."""
    facts = [
        ("host", last.host, first.host),
        ("kernel", last.system, first.system),
        ("processors", last.cpus, first.cpus),
        ("command", last.command_json, first.command_json),
    ]
    if figure.name == MEMORY:
        facts.append(("measured another way", last.charged, first.charged))
    found = [name for name, one, other in facts if one != other]
    if last.commit and first.commit and last.commit != first.commit:
        found.append(f"commit {last.commit[:_COMMIT]} to {first.commit[:_COMMIT]}")
    return tuple(found)


def _ruptures() -> Any:
    try:
        import ruptures
    except ImportError:
        raise Unavailable(
            "Changes are found by ruptures, which is not installed.", "pip install 'otel-memwatch[changes]'"
        ) from None
    return ruptures
