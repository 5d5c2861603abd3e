"""Sentences about the growth of a run's memory and about memory that allocators keep.

Leaks and kept memory stand in summary, page and report, other kinds of growth in the report.
"""

from __future__ import annotations

from otel_memwatch.reports import phrases
from otel_memwatch.run.growth import HANDLES_KIND, HISTORY_KIND
from otel_memwatch.runtime.typed import TYPE_CHECKING
from otel_memwatch.text import clean, count, duration, shorten, size, size_range
from otel_memwatch.truth.growth import FILLING, LEAK, SAWTOOTH, WARM_UP
from otel_memwatch.truth.heap import FRAGMENTATION, JVM_HEAP
from otel_memwatch.truth.service_growth import LEAST_SECONDS

if TYPE_CHECKING:
    from otel_memwatch.reports.pages import Page
    from otel_memwatch.run import RecordedRun
    from otel_memwatch.run.growth import GrowthFinding

_NAME = 40
_NARROW = 0.9
"""Least ratio of the ends of a range that is printed as one figure."""
_ARENAS = "MALLOC_ARENA_MAX=2 or jemalloc"
_REMEDIES = {
    "glibc": "malloc_trim(0) or jemalloc",
    "jemalloc": "MALLOC_CONF=dirty_decay_ms:0,muzzy_decay_ms:0",
    "mimalloc": "mi_collect(true)",
    "pymalloc": "work that makes many small objects belongs in a child process",
}
"""Ways to give kept memory back."""
_SHOWN = 3
_FAR = 90 * 86400
"""Seconds after which a limit counts as not reached."""


def leaks(run: RecordedRun, page: Page) -> None:
    """Write the leaks of the run, and what its allocators keep."""
    for index, leak in enumerate(leak_sentences(run)):
        page.fact("" if index else "leak", leak, "bad")
    for one in run.findings:
        if one.counted is not None:
            page.fact("handles", words(run, one), "bad")
    kept = [one for one in run.findings if one.allocator is not None]
    for index, one in enumerate(kept[:_SHOWN]):
        page.fact("" if index else "kept", words(run, one), "warning")


def growth(run: RecordedRun, page: Page) -> None:
    """Write the leaks of the run, what its allocators keep, and its other kinds of growth."""
    leaks(run, page)
    said = (LEAK, HANDLES_KIND)
    others = [one for one in run.findings if one.kind not in said and one.allocator is None]
    for index, one in enumerate(others[:_SHOWN]):
        page.fact("" if index else "growth", words(run, one))


def leak_sentences(run: RecordedRun) -> list[str]:
    """Return "Step keeps 2.0 MiB per repeat, 22 times" for each leak, the largest first."""
    return [_leak(run, one) for one in run.findings if one.kind == LEAK][:_SHOWN]


def words(run: RecordedRun, one: GrowthFinding) -> str:
    """Return a finding in words."""
    if one.counted is not None:
        return handle_words(one)
    if one.allocator is not None:
        return kept_words(one, alone=run.totals.get("processes") == 1)
    return _leak(run, one) if one.kind == LEAK else _other(run, one)


def handle_words(one: GrowthFinding) -> str:
    """Return handles that grow in words."""
    return f"{one.counted} grow by {3600 * one.rate:.3g} an hour for {duration(one.seconds)}"


def kept_words(one: GrowthFinding, *, alone: bool) -> str:
    """Return memory that an allocator keeps in words; `alone`: there is one process."""
    allocator, all_ = clean(one.allocator or ""), size(one.anonymous or 0)
    of_process = all_ if alone else f"{all_} of pid {one.pid}"
    kept = size(one.bytes)
    if one.low < _NARROW * one.high:
        kept += f" (best estimate of {size_range(one.low, one.high, '-')})"
    if one.allocator == JVM_HEAP:
        return f"at least {size(one.low)} of {of_process} held no objects at the JVM's last collection: a smaller -Xmx"
    if one.kind == FRAGMENTATION:
        return f"{kept} of {of_process} is free memory between blocks in use ({allocator}: fragmentation)"
    remedy = _REMEDIES.get(allocator)
    if allocator == "glibc" and (one.threads or 1) > 1:
        remedy = _ARENAS
    return f"{kept} of {of_process} is free memory of {allocator}" + (f": {remedy}" if remedy else "")


def leak_words(one: GrowthFinding, *, alone: bool) -> str:
    """Return a leak in words; `alone`: there is one process."""
    each = one.per_repeat
    if each is None:
        rate, low, high = (3600 * value for value in (one.rate, one.low, one.high))
        text = f"memory grows by {size(rate)} an hour for {duration(one.seconds)}"
    else:
        rate, low, high = each
        verb = "keeps" if one.inside else "is followed by a growth of"
        text = f"{_subject(one, alone=alone)} {verb} {size(rate)} per repeat, {count(one.repeats, 'time')}"
    observed = size_range(max(0.0, low), high, "-")
    if "-" in observed:
        text += f" (observed range {observed})"
    return text


def _leak(run: RecordedRun, one: GrowthFinding) -> str:
    """Return a leak in words, with the time until a limit is reached."""
    text = leak_words(one, alone=run.totals.get("processes") == 1)
    limit, peak = phrases.limit(run), run.peaks.tree
    if limit is None or peak is None or one.rate <= 0 or peak.bytes >= limit.bytes:
        return text
    left = (limit.bytes - peak.bytes) / one.rate
    if left > _FAR:
        return text
    return f"{text}; at this rate the limit of {size(limit.bytes)} ({limit.owner}) is reached in {duration(left)}"


def _other(run: RecordedRun, one: GrowthFinding) -> str:
    subject = (
        "memory"
        if one.operation is None
        else f"memory of {_subject(one, alone=run.totals.get('processes') == 1)}"
    )
    if one.kind == WARM_UP:
        return f"{subject} grew by {size(one.bytes)} at first, and no longer (warm-up)"
    if one.kind == FILLING:
        return (
            f"{subject} grows ever more slowly, by {size(one.bytes)} so far (warm-up, or a cache that fills)"
        )
    if one.kind == HISTORY_KIND:
        return f"{subject} grew by {size(one.bytes)}, which the record of allocations for --torch-snapshot may explain"
    if one.kind == SAWTOOTH:
        return f"{subject} rises and falls without growing (sawtooth)"
    if one.operation is None:
        grew = f"{subject} grew by {size(one.bytes)} in {duration(one.seconds)}"
        left = LEAST_SECONDS - run.seconds
        if run.state != "running" or left <= 0:
            return f"{grew}; a leak is known after {duration(LEAST_SECONDS)} at the earliest"
        return f"{grew}; not yet known whether it is a leak, earliest in {duration(left)}"
    return f"{subject} grew by {size(one.bytes)}, too irregularly to tell a leak from a cache (unknown)"


def _subject(one: GrowthFinding, *, alone: bool) -> str:
    name = shorten(clean(one.operation or ""), _NAME)
    return name if alone else f"{name} (pid {one.pid})"
