"""The capture that explains a peak."""

from __future__ import annotations

import pytest

from otel_memwatch.record.stacks import Capture, CapturedThread, StackFrame, Stacks
from otel_memwatch.run.stacks import (
    PeakStack,
    frame_name,
    is_snapshot,
    own_frame,
    peak_stack,
    shown_frames,
    weighted_stacks,
    without_types,
)

MIB = 1 << 20
APP = StackFrame("load", "/app/train.py", 12)
LIBRARY = StackFrame("concat", "/venv/lib/python3.11/site-packages/pandas/concat.py", 395)


def _thread(
    *frames: StackFrame, number: int = 1, faults: int | None = None, active: bool = False
) -> CapturedThread:
    return CapturedThread(number, "", active, faults, frames)


def _capture(
    level: float, growth: float, *threads: CapturedThread, pid: int = 1, grown: float = 0
) -> Capture:
    size = int(level * MIB)
    kept = threads or (_thread(APP),)
    return Capture(
        level, size, pid, "", size, size + int(growth * MIB), int(grown * MIB), 0.01, "py-spy", kept
    )


def _found(peak: float | None, *captures: Capture) -> PeakStack:
    highest = max(one.level + one.after - one.before for one in captures)
    found = peak_stack(Stacks(captures, highest, True, ()), None if peak is None else int(peak * MIB))
    assert found is not None
    return found


def test_without_captures_nothing_is_known() -> None:
    assert peak_stack(Stacks((), 0, True, ()), 5) is None


def test_the_last_capture_during_growth_explains_the_peak() -> None:
    first, last = _capture(100, 50), _capture(200, 20)
    found = _found(220, first, last)
    assert found.capture is last
    assert found.reached


def test_if_memory_was_level_at_the_end_the_growth_before_explains_it() -> None:
    growing, level = _capture(150, 60), _capture(480, 0)
    assert _found(480, growing, level).capture is level  # too far below
    near = _capture(300, 60)
    assert _found(480, growing, near, level).capture is near
    jump = _capture(100, 60, grown=200)
    assert _found(480, jump, level).capture is jump


def test_code_that_runs_far_above_the_growth_before_explains_the_peak_itself() -> None:
    # On a busy machine it waits for a processor, and does not grow while its stack is read.
    running = _capture(311, 0, _thread(APP, active=True, faults=0))
    assert _found(311, _capture(160, 12), running).capture is running
    near = _capture(250, 12)
    assert _found(311, near, running).capture is near


def test_growth_right_before_the_last_capture_belongs_to_the_same_ramp() -> None:
    level = _capture(480, 0)._replace(time=100.0)
    shortly = _capture(20, 60)._replace(time=99.9)
    assert _found(480, shortly, level).capture is shortly
    assert _found(480, shortly._replace(time=99.0), level).capture is level


def test_growth_that_ended_while_the_stack_was_read_is_explained_by_the_capture_before() -> None:
    # The tool had begun during the ramp, and read the stack when the program already slept with the highest level.
    late = _capture(50, 2, _thread(LIBRARY, faults=575))._replace(time=10.06)
    during = _capture(36, 5, _thread(APP, active=True))._replace(time=10.0)
    stacks = Stacks((during, late), 52 * MIB, True, ())
    found = peak_stack(stacks, 52 * MIB)
    assert found is not None
    assert found.capture is during
    assert found.reached
    long_before = during._replace(time=5.0)
    assert peak_stack(stacks._replace(captures=(long_before, late)), 52 * MIB).capture is long_before  # type: ignore[union-attr]
    small = long_before._replace(level=20 * MIB, grown=20 * MIB)  # the rest may be a single allocation
    assert peak_stack(stacks._replace(captures=(small, late)), 52 * MIB).capture is late  # type: ignore[union-attr]
    running = late._replace(threads=(_thread(LIBRARY, faults=575, active=True),))
    assert peak_stack(stacks._replace(captures=(during, running)), 52 * MIB).capture is running  # type: ignore[union-attr]
    ended = late._replace(threads=(_thread(LIBRARY, faults=0, active=True),))
    assert peak_stack(stacks._replace(captures=(during, ended)), 52 * MIB).capture is during  # type: ignore[union-attr]
    grew_on = stacks._replace(highest=80 * MIB)
    assert peak_stack(grew_on, 80 * MIB).capture is late  # type: ignore[union-attr]


def test_running_code_at_half_of_the_level_explains_more_than_sleep() -> None:
    starved = _capture(29, 0, _thread(APP, faults=0, active=True))._replace(time=10.0)
    asleep = _capture(45, 5, _thread(LIBRARY, faults=1404))._replace(time=10.4)
    assert _found(50, starved, asleep).capture is starved
    assert _found(50, starved._replace(level=20 * MIB), asleep).capture is asleep
    running = asleep._replace(threads=(_thread(LIBRARY, faults=0, active=True),))
    assert _found(50, starved, running).capture is running


