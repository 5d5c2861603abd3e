"""The ticks of a run as windows with bounds: what `instant_sum` adds up. One run of an hour at 1 Hz takes some 10 ms.

=======================  ==========================================================  ===================================
evidence                 at most, between two ticks                                   all the time, between two ticks
=======================  ==========================================================  ===================================
a group of its own       its watermark less page cache, `certainty.needed_between_ticks`  private memory less faults
page faults              `memwatch.tree.memory.needed.high`, and faults of the unseen     `.low`, less faults
neither                  the run's own peak                                          nothing
=======================  ==========================================================  ===================================

Whatever a window says, no run had more than its peak.
"""

from __future__ import annotations

import json
import math
from itertools import chain

from otel_memwatch import catalog
from otel_memwatch.record.fields import mapping, moment
from otel_memwatch.record.format import SAMPLES_FILE
from otel_memwatch.record.samples import parse_columns
from otel_memwatch.run.conditions import RunConditions
from otel_memwatch.runtime.typed import TYPE_CHECKING
from otel_memwatch.truth import certainty
from otel_memwatch.truth.ranks import Windows, held_through

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    import numpy as np
    from numpy.typing import NDArray

    from otel_memwatch.model import Peak
    from otel_memwatch.run.recorded_run import RecordedRun

    Array = NDArray[np.float64]
    Table = dict[str, Array]

_BLOCK = 512 << 10
"""Bytes that are read at once."""
_NEWLINE, _COMMA, _OPENING, _ZERO, _DOT = b"\n,[0."
_LONGEST = 16
"""Characters of a number whose digits a float holds exactly."""

_GROUP = {
    "usage": catalog.MEMWATCH_CGROUP_MEMORY_USAGE,
    "window": catalog.MEMWATCH_CGROUP_MEMORY_WINDOW,
    "gap": catalog.MEMWATCH_CGROUP_MEMORY_WINDOW_GAP,
    "peak": catalog.MEMWATCH_CGROUP_MEMORY_PEAK,
    "file": catalog.MEMWATCH_CGROUP_MEMORY_FILE,
    "locked": catalog.MEMWATCH_CGROUP_MEMORY_UNEVICTABLE,
    "anon": catalog.MEMWATCH_CGROUP_MEMORY_ANON,
    "group_faults": catalog.MEMWATCH_CGROUP_PAGING_FAULTS,
    "moved": catalog.MEMWATCH_TREE_DISK_IO,
    "faults": catalog.MEMWATCH_TREE_PAGING_FAULTS,
    "alive": catalog.MEMWATCH_TREE_PROCESS_COUNT,
}
_LEDGER = {
    "low": catalog.MEMWATCH_TREE_MEMORY_NEEDED_LOW,
    "high": catalog.MEMWATCH_TREE_MEMORY_NEEDED_HIGH,
    "guess": catalog.MEMWATCH_TREE_MEMORY_NEEDED,
    "unseen": catalog.MEMWATCH_TREE_UNOBSERVED_FAULTS,
    "faults": catalog.MEMWATCH_TREE_PAGING_FAULTS,
    "resident": catalog.MEMWATCH_TREE_MEMORY_USAGE,
}
"""For each kind of evidence the metrics that it takes; the columns of a metric are summed."""


def windows_of(run: RecordedRun) -> Windows:
    """The windows of a run, in its own monotonic seconds. Raises `OSError` where its ticks cannot be read, as `open` does."""
    import numpy as np

    peak = run.peaks.tree
    most = _most(peak)
    path = run.path / SAMPLES_FILE
    own = bool(run.info.get("own_cgroup")) and peak is not None and _is_of_group(peak.how or "")
    time, table = read_table(path, _GROUP if own else _LEDGER)
    start = run.started
    ended = moment(mapping(run.info.get("ended")).get("monotonic"))
    if not len(time):
        return without_ticks(run)
    conditions = RunConditions.of(run.info)
    low, high, guess = _of_group(table, conditions) if own else _of_ledger(table, conditions)
    begins = np.concatenate(([min(start, time[0])], time[:-1]))
    ends = time
    if ended is not None and ended > time[-1]:
        begins, ends = np.append(begins, time[-1]), np.append(time, ended)
        # After the last tick it had what it had then and what it gained since, of which nobody tells.
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


