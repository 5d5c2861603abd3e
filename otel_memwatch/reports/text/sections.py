"""The sections that every run has: memory, processes, and how good the record is."""

from __future__ import annotations

from otel_memwatch.model import Certainty, Peak
from otel_memwatch.reports import phrases
from otel_memwatch.runtime.typed import TYPE_CHECKING, Any
from otel_memwatch.text import certainty, clean, count, duration, peak_figure, peak_sentence, size

if TYPE_CHECKING:
    from collections.abc import Mapping

    from otel_memwatch.reports.text.page import Page
    from otel_memwatch.run import ProcessFigures, RecordedRun

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
_BEFORE_ITS_END = ", last read before its end"
"""How `truth.certainty` names a watermark that may have grown since."""
_NARROW = 1024 * 1024
_NARROW_SHARE = 0.1
"""An exact peak's error is written from so many bytes on, and where it is so large a part of the peak."""

_PROCESSES = 15
_PROCESS_HEADER = ("pid", "parent", "peak", "", "start", "life", "CPU", "read", "written", "end", "process")
_PROCESS_ALIGNED = "rrrlrrrrrll"
_PROCESS_FIRST_TO_GO = ("read", "written", "parent", "start", "CPU", "life", "end")
_PROCESS_NAME = 60

_LISTED = 20
"""Sentences of a list that are written."""


def memory(run: RecordedRun, page: Page) -> None:
    """Every peak with its certainty, when it was, and what it means."""
    peaks = run.peaks
    page.section("Memory")
    _peak(run, page, "needed by all", peaks.tree)
    page.fact("", phrases.would_be_exact(run))
    page.fact("", phrases.hugetlb(run))
    _limit(run, page)
    if peaks.process is not None:
        _peak(run, page, "largest process", peaks.process)
        page.fact("", phrases.above_needed(run))
    if not phrases.main_is_largest(run):
        _peak(run, page, "main process", peaks.main)
    if peaks.cgroup is not None:
        _peak(run, page, "control group", peaks.cgroup)
        page.fact("", phrases.IN_A_GROUP)
    for device, peak in sorted(peaks.gpu.items()):
        _peak(run, page, "GPU", peak)
        page.fact("", clean(device))
    page.gap()
    page.paragraph(phrases.headline_meaning(run))
    page.paragraph(phrases.not_seen(run))
    shown = [peaks.tree, peaks.process, peaks.main, peaks.cgroup, *peaks.gpu.values()]
    used = {certainty(peak) for peak in shown}
    for word, meaning in _MEANINGS.items():
        if word in used:
            page.paragraph(meaning)
    if run.state != "finished":
        page.paragraph(_NOT_FINISHED[run.state])


def _peak(run: RecordedRun, page: Page, label: str, peak: Peak | None) -> None:
    if run.state == "running" and peak is not None:
        # Of what lives the last reading is the latest, not one before an end.
        peak = peak._replace(how=peak.how.replace(_BEFORE_ITS_END, ""))
    page.fact(label, peak_sentence(peak) + _error(peak))
    where = phrases.when_and_where(run, peak)
    who = phrases.holder(run, peak, 80)
    page.fact("", ", ".join(part for part in (where, f"by {who}" if who else "") if part))


def _error(peak: Peak | None) -> str:
    """How far an exact peak can be off, where that is worth a word."""
    if peak is None or peak.certainty is not Certainty.EXACT or peak.high is None:
        return ""
    error = peak.high - peak.bytes
    return f", to {size(error)}" if error >= min(_NARROW, _NARROW_SHARE * peak.bytes) else ""


def _limit(run: RecordedRun, page: Page) -> None:
    limit = phrases.limit(run)
    if limit is not None:
        used = phrases.limit_share(run.peaks.tree, limit)
        page.fact("limit", f"{size(limit.bytes)} ({limit.whose})" + (f": {used} used" if used else ""))
    space = phrases.address_space(run)
    if space is not None:
        page.fact("" if limit else "limit", space)


