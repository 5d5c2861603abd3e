"""The actions of a build: the processes that made each file, and the memory that they needed.

An action is the topmost process that names an output, with all processes that it started. For `g++ -c -o a.o a.cpp`
these are the compiler proper and the assembler. Shells name no output, nor do tools that use -o for something else.

=======================================  ==================================
arguments                                output
=======================================  ==================================
-o FILE, -oFILE, --output FILE, =FILE    FILE
ar, llvm-ar: operation, then FILE        FILE
rustc --crate-name NAME                  "crate NAME", without -o
javac -d DIRECTORY                       DIRECTORY
=======================================  ==================================
"""

from __future__ import annotations

import math
import os
from bisect import bisect_right

from otel_memwatch.model import Certainty, Peak
from otel_memwatch.runtime.typed import TYPE_CHECKING, NamedTuple
from otel_memwatch.truth.processes import CLOCK_TICK

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from otel_memwatch.run.results import ProcessFigures

_NO_BUILDERS = frozenset(
    {
        *("sh", "bash", "dash", "zsh", "ksh", "fish", "busybox", "env", "sudo", "su", "ssh", "scp", "sshd"),
        *(
            "make",
            "gmake",
            "ninja",
            "samu",
            "bazel",
            "bazelisk",
            "meson",
            "xargs",
            "timeout",
            "nice",
            "ionice",
        ),
        *(
            "ps",
            "pgrep",
            "pkill",
            "top",
            "lsof",
            "grep",
            "egrep",
            "fgrep",
            "rg",
            "find",
            "test",
            "[",
            "getopt",
        ),
        *("mount", "umount", "chown", "taskset", "otel-memwatch"),
    }
)
"""Programs that make nothing themselves, or that use -o for something else."""

_COMPILERS = (
    "gcc",
    "g++",
    "cc",
    "c++",
    "clang",
    "ld",
    "rustc",
    "nvcc",
    "gfortran",
    "ghc",
    "collect2",
    "lld",
    "mold",
)
"""Endings of the names of programs that accept -oFILE as one word; a version may follow."""

_START_ERROR = 0.02
"""Seconds by which two starts may be in the wrong order: the kernel reports hundredths."""

_DEPTH = 64
"""Limit of the ancestors that are visited: a damaged record may contain a cycle."""


class BuildAction(NamedTuple):
    """One action; if several made the same file, the one that needed most. Bytes and seconds."""

    output: str
    times: int
    """Number of actions of the run that made this file."""
    program: str
    """Program of its largest process."""
    peak: Peak | None
    """Peak of that process."""
    needed: int
    """Resident sizes of all its processes at one moment, with the upper bound of the largest, if known. The tree's upper bound
    at that time limits it."""
    start: float
    """Seconds since the start of the run."""
    seconds: float
    cpu_seconds: float | None
    processes: int
    seen: int
    """`needed` by the lower bound of the largest process: the order of the table."""


class Parallelism(NamedTuple):
    """The number of actions that fit into memory at once, in any combination."""

    jobs: int
    needed: int
    """Bytes that this many of the largest actions take at once, with everything that runs beside them."""
    within: int
    every: bool
    """True if all actions fit."""


def output_of(argv: Sequence[str] | None) -> str | None:
    """Return the output that a command names; `None`: none. See the table above."""
    if not argv:
        return None
    name = os.path.basename(argv[0])
    if name in _NO_BUILDERS:
        return None
    if name.endswith("ar") and name.rpartition("-")[2] == "ar":
        return argv[2] if len(argv) > 2 and not argv[1].startswith("--") else None
    compiler = name.rstrip("0123456789.-").endswith(_COMPILERS)
    for index, word in enumerate(argv[1:], 1):
        following = argv[index + 1] if index + 1 < len(argv) else None
        if word in ("-o", "--output") or (word == "-d" and name == "javac"):
            return following
        if word.startswith("--output="):
            return word.partition("=")[2] or None
        if compiler and len(word) > 2 and word.startswith("-o") and not word.startswith("-oformat"):
            return word[2:]
    if name == "rustc" and "--crate-name" in argv[:-1]:
        return f"crate {argv[argv.index('--crate-name') + 1]}"
    return None