def _is_of_group(how: str) -> bool:
    """Whether the run's own control group told of all its memory: nobody had left it."""
    return how.startswith(certainty.BY_GROUP)


def _of_group(table: Table, conditions: RunConditions) -> tuple[Array, Array, Array]:
    """As `certainty.needed_between_ticks` has it, for all windows at once."""
    import numpy as np

    error = conditions.charge_error
    zero = np.zeros(1)
    peak = table["peak"]
    rose = np.diff(peak, prepend=0.0) > 0
    top = np.where(np.isnan(table["window"]) & rose, peak, table["window"])
    ceiling = np.where(np.isnan(top), peak, top)
    moved = table["moved"]
    after, before = np.append(moved[1:], moved[-1:]), np.concatenate((zero, moved[:-1]))
    file, file_before = table["file"], np.concatenate((zero, table["file"][:-1]))
    files = file.copy()
    if table["alive"][-1] != 0:
        # Somebody may have written while the last tick was read, and no later one counts it (`CgroupBounds.rest`).
        files[-1] = math.nan
    _, high = certainty.needed_between_all_ticks(
        top,
        ceiling,
        files_before=file_before,
        files=files,
        locked=np.nan_to_num(table["locked"]),
        moved=np.maximum(0.0, after - before),
        reset_gaps=np.concatenate((zero, table["gap"][:-1])),
        error=error,
        cpus=conditions.cpus,
    )
    held = table["anon"] - error
    faults = np.fmax(table["faults"], table["group_faults"])
    low = held_through(held, faults, conditions.fault_bytes)
    return low, high, table["usage"] - np.nan_to_num(file)


def _of_ledger(table: Table, conditions: RunConditions) -> tuple[Array, Array, Array]:
    """As `ledger_bounds.LedgerBounds` has it, for all windows at once."""
    import numpy as np

    unseen = table["unseen"]
    told = np.append(unseen[1:], unseen[-1:]) - np.concatenate((np.zeros(1), unseen[:-1]))
    high = table["high"] + np.maximum(0.0, told) * conditions.page_bytes
    low = held_through(table["low"], table["faults"], conditions.fault_bytes)
    return low, high, np.where(np.isnan(table["guess"]), table["resident"], table["guess"])


def read_table(path: Path, wanted: Mapping[str, str]) -> tuple[Array, Table]:
    """The times of the ticks, and for each name the sum of the columns of its metric; NaN: not known.

    A line that is no tick is left out. Of each line only what is wanted is looked at: for a thousand runs of an hour that is
    a third of the time that parsing them takes.
    """
    import numpy as np

    times: list[Array] = []
    values: dict[str, list[Array]] = {name: [] for name in wanted}
    indices: dict[str, list[int]] = {}
    torn = b""
    with path.open("rb", buffering=0) as file:
        while data := file.read(_BLOCK):
            lines, _, torn = (torn + data).rpartition(b"\n")
            for declared, ticks in _stretches(lines):
                if declared:
                    indices = _indices(declared, wanted) or indices
                if ticks and indices:
                    _take(ticks, indices, times, values)
    time = np.concatenate(times) if times else np.zeros(0)
    table = {
        name: np.concatenate(columns) if columns else np.full(len(time), math.nan)
        for name, columns in values.items()
    }
    rising = np.diff(np.maximum.accumulate(time), prepend=-math.inf) > 0
    if not bool(rising.all()):
        time, table = time[rising], {name: column[rising] for name, column in table.items()}
    return time, table


