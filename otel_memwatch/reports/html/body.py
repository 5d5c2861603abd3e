"""Static content of the page: head, cards, charts, and the sections of every report."""

from __future__ import annotations

import os

from otel_memwatch.model import Certainty, Peak
from otel_memwatch.reports import phrases
from otel_memwatch.reports.html.picture import picture
from otel_memwatch.reports.pages.html import HtmlPage
from otel_memwatch.reports.pages.markup import escaped, tag
from otel_memwatch.reports.sections.basics import memory, processes, recording, totals, what_ran
from otel_memwatch.reports.sections.file_use import files
from otel_memwatch.reports.sections.made_of import made_of
from otel_memwatch.reports.sections.stalls import sentences
from otel_memwatch.reports.sections.torch_snapshots import torch_snapshots
from otel_memwatch.run.process_names import INTERPRETERS, without_folders
from otel_memwatch.runtime.typed import TYPE_CHECKING, Any
from otel_memwatch.text import (
    best_estimate,
    certainty,
    command_line,
    count,
    duration,
    peak_figure,
    peak_sentence,
    shorten,
    size,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from otel_memwatch.run import RecordedRun

_COMMAND = 2000
_PROGRAM = 48


def program(run: RecordedRun) -> str:
    """Return the name of the program for a title: "train.py", "make"."""
    words = without_folders([word[:_COMMAND] for word in run.command[:9]] or [run.id])
    name = words[0]
    if name.startswith(INTERPRETERS) and len(words) > 1:
        if words[1] == "-m" and len(words) > 2:
            name = words[2]
        elif not words[1].startswith("-"):
            name = words[1]
    return shorten(name, _PROGRAM)


def body(run: RecordedRun, data: Mapping[str, Any]) -> str:
    """Return everything in the body except the scripts. Most runs do not need all sections, so import them here."""
    page = HtmlPage()
    if run.has_stacks:
        from otel_memwatch.reports.html.flame import flame
        from otel_memwatch.reports.sections.stacks import stacks

        stacks(run, page)
        if run.stacks.captures:
            page.raw(flame(run))
    if run.marked:
        from otel_memwatch.reports.sections.operations import operations, uncovered

        operations(run, page)
        uncovered(run, page)
    if run.marked or run.fields.gpus:
        from otel_memwatch.reports.sections.gpus import gpus

        gpus(run, page)
    torch_snapshots(run, page)
    processes(run, page)
    memory(run, page)
    made_of(run, page)
    if run.heaps:
        from otel_memwatch.reports.sections.heaps import heaps

        heaps(run, page)
    totals(run, page)
    files(run, page)
    page.section("Run")
    what_ran(run, page)
    recording(run, page)
    words = f"Memory over {duration(run.seconds)}. Peak memory {phrases.peak_at(run, run.peaks.tree)}."
    charts = (
        '<section aria-labelledby="over-time">\n<h2 id="over-time">Over time</h2>\n'
        '<div id="charts" hidden></div>\n'
        f'<figure id="picture" role="img" aria-label="{escaped(words)}">{picture(run, data)}</figure>\n'
        "</section>\n"
    )
    command = f"otel-memwatch report {shorten(os.path.basename(os.path.normpath(run.directory)), 80)} --json"
    source = (
        f"Recorded by otel-memwatch {escaped(run.fields.monitor.version or '')}. The same figures as JSON: "
    )
    foot = tag("p", source + tag("code", escaped(command)))
    foot += tag("p", "This page loads nothing and sends nothing.")
    parts = (_head(run), _cards(run), charts, page.text(), tag("footer", foot))
    return f'<main id="page">\n{"".join(parts)}</main>\n'


# -- the answer


def _head(run: RecordedRun) -> str:
    """Return the answer, then time and operation of the peak, and how the run ended.

    The answer is the number first, then how sure it is: "pool.py needed about 340 MiB (300-410 MiB)."
    """
    peak, badly = run.peaks.tree, run.ending.bad
    limit, used = phrases.limit(run), phrases.limit_used(run)
    share = f"{used} of the {limit.owner}'s {size(limit.bytes)}" if limit and used else ""
    # The limit belongs in the answer; a machine's memory only if half of it was needed.
    tight = limit is not None and peak is not None
    if limit is not None and peak is not None and limit.whose == "machine":
        tight = max(peak.bytes, peak.high or 0) >= limit.bytes / 2
    sure = ""
    verb, addition = "needs" if run.state == "running" else "needed", share if tight else ""
    if limit is not None and limit.whose != "machine" and run.ending.oom_kills and badly:
        amount, verb, addition = f"more than {size(limit.bytes)}", "needed", f"the limit of its {limit.owner}"
    elif peak is None:
        amount = "an unknown amount of memory"
    elif peak.certainty is Certainty.EXACT:
        amount = f"exactly {size(peak.bytes)}"
    elif estimate := best_estimate(peak):
        amount, sure = f"about {estimate}", f" ({peak_figure(peak)})"
    else:
        amount = peak_sentence(peak, source=False)
    answer = (
        f"{escaped(program(run))} {verb} {tag('strong', escaped(amount), class_='nowrap')}{escaped(sure)}"
    )
    answer += f", {escaped(addition)}." if addition else "."
    details = ", ".join(filter(None, (phrases.when_and_where(run, peak), "" if tight else share)))
    ended = phrases.ending(run)
    leaks: list[str] = []
    if run.findings:
        from otel_memwatch.reports.sections.growth import leak_sentences

        leaks = leak_sentences(run)
    second = (f"The peak was {details}. " if details else "") + f"{ended[:1].upper()}{ended[1:]}."
    state = "bad" if badly or run.state == "incomplete" else "run" if run.state == "running" else "ok"
    return (
        "<header>\n"
        + tag("p", escaped(command_line(run.command, _COMMAND)), class_="command")
        + "\n"
        + tag("h1", answer, class_=state, data_state=run.state)
        + "\n"
        + tag("p", escaped(second), class_="second")
        + "".join(tag("p", escaped(f"Slow: {words}."), class_="second") for words in sentences(run))
        + "".join(tag("p", escaped(f"Leak: {words}."), class_="second") for words in leaks)
        + "\n</header>\n"
    )


def _cards(run: RecordedRun) -> str:
    """Return the most important figures, each with its certainty."""
    cards = [_peak_card("Peak memory", "tree", run.peaks.tree)]
    if run.peaks.process is not None:
        cards.append(
            _peak_card(
                "Largest process", "process", run.peaks.process, phrases.holder(run, run.peaks.process, 40)
            )
        )
    for number, (device, peak) in enumerate(sorted(run.peaks.gpu_of_run.items())[:8]):
        from otel_memwatch.reports import gpu_phrases

        words = gpu_phrases.used_by_libraries(run.peaks, device), gpu_phrases.all_programs(run.peaks, device)
        details = ", ".join(filter(None, (shorten(device, 24), *words)))
        cards.append(_peak_card(f"GPU {number}", f"gpu-{number}", peak, details))
    cards.append(
        _card("Time", duration(run.seconds), f"{count(run.totals.get('processes'), 'process', 'processes')}")
    )
    cpu = run.totals.get("cpu_seconds")
    if cpu is not None:
        used, _, cores = phrases.cpu(run).partition(" (")
        cards.append(_card("CPU", used, cores.rstrip(")")))
    totals = run.totals
    if totals.get("read_bytes") or totals.get("write_bytes"):
        ways = [(totals.get("write_bytes") or 0, "written"), (totals.get("read_bytes") or 0, "read")]
        (most, way), (least, other) = sorted(ways, key=lambda one: -one[0])
        cards.append(_card("Disk", size(most), f"{way}; {size(least) if least else 'nothing'} {other}"))
    return tag("section", "\n".join(cards), class_="cards", aria_label="Figures") + "\n"


def _peak_card(label: str, name: str, peak: Peak | None, more: str = "") -> str:
    known = certainty(peak) if peak is not None else ""
    attributes = (
        {} if peak is None else {"data_bytes": peak.bytes, "data_low": peak.low, "data_high": peak.high}
    )
    figure = peak_figure(peak)
    if estimate := best_estimate(peak):
        figure, more = f"about {estimate}", ", ".join(filter(None, (figure, more)))
    return _card(label, figure, more, known, data_figure=name, **attributes)


def _card(label: str, figure: str, more: str = "", known: str = "", **attributes: object) -> str:
    chip = (
        " " + tag("span", escaped(known), class_="chip exact" if known == "exact" else "chip")
        if known
        else ""
    )
    lines = [
        tag("dt", escaped(label) + chip),
        tag("dd", escaped(figure), class_="figure"),
    ]
    if more:
        lines.append(tag("dd", escaped(more), class_="more"))
    return tag("dl", "".join(lines), class_="card", **attributes)
