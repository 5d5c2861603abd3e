"""The stack that explains a run's peak, chosen from the captures."""

from __future__ import annotations

import os

from otel_memwatch.errors import RunError
from otel_memwatch.runtime.typed import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from otel_memwatch.model import RecordedOperation
    from otel_memwatch.record.stacks import Capture, CapturedThread, StackFrame, Stacks
    from otel_memwatch.run.results import OperationFigures

_NEAR, _NEAR_BYTES = 1.06, 8 << 20
"""A capture is at the peak up to this factor and these bytes below it: captures are `new_peaks.STEP` apart."""
_GREW = 1 << 20
"""Growth in bytes during a capture, or in 10 ms, from which the process counts as growing."""
_HALF, _MOST, _SAME_RAMP_SECONDS = 0.5, 0.8, 0.25
"""An earlier capture explains the last one from this share of its level (`_MOST` if a thread ran in the last one, which may
then have reached the peak), or if it grew this shortly before."""

_LIBRARY = (
    r"/(?:site|dist)-packages/|/lib(?:64)?/python\d|^<frozen |^(?:java|jdk)\.[a-z.]+@|^<__array_function__"
    r"|/lib(?:64)?/.*\.so[.\d]*$|^\.\./|/sysdeps/"
)
UNKNOWN = "??"
"""Function of a native call without a symbol."""


class WeightedStack(NamedTuple):
    """One sample of a profile."""

    capture: Capture
    frames: tuple[StackFrame, ...]
    """Innermost call first."""
    bytes: int


class PeakStack(NamedTuple):
    """Code that ran at the peak."""

    capture: Capture
    thread: CapturedThread
    own: StackFrame | None
    """Innermost call of the program itself; `None`: all are of libraries."""
    reached: bool
    """False if memory then rose far above this capture, in a spike that was over before the next one."""


def peak_stack(stacks: Stacks, peak: int | None) -> PeakStack | None:
    """Return the stack that explains the peak of the tree; `None` if nothing was captured.

    The last capture is the nearest to the peak. If memory stopped growing before or during it, the program may have gone
    on to other work; an earlier capture of the same process, taken while it grew, then shows the allocation.

    Args:
        stacks: the captures.
        peak: lower bound of the peak in bytes; `None`: unknown.

    """
    if not stacks.captures:
        return None
    last = max(stacks.captures, key=lambda capture: (capture.level, capture.time))
    chosen = last
    if not _grows(last, stacks.highest):
        share = _MOST if busiest(last).active else _HALF
        for earlier in reversed(stacks.captures):
            near = last.time - earlier.time <= _SAME_RAMP_SECONDS
            # What grew during the last capture may be a single allocation: the earlier one then explains its level alone.
            explained = earlier.level if _grew(last) else earlier.level + earlier.grown
            half = explained >= share * max(last.level, _level_after(last))
            mine = earlier.pid == last.pid and earlier.time <= last.time
            if mine and _grows(earlier, stacks.highest) and (near or half):
                chosen = earlier
                break
            # A program that waits for a processor grows little while it is read, but one that sleeps allocates nothing.
            if mine and half and chosen is last and busiest(earlier).active and not busiest(last).active:
                chosen = earlier
    highest = max(max(capture.level, _level_after(capture)) for capture in stacks.captures)
    reached = peak is None or peak <= highest * _NEAR + _NEAR_BYTES
    thread = busiest(chosen)
    return PeakStack(chosen, thread, own_frame(thread), reached)


def _grows(capture: Capture, highest: int) -> bool:
    """Return whether the process grew while its stack was read.

    A tool reads the stack near its end. If the level was then the highest of the run, the growth may have been over
    before: only a thread that was running still counts as growing. Without page faults in the threads that were read,
    the one that grew had ended.
    """
    thread = busiest(capture)
    over = _level_after(capture) >= highest - _GREW
    return _grew(capture) and thread.faults != 0 and (thread.active or not over)


def _grew(capture: Capture) -> bool:
    return capture.after - capture.before >= _GREW


def _level_after(capture: Capture) -> int:
    return capture.level + capture.after - capture.before


def busiest(capture: Capture) -> CapturedThread:
    """Return the program's thread that most probably allocates: most page faults, else the first active one, else the first."""
    return _busiest(program_threads(capture))


