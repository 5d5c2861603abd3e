"""Facts of the summary, in their order; each function writes only facts that deserve a line.

`public` omits arguments of commands, for texts that leave the machine. Modules of facts that few runs have are
imported for those, because the prompt waits for the summary.
"""

from __future__ import annotations

from otel_memwatch.config import OPTIONS
from otel_memwatch.model import Certainty
from otel_memwatch.reports import phrases
from otel_memwatch.reports.sections.asked import prediction, request
from otel_memwatch.reports.sections.stalls import stalls
from otel_memwatch.runtime.typed import TYPE_CHECKING
from otel_memwatch.text import (
    cells,
    certainty,
    clean,
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

_OPERATIONS = 3
_OPERATIONS_WIDTH = 82
"""Columns within which a further operation is named."""
_KEPT, _KEPT_BYTES = 0.1, 16 << 20
"""Share of the peak, and bytes, that an operation must keep to be named."""
_DEVICES = 2
_NAME = 40
_DEVICE = 32
_PROCESS = 48

_TIGHT = 0.5
"""Share of the machine's memory from which it deserves a line."""
_FULL = 0.9
"""Share of a limit that is worth a warning."""
_UNKNOWN = 2.0
"""Seconds without an answer of a GPU that are worth a warning: more than one reading."""
_MISSED = 0.02
"""Share of missed samples that is worth a warning."""


def peak_memory(run: RecordedRun, page: Page) -> None:
    """Write the peak, and how it could be known better."""
    peak = run.peaks.tree
    so_far = " so far" if run.state == "running" and peak is not None else ""
    page.fact("peak memory", phrases.peak_at(run, peak) + so_far, "" if peak is None else "strong")
    page.fact("", phrases.would_be_exact(run))
    page.fact("", phrases.hugetlb(run))
    page.fact("", phrases.swap(run))


def limit(run: RecordedRun, page: Page) -> None:
    """Compare the peak with the limit that applies; with the machine's memory only if it is half of it."""
    verdict = phrases.breach(run) or phrases.limit_not_held(run)
    if verdict:
        page.fact("limit", verdict, "bad")
        return
    found, used, peak = phrases.limit(run), phrases.limit_used(run), run.peaks.tree
    if found and used and peak is not None:
        most = max(peak.bytes, peak.high or 0)  # all of a range has to fit
        if found.whose != "machine" or most >= _TIGHT * found.bytes:
            amount = size(found.bytes)
            words = f"the machine's {amount}" if found.whose == "machine" else f"the {amount} limit"
            page.fact("limit", f"{used} of {words}", "warning" if most >= _FULL * found.bytes else "")
    page.fact("limit", phrases.address_space(run) or "")


def result(run: RecordedRun, page: Page) -> None:
    """Write how the run ended, and its CPU time if it was long enough."""
    badly, words = run.ending.bad, phrases.ending(run)
    if run.totals.get("cpu_seconds") is not None and run.seconds >= 1 and not badly:
        words += f"; CPU {phrases.cpu(run)}"
    page.fact("result", words, "bad" if badly else "")


def operations(run: RecordedRun, page: Page) -> None:
    """Name the operations that needed most, the one of the run's peak first."""
    largest = phrases.largest_by_name(run)
    if not largest:
        return
    words, shown, needed = "", 0, any(one.tree_peak for one in largest)
    for figures in largest[:_OPERATIONS]:
        peak = figures.tree_peak if needed else figures.operation.peak
        if figures.sets_run_peak and certainty(run.peaks.tree) == "exact" != certainty(peak):
            peak = None  # a sample after its end widens its range: the run's figure says more
        status = {"error": "failed", "open": "open at the end"}.get(figures.operation.status, "")
        notes = ", ".join(filter(None, ("peak" if figures.sets_run_peak else "", status)))
        name = shorten(figures.operation.name, _NAME) + ("" if peak is None else f" {peak_figure(peak)}")
        name += f" ({notes})" if notes else ""
        if words and cells(words) + cells(name) > _OPERATIONS_WIDTH:
            break
        words, shown = f"{words}, {name}" if words else name, shown + 1
    rest = len(largest) - shown
    page.fact("operations", words + (f", {rest} more" if rest else ""))


def kept_memory(run: RecordedRun, page: Page) -> None:
    """Name the operations that kept much memory when they ended: of resident size, which includes pages of files."""
    peak = run.peaks.tree
    if peak is None or not run.marked or run.too_many_operations:
        return
    from otel_memwatch.run.uncovered import kept

    most = kept(run.operations, max(_KEPT_BYTES, int(_KEPT * peak.bytes)))
    words = [f"{shorten(clean(name), _NAME)} keeps {size(bytes_)}" for name, bytes_ in most[:_OPERATIONS]]
    if words:
        page.fact("changes", f"{', '.join(words)} resident")


def largest_process(run: RecordedRun, page: Page, *, public: bool) -> None:
    """Name the process with the largest resident size, if there were several processes."""
    peak = run.peaks.process
    if peak is None or run.totals.get("processes") == 1:
        return
    known = size(peak.bytes) if peak.certainty is Certainty.EXACT else peak_sentence(peak, source=False)
    name = phrases.holder(run, peak, _PROCESS, public=public)
    pages = phrases.above_needed(run)
    words = f"{known} resident" + (f", {pages}" if pages else "")
    if run.totals.get("unseen_processes"):
        words += f", one of at least {count(run.totals.get('processes'), 'process', 'processes')}"
    page.fact("largest", f"{name}: {words}" if name else words)


def gpus(run: RecordedRun, page: Page) -> None:
    """Write the run's peaks on the devices where it held most, and what other programs held beside it."""
    devices = sorted(run.peaks.gpu_of_run.items(), key=lambda item: (-item[1].bytes, item[0]))
    for index, (device, peak) in enumerate(devices[:_DEVICES]):
        from otel_memwatch.reports import gpu_phrases

        words = f"{peak_sentence(peak, source=False)} on {shorten(device, _DEVICE)}"
        more = gpu_phrases.used_by_libraries(run.peaks, device), gpu_phrases.all_programs(run.peaks, device)
        page.fact("" if index else "GPU", ", ".join(filter(None, (words, *more))))
    if len(devices) > _DEVICES:
        page.fact("", count(len(devices) - _DEVICES, "more device"))
    for gpu in run.fields.gpus:
        seconds, error = gpu.unknown.get("memory", (0.0, ""))
        if seconds >= _UNKNOWN:
            words = f"memory of {shorten(gpu.id, _DEVICE)} unknown for {duration(seconds)}: {clean(error)}"
            page.fact("" if devices else "GPU", words, "warning")
    for source in run.sources.values():
        if source.get("silent"):
            page.fact("GPU", f"unknown: {clean(str(source.get('hint') or ''))}", "warning")


def misplaced_option(run: RecordedRun, page: Page) -> None:
    """Point out an option of ours that stands after a command that failed."""
    if not run.ending.bad or run.mode != "wrap":
        return
    from otel_memwatch.run.container_client import client_of

    if client_of(run.command) is not None:  # its --name is the container's
        return
    ours = {option.flag for option in OPTIONS.values() if "wrap" in option.commands}
    word = next((word.partition("=")[0] for word in run.command[1:] if word.partition("=")[0] in ours), None)
    if word is not None and "wrap" not in run.command:  # a run within a run
        page.fact("hint", f"{word} was passed to the command; options of otel-memwatch go before the command")


def missed_samples(run: RecordedRun, page: Page) -> None:
    """Warn if many samples are missing."""
    missed, ticks = run.quality.get("missed_ticks") or 0, run.quality.get("ticks") or 0
    if missed > max(2, _MISSED * (missed + ticks)):
        page.fact("sampling", phrases.recording(run), "warning")


def trouble(run: RecordedRun, page: Page) -> None:
    """Write the last problem of recording or reading; of a source that failed several times, the first failure."""
    texts = [text for _, text in run.marks] + list(run.damage)
    if texts:
        source = " ".join(texts[-1].split(" ")[:2])  # "source gpu_nvidia" of "source gpu_nvidia works again"
        shown = next(
            (text for text in texts if source.startswith("source ") and text.startswith(f"{source} ")),
            texts[-1],
        )
        others = f" ({len(texts) - 1} more)" if len(texts) > 1 else ""
        page.fact("trouble", clean(shown) + others, "warning")


def facts(run: RecordedRun, page: Page, *, public: bool = False) -> None:
    """Write the facts between the title of the summary and its links."""
    peak_memory(run, page)
    if run.has_stacks:
        from otel_memwatch.reports.sections.stacks import running_at_peak

        running_at_peak(run, page)
    limit(run, page)
    budgets(run, page)
    result(run, page)
    stalls(run, page)
    if run.findings:
        from otel_memwatch.reports.sections.growth import leaks

        leaks(run, page)
    request(run, page)
    prediction(run, page)
    operations(run, page)
    kept_memory(run, page)
    largest_process(run, page, public=public)
    if not public and run.fields.files.largest:
        from otel_memwatch.reports.sections.file_use import largest_file

        largest_file(run, page)
    gpus(run, page)
    if run.torch_snapshots:
        from otel_memwatch.reports.sections.torch_snapshots import out_of_gpu_memory

        out_of_gpu_memory(run, page)


def budgets(run: RecordedRun, page: Page) -> None:
    """Write the verdict on each budget."""
    for index, entry in enumerate(run.budgets):
        tone = phrases.BUDGET_TONES.get(str(entry.get("verdict")), "")
        page.fact("" if index else "budgets", phrases.budget_sentence(entry), tone)