def test_growth_of_another_process_explains_nothing() -> None:
    other, level = _capture(300, 60, pid=2), _capture(480, 0)
    assert _found(480, other, level).capture is level


def test_a_spike_after_the_last_capture_was_not_captured() -> None:
    assert not _found(500, _capture(200, 0)).reached
    assert _found(210, _capture(200, 0)).reached
    assert _found(260, _capture(200, 60)).reached
    assert _found(None, _capture(200, 0)).reached


def test_the_thread_that_touches_memory_is_named() -> None:
    idle, busy = _thread(APP, number=1, faults=2, active=True), _thread(LIBRARY, APP, number=2, faults=900)
    assert _found(100, _capture(100, 20, idle, busy)).thread is busy
    unknown = _thread(APP, number=3, active=True)
    assert _found(100, _capture(100, 20, _thread(LIBRARY), unknown)).thread is unknown


def test_the_thread_that_writes_snapshots_is_not_the_programs() -> None:
    ours = _thread(
        StackFrame("_snapshot", "/venv/lib/python3.12/site-packages/torch/cuda/memory.py", 1084),
        StackFrame("_write", "/venv/site-packages/otel_memwatch/in_target/torch_snapshot/snapshots.py", 155),
        number=2,
        faults=900,
        active=True,
    )
    steps, snapshot = _capture(200, 0, grown=20), _capture(300, 50, ours, _thread(APP), grown=80)
    found = _found(320, steps, snapshot)
    assert (found.capture, found.own) == (snapshot, APP)
    assert is_snapshot(snapshot)
    assert not is_snapshot(_capture(300, 50, ours._replace(faults=3), _thread(APP, faults=9)))
    weights = weighted_stacks(Stacks((steps, snapshot), 320 * MIB, True, ()))
    assert [(one.frames, one.bytes) for one in weights] == [((APP,), 20 * MIB)]


def test_the_file_of_a_package_has_its_name() -> None:
    frame = StackFrame("<module>", "/v/lib/python3.12/site-packages/torch/__init__.py", 442)
    assert frame_name(frame) == "<module> (torch/__init__.py:442)"
    assert frame_name(frame._replace(file="__init__.py")) == "<module> (__init__.py:442)"


def test_own_code_is_distinguished_from_libraries() -> None:
    assert own_frame(_thread(LIBRARY, APP)) == APP
    standard = StackFrame("run", "/usr/lib/python3.11/threading.py", 982)
    frozen = StackFrame("exec", "<frozen importlib._bootstrap>", 3)
    assert (
        own_frame(_thread(standard, frozen, StackFrame("memset", "/usr/lib/x86_64-linux-gnu/libc.so.6", 0)))
        is None
    )
    assert own_frame(_thread(StackFrame("f", "", 0))) is None
    finder = StackFrame(
        "execute_and_begin", "/home/me/src/otel_memwatch/in_target/torch_snapshot/finder.py", 44
    )
    assert own_frame(_thread(standard, finder, APP)) == APP
    sleeping = StackFrame("java.lang.Thread.sleep", "java.base@17.0.15/Native Method", 0)
    load = StackFrame("Grow.load", "Grow.java", 5)
    assert own_frame(_thread(sleeping, load)) == load


@pytest.mark.parametrize(
    ("function", "name"),
    [
        ("void va_gc::reserve<tree_node*, va_gc_atomic>(vec<tree_node*>*&, bool)", "va_gc::reserve"),
        ("v8::internal::(anonymous namespace)::Fill(v8::Handle<v8::Object>)", "v8::internal::Fill"),
        ("v8::base::Time::ToJsTime() const", "v8::base::Time::ToJsTime"),
        ("walk(int (*)(tree*, void*), F<(char)1>) [clone .part.0]", "walk"),
        ("main(int, char**)", "main"),
        ("std::map<int, int>::operator[](int&&)", "std::map<int, int>::operator[](int&&)"),
        ("(((", "((("),
        ("ramp.<locals>.<listcomp>", "ramp.<locals>.<listcomp>"),
        ("Grow.<init>", "Grow.<init>"),
        ("main", "main"),
    ],
)
def test_functions_of_cpp_are_named_without_types(function: str, name: str) -> None:
    assert without_types(function) == name


def test_unknown_functions_are_shown_only_without_others() -> None:
    unknown = StackFrame("??", "/app/prog", 0)
    frozen = StackFrame("exec", "<frozen importlib._bootstrap>", 3)
    assert shown_frames((unknown, APP, frozen, LIBRARY)) == [APP, LIBRARY]
    assert shown_frames((unknown, unknown)) == (unknown, unknown)


def test_names_of_frames() -> None:
    assert frame_name(APP) == "load (train.py:12)"
    assert frame_name(StackFrame("memset", "/usr/lib/libc.so.6", 0)) == "memset (libc.so.6)"
    assert frame_name(StackFrame("??", "", 0)) == "??"
