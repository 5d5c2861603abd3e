"""Whatever the peak of an operation claims holds: random programs that know their own memory at each moment.

OTEL_MEMWATCH_TEST_PROGRAMS=3000 tries many new programs (the nightly profile); without it a few, always the same.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

from hypothesis import HealthCheck, Phase, given, note, settings
from hypothesis import strategies as st

from tests.support import counters
from tests.support.wrapped import MIB, wrap

PROGRAMS = int(os.environ.get("OTEL_MEMWATCH_TEST_PROGRAMS", "0"))
ROOT = Path(__file__).resolve().parents[2]
CHILD = "child"
SLACK = 2 * MIB
"""What Python itself may take or give back beside."""
CHILD_ITSELF = 14 * MIB
"""Resident size of a forked Python that does nothing, most of it shared with its parent."""
FILE_PAGES = 9 * MIB
"""File pages of a Python: resident, and charged to their first reader."""

Step = tuple["int | str", str, "int | str | None"]


@st.composite
def programs(draw: st.DrawFn) -> list[Step]:
    """Steps of two threads and perhaps a child; every operation is closed by the thread that opened it."""
    actors: list[int | str] = [0, 1, *([CHILD] if draw(st.booleans()) else [])]
    maps = dict.fromkeys(actors, 0)
    opened = dict.fromkeys(actors, 0)
    steps: list[Step] = []
    names = 0
    for _ in range(draw(st.integers(3, 14))):
        actor = draw(st.sampled_from(actors))
        kinds = ["a", "a", "s", *(["f", "f"] if maps[actor] else [])]
        if actor != CHILD:
            kinds += ["open", "open", *(["close"] if opened[actor] else [])]
        kind = draw(st.sampled_from(kinds))
        if kind == "a":
            maps[actor] += 1
            steps.append((actor, "a", draw(st.integers(4, 70))))
        elif kind == "f":
            maps[actor] -= 1
            steps.append((actor, "f", None))
        elif kind == "s":
            steps.append((actor, "s", draw(st.sampled_from([1, 10, 60, 150]))))
        elif kind == "open":
            opened[actor] += 1
            names += 1
            steps.append((actor, "open", f"operation {names}"))
        else:
            opened[actor] -= 1
            steps.append((actor, "close", None))
    return steps + [(actor, "close", None) for actor in actors for _ in range(opened[actor])]


class Truth(NamedTuple):
    """Largest sizes during an operation, in bytes beyond what the program has at the start."""

    own: int
    tree: int


def truths(steps: list[Step]) -> dict[str, Truth]:
    """By the program's own count, for each operation."""
    live: dict[int | str, list[int]] = {}
    opened: dict[int | str, list[str]] = {}
    found: dict[str, Truth] = {}
    for actor, action, argument in steps:
        if action == "open":
            opened.setdefault(actor, []).append(str(argument))
            found[str(argument)] = Truth(0, 0)
        own = sum(sum(sizes) for who, sizes in live.items() if who != CHILD) * MIB
        still = {name for names in opened.values() for name in names}
        if action == "a":
            assert isinstance(argument, int)
            live.setdefault(actor, []).append(argument)
            own = sum(sum(sizes) for who, sizes in live.items() if who != CHILD) * MIB
        tree = own + sum(live.get(CHILD, [])) * MIB
        for name in still:
            found[name] = Truth(max(found[name].own, own), max(found[name].tree, tree))
        if action == "f":
            live[actor].pop()
        elif action == "close":
            opened[actor].pop()
    return found


def holds(peak: dict[str, Any], least: float, most: float, what: str) -> None:
    """Nothing that the peak claims contradicts a truth between these."""
    low, high = peak["low"], peak["high"]
    assert low is None or low <= most, f"{what}: at least {low / MIB:.1f} of at most {most / MIB:.1f} MiB"
    assert high is None or high >= least, (
        f"{what}: at most {high / MIB:.1f} of at least {least / MIB:.1f} MiB"
    )


@settings(
    max_examples=PROGRAMS // 4 if PROGRAMS else 9,
    derandomize=not PROGRAMS,
    database=None,
    deadline=None,
    phases=[Phase.explicit, Phase.generate, Phase.shrink] if PROGRAMS else [Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)
@given(programs(), st.sampled_from(["auto", "off"]))
def test_operations_of_threads_and_a_child(steps: list[Step], cgroup: str) -> None:
    """Peaks of the process and of the tree, for operations that nest, cross and overlap."""
    folder = Path(tempfile.mkdtemp(prefix="memwatch-certificate-"))
    try:
        done = wrap(
            [sys.executable, "-m", "tests.support.lockstep", json.dumps(steps)],
            "--quiet", "--no-report", "--cgroup", cgroup,
            out=folder / "run", cwd=ROOT, PYTHONPATH=str(ROOT),
        )  # fmt: skip
        assert done.code == 0, done.err
        note(f"--cgroup {cgroup} {json.dumps(steps)}")
        report = done.report
        note(json.dumps(report["operations"]))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    check(report, truths(steps), int(done.out), steps)


def check(report: dict[str, Any], expected: dict[str, Truth], base: int, steps: list[Step]) -> None:
    found = {operation["name"]: operation for operation in report["operations"]}
    assert set(found) == {*expected, "warm up"}
    beside = CHILD_ITSELF if any(actor == CHILD for actor, _, _ in steps) else 0
    for name, truth in expected.items():
        own, tree = found[name]["peak"], found[name]["tree_peak"]
        assert counters.is_counter_error(own["low"], own["high"]), name
        assert own["certainty"] == counters.of_process(own["bytes"]), name
        holds(own, base + truth.own - SLACK, base + truth.own + SLACK, name)
        if tree is not None:
            holds(
                tree,
                base + truth.tree - FILE_PAGES - SLACK,
                base + truth.tree + beside + SLACK,
                f"tree of {name}",
            )