def program_threads(capture: Capture) -> Sequence[CapturedThread]:
    """Return the threads without the one that writes snapshots of PyTorch's allocator, if others are left."""
    return [thread for thread in capture.threads if not _is_ours(thread)] or capture.threads


def is_snapshot(capture: Capture) -> bool:
    """Return whether the thread that most probably allocates is ours: it writes a snapshot of PyTorch's allocator."""
    return _is_ours(_busiest(capture.threads))


def _busiest(threads: Sequence[CapturedThread]) -> CapturedThread:
    return max(threads, key=lambda thread: (thread.faults or 0, thread.active))


def _is_ours(thread: CapturedThread) -> bool:
    return any(_SNAPSHOTS in frame.file for frame in thread.frames)


def weighted_stacks(stacks: Stacks) -> list[WeightedStack]:
    """Return the samples of a profile by time. Raises `RunError` if the run has none.

    A sample is a capture: the stack of its busiest thread, weighted with the bytes by which its process had grown since the
    capture before. The sum is the growth that captures saw, not the peak. Growth by our snapshots is left out.
    """
    found = [
        WeightedStack(one, busiest(one).frames, one.grown) for one in stacks.captures if not is_snapshot(one)
    ]
    if not found:
        raise RunError("The run has no captured stacks.", "record with --stacks")
    return found


def is_library(frame: StackFrame) -> bool:
    """Return whether a call is in an installed package, the standard library, or a system library."""
    import re  # 2 ms, which a run without stacks need not spend

    return not frame.file or re.search(_LIBRARY, frame.file) is not None


def shown_frames(frames: Sequence[StackFrame]) -> Sequence[StackFrame]:
    """Return the calls without those of unknown functions, Python's import system and our code, if others are left."""
    left = [one for one in frames if one.function != UNKNOWN and not _is_hidden(one.file)]
    return left or frames


def _is_hidden(file: str) -> bool:
    return file.startswith("<frozen importlib") or "/otel_memwatch/in_target/" in file


def own_frame(thread: CapturedThread) -> StackFrame | None:
    """Return the innermost call of the program's own code; `None` if there is none."""
    return next((frame for frame in shown_frames(thread.frames) if not is_library(frame)), None)


def frame_name(frame: StackFrame) -> str:
    """Return "function (file.py:12)", with the name of the file alone, and of C++ without types.

    A package's file has that of the package: "torch/__init__.py".
    """
    place = os.path.basename(frame.file)
    if place == "__init__.py":
        place = "/".join(frame.file.split("/")[-2:])
    line = f":{frame.line}" if frame.line else ""
    function = without_types(frame.function)
    return f"{function} ({place}{line})" if place else function


def renamed(base: Collection[str], head: Collection[str]) -> dict[str, str]:
    """Return names of the base by those of the head that differ in the file alone, as after a script was renamed."""

    def alone(names: set[str]) -> dict[str, str]:
        functions = [name.rpartition(" (")[0] for name in names]
        return {
            function: name
            for function, name in zip(functions, names, strict=True)
            if functions.count(function) == 1
        }

    was, now = alone({*base} - {*head}), alone({*head} - {*base})
    return {now[function]: was[function] for function in now if function in was}


_SNAPSHOTS = "/otel_memwatch/in_target/torch_snapshot/snapshots.py"
_INNER_GROUP = r"\([^()<>]*\)|<[^()<>]*>"


def without_types(function: str) -> str:
    """Return the name of a C++ function without its types; other names as they are.

    "void ns::grow<int>(std::vector<int>&) const" becomes "ns::grow". Names of other languages have no arguments.
    """
    if "(" not in function or "operator" in function:
        return function
    import re

    name = function.partition(" [clone")[0].replace("(anonymous namespace)::", "")
    while (shorter := re.sub(_INNER_GROUP, "", name)) != name:
        name = shorter
    words = name.removesuffix(" const").split()
    return words[-1] if words and not set(name) & set("()<>") else function


def capture_spans(
    captures: Sequence[Capture], operations: Iterable[OperationFigures], started: float
) -> Mapping[Capture, RecordedOperation]:
    """Return the innermost operation of the process that was open at each capture; leave out captures outside all operations."""
    found: dict[Capture, RecordedOperation] = {}
    for figures in operations:
        operation = figures.operation
        for capture in captures:
            inside = figures.start <= capture.time - started <= figures.end
            if inside and operation.pid == capture.pid:
                found[capture] = operation  # nested ones come after the enclosing one
    return found