def _stretches(lines: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Headers, each with the ticks behind it; the first stretch may have none."""
    begin, header = 0, b""
    while True:
        at = begin if not header and lines.startswith(b"{", begin) else lines.find(b"\n{", begin)
        if at < 0:
            yield header, lines[begin:]
            return
        at += lines[at : at + 1] == b"\n"
        if at > begin or header:
            yield header, lines[begin:at].rstrip(b"\n")
        end = lines.find(b"\n", at)
        end = len(lines) if end < 0 else end
        header, begin = lines[at:end], min(end + 1, len(lines))
        if begin >= len(lines):
            yield header, b""
            return


def _indices(line: bytes, wanted: Mapping[str, str]) -> dict[str, list[int]] | None:
    try:
        declared = parse_columns(json.loads(line))
    except ValueError:
        return None
    if declared is None:
        return None
    return {
        name: [i for i, column in enumerate(declared, 1) if column.metric == metric]
        for name, metric in wanted.items()
    }


def _take(
    lines: bytes, indices: Mapping[str, Sequence[int]], times: list[Array], values: dict[str, list[Array]]
) -> None:
    """Adds ticks that have these columns."""
    import numpy as np

    places = sorted({0, *chain.from_iterable(indices.values())})
    table = _table(lines, places)
    table[np.isinf(table)] = math.nan
    table = table[~np.isnan(table[:, 0])]
    times.append(table[:, 0])
    for name, own in indices.items():
        columns = [places.index(index) for index in own]
        values[name].append(table[:, columns].sum(axis=1) if columns else np.full(len(table), math.nan))


def _table(lines: bytes, places: Sequence[int]) -> Array:
    """The numbers at these places of each line, a row each; NaN for what is none."""
    import numpy as np

    # Where lines and numbers end is found for all lines at once.
    text = np.frombuffer(lines + b"\n", np.uint8)
    ends = np.flatnonzero(text == _NEWLINE)
    starts = np.concatenate((np.zeros(1, ends.dtype), ends[:-1] + 1))
    commas = np.flatnonzero(text == _COMMA)
    first = np.searchsorted(commas, starts)
    whole = (np.searchsorted(commas, ends) - first > places[-1]) & (text[starts] == _OPENING)
    table = np.full((len(ends), len(places)), math.nan)
    rows = np.flatnonzero(whole)
    if len(rows):
        for number, place in enumerate(places):
            # A number begins behind the comma before it, the first behind the bracket.
            froms = starts[rows] + 1 if place == 0 else commas[first[rows] + place - 1] + 1
            table[rows, number] = _numbers(text, froms, commas[first[rows] + place])
    for row in np.flatnonzero(~whole).tolist():
        line = lines[starts[row] : ends[row]]
        if line[:1] != b"[" or line[-1:] != b"]":
            continue
        parts = line[1:-1].split(b",")
        table[row] = [_number(parts[place]) if place < len(parts) else math.nan for place in places]
    return table


def _numbers(text: NDArray[np.uint8], starts: NDArray[np.int64], ends: NDArray[np.int64]) -> Array:
    """One number of each line, all at once: digit by digit, in as many steps as the longest has characters.

    What is no plain decimal ("null", "1e-05", a negative one) is looked at by itself.
    """
    import numpy as np

    length = ends - starts
    value, decimals = np.zeros(len(starts)), np.zeros(len(starts))
    dotted, odd = np.zeros(len(starts), bool), length < 1
    for step in range(min(int(length.max()), _LONGEST)):
        inside = step < length
        character = text[np.minimum(starts + step, ends)]
        digit = character - _ZERO  # of what is none it wraps around
        is_digit = inside & (digit <= 9)
        is_dot = inside & (character == _DOT)
        value = np.where(is_digit, value * 10 + digit, value)
        decimals += is_digit & dotted
        odd |= inside & ~is_digit & (~is_dot | dotted)
        dotted |= is_dot
    odd |= length > _LONGEST
    found: Array = value / 10.0**decimals
    for row in np.flatnonzero(odd).tolist():
        found[row] = _number(bytes(text[starts[row] : ends[row]]))
    return found


def _number(text: bytes) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan
