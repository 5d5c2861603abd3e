"""Sections of every run: command, memory, processes, totals and the quality of the record."""

from __future__ import annotations

import time

from otel_memwatch.model import Certainty, Evidence, Peak
from otel_memwatch.reports import phrases
from otel_memwatch.reports.pages import Columns
from otel_memwatch.reports.sections.asked import prediction, request
from otel_memwatch.reports.sections.headline import budgets
from otel_memwatch.reports.sections.stalls import stalls
from otel_memwatch.runtime.light import suppress
from otel_memwatch.runtime.typed import TYPE_CHECKING
from otel_memwatch.text import (
    certainty,
    clean,
    command_line,
    count,
    duration,
    peak_figure,
    peak_sentence,
    shorten,
    size,
)

if TYPE_CHECKING:
    from otel_memwatch.reports.pages import Page
    from otel_memwatch.run import RecordedRun

_NEEDED = "Needed memory counts each page once, however many processes share it. Reclaimable page cache is excluded."
_SUMMED = (
    "This system reports only resident sizes. Their sum counts a shared page once for each process, and it includes "
    "pages of files and libraries."
)
_MEANINGS = {
    "exact": "Exact: a high-water mark of the kernel or an allocator covered the whole time; no spike was missed.",
    "range": "Range: the true value is guaranteed to lie between these bounds.",
    "within": "Within: the true value is guaranteed to be no farther from the figure.",
    "at least": "At least: a guaranteed lower bound; no upper bound is known.",
    "at most": "At most: the kernel's counter also includes memory from before the command started.",
    "sampled": "Sampled: no bound. The largest sample, or the largest resident size that the kernel reported.",
}
"""Explanation of each word of `text.certainty`, without its size."""
_NOT_FINISHED = {
    "running": "The run is in progress; figures may still grow.",
    "incomplete": "The recording stopped before the run did; later memory use is not included.",
}
_NARROW = 1024 * 1024
_NARROW_SHARE = 0.1
"""Smallest error of an exact peak that is worth a word, in bytes and as a share of the peak."""

_PROCESSES = 15
_PROCESS_COLUMNS = Columns(
    ("pid", "parent", "resident", "", "start", "life", "CPU", "read", "written", "end", "process"),
    "rrrlrrrrrll",
    first_to_go=("read", "written", "parent", "start", "CPU", "life", "end"),
    names="process",
)
_PROCESS_NAME = 60

_LISTED = 20
_SENTENCE = 600
"""Entries of a list that are shown."""


def what_ran(run: RecordedRun, page: Page) -> None:
    """Write command, machine, result, and verdicts on limit and budgets."""
    page.fact("command", command_line(run.command, _COMMAND) or "unknown")
    page.fact("directory", shorten(run.cwd, _SENTENCE))
    started = "unknown"
    with suppress(OverflowError, OSError, ValueError):
        if run.started_wall:
            started = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(run.started_wall))
    host = run.host
    cpus, memory_bytes = host.get("cpus"), host.get("memory_bytes")
    parts = [" ".join(clean(str(host[k])) for k in ("system", "release", "machine") if host.get(k))]
    if isinstance(cpus, int):
        parts.append(count(cpus, "CPU"))
    if isinstance(memory_bytes, int):
        parts.append(size(memory_bytes))
    name, machine = clean(str(host.get("name") or "")), ", ".join(part for part in parts if part)
    started += (f" on {name}" if name else "") + (f" ({machine})" if machine else "")
    page.fact("started", started)
    page.fact("result", phrases.ending(run), "bad" if run.ending.bad else "")
    stalls(run, page)
    if run.findings:
        from otel_memwatch.reports.sections.growth import growth

        growth(run, page)
    request(run, page)
    prediction(run, page)
    page.fact("limit", phrases.breach(run) or phrases.limit_not_held(run), "bad")
    budgets(run, page)


_COMMAND = 2000


def memory(run: RecordedRun, page: Page) -> None:
    """Write every peak with its certainty, its time, and the memory that it includes."""
    peaks = run.peaks
    page.section("Memory")
    _peak(run, page, "peak memory", peaks.tree)
    page.fact("", phrases.would_be_exact(run))
    page.fact("", phrases.hugetlb(run))
    page.fact("", phrases.swap(run))
    limit = phrases.limit(run)
    if limit is not None:
        used = phrases.limit_used(run)
        page.fact("limit", f"{size(limit.bytes)} ({limit.owner})" + (f", {used} used" if used else ""))
    page.fact("" if limit else "limit", phrases.address_space(run) or "")
    if peaks.process is not None:
        _peak(run, page, "largest process", peaks.process)
        above = phrases.above_needed(run)
        page.fact("", f"resident size; {above}" if above else "")
    # If the main process is the largest, one line serves for both.
    main, largest, same = peaks.main, peaks.process, False
    if main is not None and largest is not None:
        same = main.pid == largest.pid if main.pid and largest.pid else main.bytes == largest.bytes
    if main is not None and not same:
        _peak(run, page, "main process", main)
    if peaks.cgroup is not None:
        _peak(run, page, "cgroup", peaks.cgroup)
        page.fact("", phrases.in_a_cgroup(peaks.cgroup))
    for device, peak in sorted(peaks.gpu_of_run.items()):
        from otel_memwatch.reports import gpu_phrases

        _peak(run, page, "GPU", peak)
        page.fact("", ", ".join(filter(None, (clean(device), gpu_phrases.all_programs(peaks, device)))))
        page.fact("", gpu_phrases.used_by_libraries(peaks, device))
    page.gap()
    page.paragraph(_SUMMED if run.fields.portable else _NEEDED)
    page.paragraph(phrases.not_seen(run))
    shown = [peaks.tree, peaks.process, peaks.main, peaks.cgroup, *peaks.gpu_of_run.values()]
    words = {word if (word := certainty(peak)) in _MEANINGS else word.partition(" ")[0] for peak in shown}
    for word, meaning in _MEANINGS.items():
        if word in words:
            page.paragraph(meaning)
    if run.state != "finished":
        page.paragraph(_NOT_FINISHED[run.state])


