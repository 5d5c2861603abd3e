"""The page's words and figures, as they stand without any script."""

from __future__ import annotations

import os

from otel_memwatch.model import Certainty, Peak
from otel_memwatch.reports import phrases
from otel_memwatch.reports.html.markup import escaped, tag
from otel_memwatch.reports.html.picture import picture
from otel_memwatch.run.process_names import INTERPRETERS
from otel_memwatch.runtime.typed import TYPE_CHECKING, Any, NamedTuple
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
    from collections.abc import Mapping, Sequence

    from otel_memwatch.run import RecordedRun

_COMMAND = 2000
_PROGRAM = 48
_STATIC_ROWS = 25
"""Rows of a table that stand in the page itself; the script shows the rest."""
_SENTENCES = 20
_SENTENCE = 600

_MEANINGS = {
    "exact": "A watermark that the kernel or an allocator keeps covered the whole time: nothing between two ticks was missed.",
    "bounds": "The truth lies between these two for certain.",
    "at least": "The truth is not below this for certain.",
    "at most": "The truth is not above this: the kernel's counter also holds what was there before the command began.",
    "sampled": "The largest value that a tick happened to see; a shorter spike may have been higher.",
}


def program(run: RecordedRun) -> str:
    """What is run, as a title: "train.py", "make"."""
    words = [word[:_COMMAND] for word in run.command[:3]] or [run.id]
    name = os.path.basename(words[0]) or words[0]
    if name.startswith(INTERPRETERS) and len(words) > 1:
        if words[1] == "-m" and len(words) > 2:
            name = words[2]
        elif not words[1].startswith("-"):
            name = os.path.basename(words[1]) or words[1]
    return shorten(name, _PROGRAM)


def body(run: RecordedRun, data: Mapping[str, Any]) -> str:
    """Everything between the tags of the body but the scripts."""
    return "".join(
        (
            '<main id="page">\n',
            _head(run),
            _cards(run),
            _charts(run, data),
            _operations(data),
            _processes(data),
            _known(run),
            _recording(run),
            _foot(run),
            "</main>\n",
        )
    )


# -- the answer


def _head(run: RecordedRun) -> str:
    state = "bad" if phrases.ended_badly(run) else "run" if run.state == "running" else "ok"
    if run.state == "incomplete":
        state = "bad"
    return (
        "<header>\n"
        + tag("p", escaped(command_line(run.command, _COMMAND)), class_="command")
        + "\n"
        + tag("h1", _verdict(run), class_=state, data_state=run.state)
        + "\n"
        + tag("p", escaped(_second_sentence(run)), class_="second")
        + "\n</header>\n"
    )


def _verdict(run: RecordedRun) -> str:
    """The answer in one sentence."""
    peak, limit = run.peaks.tree, phrases.limit(run)
    if run.ending.oom_kills and phrases.ended_badly(run) and limit is not None and limit.whose != "machine":
        most = tag("strong", f"more than {escaped(size(limit.bytes))}", class_="nowrap")
        return f"{escaped(program(run))} needed {most}, the limit of its {escaped(limit.whose)}."
    amount = tag("strong", escaped(_amount(peak)), class_="nowrap")
    verb = "needs" if run.state == "running" else "needed"
    share = _share(run)
    told = f", {escaped(share)}" if share and _is_tight(run) else ""
    return f"{escaped(program(run))} {verb} {amount}{told}."


def _share(run: RecordedRun) -> str:
    """What that is of the limit: "61 % of the control group's 2.00 GiB"; empty where nothing is known."""
    limit, peak = phrases.limit(run), run.peaks.tree
    used = phrases.limit_share(peak, limit) if limit else None
    return f"{used} of the {limit.whose}'s {size(limit.bytes)}" if limit and used else ""


