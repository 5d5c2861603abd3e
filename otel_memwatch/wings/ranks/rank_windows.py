"""The samples of a run as windows with bounds: what `truth.ranks` adds up.

=======================  ==========================================================  ===================================
evidence                 at most, between two samples                                all the time, between two samples
=======================  ==========================================================  ===================================
a group of its own       `cgroup_bounds.bounds_between`                              private memory less faults
page faults              `memwatch.tree.memory.needed.high`, and faults of the unseen     `.low`, less faults
neither                  the run's own peak                                          nothing
=======================  ==========================================================  ===================================

Whatever a window says, no run had more than its peak.
"""

from __future__ import annotations

import math

from otel_memwatch.record.fields import mapping, moment
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
    "usage", "window", "gap", "watermark", "file", "locked", "moved", "anon", "group_faults", "faults", "processes",
)  # fmt: skip
_OF_LEDGER = ("needed_low", "needed_high", "needed", "unseen_faults", "faults", "rss")


def windows_of(run: RecordedRun) -> Windows:
    """Return the windows of a run, in its own monotonic seconds."""
    import numpy as np

    peak = run.peaks.tree
    most = _most(peak)
    own = bool(run.info.get("own_cgroup")) and is_charged(peak)
    samples = run.samples({FIELDS[field][0] for field in (_OF_GROUP if own else _OF_LEDGER)})
    if not len(samples):
        return without_ticks(run)
    start, time = run.started, np.round(samples.time + run.started, TICK_DECIMALS)
    ended = moment(mapping(run.info.get("ended")).get("monotonic"))
    conditions = RunConditions.of(run.info)
    if own:
        low, high, guess = _of_group(samples, conditions)
    elif conditions.own_cgroup:  # processes left the group: its bounds are not those of the run
        guess = samples.field("rss")
        low, high = np.zeros(len(guess)), np.full(len(guess), math.inf)
    else:
        low, high, guess = _of_ledger(samples, conditions)
    begins = np.concatenate(([min(start, time[0])], time[:-1]))
    ends = time
    if ended is not None and ended > time[-1]:
        begins, ends = np.append(begins, time[-1]), np.append(time, ended)
        # After the last sample it had what it had then and what it gained since, which is not known.
        low, high, guess = np.append(low, 0.0), np.append(high, math.inf), np.append(guess, guess[-1])
    high = np.minimum(np.where(np.isnan(high), math.inf, high), most)
    low = np.minimum(np.where(np.isnan(low), 0.0, low), high)
    return Windows(begins, ends, low, high, np.clip(np.nan_to_num(guess), low, high))


def without_ticks(run: RecordedRun) -> Windows:
    """What is known of a run whose ticks are not: in one window, nothing from below, and from above its peak."""
    import numpy as np

    end = run.started + run.seconds
    empty = np.zeros(1)
    return Windows(np.array([run.started]), np.array([end]), empty, np.array([_most(run.peaks.tree)]), empty)


def _most(peak: Peak | None) -> float:
    return math.inf if peak is None or peak.high is None else float(peak.high)


def _of_group(samples: Samples, conditions: RunConditions) -> tuple[Array, Array, Array]:
    """Return lower and upper bound of each window, and what was charged without page cache."""
    import numpy as np

    all_ended = bool(samples.field("processes")[-1] == 0)
    *_, high = bounds_between(samples, conditions, all_ended=all_ended)
    held = samples.field("anon") - conditions.charge_error
    faults = np.fmax(samples.field("faults"), samples.field("group_faults"))
    low = held_through(held, faults, conditions.fault_bytes)
    return low, high, samples.field("usage") - np.nan_to_num(samples.field("file"))


def _of_ledger(samples: Samples, conditions: RunConditions) -> tuple[Array, Array, Array]:
    """Return the same by page faults, as `ledger_bounds.LedgerBounds` has it."""
    import numpy as np

    unseen = samples.field("unseen_faults")
    told = np.append(unseen[1:], unseen[-1:]) - np.concatenate((np.zeros(1), unseen[:-1]))
    high = samples.field("needed_high") + np.maximum(0.0, told) * conditions.page_bytes
    low = held_through(samples.field("needed_low"), samples.field("faults"), conditions.fault_bytes)
    guess = samples.field("needed")
    return low, high, np.where(np.isnan(guess), samples.field("rss"), guess)
