"""The dozen lines at the end of `wrap`: what one wants to know first, in words."""

from __future__ import annotations

import os

from otel_memwatch.model import Certainty
from otel_memwatch.record.format import RUN_FILE
from otel_memwatch.reports import phrases
from otel_memwatch.reports.formatting import (
    clean,
    command_line,
    count,
    duration,
    peak_figure,
    peak_sentence,
    shell_word,
    shorten,
    size,
)
from otel_memwatch.runtime.masking import public_name
from otel_memwatch.runtime.typed import TYPE_CHECKING, BinaryIO

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from otel_memwatch.analysis import OperationFigures, RecordedRun
    from otel_memwatch.reports import Options

WIDTH = 100
_LABEL = 13
_ROOM = WIDTH - _LABEL - 2
_OPERATIONS = 2
_DEVICES = 2


def render(run: RecordedRun, out: BinaryIO, options: Options) -> None:  # noqa: ARG001 - every report is called alike
    """Writes the summary as UTF-8."""
    out.write((summary(run) + "\n").encode("utf-8", "backslashreplace"))


def summary(run: RecordedRun, *, public: bool = False) -> str:
    """The summary, without a newline at its end; `public`: without arguments of commands."""
    command = (
        shorten(clean(public_name(run.command)), WIDTH - 15)
        if public
        else command_line(run.command, WIDTH - 15)
    )
    lines = [f"otel-memwatch: {command}"]
    for label, values in _parts(run, public):
        name = label
        for value in values:
            if value:
                lines.append(f"  {name:<{_LABEL}}{value}")
                name = ""
    return "\n".join(lines)


def _parts(run: RecordedRun, public: bool) -> Iterator[tuple[str, Iterable[str]]]:
    yield "ended", (phrases.ending(run),)
    yield "budgets", [phrases.budget_sentence(entry) for entry in run.budgets]
    yield "memory", _memory(run)
    yield "largest", _processes(run, public)
    yield "GPU", _gpu(run)
    yield "CPU", (_cpu(run),)
    yield "disk", (_disk(run),)
    yield "operations", _operations(run)
    yield "recorded", (phrases.recording(run),)
    yield "trouble", _trouble(run)
    if (run.path / RUN_FILE).exists():  # it may have been taken away
        yield "more", (f"otel-memwatch report {_near(run.path)}",)


def _memory(run: RecordedRun) -> Iterator[str]:
    peak = run.peaks.tree
    where = phrases.when_and_where(run, peak)
    yield peak_sentence(peak) + (f", {where}" if where else "")
    hint = run.info.get("cgroup_hint")
    if hint and peak is not None and peak.certainty is Certainty.INTERVAL:
        yield f"exact with: {clean(str(hint))}"
    limit = phrases.limit(run)
    used = phrases.limit_share(peak, limit) if limit else None
    if limit and used:
        yield f"{used} of the {limit.whose}'s {size(limit.bytes)}"
    yield phrases.hugetlb(run)
    yield phrases.address_space(run) or ""


def _processes(run: RecordedRun, public: bool) -> Iterator[str]:
    """The largest process, and the main one where that is another; one line where the tree is one process."""
    largest = run.peaks.process
    number = run.totals.get("processes")
    if largest is None or (
        number == 1 and run.peaks.tree is not None and largest.bytes == run.peaks.tree.bytes
    ):
        return
    of = phrases.of_processes(run)
    text = f"{peak_sentence(largest)}{of}"
    name = phrases.holder(run, largest, max(24, _ROOM - len(text) - 2), public=public)
    yield f"{text}: {name}" if name else text
    yield phrases.above_needed(run)
    if not phrases.main_is_largest(run):
        yield f"main process: {peak_sentence(run.peaks.main)}"


def _gpu(run: RecordedRun) -> Iterator[str]:
    devices = sorted(run.peaks.gpu.items(), key=lambda item: (-item[1].bytes, item[0]))
    for device, peak in devices[:_DEVICES]:
        yield f"{peak_sentence(peak)}: {shorten(device, 44)}"
    if len(devices) > _DEVICES:
        yield f"and {count(len(devices) - _DEVICES, 'more device')}"


def _cpu(run: RecordedRun) -> str:
    faults = run.totals.get("major_faults")
    return phrases.cpu(run) + (f", {count(faults, 'major page fault')}" if faults else "")


def _disk(run: RecordedRun) -> str:
    totals = run.totals
    disk = phrases.io_pair(totals.get("read_bytes"), totals.get("write_bytes"))
    calls = phrases.io_pair(totals.get("read_chars"), totals.get("write_chars"))
    if not disk:
        return f"through system calls {calls}" if calls else ""
    return f"{disk}; through system calls {calls}" if calls else disk


def _operations(run: RecordedRun) -> Iterator[str]:
    """The operations that needed most, in one line each: the one of the run's peak first."""
    if not run.operations:
        return
    ranked = sorted(run.operations, key=_need, reverse=True)
    for figures in ranked[:_OPERATIONS]:
        peak = figures.tree_peak or figures.operation.peak
        mark = "  <- the run's peak" if figures.sets_run_peak else ""
        status = {"error": ", failed", "open": ", open at the end"}.get(figures.operation.status, "")
        yield f"{shorten(figures.operation.name, 40)}: {peak_figure(peak)} in {duration(figures.seconds)}{status}{mark}"
    if len(ranked) > _OPERATIONS:
        yield f"and {count(len(ranked) - _OPERATIONS, 'more operation')}"


def _need(figures: OperationFigures) -> tuple[bool, int, float]:
    peak = figures.tree_peak or figures.operation.peak
    return figures.sets_run_peak, peak.bytes if peak else -1, figures.seconds


def _trouble(run: RecordedRun) -> Iterator[str]:
    texts = [text for _, text in run.marks] + list(run.damage)
    if texts:
        more = f" (and {len(texts) - 1} more)" if len(texts) > 1 else ""
        yield clean(texts[-1]) + more


def _near(path: Path) -> str:
    """The path as one would type it in a shell here; bytes that are no text as bash, zsh and ksh take them."""
    relative = os.path.relpath(path)
    near = str(path) if relative.startswith(os.pardir) else relative
    if near.isprintable():
        return shell_word(near)
    return "$'" + "".join(_escaped(byte) for byte in os.fsencode(near)) + "'"


def _escaped(byte: int) -> str:
    character = chr(byte)
    plain = 0x20 <= byte < 0x7F and character not in "'\\"
    return character if plain else f"\\{byte:03o}"
