"""Causes of a difference in memory between two runs, with the rest that is not explained.

The memory at the peak is a sum: private and shared memory of each living process, and the rest (kernel memory, or less by
pages that processes share). Its differences are named in this order, and each is subtracted before the next:

=================  ====================================================================================================
cause              if
=================  ====================================================================================================
processes          a role has more or fewer processes at the peak
process            a role other than the main process has as many, of another size
operation          memory that the main process gained during an operation, up to the peak, differs
function           the main process grew more or less while a function of the program ran, as captured in both runs
longer run         the head grew only after the time at which the base ended
threads            the main process has more or fewer threads, and at most 10 MiB for each of them is left
stacks             the stack of the main thread differs
input              the input or the bytes read grew, and memory with them
page tables        the page tables of the processes differ
kernel             the other kernel memory of the cgroup differs
sharing            processes of one family share more or fewer pages, as after fork
=================  ====================================================================================================

A main process that is larger for no such reason is not explained: its size alone is no cause.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter

from otel_memwatch import catalog
from otel_memwatch.record.command_key import command_key
from otel_memwatch.run.stacks import busiest, frame_name, is_snapshot, own_frame, renamed
from otel_memwatch.runtime.typed import TYPE_CHECKING, NamedTuple
from otel_memwatch.text import clean, count, duration, shorten, size

if TYPE_CHECKING:
    from collections.abc import Sequence

    from otel_memwatch.model import Peak
    from otel_memwatch.run import RecordedRun
    from otel_memwatch.run.results import ProcessFigures

_SHARE, _LEAST = 0.01, 1 << 20
"""Smallest difference that is a cause: this share of the base, and these bytes."""
_THREAD = 10 << 20
"""Largest memory of one thread: its stack and its arena of the allocator."""
_LONGER = 1.1
"""Ratio of durations from which a run is longer."""
_INPUT = 1.2
"""Ratio of inputs from which memory may have grown with them."""
_READ = 8 << 20
"""Bytes that any program reads when it starts."""
_NAME = 40
_FORKED = "the main program, forked"
"""Role of processes without an exec: most of their pages are those of their parent."""
_MODULE = "<module>"
"""Name of a program's top level, which says nothing about the place."""


class Cause(NamedTuple):
    """A part of the difference."""

    kind: str
    """Name from the table above."""
    bytes: int
    """Part of the difference, head less base."""
    text: str
    """Words after the bytes: "in load (operation)"."""


class Explanation(NamedTuple):
    """The difference of two runs in parts."""

    base: str
    """Path of the run that stands for the base."""
    head: str
    change: int
    """Memory of the head less that of the base, in bytes."""
    causes: Sequence[Cause]
    """The largest first. Their sum and the rest are the change."""
    rest: int
    """Bytes that no cause explains."""
    notes: Sequence[str]
    """Further facts that differ, in words. They are no part of memory, or of unknown size."""

    @property
    def is_explained(self) -> bool:
        """True if the causes explain most of the difference."""
        return 2 * abs(self.rest) < abs(self.change)


class _Makeup(NamedTuple):
    """Memory of one run at its peak, in parts."""

    memory: int
    roles: dict[str, list[int]]
    """Private and shared memory of each process that lived at the peak, by role. The main process has the role ""."""
    operations: Counter[str]
    """Memory that the main process gained up to the peak, by innermost operation."""
    threads: int
    """Threads of the main process."""
    file: int
    """Most file pages of the main process."""
    kernel: int
    kinds: Counter[str]
    """Page tables of all processes, and the stack of the main thread, at the last new peak that was read."""
    functions: Counter[str]
    """Memory that the main process gained while a function ran, by innermost function of the program, from captured stacks."""