def _peak(run: RecordedRun, page: Page, label: str, peak: Peak | None) -> None:
    if run.state == "running" and peak is not None:
        # A living process has no last reading before its end.
        still = tuple(one for one in peak.evidence if one is not Evidence.READ_BEFORE_END)
        peak = peak._replace(evidence=still)
    words = peak_sentence(peak)
    if peak is not None and peak.certainty is Certainty.EXACT and peak.high is not None:
        error = peak.high - peak.bytes
        if error >= min(_NARROW, _NARROW_SHARE * peak.bytes):
            words += f", error at most {size(error)}"
    page.fact(label, words)
    where = phrases.when_and_where(run, peak)
    who = phrases.holder(run, peak, 80)
    page.fact("", ", ".join(filter(None, (where, who))))


def processes(run: RecordedRun, page: Page) -> None:
    """Write the largest processes; nothing if none was sampled."""
    listed = sorted(run.processes, key=lambda p: (-p.peak.bytes if p.peak else 1, p.start, p.pid))
    if not listed:
        return
    page.section("Processes")
    # Further ones show which words the names that are listed have in common.
    names = phrases.process_names(listed[: _PROCESSES + phrases.PEERS], _PROCESS_NAME, run.ranks)
    rows = []
    for process, name in zip(listed[:_PROCESSES], names, strict=False):
        start, end = phrases.process_start(run, process), run.seconds if process.end is None else process.end
        # The command's parent is not part of the run.
        parent = "" if process.ppid is None or process.pid == run.fields.target.pid else str(process.ppid)
        rows.append(
            (
                str(process.pid),
                parent,
                peak_figure(process.peak),
                certainty(process.peak),
                duration(start),
                duration(max(0.0, end - start)),
                "-" if process.cpu_seconds is None else duration(process.cpu_seconds),
                "-" if process.read_bytes is None else size(process.read_bytes),
                "-" if process.write_bytes is None else size(process.write_bytes),
                phrases.process_ending(run, process),
                name,
            )
        )
    page.table(rows, _PROCESS_COLUMNS)
    rest = listed[_PROCESSES:]
    if rest:
        page.gap()
        most = rest[0].peak
        above = f", none above {size(most.bytes if most.high is None else most.high)}" if most else ""
        page.paragraph(f"{count(len(rest), 'more process', 'more processes')}{above}.")


def totals(run: RecordedRun, page: Page) -> None:
    """Write time, CPU, disk and the number of processes."""
    found = run.totals
    page.section("Totals of all processes")
    page.fact("duration", duration(run.seconds))
    if run.state == "incomplete":
        page.fact("", "the following totals end with the last sample")
    page.fact("CPU time", phrases.cpu(run))
    page.fact("disk", phrases.io_pair(found.get("read_bytes"), found.get("write_bytes")))
    page.fact("system calls", phrases.io_pair(found.get("read_chars"), found.get("write_chars")))
    page.fact("", "disk: data that reached storage; system calls: pipes and cached files too")
    if found.get("major_faults") is not None:
        faults = count(found["major_faults"], "major fault")
        page.fact("page faults", f"{faults} (pages that had to be read from disk)")
    page.fact("processes", phrases.processes(run))
    if found.get("processes") and found.get("unseen_processes"):
        page.fact("", "The upper count includes short-lived processes that may belong to other programs.")


def recording(run: RecordedRun, page: Page) -> None:
    """Write how complete the record is, which sources failed, and why."""
    page.section("Recording")
    page.fact("sampling", phrases.recording(run))
    ticks = run.quality.get("ticks")
    if ticks is not None:
        page.fact("samples", f"{ticks:,}".replace(",", " "))
    version = run.fields.monitor.version
    page.fact("recorded by", f"otel-memwatch {clean(version)}, {clean(run.mode)}" if version else "")
    page.fact("record", clean(run.directory))
    _sources(run, page)
    _list(page, "Limits of this machine's kernel counters:", [clean(quirk) for quirk in run.quirks])
    marks = [f"{'' if at is None else f'at {duration(at)}: '}{clean(text)}" for at, text in run.marks]
    _list(page, "Problems while recording:", marks)
    _list(page, "Unreadable parts of the record:", [clean(sentence) for sentence in run.damage])


def _sources(run: RecordedRun, page: Page) -> None:
    if not run.sources:
        return
    rows = []
    for name, health in run.sources.items():
        hint = str(health.get("hint") or "")
        if name.startswith("gpu_") and hint.startswith("No "):
            continue  # a GPU source that found no GPU is not worth a row
        reads, failures, seconds = (health.get(key) for key in ("reads", "failures", "seconds"))
        rows.append(
            (
                clean(name),
                clean(str(health.get("state") or "unknown")),
                "-" if not isinstance(reads, int) else str(reads),
                str(failures) if isinstance(failures, int) and failures else "-",
                duration(seconds) if isinstance(seconds, int | float) else "-",
                clean(hint),
            )
        )
    page.gap()
    page.table(rows, Columns(("source", "state", "reads", "failed", "time", "note"), "llrrrl"))


def _list(page: Page, heading: str, sentences: list[str]) -> None:
    if not sentences:
        return
    page.gap()
    page.paragraph(heading)
    for sentence in sentences[:_LISTED]:
        page.item(shorten(sentence, _SENTENCE))
    if len(sentences) > _LISTED:
        page.item(f"and {len(sentences) - _LISTED} more")
