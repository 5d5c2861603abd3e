"""Windows with bounds, made from the samples of a run for `truth.ranks` to add up.

A window is the time between two samples. Its upper bound holds for the maximum, its lower bound for the whole window:

* Cgroup of the run: `cgroup_bounds.bounds_between`; private memory less page faults.
* Page faults: `memwatch.tree.memory.needed.high` plus faults of unseen processes;
  `memwatch.tree.memory.needed.low` less page faults.
* Neither: the peak of the run; 0.

The peak of the run limits every window.
"""

from __future__ import annotations

import math

from otel_memwatch.record.format import TICK_DECIMALS
from otel_memwatch.record.schema import FIELDS
from otel_memwatch.run.cgroup_bounds import bounds_between
from otel_memwatch.run.conditions import RunConditions
from otel_memwatch.runtime.typed import TYPE_CHECKING
from otel_memwatch.truth.cgroup import is_charged
from otel_memwatch.truth.ranks import Windows, held_through

if TYPE_CHECKING:
    from otel_memwatch.model import Peak
    from otel_memwatch.record.samples import Array, Samples
    from otel_memwatch.run.recorded_run import RecordedRun

_OF_GROUP = (
    "usage", "window", "gap", "watermark", "file", "locked", "moved", "anon", "cgroup_faults", "faults", "processes",
)  # fmt: skip
_OF_LEDGER = ("needed_low", "needed_high", "needed", "unseen_faults", "faults", "rss")


def windows_of(run: RecordedRun) -> Windows:
    """Return the windows of a run, in monotonic seconds of its machine."""
    import numpy as np

    peak = run.peaks.tree
    most = _most(peak)
    conditions = RunConditions.of(run.info)
    own = conditions.own_cgroup and is_charged(peak)
    samples = run.samples({FIELDS[field][0] for field in (_OF_GROUP if own else _OF_LEDGER)})
    if not len(samples):
        return without_ticks(run)
    start, time = run.started, np.round(samples.time + run.started, TICK_DECIMALS)
    ended = run.fields.ended.monotonic
    if own:
        low, high, guess = _of_group(samples, conditions)
    elif conditions.own_cgroup:  # processes left the cgroup, so its bounds do not cover the run
        guess = samples.field("rss")
        low, high = np.zeros(len(guess)), np.full(len(guess), math.inf)
    else:
        low, high, guess = _of_ledger(samples, conditions)
    begins = np.concatenate(([min(start, time[0])], time[:-1]))
    ends = time
    if ended is not None and ended > time[-1]:
        begins, ends = np.append(begins, time[-1]), np.append(time, ended)
        # Growth after the last sample is unknown.
        low, high, guess = np.append(low, 0.0), np.append(high, math.inf), np.append(guess, guess[-1])
    high = np.minimum(np.where(np.isnan(high), math.inf, high), most)
    low = np.minimum(np.where(np.isnan(low), 0.0, low), high)
    return Windows(begins, ends, low, high, np.clip(np.nan_to_num(guess), low, high))


def without_ticks(run: RecordedRun) -> Windows:
    """Return one window for a run without samples: no lower bound, and the peak as the upper bound."""
    import numpy as np

    end = run.started + run.seconds
    empty = np.zeros(1)
    return Windows(np.array([run.started]), np.array([end]), empty, np.array([_most(run.peaks.tree)]), empty)


def _most(peak: Peak | None) -> float:
    return math.inf if peak is None or peak.high is None else float(peak.high)


def _of_group(samples: Samples, conditions: RunConditions) -> tuple[Array, Array, Array]:
    """Return lower and upper bound of each window, and the charged memory without page cache."""
    import numpy as np

    all_ended = bool(samples.field("processes")[-1] == 0)
    *_, high = bounds_between(samples, conditions, all_ended=all_ended)
    held = samples.field("anon") - conditions.charge_error
    faults = np.fmax(samples.field("faults"), samples.field("cgroup_faults"))
    low = held_through(held, faults, conditions.fault_bytes)
    return low, high, samples.field("usage") - np.nan_to_num(samples.field("file"))


def _of_ledger(samples: Samples, conditions: RunConditions) -> tuple[Array, Array, Array]:
    """Return bounds and estimates from page faults, like `ledger_bounds.LedgerBounds`."""
    import numpy as np

    unseen = samples.field("unseen_faults")
    gained = np.append(unseen[1:], unseen[-1:]) - np.concatenate((np.zeros(1), unseen[:-1]))
    high = samples.field("needed_high") + np.maximum(0.0, gained) * conditions.page_bytes
    low = held_through(samples.field("needed_low"), samples.field("faults"), conditions.fault_bytes)
    guess = samples.field("needed")
    return low, high, np.where(np.isnan(guess), samples.field("rss"), guess)
