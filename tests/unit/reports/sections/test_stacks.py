"""The line of the summary, and the section of the report."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from otel_memwatch.record.stacks import Capture, CapturedThread, StackFrame, Stacks
from otel_memwatch.reports.pages.terminal_page import TerminalPage
from otel_memwatch.reports.sections.stacks import running_at_peak, stacks
from otel_memwatch.run.stacks import peak_stack
from otel_memwatch.runtime.terminal import FILE

MIB = 1 << 20
FRAMES = (
    StackFrame("concat", "/v/lib/python3.11/site-packages/pandas/concat.py", 395),
    StackFrame("load", "/app/train.py", 12),
)


def _run(peak: int, *captures: Capture, **rest: Any) -> Any:
    found = Stacks(captures, 0, True, ())
    fields: dict[str, Any] = {"started": 100.0, "totals": {"processes": 1}, "marks": (), **rest}
    return SimpleNamespace(stacks=found, peak_stack=peak_stack(found, peak * MIB), **fields)


def _capture(level: int, frames: tuple[StackFrame, ...] = FRAMES) -> Capture:
    thread = CapturedThread(9, "MainThread", True, 4, frames)
    return Capture(
        102.5, level * MIB, 9, "python train.py", level * MIB, level * MIB, 5 * MIB, 0.02, "py-spy", (thread,)
    )


def _text(section: Any, run: Any) -> str:
    page = TerminalPage(FILE)
    section(run, page)
    return page.text().strip()


def test_the_summary_names_own_line_and_library() -> None:
    assert "running load (train.py:12), in concat (concat.py:395)" in _text(
        running_at_peak, _run(200, _capture(200))
    )


def test_the_pid_is_named_if_there_are_several_processes() -> None:
    assert "pid 9" in _text(running_at_peak, _run(200, _capture(200), totals={"processes": 3}))


def test_a_missed_spike_says_so() -> None:
    text = _text(running_at_peak, _run(900, _capture(200)))
    assert "peak not captured (too short); at 200.0 MiB at 2.50 s: load (train.py:12)" in text


def test_our_snapshots_are_named_and_not_shown_as_the_programs_code() -> None:
    first = _capture(100)
    ours = StackFrame("Snapshots._write", "/x/otel_memwatch/in_target/torch_snapshot/snapshots.py", 155)
    last = _capture(200)
    last = last._replace(time=104.0, threads=(*last.threads, CapturedThread(10, "", True, 90, (ours,))))
    run = _run(200, first, last)
    assert "running load (train.py:12), in concat (concat.py:395); otel-memwatch wrote" in _text(
        running_at_peak, run
    )
    rows = _text(stacks, run)
    assert "Snapshots._write" not in rows
    assert "+5.0 MiB  otel-memwatch wrote a snapshot of PyTorch's allocator" in rows
    assert "one of" not in rows


def test_without_the_option_nothing_is_said() -> None:
    run = SimpleNamespace(stacks=Stacks((), 0, False, ()), peak_stack=None, marks=())
    assert _text(running_at_peak, run) == ""
    assert _text(stacks, run) == ""


def test_a_run_that_did_not_grow_says_so() -> None:
    assert "not captured" in _text(running_at_peak, _run(5))


def test_the_report_has_the_stack_and_all_captures() -> None:
    frames = tuple(StackFrame(f"f{number}", "/app/a.py", number + 1) for number in range(20))
    text = _text(stacks, _run(200, _capture(100), _capture(200, frames)))
    assert "f0 (a.py:1)" in text
    assert "8 outer calls more" in text
    assert text.count("+5.0 MiB") == 2