def _is_tight(run: RecordedRun) -> bool:
    """Whether the limit belongs into the answer: a machine's memory only where half of it was needed."""
    limit, peak = phrases.limit(run), run.peaks.tree
    if limit is None or peak is None:
        return False
    return limit.whose != "machine" or max(peak.bytes, peak.high or 0) >= limit.bytes / 2


def _amount(peak: Peak | None) -> str:
    if peak is None:
        return "an unknown amount of memory"
    if peak.certainty is Certainty.EXACT:
        return f"exactly {size(peak.bytes)}"
    if peak.certainty is Certainty.INTERVAL and peak.high is not None:
        return peak_sentence(peak._replace(estimate=None), source=False)
    if peak.certainty is Certainty.CENSORED and not peak.low:
        return f"no more than {size(peak.bytes)}"
    return f"at least {size(peak.bytes if peak.low is None else peak.low)}"


def _second_sentence(run: RecordedRun) -> str:
    """When and where that was, and how the run ended."""
    where = phrases.when_and_where(run, run.peaks.tree)
    share = "" if _is_tight(run) else _share(run)
    told = ": ".join(part for part in (where, share) if part)
    peak = f"The peak was {told}. " if told else ""
    ended = phrases.ending(run)
    return f"{peak}{ended[:1].upper()}{ended[1:]}."


def _cards(run: RecordedRun) -> str:
    """The figures that one wants first, each with how it is known."""
    cards = [_peak_card("Needed by all", "tree", run.peaks.tree)]
    if run.peaks.process is not None:
        cards.append(
            _peak_card(
                "Largest process", "process", run.peaks.process, phrases.holder(run, run.peaks.process, 40)
            )
        )
    cards += [
        _peak_card(f"GPU {number}", f"gpu-{number}", peak, shorten(device, 24))
        for number, (device, peak) in enumerate(sorted(run.peaks.gpu.items()))
    ][:8]
    cards.append(
        _card("Time", duration(run.seconds), f"{count(run.totals.get('processes'), 'process', 'processes')}")
    )
    cpu = run.totals.get("cpu_seconds")
    if cpu is not None:
        cores = f"{cpu / run.seconds:.2f} cores on average" if run.seconds > 0 else ""
        cards.append(_card("CPU", duration(cpu), cores))
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
    return _card(label, peak_figure(peak), more, known, data_figure=name, **attributes)


def _card(label: str, figure: str, more: str = "", known: str = "", **attributes: object) -> str:
    lines = [
        tag("dt", escaped(label) + (" " + _chip(known) if known else "")),
        tag("dd", escaped(figure), class_="figure"),
    ]
    if more:
        lines.append(tag("dd", escaped(more), class_="more"))
    return tag("dl", "".join(lines), class_="card", **attributes)


def _chip(word: str) -> str:
    return tag("span", escaped(word), class_=f"chip {word.replace(' ', '-')}")


# -- charts and tables


def _charts(run: RecordedRun, data: Mapping[str, Any]) -> str:
    words = f"Memory over {duration(run.seconds)}. {_plain_verdict(run)}"
    return (
        '<section aria-labelledby="over-time">\n<h2 id="over-time">Over time</h2>\n'
        '<div id="charts" hidden></div>\n'
        f'<figure id="picture" role="img" aria-label="{escaped(words)}">{picture(run, data)}</figure>\n'
        "</section>\n"
    )


def _plain_verdict(run: RecordedRun) -> str:
    where = phrases.when_and_where(run, run.peaks.tree)
    return f"Needed {peak_sentence(run.peaks.tree)}{', ' + where if where else ''}."


def _operations(data: Mapping[str, Any]) -> str:
    found = data["operations"]
    if found is None:
        return ""
    largest = sorted(
        found["rows"], key=lambda row: (not row.get("top"), -_bytes(row.get("tree") or row.get("peak")))
    )
    rows = [
        (
            "\u00a0\u00a0" * min(row["depth"], 8) + row["name"],
            duration(row["start"]),
            duration(row["seconds"]),
            _figure(row.get("tree") or row.get("peak")),
            _word(row.get("tree") or row.get("peak")),
            _remark(row),
        )
        for row in sorted(largest[:_STATIC_ROWS], key=lambda row: row["start"])
    ]
    header = ("Operation", "Start", "Time", "Needed", "", "")
    return _section("operations", "Operations", _Table(header, "lrrrll", rows, found["total"]))


