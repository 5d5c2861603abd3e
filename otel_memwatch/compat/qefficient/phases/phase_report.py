"""Text report of phases, and the worker process that makes it or the picture for the profiler."""

from __future__ import annotations

import time
from pathlib import Path

from otel_memwatch.compat.qefficient.phases import MB, Timeline, phase_at, scale
from otel_memwatch.runtime.typed import TYPE_CHECKING, Any
from otel_memwatch.text import clean

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import BinaryIO

    from otel_memwatch.reports import Options
    from otel_memwatch.run import RecordedRun

EMPTY = "No memory data collected"

_DELTA_SHOWN = 10 * MB
"""Smallest change of memory to report, in bytes."""


def report(timeline: Timeline) -> str:
    """Return the whole report. It begins with an empty line and does not end with a newline."""
    if not timeline.times:
        return EMPTY
    divisor, unit = scale(timeline.peak_rss)
    at = timeline.peak_rss_time
    during = clean(phase_at(timeline.phases, at)) if at is not None else "N/A"
    rss = [value / divisor for value in timeline.rss]
    vms = [value / divisor for value in timeline.vms]
    highest = timeline.peak_rss / divisor
    lines = [
        "",
        "QEFFICIENT PERFORMANCE MONITORING REPORT",
        "=" * 60,
        "Peak Memory Usage:",
        f"   • RSS (Physical): {highest:.2f} {unit} at {_clock(timeline, at)}",
        f"   • VMS (Virtual):  {timeline.peak_vms / divisor:.2f} {unit} at {_clock(timeline, timeline.peak_vms_time)}",
        f"   • Peak during:    {during}",
        "",
        "Memory Statistics:",
        f"   • Current RSS:    {rss[-1]:.2f} {unit} (Delta: {rss[-1] - rss[0]:+.2f} {unit})",
        f"   • Current VMS:    {vms[-1]:.2f} {unit} (Delta: {vms[-1] - vms[0]:+.2f} {unit})",
        f"   • Average RSS:    {_average(timeline.times, rss):.2f} {unit}",
        f"   • Min/Max RSS:    {min(rss):.2f} / {highest:.2f} {unit}",
        f"   • Memory Range:   {highest - min(rss):.2f} {unit}",
    ]
    if len(timeline.times) > 1 and timeline.read:
        read = (timeline.read[-1] - timeline.read[0]) / MB
        written = (timeline.written[-1] - timeline.written[0]) / MB
        span = timeline.times[-1] - timeline.times[0] or 1.0
        lines += [
            "Disk I/O Statistics:",
            f"   • Total Read:     {read:.2f} MB",
            f"   • Total Write:    {written:.2f} MB",
            f"   • Peak Read Rate: {max(timeline.read_rate) / MB:.2f} MB/s",
            f"   • Peak Write Rate:{max(timeline.write_rate) / MB:.2f} MB/s",
            f"   • Avg Read Rate:  {read / span:.2f} MB/s",
            f"   • Avg Write Rate: {written / span:.2f} MB/s",
        ]
    lines += [
        "",
        "Monitoring Info:",
        f"   • Duration:       {timeline.times[-1]:.1f} seconds",
        f"   • Data Points:    {len(timeline.times)}",
        f"   • Operations:     {len(timeline.phases)}",
        f"   • Sampling Rate:  {timeline.interval}s",
        "",
        "QEfficient Operations Timeline:",
    ]
    for number, phase in enumerate(timeline.phases, 1):
        seconds = f"({phase.seconds:.1f}s)" if phase.seconds else ""
        delta = ""
        if phase.delta is not None and abs(phase.delta) > _DELTA_SHOWN:
            delta = f"[{phase.delta / divisor:+.1f} {unit}]"
        start = round(phase.start, 1) + 0.0  # without the addition, it may be "-0.0"
        lines.append(f"   {number:2d}. {start:6.1f}s - {clean(phase.name)} {seconds} {delta}")
    return "\n".join(lines)


def _clock(timeline: Timeline, at: float | None) -> str:
    return "N/A" if at is None else time.strftime("%H:%M:%S", time.localtime(timeline.started + at))


def _average(times: Sequence[float], values: Sequence[float]) -> float:
    """Return the average over time. The weight of a sample is the time that it represents."""
    span = times[-1] - times[0]
    if span <= 0:
        return values[-1]
    pairs = zip(times, times[1:], values, values[1:], strict=False)
    return sum((end - start) * (a + b) / 2 for start, end, a, b in pairs) / span


def render(run: RecordedRun, out: BinaryIO, options: Options) -> None:  # noqa: ARG001 - all reports have this signature
    """Write the report of a run's outermost operations."""
    from otel_memwatch.compat.qefficient.phases.timeline import timeline

    out.write((report(timeline(run)) + "\n").encode("utf-8", "backslashreplace"))


def main(_arguments: list[str]) -> None:
    """Make the profiler's report or picture in a worker process.

    Fields of the job:

    * `parts`: list of objects, each with a run directory and the fields of `timeline.Selection`, in order of time.
    * `picture`: file for the drawing of the timeline. Without it, the answer has the report as `text`.
    """
    from otel_memwatch.runtime.worker import serve

    serve(_report_or_draw)


def _report_or_draw(job: Mapping[str, Any], say: Callable[..., None]) -> None:
    from otel_memwatch.compat.qefficient.phases.timeline import Selection, joined, timeline
    from otel_memwatch.run import load

    whole = joined([timeline(load(part.pop("run")), Selection(**part)) for part in job["parts"]])
    if job.get("picture") is None:
        say(text=report(whole))
    else:
        from otel_memwatch.compat.qefficient.phases.figure import save

        save(whole, Path(job["picture"]))
