"""Causes of a difference that depend on the kinds of memory at the peak."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pytest

from otel_memwatch import catalog
from otel_memwatch.run import load
from otel_memwatch.wings.gate.causes import _causes, _Makeup, _notes
from tests.support import recorded
from tests.support.run_directory import STARTED, RunDirectory, column

if TYPE_CHECKING:
    from pathlib import Path

    from otel_memwatch.run import RecordedRun

MIB = 1 << 20


def makeup(memory: int, main: int, kernel: int = 0, **kinds: int) -> _Makeup:
    parts = Counter({name.replace("_", " "): value * MIB for name, value in kinds.items()})
    return _Makeup(memory * MIB, {"": [main * MIB]}, Counter(), 1, 0, kernel * MIB, parts, Counter())


def tree(memory: int, **roles: list[int]) -> _Makeup:
    names = {"main": "", "forked": "the main program, forked", "worker": "python worker.py"}
    sizes = {names[role]: [one * MIB for one in each] for role, each in roles.items()}
    return makeup(memory, 0)._replace(roles=sizes)


def captured(memory: int, **functions: int) -> _Makeup:
    sizes = Counter({name: value * MIB for name, value in functions.items()})
    return makeup(memory, memory)._replace(functions=sizes)


def operated(memory: int, main: int, functions: dict[str, int], **operations: int) -> _Makeup:
    sizes = Counter({name: value * MIB for name, value in operations.items()})
    made = captured(memory, **(functions or {"parse": 40}))
    return made._replace(roles={"": [main * MIB]}, operations=sizes)


@pytest.mark.parametrize(
    ("was", "now", "expected"),
    [
        (makeup(50, 50, stacks=1), makeup(90, 90, stacks=31), {"stacks": 30}),
        (makeup(50, 48, 2, page_tables=1), makeup(90, 76, 14, page_tables=13), {"page tables": 12}),
        # The reading came before most page tables were there.
        (makeup(50, 48, 2, page_tables=1), makeup(90, 76, 14, page_tables=3), {"kernel": 12}),
        (captured(50, load=20, build=20), captured(90, load=20, build=60), {"function": 40}),
        # Captures do not see all growth, and a function that grew less is no cause of more memory.
        (captured(50, load=40), captured(90, load=10, build=30), {"function": 30}),
        # The script has another name.
        (
            captured(50, **{"load (a.py)": 40}),
            captured(90, **{"load (b.py)": 60, "map (c.py)": 20}),
            {"function": 20},
        ),
        # One run has no captures.
        (captured(50), captured(90, build=60), {}),
        (tree(90, main=[80]), tree(100, main=[80], forked=[85, 85]), {"processes": 10}),
        (tree(90, main=[80]), tree(180, main=[80], worker=[85, 85]), {"processes": 170, "sharing": -80}),
        # No sample met the main process of the base, so its memory is no sharing.
        (tree(45), tree(110, main=[45], worker=[64]), {"processes": 64}),
        # The samples of the main process are older than its growth, which the operation explains.
        (operated(50, 48, {}, parse=30), operated(90, 60, {"parse": 9}, parse=70), {"operation": 40}),
        # One run has no reading.
        (makeup(50, 50), makeup(90, 90, stacks=31), {}),
    ],
    ids=[
        "stack",
        "page tables",
        "late page tables",
        "function",
        "part",
        "renamed",
        "no captures",
        "forked",
        "sharing",
        "unsampled",
        "old samples",
        "no reading",
    ],
)
def test_a_kind_of_memory_is_a_cause(
    tmp_path: Path, was: _Makeup, now: _Makeup, expected: dict[str, int]
) -> None:
    recorded.short(tmp_path / "run")
    run = load(tmp_path / "run")
    assert {cause.kind: cause.bytes // MIB for cause in _causes(run, run, was, now, MIB)} == expected


@pytest.mark.parametrize(("threads", "known"), [(0, False), (3, True)])
def test_threads_that_no_sample_counted_are_no_difference(tmp_path: Path, threads: int, known: bool) -> None:
    recorded.short(tmp_path / "run")
    run = load(tmp_path / "run")
    was, now = makeup(50, 50), makeup(58, 58)._replace(threads=threads)
    assert bool(_notes(run, run, was, now, MIB)) == known
    assert ("threads" in {cause.kind for cause in _causes(run, run, was, now, MIB)}) == known


def growing(path: Path, seconds: float) -> RecordedRun:
    """A run of 10 samples a second that grows by 10 MiB at each."""
    built = RunDirectory(path, ended={"wall": 1_767_225_600 + seconds, "monotonic": STARTED + seconds})
    built.columns([column(catalog.MEMWATCH_TREE_MEMORY_USAGE)])
    for number in range(1, round(10 * seconds)):
        built.tick(number / 10, 10 * number * MIB)
    return load(path)


@pytest.mark.parametrize(
    ("functions", "expected"),
    [(({}, {}), {"longer run": 100}), (({"build": 100}, {"build": 180}), {"function": 80, "longer run": 20})],
    ids=["no captures", "captures"],
)
def test_captured_stacks_explain_more_than_the_time_does(
    tmp_path: Path, functions: tuple[dict[str, int], dict[str, int]], expected: dict[str, int]
) -> None:
    base, head = growing(tmp_path / "base", 1.0), growing(tmp_path / "head", 2.0)
    was, now = (captured(memory, **sizes) for memory, sizes in zip((90, 190), functions, strict=True))
    assert {cause.kind: cause.bytes // MIB for cause in _causes(base, head, was, now, MIB)} == expected
