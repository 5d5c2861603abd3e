"""The memory section: every peak with its certainty, when it was, and what it means."""

from __future__ import annotations

from otel_memwatch.model import Certainty, Peak
from otel_memwatch.reports import phrases
from otel_memwatch.reports.formatting import certainty, clean, peak_sentence, size
from otel_memwatch.runtime.typed import TYPE_CHECKING

if TYPE_CHECKING:
    from otel_memwatch.analysis import Run
    from otel_memwatch.reports.text.page import Page

_MEANINGS = {
    "exact": "Exact: a watermark of the kernel, or of the allocator, covered the whole time; nothing between two "
    "ticks was missed.",
    "bounds": "Between: the truth lies within these bounds for certain; nothing that the kernel keeps told it "
    "more closely here.",
    "at least": "At least: the truth is not below this for certain; how far above it is, nothing tells.",
    "at most": "No more than: the kernel's counter also holds memory from before the command was started.",
    "sampled": "Sampled: the largest value that a tick happened to see; a shorter spike may have been higher.",
}
_NOT_FINISHED = {
    "running": "The run goes on: what it will need is in no figure yet.",
    "incomplete": "The recording stopped before the run did: what was needed after that is in no figure.",
}
_NARROW = 1024 * 1024
_NARROW_SHARE = 0.1
"""An exact peak's error is told from so many bytes on, and where it is so large a part of the peak."""


def memory(run: Run, page: Page) -> None:
    """Writes the section."""
    peaks = run.peaks
    page.section("Memory")
    _peak(run, page, "needed by all", peaks.tree)
    _limit(run, page)
    if peaks.process is not None:
        _peak(run, page, "largest process", peaks.process)
    if not phrases.main_is_largest(run):
        _peak(run, page, "main process", peaks.main)
    if peaks.cgroup is not None:
        _peak(run, page, "control group", peaks.cgroup)
        page.fact("", "with page cache and kernel memory: what the OOM killer compares with the limit")
    for device, peak in sorted(peaks.gpu.items()):
        _peak(run, page, "GPU", peak)
        page.fact("", clean(device))
    page.gap()
    page.paragraph(phrases.HEADLINE_MEANING)
    shown = [peaks.tree, peaks.process, peaks.main, peaks.cgroup, *peaks.gpu.values()]
    used = {certainty(peak) for peak in shown}
    for word, meaning in _MEANINGS.items():
        if word in used:
            page.paragraph(meaning)
    if run.state != "finished":
        page.paragraph(_NOT_FINISHED[run.state])


def _peak(run: Run, page: Page, label: str, peak: Peak | None) -> None:
    page.fact(label, peak_sentence(peak) + _error(peak))
    where = phrases.place(run, peak)
    who = phrases.holder(run, peak, 80)
    page.fact("", ", ".join(part for part in (where, f"by {who}" if who else "") if part))


def _error(peak: Peak | None) -> str:
    """How far an exact peak can be off, where that is worth a word."""
    if peak is None or peak.certainty is not Certainty.EXACT or peak.high is None:
        return ""
    error = peak.high - peak.bytes
    return f", to {size(error)}" if error >= min(_NARROW, _NARROW_SHARE * peak.bytes) else ""


def _limit(run: Run, page: Page) -> None:
    limit = phrases.limit(run)
    if limit is not None:
        used = phrases.limit_share(run.peaks.tree, limit)
        page.fact("limit", f"{size(limit.bytes)} ({limit.whose})" + (f": {used} used" if used else ""))
    space = phrases.address_space(run)
    if space is not None:
        page.fact("" if limit else "limit", space)
