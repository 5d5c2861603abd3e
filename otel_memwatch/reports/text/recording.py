"""The recording section: how good the record is, what could not be read, and why."""

from __future__ import annotations

from otel_memwatch.reports import phrases
from otel_memwatch.reports.formatting import clean, count, duration
from otel_memwatch.runtime.typed import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from otel_memwatch.analysis import Run
    from otel_memwatch.reports.text.page import Page

_LISTED = 20


def recording(run: Run, page: Page) -> None:
    """Writes the section."""
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


def _sources(run: Run, page: Page) -> None:
    if not run.sources:
        return
    page.gap()
    rows = [_source(name, health) for name, health in run.sources.items()]
    page.table(rows, ("source", "state", "reads", "failed", "time", "remark"), "llrrrl")


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