def _remark(row: Mapping[str, Any]) -> str:
    words = [("failed" if row["status"] == "error" else "open at the end")] if row.get("status") else []
    return ", ".join((["the run's peak"] if row.get("top") else []) + words)


def _processes(data: Mapping[str, Any]) -> str:
    found = data["processes"]
    if not found["rows"]:
        return ""
    rows = [
        (
            "\u00a0\u00a0" * min(row["depth"], 12) + row["name"],
            str(row["pid"]),
            _figure(row.get("peak")),
            _word(row.get("peak")),
            duration(row["start"]),
            duration(row["seconds"]),
            "" if row.get("cpu") is None else duration(row["cpu"]),
            row["end"],
        )
        for row in found["rows"][:_STATIC_ROWS]
    ]
    header = ("Process", "Pid", "Peak", "", "Start", "Life", "CPU", "End")
    return _section("processes", "Processes", _Table(header, "lrrlrrrl", rows, found["total"]))


class _Table(NamedTuple):
    """A table of which the page itself has the first rows."""

    header: Sequence[str]
    sides: str
    """An "r" for each column of figures, else "l"."""
    rows: Sequence[Sequence[str]]
    total: int


def _section(name: str, title: str, table: _Table) -> str:
    cells = "".join(tag("tr", _cells("td", row, table.sides)) for row in table.rows)
    rest = table.total - len(table.rows)
    more = tag("p", f"and {rest} more", class_="more") if rest > 0 else ""
    return (
        f'<section aria-labelledby="{name}-title">\n<h2 id="{name}-title">{escaped(title)} ({table.total})</h2>\n'
        f'<div id="{name}"><div class="scroll"><table><thead><tr>{_cells("th", table.header, table.sides)}</tr></thead>'
        f"<tbody>{cells}</tbody></table></div>{more}</div>\n</section>\n"
    )


def _cells(name: str, texts: Sequence[str], sides: str) -> str:
    return "".join(
        tag(
            name,
            escaped(text),
            scope="col" if name == "th" else None,
            class_="number" if side == "r" else None,
        )
        for text, side in zip(texts, sides, strict=True)
    )


def _peak_of(figure: Sequence[Any] | None) -> Peak | None:
    return None if figure is None else Peak(figure[0], Certainty(figure[1]), figure[2], figure[3])


def _figure(figure: Sequence[Any] | None) -> str:
    peak = _peak_of(figure)
    return "" if peak is None else peak_figure(peak)


def _word(figure: Sequence[Any] | None) -> str:
    peak = _peak_of(figure)
    return "" if peak is None else certainty(peak)


def _bytes(figure: Sequence[Any] | None) -> int:
    return -1 if figure is None else int(figure[0])


# -- how it is known


