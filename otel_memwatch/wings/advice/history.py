"""Summary lines from earlier runs: changes since the last one, and the advice.

They are made at the end of every run, while a shell waits. So only the newest runs in the same directory are read, and
only the `run.json` of each.
"""

from __future__ import annotations

import os

from otel_memwatch.runtime.typed import TYPE_CHECKING
from otel_memwatch.text import change, duration
from otel_memwatch.wings.advice.advice import advise, job_of
from otel_memwatch.wings.advice.recommendation import sentence
from otel_memwatch.wings.index.indexed_run import IndexedRun
from otel_memwatch.wings.index.run_row import row_of_ended, row_of_finished

if TYPE_CHECKING:
    from collections.abc import Sequence

    from otel_memwatch.run import RecordedRun

_NEWEST = 32
"""Number of runs that are read at most: 0.2 ms each."""
_ENOUGH = 16
"""Number of runs of the same job that are read at most."""
_WORTH_TELLING = 0.01, 1 << 20
"""Share of the memory needed, and bytes: a larger change is reported."""
_SLOWER = 0.1
"""Share by which a duration must differ to be reported. Half of that is the machine's."""


def earlier_runs(now: IndexedRun) -> list[IndexedRun]:
    """Return the newest finished runs of the same job in the same directory, oldest first, without `now`.

    Names begin with the time.
    """
    parent, own = os.path.split(os.path.abspath(now.path))
    try:
        names = sorted(
            entry.name for entry in os.scandir(parent) if entry.name != own and not entry.name.startswith(".")
        )
    except OSError:
        return []
    job = job_of(now)
    found: list[IndexedRun] = []
    for name in reversed(names[-_NEWEST:]):
        row = row_of_finished(f"{parent}/{name}") if len(found) < _ENOUGH else None
        if row and job_of(row) == job and row.system == now.system and row.started <= now.started:
            found.append(row)
    return sorted(found, key=lambda row: row.started)


def history_lines(run: RecordedRun) -> list[tuple[str, str]]:
    """Return labels and texts of a finished run's summary lines about earlier runs: changes, and the advice.

    Empty if nothing is known.
    """
    now = row_of_ended(run, run.directory)
    if now.state != "finished" or now.memory is None:
        return []
    rows = earlier_runs(now)
    lines = []
    changed = what_changed(now, [row for row in rows if row.command == now.command])
    if changed:
        lines.append(("changed", changed))
    (advice,) = advise([*rows, now], by=lambda _: job_of(now))
    if advice.memory is not None or now.killed_for_memory:
        lines.append(("advice", sentence(advice)))
    return lines


def what_changed(now: IndexedRun, before: Sequence[IndexedRun]) -> str | None:
    """Return the changes since the last run of the same command; `None` if this one or all before it ended badly.

    Memory changed only if the bounds of the two runs exclude each other.
    """
    whole = [row for row in before if row.ended_well and not row.short_of_memory]
    if not whole or now.memory is None or not now.ended_well or now.short_of_memory:
        return None  # a run that was killed early or starved needed less, and is no improvement
    last = whole[-1]
    assert last.memory is not None
    parts = []
    apart = (now.low or 0) > (last.high or float("inf")) or (last.low or 0) > (now.high or float("inf"))
    apart = apart and "sampled" not in (now.certainty, last.certainty)  # their lower end is no bound
    difference = now.memory - last.memory
    share, least = _WORTH_TELLING
    if apart and abs(difference) > max(share * last.memory, least):
        parts.append(f"memory {change(difference)} ({100 * difference / last.memory:+.0f} %)")
    if (
        now.seconds
        and last.seconds
        and "attach" not in (now.mode, last.mode)  # a recording of a service ends at any time
        and abs(now.seconds / last.seconds - 1) > _SLOWER
        and max(now.seconds, last.seconds) > 1
    ):
        parts.append(
            f"{duration(abs(now.seconds - last.seconds))} {'slower' if now.seconds > last.seconds else 'faster'}"
        )
    before_now = duration(max(0.0, now.started - last.started))
    return f"{', '.join(parts) or 'nothing'} since the previous run ({before_now} ago)"
