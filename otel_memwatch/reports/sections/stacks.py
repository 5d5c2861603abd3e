"""Fact and section about the code that ran at the peak, from captured stacks."""

from __future__ import annotations

from otel_memwatch.reports import phrases
from otel_memwatch.reports.pages import Columns
from otel_memwatch.run.stacks import (
    busiest,
    frame_name,
    is_snapshot,
    own_frame,
    program_threads,
    shown_frames,
)
from otel_memwatch.runtime.typed import TYPE_CHECKING
from otel_memwatch.text import clean, count, duration, shorten, size

if TYPE_CHECKING:
    from otel_memwatch.record.stacks import Capture, CapturedThread
    from otel_memwatch.reports.pages import Page
    from otel_memwatch.run import RecordedRun
    from otel_memwatch.run.stacks import PeakStack

_FRAME = 76
_SHOWN_FRAMES = 12
_SNAPSHOT = "otel-memwatch wrote a snapshot of PyTorch's allocator"
_COLUMNS = Columns(
    ("time", "memory", "growth", "pid", "running"), "rrrrl", first_to_go=("pid", "growth"), names="running"
)


def running_at_peak(run: RecordedRun, page: Page) -> None:
    """Name function, file and line that ran at the peak; nothing without --stacks."""
    found = run.peak_stack
    if found is None:
        if run.stacks.watched and not run.stacks.problems and run.marks == ():
            page.fact("running", "not captured: memory grew by less than 8 MiB or too briefly")
        return
    page.fact("running" if not found.reached else "at the peak", sentence(run, found))


def sentence(run: RecordedRun, found: PeakStack) -> str:
    """Return "load (train.py:12), in concat (concat.py:3)", and the memory at that time if the peak was not captured."""
    words = place(found.thread)
    if not found.reached:
        level = f"{size(found.capture.level)} at {duration(found.capture.time - run.started)}"
        return f"peak not captured (too short); at {level}: {words}"
    process = f", pid {found.capture.pid}" if (run.totals.get("processes") or 1) > 1 else ""
    meanwhile = f"; {_SNAPSHOT}" if is_snapshot(found.capture) else ""
    return f"running {words}{process}{meanwhile}"


def running(capture: Capture) -> str:
    """Return the call of the program that a capture found; if memory of ours grew meanwhile, that instead."""
    return _SNAPSHOT if is_snapshot(capture) else place(busiest(capture))


def place(thread: CapturedThread) -> str:
    """Return the innermost call of the program, and the library's call below it."""
    innermost = shown_frames(thread.frames)[0]
    own = own_frame(thread)
    words = shorten(clean(frame_name(own or innermost)), _FRAME)
    return (
        words if own in (None, innermost) else f"{words}, in {shorten(clean(frame_name(innermost)), _FRAME)}"
    )


def stacks(run: RecordedRun, page: Page) -> None:
    """Write the stack at the peak, and one line for each capture; nothing without captures."""
    captures, found = run.stacks.captures, run.peak_stack
    if found is None:
        return
    page.section("Running at the peak")
    capture = found.capture
    when = f"at {duration(capture.time - run.started)}, with {size(capture.level)} in the tree"
    page.fact("captured", f"{when}; by {clean(capture.means)} in {duration(capture.seconds)}")
    if not found.reached:
        page.fact("", "The peak itself is higher: a spike that was over before the next capture.", "warning")
    page.fact("process", shorten(clean(capture.command), _FRAME) + f" (pid {capture.pid})")
    name = clean(found.thread.name) or str(found.thread.id)
    number = len(program_threads(capture))
    page.fact("thread", f"{name}, one of {number} threads" if number > 1 else name)
    page.gap()
    for frame in found.thread.frames[:_SHOWN_FRAMES]:
        page.item(shorten(clean(frame_name(frame)), _FRAME))
    left = len(found.thread.frames) - _SHOWN_FRAMES
    if left > 0:
        page.item(f"{count(left, 'outer call')} more")
    if len(captures) > 1:
        page.gap()
        several_processes = len({one.pid for one in captures}) > 1
        rows = [
            (
                duration(max(0.0, one.time - run.started)),
                size(one.level),
                f"+{size(one.grown)}",
                str(one.pid) if several_processes else "",
                running(one),
            )
            for one in captures
        ]
        page.table(rows, _COLUMNS)
    page.gap()
    page.paragraph(phrases.STACKS_MEANING)