def _known(run: RecordedRun) -> str:
    """Every figure with its certainty, where it comes from, and what the word means."""
    peaks = run.peaks
    needed = " ".join(filter(None, (phrases.headline_meaning(run), phrases.not_seen(run))))
    rows: list[tuple[str, Peak | None, str]] = [
        ("Needed by all", peaks.tree, needed),
        ("Largest process", peaks.process, phrases.above_needed(run)),
    ]
    if not phrases.main_is_largest(run):
        rows.append(("Main process", peaks.main, ""))
    if peaks.cgroup is not None:
        rows.append(("Control group", peaks.cgroup, phrases.IN_A_GROUP))
    rows += [(f"GPU {shorten(device, 40)}", peak, "") for device, peak in sorted(peaks.gpu.items())]
    cells = []
    for label, peak, remark in rows:
        if peak is None:
            continue
        where = phrases.when_and_where(run, peak)
        by = phrases.holder(run, peak, 60)
        told = ", ".join(part for part in (where, f"by {by}" if by else "") if part)
        details = ". ".join(part for part in (told, remark[:1].upper() + remark[1:]) if part)
        cells.append(
            tag("dt", escaped(label))
            + tag(
                "dd",
                tag("strong", escaped(peak_sentence(peak)))
                + (" " + tag("span", escaped(details), class_="more") if details else ""),
            )
        )
    if run.totals.get("cpu_seconds") is not None:
        words = "counters of the kernel, children that were waited for included: nothing between two ticks is missed"
        cells.append(tag("dt", "CPU, disk") + tag("dd", escaped(words)))
    hint = run.info.get("cgroup_hint")
    if hint and peaks.tree is not None and peaks.tree.certainty is Certainty.INTERVAL:
        cells.append(tag("dt", "Exact with") + tag("dd", escaped(str(hint))))
    used = {certainty(peak) for _, peak, _ in rows if peak is not None}
    meanings = "".join(
        tag("dt", _chip(word)) + tag("dd", escaped(meaning))
        for word, meaning in _MEANINGS.items()
        if word in used
    )
    return (
        '<section aria-labelledby="known">\n<h2 id="known">How each figure is known</h2>\n'
        + tag("dl", "\n".join(cells), class_="facts")
        + tag("dl", meanings, class_="facts meanings")
        + "\n</section>\n"
    )


def _recording(run: RecordedRun) -> str:
    facts = [
        ("Recorded", phrases.recording(run)),
        ("Host", _host(run)),
        ("Directory", clean(run.cwd)),
        ("Record", clean(str(run.path))),
    ]
    limit = phrases.limit(run)
    if limit is not None:
        facts.insert(1, ("Limit", f"{size(limit.bytes)} ({limit.whose})"))
    lists = [
        ("What lowers the certainty on this machine", list(run.quirks)),
        (
            "What went wrong with the recording",
            [f"{'' if at is None else f'at {duration(at)}: '}{text}" for at, text in run.marks],
        ),
        ("What of the record could not be read", list(run.damage)),
    ]
    words = "".join(tag("dt", escaped(label)) + tag("dd", escaped(value)) for label, value in facts if value)
    for label, sentences in lists:
        if sentences:
            shown = "".join(
                tag("li", escaped(shorten(sentence, _SENTENCE))) for sentence in sentences[:_SENTENCES]
            )
            more = tag("li", f"and {len(sentences) - _SENTENCES} more") if len(sentences) > _SENTENCES else ""
            words += tag("dt", escaped(label)) + tag("dd", tag("ul", shown + more))
    return (
        '<section aria-labelledby="recording">\n<h2 id="recording">The recording</h2>\n'
        + tag("dl", words, class_="facts")
        + "\n</section>\n"
    )


def _host(run: RecordedRun) -> str:
    host = run.host
    cpus, memory = host.get("cpus"), host.get("memory_bytes")
    parts = [
        clean(str(host.get("name") or "")),
        clean(f"{host.get('system') or ''} {host.get('release') or ''}".strip()),
        f"{cpus} CPUs" if cpus else "",
        size(memory) if memory else "",
    ]
    return ", ".join(part for part in parts if part)


def _foot(run: RecordedRun) -> str:
    monitor = run.info.get("monitor")
    version = monitor.get("version") if isinstance(monitor, dict) else ""
    command = f"otel-memwatch report {shorten(os.path.basename(str(run.path)), 80)} --json"
    return tag(
        "footer",
        tag(
            "p",
            f"Recorded by otel-memwatch {escaped(str(version or ''))}. The same figures for programs: "
            + tag("code", escaped(command)),
        )
        + tag("p", "This page loads nothing and sends nothing."),
    )