def explain(base: Sequence[RecordedRun], head: Sequence[RecordedRun]) -> Explanation | None:
    """Return the causes of the difference between the runs with median memory; `None`: it is too small, or unknown."""
    one, other = median_run(base), median_run(head)
    if one is None or other is None:
        return None
    was, now = _makeup(one), _makeup(other)
    change = now.memory - was.memory
    least = smallest_cause(was.memory)
    notes = _notes(one, other, was, now, least)
    if abs(change) < least and not notes:
        return None
    found = _causes(one, other, was, now, least) if abs(change) >= least else []
    found.sort(key=lambda cause: -abs(cause.bytes))
    if abs(change - sum(cause.bytes for cause in found)) > abs(change):
        found = []  # they contradict the difference, as do private sizes with shared pages mapped many times
    rest = change - sum(cause.bytes for cause in found)
    return Explanation(str(one.path), str(other.path), change, found, rest, notes)


def smallest_cause(base: int) -> int:
    """Return the smallest difference that is a cause, in bytes; `base`: memory of the base."""
    return max(_LEAST, int(_SHARE * base))


def known_memory(peak: Peak) -> int:
    """Return the best estimate of a peak in bytes."""
    return peak.bytes if peak.estimate is None else peak.estimate


def median_run(runs: Sequence[RecordedRun]) -> RecordedRun | None:
    """Return the run with median memory, the smaller of two; `None`: no run has a memory figure."""
    known = sorted((run for run in runs if run.peaks.tree is not None), key=_memory)
    return known[(len(known) - 1) // 2] if known else None


def _memory(run: RecordedRun) -> int:
    peak = run.peaks.tree
    assert peak is not None
    return known_memory(peak)


def _makeup(run: RecordedRun) -> _Makeup:
    peak = run.peaks.tree
    assert peak is not None
    at = run.seconds if peak.at is None else peak.at
    slack = max(run.interval or 0.0, 0.05)
    main = run.fields.target.pid
    threads = file = 0
    roles: dict[str, list[int]] = {}
    own = _private(run, at + 1.0)
    for process in run.processes:
        if process.pid == main and process.start <= slack:
            threads = max(process.threads or 0, _most_threads(run, at))
        alive = process.start <= at + slack and (process.end is None or process.end >= at - slack)
        memory, pages = own.get((process.pid, process.start), (0, 0))
        if process.pid == main:
            file = max(file, pages)
        if alive and memory:
            key = "" if process.pid == main else role_of(run, process)
            roles.setdefault(key, []).append(memory)
    # The last value up to the peak, or the first one; 0: it was not read.
    known = _values(run, catalog.MEMWATCH_CGROUP_MEMORY_KERNEL)
    before = [value for time, value in known if time <= at]
    kernel = int(before[-1] if before else known[0][1] if known else 0)
    return _Makeup(
        _memory(run), roles, _gained(run, at, sum(roles.get("", ()))), threads, file,
        kernel, _kinds(run), _functions(run),
    )  # fmt: skip


def _private(run: RecordedRun, until: float) -> dict[tuple[int, float], tuple[int, int]]:
    """Return the most private and shared memory of each process up to a time, and the most file pages."""
    found: dict[tuple[int, float], tuple[int, int]] = {}
    for line in run.record.process_records():
        key = line.pid, round(line.start - run.started, 4)
        memory, pages = found.get(key, (0, 0))
        if line.time - run.started <= until or not memory:
            needed = line.needed if line.needed is not None else (line.rss or 0) - (line.file or 0)
            memory = max(memory, needed)
        found[key] = memory, max(pages, line.file or 0)
    return found


def role_of(run: RecordedRun, process: ProcessFigures) -> str:
    """Return a name that is equal for all processes with the same work, in runs of several versions too."""
    argv = process.argv or (process.command or "?",)
    if any("multiprocessing" in word for word in argv):
        return "multiprocessing, spawned"
    if tuple(argv[1:]) == run.command[1:]:
        return _FORKED
    # A text after -c may contain secrets, and a comment leaves the machine.
    return shorten(clean(command_key(argv).partition(" -c ")[0]), _NAME)


def _kinds(run: RecordedRun) -> Counter[str]:
    found: Counter[str] = Counter()
    if run.made_of is not None:
        main = [one.parts for one in run.made_of.processes if one.pid == run.fields.target.pid]
        parts = [("stacks", part) for one in main for part in one] + [
            ("page tables", part) for part in run.made_of.tree
        ]
        for kind, part in parts:
            if part.kind == kind:
                found[kind] += part.bytes
    return found


def _functions(run: RecordedRun) -> Counter[str]:
    found: Counter[str] = Counter()
    for capture in run.stacks.captures:
        own = own_frame(busiest(capture)) if capture.threads and not is_snapshot(capture) else None
        if capture.pid == run.fields.target.pid and own is not None and own.function != _MODULE:
            found[frame_name(own._replace(line=0))] += capture.grown
    return found


def _gained(run: RecordedRun, at: float, most: int) -> Counter[str]:
    """Return the memory that the main process gained up to the peak, by innermost operation; empty without operations."""
    found: Counter[str] = Counter()
    opened: list[tuple[int, str]] = []
    before = 0
    for _, number, name, resident in sorted(_boundaries(run, at)):
        if opened:
            found[opened[-1][1]] += resident - before
        before = resident
        if number > 0:
            opened.append((number, name))
        else:
            opened = [one for one in opened if one[0] != -number]
    main = next((one.peak for one in run.processes if one.pid == run.fields.target.pid), None)
    if opened and most and main is not None:
        found[opened[-1][1]] += main.bytes - before
    return found


def _boundaries(run: RecordedRun, at: float) -> list[tuple[float, int, str, int]]:
    """Return time, number, name and resident bytes of each boundary of the main process up to a time; ends are negative."""
    found: list[tuple[float, int, str, int]] = []
    if not run.marked or run.too_many_operations:
        return found
    for number, figures in enumerate(run.iterate_operations(), 1):
        operation = figures.operation
        if operation.pid == run.fields.target.pid and operation.start_bytes is not None:
            if figures.start <= at:
                found.append((figures.start, number, operation.name, operation.start_bytes))
            if operation.end_bytes is not None and figures.end <= at:
                found.append((figures.end, -number, operation.name, operation.end_bytes))
    return found


def _most_threads(run: RecordedRun, at: float) -> int:
    """Return the most threads of the main process up to the peak; while it is alone, each sample counts them."""
    found = [value for _, value in _values(run, catalog.PROCESS_THREAD_COUNT)]
    if run.totals.get("processes") == 1:
        found += [value for time, value in _values(run, catalog.MEMWATCH_TREE_THREAD_COUNT) if time <= at]
    return int(max(found, default=0))


def _values(run: RecordedRun, metric: str) -> list[tuple[float, float]]:
    """Return the known values of a metric with their times."""
    samples = run.samples([metric])
    if all(column.metric != metric for column in samples.columns):
        return []
    values = zip(samples.time, samples.column(metric), strict=True)
    return [(float(time), float(value)) for time, value in values if not math.isnan(value)]


def _causes(one: RecordedRun, other: RecordedRun, was: _Makeup, now: _Makeup, least: int) -> list[Cause]:
    found = _of_processes(was, now, least)
    main = sum(now.roles.get("", ())) - sum(was.roles.get("", ()))
    left = main - _add(found, _of_operations(was, now, least))
    if {*was.roles, *now.roles} == {""}:
        # A process alone shares no pages. Its size was sampled, maybe before its last growth: the smaller rest is certain.
        whole = now.memory - was.memory - (now.kernel - was.kernel) - (main - left)
        left = int(math.copysign(min(abs(left), abs(whole)), left)) if left * whole > 0 else 0
    left -= _add(found, _of_functions(was, now, left, least))
    left -= _add(found, _longer(one, other, left, least))
    threads = now.threads - was.threads if now.threads and was.threads else 0
    if threads and abs(left) >= least and 0 < left / threads <= _THREAD:
        words = f"with {count(abs(threads), 'thread')} {'more' if threads > 0 else 'fewer'}"
        found.append(Cause("threads", left, f"{words}, {size(left // threads)} each"))
        left = 0
    if part := _of_kind("stacks", was, now, left, least):
        found.append(Cause("stacks", part, "in the stack of the main thread"))
        left -= part
    if abs(left) >= least and (words := _input(one, other, left)):
        found.append(Cause("input", left, words))
    parts = sum(map(sum, now.roles.values())) - sum(map(sum, was.roles.values()))
    rest = now.memory - was.memory - parts
    kernel = now.kernel - was.kernel
    tables = _of_kind("page tables", was, now, rest, least)
    if 2 * abs(tables) >= abs(kernel) and tables:
        found.append(Cause("page tables", tables, "in page tables"))
        rest -= tables
        kernel -= tables
    if abs(kernel) >= least and kernel * rest > 0:
        part = int(math.copysign(min(abs(kernel), abs(rest)), rest))
        found.append(Cause("kernel", part, "of kernel memory, such as page tables"))
        rest -= part
    if abs(rest) >= least and was.roles.get("") and now.roles.get(""):
        _add_sharing(found, rest, was, now, least)
    return found


def _add(found: list[Cause], causes: list[Cause]) -> int:
    """Add causes; return their sum in bytes."""
    found += causes
    return sum(cause.bytes for cause in causes)


def _add_sharing(found: list[Cause], rest: int, was: _Makeup, now: _Makeup, least: int) -> None:
    """Add `rest` as pages that processes share: to the forked processes that differ, or as a separate cause."""
    for place, cause in enumerate(found):
        both = cause.bytes + rest
        if cause.kind == "processes" and _FORKED in cause.text and cause.bytes * both > 0 > rest * both:
            found[place : place + 1] = (
                [Cause(cause.kind, both, f"{cause.text}, less shared pages")] if abs(both) >= least else []
            )
            return
    if any(len(side.roles) > 1 or len(side.roles.get("", ())) > 1 for side in (was, now)):
        more = "more" if rest < 0 else "fewer"
        found.append(Cause("sharing", rest, f"because {more} pages are shared between processes"))


def _of_kind(kind: str, was: _Makeup, now: _Makeup, left: int, least: int) -> int:
    """Return the part of `left` that a kind of memory explains; 0: too little, or not in every run."""
    change = now.kinds[kind] - was.kinds[kind]
    if abs(change) < least or change * left <= 0 or not (was.kinds and now.kinds):
        return 0
    return int(math.copysign(min(abs(change), abs(left)), left))


def _of_processes(was: _Makeup, now: _Makeup, least: int) -> list[Cause]:
    """Return the differences of the number of processes, and of their sizes."""
    found = []
    for role in sorted({*was.roles, *now.roles} - {""}):
        before, after = was.roles.get(role, []), now.roles.get(role, [])
        each = int(statistics.median(before or after))
        more = len(after) - len(before)
        if more and abs(more * each) >= least:
            words = f"{'more' if more > 0 else 'fewer'} of {role}" if before and after else f"of {role}"
            amount = count(abs(more), "process", "processes")
            sign = "" if before and after else (", only in the head" if after else ", only in the base")
            found.append(Cause("processes", more * each, f"for {amount} {words}{sign}, {size(each)} each"))
        grown = sum(after) - sum(before) - more * each
        if before and after and abs(grown) >= least:
            words = f"in {count(len(after), 'process', 'processes')} of {role}"
            found.append(
                Cause(
                    "process", grown, f"{words}: {size(each)} to {size(int(statistics.median(after)))} each"
                )
            )
    return found


def _of_functions(was: _Makeup, now: _Makeup, left: int, least: int) -> list[Cause]:
    """Return the functions that explain `left`, the largest first; none unless both runs have captures."""
    found: list[Cause] = []
    if not (was.functions and now.functions):
        return found
    names = renamed(was.functions, now.functions)
    before = Counter({**was.functions, **{new: was.functions[old] for new, old in names.items()}})
    grown = {
        name: now.functions[name] - before[name]
        for name in sorted({*before, *now.functions} - {*names.values()})
    }
    for name in sorted(grown, key=lambda name: -abs(grown[name])):
        if abs(left) >= least <= abs(grown[name]) and grown[name] * left > 0:
            part = int(math.copysign(min(abs(grown[name]), abs(left)), left))
            words = f"while {shorten(clean(name), _NAME)} ran, as captured stacks show"
            found.append(Cause("function", part, words))
            left -= part
    return found


def _of_operations(was: _Makeup, now: _Makeup, least: int) -> list[Cause]:
    found = []
    for name in sorted({*was.operations, *now.operations}):
        grown = now.operations[name] - was.operations[name]
        if abs(grown) >= least:
            missing = "" if name in was.operations else ", only in the head"
            missing = missing if name in now.operations else ", only in the base"
            found.append(Cause("operation", grown, f"in {shorten(clean(name), _NAME)} (operation){missing}"))
    return found


def _longer(one: RecordedRun, other: RecordedRun, left: int, least: int) -> list[Cause]:
    """Return the growth of the longer run after the time at which the shorter one ended, if they were alike until then."""
    short, long, sign = (one, other, 1) if other.seconds >= one.seconds else (other, one, -1)
    if (
        left * sign < least
        or long.seconds < _LONGER * short.seconds
        or short.seconds < 5 * (short.interval or 0.1)
    ):
        return []
    until = short.seconds - (short.interval or 0.1)
    usage = [_largest_until(run, until) for run in (short, long)]
    whole = _largest_until(long, math.inf)
    if None in (*usage, whole):
        return []
    before, same, most = (int(value or 0) for value in (*usage, whole))
    # Up to that time both were as large, and the shorter one grew too: else a later phase is the cause.
    half = _largest_until(short, until / 2)
    if abs(same - before) > max(least, 0.2 * abs(left)) or half is None or before - half < least:
        return []
    words = f"after {duration(short.seconds)}, when the {'base' if sign > 0 else 'head'} had ended"
    return [Cause("longer run", sign * min(abs(left), most - same), words)]


def _largest_until(run: RecordedRun, until: float) -> float | None:
    values = _values(run, catalog.MEMWATCH_TREE_MEMORY_USAGE)
    return max((value for time, value in values if time <= until), default=None)


def _input(one: RecordedRun, other: RecordedRun, left: int) -> str:
    """Return the difference of the inputs in words, if memory may have grown with them."""
    chars = [run.totals.get("read_chars") for run in (one, other)]
    for words, values, least in (
        ("input", [run.fields.input_bytes for run in (one, other)], 0),
        ("bytes read", chars, _READ),
    ):
        before, after = values
        if before is None or after is None or min(before, after) <= least:
            continue
        grown = after - before
        ratio = max(before, after) / min(before, after)
        if ratio >= _INPUT and grown * left > 0 and 0.1 <= left / grown <= 20:
            return f"with {words} of {size(int(before))} to {size(int(after))}"
    return ""


def _notes(one: RecordedRun, other: RecordedRun, was: _Makeup, now: _Makeup, least: int) -> list[str]:
    """Return further facts that differ."""
    found = []
    if abs(now.file - was.file) >= max(least, 4 << 20):
        files = {file.path: file.mapped or 0 for file in one.fields.files.largest if file.path}
        grown = [
            (abs((file.mapped or 0) - files.get(file.path, 0)), file.path)
            for file in other.fields.files.largest
            if file.path and file.mapped
        ]
        largest = max(grown, default=(0, ""))
        name = f", {clean(largest[1].rpartition('/')[2])}" if largest[0] >= least else ""
        change = now.file - was.file
        found.append(
            f"{'+' if change > 0 else '-'}{size(abs(change))} of mapped files and libraries in the main process"
            f"{name}; reclaimable, no part of the memory needed"
        )
    if now.threads and was.threads and now.threads != was.threads:  # 0: no sample counted them
        found.append(f"threads of the main process: {was.threads} to {now.threads}")
    return found
