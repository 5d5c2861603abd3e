"""Costs of rules that exist twice: for one sample, as a monitor meets it, and for arrays of a whole record.

    python tests/bench/bench_twins.py [TICKS]

Prints microseconds of CPU for each sample. A page of a day has 864 000 samples and a budget of 10 s: a rule for one sample
that costs 5 us more adds 4 s. `tests/unit/run` holds the twins together (`test_array_twins`, `test_curves`, `test_sample_history`).
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from otel_memwatch.record.open import read_run
from otel_memwatch.record.samples import Samples
from otel_memwatch.run.cgroup_bounds import CgroupBounds, bounds_between
from otel_memwatch.run.conditions import RunConditions
from otel_memwatch.run.curves import Curves
from otel_memwatch.run.ledger_bounds import LedgerWindows, ledger_between
from otel_memwatch.run.sample_history import SampleHistory
from otel_memwatch.run.sample_series import TreeSeries
from tests.bench import bench_offline
from tests.support import recorded


def added(collector: object, samples: Samples, started: float) -> None:
    """Add every sample to a collector."""
    add = getattr(collector, "add")  # noqa: B009 - collectors have no common type
    for sample in samples.each(started):
        add(sample)


def main() -> None:
    """Print one line for each pair."""
    ticks = int(sys.argv[1]) if len(sys.argv) > 1 else bench_offline.DAY // 8
    with tempfile.TemporaryDirectory() as folder:
        bench_offline.widen(recorded.day(Path(folder) / "day", ticks=ticks))
        record = read_run(Path(folder) / "day")
        conditions, samples = RunConditions.of(record.info), record.samples()

    def cost(work: Callable[[], object]) -> float:
        begun = time.process_time()
        work()
        return (time.process_time() - begun) / ticks * 1e6

    made = cost(lambda: [None for _ in samples.each(conditions.started)])
    pairs = {
        "curves": (
            Curves(samples.columns, record.info),
            lambda: Curves(samples.columns, record.info).add_all(samples),
        ),
        "windows of the cgroup": (
            CgroupBounds(conditions),
            lambda: bounds_between(samples, conditions, all_ended=True),
        ),
        "windows of the ledger": (
            LedgerWindows(conditions),
            lambda: ledger_between(samples, conditions, all_ended=True),
        ),
        "samples of the tree": (
            SampleHistory(conditions),
            lambda: TreeSeries(samples, conditions, all_ended=True),
        ),
    }
    print(f"{'us a sample':24}{'one by one':>12}{'arrays':>8}   (making a sample, in the first: {made:.2f})")
    for name, (collector, work) in pairs.items():
        one_by_one = cost(lambda collector=collector: added(collector, samples, conditions.started))  # type: ignore[misc]
        print(f"{name:24}{one_by_one:12.2f}{cost(work):8.2f}", flush=True)


if __name__ == "__main__":
    main()