def build_actions(
    processes: Sequence[ProcessFigures],
    end: float,
    tree_bound: Callable[[float, float], int | None],
) -> list[BuildAction]:
    """Return the actions of a run, one for each output, the largest first.

    Args:
        processes: all of the run.
        end: the run's, in seconds since its start.
        tree_bound: returns the bytes that the whole tree never exceeded between two such moments; `None`: unknown.
    """
    tops = _tops(processes)
    members: dict[int, list[ProcessFigures]] = {}
    for process, top in zip(processes, tops, strict=True):
        if top is not None:
            members.setdefault(top, []).append(process)
    found: dict[str, BuildAction] = {}
    for top, belonging in members.items():
        output = output_of(processes[top].argv)
        assert output is not None
        action, known = _action(output, processes[top], belonging, end, tree_bound), found.get(output)
        if known is None:
            found[output] = action
        else:
            largest = max(known, action, key=lambda one: (one.seen, one.needed))
            found[output] = largest._replace(times=known.times + 1)
    return sorted(found.values(), key=lambda one: (-one.seen, -one.needed, one.start))


def beside_actions(processes: Sequence[ProcessFigures]) -> int:
    """Return the peak of all processes outside actions, in bytes: the build tool, its shells."""
    rest = [process for process, top in zip(processes, _tops(processes), strict=True) if top is None]
    return _at_once((process, _seen(process)) for process in rest)


def parallelism(actions: Sequence[BuildAction], beside: int, within: int) -> Parallelism:
    """Return the largest `-j` at which the largest actions, all at once, fit into `within` bytes; 0: not even one."""
    needed, jobs = beside, 0
    for action in sorted(actions, key=lambda one: -one.needed):
        if needed + action.needed > within:
            return Parallelism(jobs, needed, within, every=False)
        needed, jobs = needed + action.needed, jobs + 1
    return Parallelism(jobs, needed, within, every=True)


def _tops(processes: Sequence[ProcessFigures]) -> list[int | None]:
    """Return for each process the index of the topmost process that names an output, from itself up to its oldest ancestor."""
    starts: dict[int, list[tuple[float, int]]] = {}
    for index, process in enumerate(processes):
        starts.setdefault(process.pid, []).append((process.start, index))
    for spans in starts.values():
        spans.sort()
    parents = [_parent(process, starts) for process in processes]
    own = [output_of(process.argv) is not None for process in processes]
    tops: list[int | None] = []
    for index in range(len(processes)):
        top, above = None, index
        for _ in range(_DEPTH):
            if own[above]:
                top = above
            parent = parents[above]
            if parent is None or parent == above:
                break
            above = parent
        tops.append(top)
    return tops


def _parent(process: ProcessFigures, starts: Mapping[int, list[tuple[float, int]]]) -> int | None:
    """Return the process that had the parent's pid when this one was started; pids are used again."""
    spans = starts.get(process.ppid or 0)
    if not spans:
        return None
    place = bisect_right(spans, (process.start + _START_ERROR, math.inf)) - 1
    return spans[max(place, 0)][1]


def _action(
    output: str,
    top: ProcessFigures,
    belonging: Sequence[ProcessFigures],
    end: float,
    tree_bound: Callable[[float, float], int | None],
) -> BuildAction:
    largest = max(belonging, key=_seen)
    until = max(end if process.end is None else process.end for process in belonging)
    known = [process.cpu_seconds for process in belonging if process.cpu_seconds is not None]
    peak = largest.peak
    # The largest process counts with its upper bound; without one, with its measured peak.
    most = 0 if peak is None else max(peak.bytes, peak.high or 0)
    needed = _at_once((one, most if one is largest else _seen(one)) for one in belonging)
    by_tree = tree_bound(top.start - CLOCK_TICK, min(until, end))
    if by_tree is not None:
        needed = min(needed, by_tree)
    return BuildAction(
        output=output,
        times=1,
        program=os.path.basename(largest.argv[0]) if largest.argv else largest.command or "?",
        peak=peak,
        needed=needed,
        start=top.start,
        seconds=max(0.0, until - top.start),
        cpu_seconds=sum(known) if known else None,
        processes=len(belonging),
        seen=min(needed, _at_once((one, _seen(one)) for one in belonging)),
    )


def _seen(process: ProcessFigures) -> int:
    """Return the bytes that the process certainly had, or was seen with."""
    peak = process.peak
    if peak is None:
        return 0
    return (peak.low or 0) if peak.certainty is Certainty.CENSORED else peak.bytes


def _at_once(weights: Iterable[tuple[ProcessFigures, int]]) -> int:
    """Return the largest sum of processes that lived at the same time."""
    changes: list[tuple[float, int]] = []
    for process, weight in weights:
        changes.append((process.start, weight))
        if process.end is not None:
            changes.append((process.end, -weight))
    total = largest = 0
    # A process that ends when another one begins may overlap with it.
    for _, change in sorted(changes, key=lambda change: (change[0], -change[1])):
        total += change
        largest = max(largest, total)
    return largest
