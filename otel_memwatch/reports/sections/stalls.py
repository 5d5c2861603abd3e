"""Fact about a run that was slow for lack of memory or CPU."""

from __future__ import annotations

from otel_memwatch.runtime.typed import TYPE_CHECKING
from otel_memwatch.text import size
from otel_memwatch.truth.stalls import CONTENTION_WORTH_NAMING, WORTH_NAMING, is_worth_naming

if TYPE_CHECKING:
    from collections.abc import Mapping

    from otel_memwatch.reports.pages import Page
    from otel_memwatch.run import RecordedRun
    from otel_memwatch.run.stalls import Stalls


def stalls(run: RecordedRun, page: Page) -> None:
    """Write why the run was slow, if it waited for much of its time."""
    for index, words in enumerate(sentences(run)):
        page.fact("" if index else "slow", words, "bad")


_OF_OPERATIONS = (
    ("memory", "short of memory", WORTH_NAMING),
    ("cpu", "throttled", WORTH_NAMING),
    ("contention", "waiting for processors", CONTENTION_WORTH_NAMING),
)


def of_operation(stalled: Mapping[str, float | None]) -> str:
    """Return "91 % of it short of memory" for an operation that waited for much of its time; else empty."""
    words = [
        f"{100 * share:.0f} % of it {why}"
        for name, why, least in _OF_OPERATIONS
        if (share := stalled.get(name)) is not None and share >= least
    ]
    return ", ".join(words)


def sentences(run: RecordedRun) -> list[str]:
    """Return the reasons for which the run was slow, in words; none if it was not, or if nothing is known."""
    found = run.stalls
    words = []
    if found.memory is not None and is_worth_naming(found.memory, run.seconds):
        words.append(f"{100 * found.memory:.0f} % of the time {_rereading(found)}")
    elif found.writes is not None and is_worth_naming(found.writes, run.seconds):
        words.append(
            f"perhaps short of memory: data to be written filled it, up to {100 * found.writes:.0f} % of the time"
        )
    if found.cpu is not None and is_worth_naming(found.cpu, run.seconds):
        words.append(f"{_cores(run)}throttled at least {100 * found.cpu:.0f} % of the time")
    share = found.contention
    if share is not None and share >= CONTENTION_WORTH_NAMING and share * (run.seconds or 0) >= 1:
        words.append(
            f"{_cores(run)}waited at least {100 * share:.0f} % of the time for processors that other programs used"
        )
    return words


def _rereading(found: Stalls) -> str:
    """Return "re-reading 256 MiB of files (22 times): short of 159 MiB", or as much of it as is known."""
    if found.reread_bytes is None:
        unwritten = found.unwritten_bytes
        return "short of memory" + (
            f": data to be written ({size(unwritten)}) filled it" if unwritten else ""
        )
    if not found.files_bytes or found.short_bytes is None:
        return f"short of memory: read {size(found.reread_bytes)} of files again"
    times = 1 + found.reread_bytes / found.files_bytes
    often = f"{times:.0f} times" if times >= 10 else f"{times:.1f} times"
    return f"re-reading {size(found.files_bytes)} of files ({often}): short of {size(found.short_bytes)}"


def _cores(run: RecordedRun) -> str:
    used, allowed = run.cores, run.stalls.cores_allowed
    if used is None or allowed is None:
        return ""
    places = 1 if allowed >= 1 else 2
    return f"used {used:.{places}f} of {allowed:.{places}f} cores allowed, "
