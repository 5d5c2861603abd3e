"""Number of commands that fit into memory at once (`advise --jobs --within SIZE`), for runners such as make.

A runner combines commands as it likes, so the largest ones may meet: five links of 2 GiB decide, not the mean of a thousand
compilations. The number is the largest at which that many of the largest commands fit together.

| commands | count |
| --- | --- |
| with the same arguments | with the largest need, as often as they ran in one build |
| beyond all that are recorded | as large as the largest one |

A pause of `BUILD_PAUSE` without a command separates builds.

A need is the upper bound of the peak. The next build may need a little more: `MARGIN` of each command. Commands do not all grow
together, so the margins are added like independent errors, by their squares.
"""

from __future__ import annotations

import math
from collections import Counter

from otel_memwatch.errors import UsageError
from otel_memwatch.runtime.typed import TYPE_CHECKING, Any, NamedTuple
from otel_memwatch.text import clean, count, shorten, size

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from otel_memwatch.wings.index.indexed_run import IndexedRun

RUNNER_BYTES = 8 << 20
"""Memory of the runner itself."""
MARGIN = 0.05
"""Share of a command's need by which the next one may exceed it: 2.5 times the usual scatter of 2 %."""
BUILD_PAUSE = 10.0
"""Seconds."""
MOST = 10_000
"""Largest number of jobs."""
_UNBOUNDED_MARGIN = 0.25
"""Share added to the best estimate of a run without an upper bound."""
_SHOWN = 3
_NAME = 60

WORDS = {
    "make": "make -j{}",
    "ninja": "ninja -j{}",
    "pytest-xdist": "pytest -n {}",
    "parallel": "parallel --jobs {}",
}
"""Option of each runner."""


class CommandNeed(NamedTuple):
    """A command and the memory that it needs."""

    command: str
    needed: int
    """Bytes, without a margin."""
    bounded: bool
    """True if `needed` is an upper bound."""


class Jobs(NamedTuple):
    """Number of commands at once. Bytes."""

    jobs: int
    """0: not even the largest command fits."""
    within: int
    needed: int
    """Memory of that many of the largest commands."""
    next: int
    """Memory of one more."""
    commands: int
    """Number of commands that the figure rests on."""
    unbounded: int
    """Number of those whose peak has no upper bound."""
    largest: tuple[CommandNeed, ...]
    cpus: int | None
    """Processors of the machine that recorded them."""


def jobs_within(rows: Sequence[IndexedRun], within: int) -> Jobs:
    """Return the number of commands that fit into `within` bytes at once. Raises `UsageError` without a known peak."""
    # The need of each command, as often as it ran in one build.
    runs: dict[tuple[str | None, str], list[IndexedRun]] = {}
    most: Counter[tuple[str | None, str]] = Counter()
    for build in _builds([row for row in rows if row.state != "broken" and (row.upper_bound or row.memory)]):
        for row in build:
            runs.setdefault((row.cwd, row.command_json), []).append(row)
        most |= Counter((row.cwd, row.command_json) for row in build)  # the larger number
    needs = []
    for key, members in runs.items():
        known = [_need(row) for row in members]
        name = " ".join(members[0].command)
        largest = CommandNeed(name, max(known)[0], all(bounded for _, bounded in known))
        needs += [largest] * most[key]
    needs.sort(key=lambda one: -one.needed)
    if not needs:
        raise UsageError(
            "No run has a known peak.", "record the commands of a build with: otel-memwatch shell"
        )
    taken = squares = jobs = 0
    needed = following = RUNNER_BYTES
    while jobs < MOST:
        # Beyond the recorded commands, a further one may be as large as the largest.
        size_of_next = needs[jobs if jobs < len(needs) else 0].needed
        taken, squares = taken + size_of_next, squares + size_of_next**2
        following = RUNNER_BYTES + taken + math.ceil(MARGIN * math.sqrt(squares))
        if following > within:
            break
        needed, jobs = following, jobs + 1
    return Jobs(
        jobs,
        within,
        needed if jobs else 0,
        following,
        len(needs),
        sum(not one.bounded for one in needs),
        tuple(needs[:_SHOWN]),
        max((row.cpus for row in rows if row.cpus is not None), default=None),
    )


def _need(row: IndexedRun) -> tuple[int, bool]:
    if row.upper_bound is not None and not row.oom_kills:
        return row.upper_bound, True
    return math.ceil((row.memory or row.upper_bound or 0) * (1 + _UNBOUNDED_MARGIN)), False


def _builds(rows: Iterable[IndexedRun]) -> Iterator[list[IndexedRun]]:
    """Yield the runs of each build."""
    build: list[IndexedRun] = []
    until = 0.0
    for row in sorted(rows, key=lambda one: one.started):
        if build and row.started > until + BUILD_PAUSE:
            yield build
            build = []
        build.append(row)
        until = max(until, row.started + (row.seconds or 0.0))
    if build:
        yield build


def jobs_text(found: Jobs) -> str:
    """Return the number with its evidence, and the option of each runner."""
    if not found.jobs:
        return f"not even one command fits into {size(found.within)}: the largest and its runner need {size(found.next)}"
    needed = (
        f"the largest ones need {size(found.needed)} of {size(found.within)}; one more, {size(found.next)}"
    )
    lines = [f"{count(found.jobs, 'job')} at once: {needed}"]
    lines += [f"  {runner:<14}{words.format(found.jobs)}" for runner, words in WORDS.items()]
    lines += [
        f"  {'largest':<14}{size(one.needed)}  {shorten(clean(one.command), _NAME)}" for one in found.largest
    ]
    lines += [f"  {'note':<14}{note}" for note in jobs_notes(found)]
    return "\n".join(lines)


def jobs_notes(found: Jobs) -> list[str]:
    """Return caveats, in sentences."""
    notes = []
    if found.jobs > found.commands:
        notes.append(f"{count(found.commands, 'command')} recorded; further ones count as the largest")
    if found.unbounded:
        notes.append(
            f"{count(found.unbounded, 'command')} without an upper bound; 25 % are added to the best estimate"
        )
    if found.cpus is not None and found.jobs > found.cpus:
        notes.append(f"memory allows more jobs than the machine has processors ({found.cpus})")
    return notes


def jobs_json(found: Jobs) -> dict[str, Any]:
    """Return the document of `--for json`, without its schema's number."""
    fields = found._asdict()
    fields["largest"] = [one._asdict() for one in found.largest]
    return fields | {
        "words": {runner: words.format(found.jobs) for runner, words in WORDS.items()},
        "notes": jobs_notes(found),
    }
