"""What recommenders that look now and then would have said of recorded runs."""

from __future__ import annotations

import random

from otel_memwatch import catalog
from otel_memwatch.errors import RunError
from otel_memwatch.run import load
from otel_memwatch.runtime.typed import TYPE_CHECKING
from otel_memwatch.wings.advice.recommenders import RULES, polled

if TYPE_CHECKING:
    from collections.abc import Sequence

    from otel_memwatch.wings.index.indexed_run import IndexedRun

PERIODS = (15.0, 30.0, 60.0)
"""Seconds between two looks: scrapes of a cluster, and polls of a batch system."""


def curve(row: IndexedRun) -> tuple[list[float], list[float]]:
    """Seconds since the start, and the resident memory of the tree at them: what is scraped and polled."""
    try:
        samples = load(row.path).samples([catalog.MEMWATCH_TREE_MEMORY_USAGE])
    except RunError:
        return [], []
    for column in samples.columns:
        if column.metric == catalog.MEMWATCH_TREE_MEMORY_USAGE:
            pairs = zip(samples.time.tolist(), samples.values(column).tolist(), strict=True)
            known = [(time, size) for time, size in pairs if size == size]  # noqa: PLR0124 - NaN
            return [time for time, _ in known], [size for _, size in known]
    return [], []


def others(rows: Sequence[IndexedRun]) -> dict[str, dict[str, float]]:
    """What each rule says with each period between its looks, in bytes. When its first look is, is drawn by lot, alike each time."""
    lots = random.Random(1)  # noqa: S311 - nothing is kept secret by it
    curves = [curve(row) for row in rows]
    seen = {period: [polled(*one, period, lots.uniform(0, period)) for one in curves] for period in PERIODS}
    return {
        name: {f"{period:.0f} s": rule(seen[period]) for period in PERIODS} for name, rule in RULES.items()
    }