def processes(run: RecordedRun, page: Page) -> None:
    """Those that needed most memory; nothing when no process was seen."""
    listed = sorted(run.processes, key=lambda p: (-_process_peak(p), p.start, p.pid))
    if not listed:
        return
    page.section("Processes")
    # The next ones are looked at too: they show what those that are listed have in common.
    names = phrases.process_names(listed[: _PROCESSES + phrases.PEERS], _PROCESS_NAME, run.ranks)
    rows = [_process(run, process, name) for process, name in zip(listed[:_PROCESSES], names, strict=False)]
    page.table(rows, _PROCESS_HEADER, _PROCESS_ALIGNED, _PROCESS_FIRST_TO_GO, "process")
    rest = listed[_PROCESSES:]
    if rest:
        page.gap()
        most = rest[0].peak
        above = f", none above {size(most.bytes if most.high is None else most.high)}" if most else ""
        page.paragraph(f"{count(len(rest), 'more process', 'more processes')}{above}.")


def _process_peak(process: ProcessFigures) -> int:
    return -1 if process.peak is None else process.peak.bytes


def _process(run: RecordedRun, process: ProcessFigures, name: str) -> tuple[str, ...]:
    start, end = phrases.process_start(run, process), run.seconds if process.end is None else process.end
    # Of the target it is we, or whoever started it: no process of the table.
    parent = "" if process.ppid is None or process.pid == phrases.target_pid(run) else str(process.ppid)
    return (
        str(process.pid),
        parent,
        peak_figure(process.peak),
        certainty(process.peak),
        duration(start),
        duration(max(0.0, end - start)),
        "-" if process.cpu_seconds is None else duration(process.cpu_seconds),
        "-" if process.read_bytes is None else size(process.read_bytes),
        "-" if process.write_bytes is None else size(process.write_bytes),
        phrases.process_ending(process),
        name,
    )


def recording(run: RecordedRun, page: Page) -> None:
    """How good the record is, what could not be read, and why."""
    page.section("Recording")
    page.fact("quality", phrases.recording(run))
    ticks = run.quality.get("ticks")
    if ticks is not None:
        page.fact("ticks", count(ticks, "tick"))
    monitor = run.info.get("monitor")
    version = monitor.get("version") if isinstance(monitor, dict) else None
    page.fact("recorded by", f"otel-memwatch {clean(str(version))}, {clean(run.mode)}" if version else "")
    page.fact("record", clean(str(run.path)))
    _sources(run, page)
    _list(page, "What lowers the certainty on this machine:", [clean(quirk) for quirk in run.quirks])
    marks = [f"{'' if at is None else f'at {duration(at)}: '}{clean(text)}" for at, text in run.marks]
    _list(page, "What went wrong with the recording:", marks)
    _list(page, "What of the record could not be read:", [clean(sentence) for sentence in run.damage])


def _sources(run: RecordedRun, page: Page) -> None:
    if not run.sources:
        return
    page.gap()
    rows = [
        _source(name, health) for name, health in run.sources.items() if not _no_such_device(name, health)
    ]
    page.table(rows, ("source", "state", "reads", "failed", "time", "remark"), "llrrrl")


def _no_such_device(name: str, health: Mapping[str, Any]) -> bool:
    """Whether a machine without GPUs says that it has none, which nobody asked."""
    return name.startswith("gpu_") and str(health.get("hint") or "").startswith("No ")


def _source(name: str, health: Mapping[str, Any]) -> tuple[str, ...]:
    reads, failures, seconds = (health.get(key) for key in ("reads", "failures", "seconds"))
    return (
        clean(name),
        clean(str(health.get("state") or "unknown")),
        "-" if not isinstance(reads, int) else str(reads),
        str(failures) if isinstance(failures, int) and failures else "-",
        duration(seconds) if isinstance(seconds, int | float) else "-",
        clean(str(health.get("hint") or "")),
    )


def _list(page: Page, heading: str, sentences: list[str]) -> None:
    if not sentences:
        return
    page.gap()
    page.paragraph(heading)
    for sentence in sentences[:_LISTED]:
        page.item(sentence)
    if len(sentences) > _LISTED:
        page.item(f"and {len(sentences) - _LISTED} more")
