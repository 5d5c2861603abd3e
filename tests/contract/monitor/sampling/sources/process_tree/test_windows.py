"""Windowed watermarks: the certified bound, and whose watermark is left alone."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from otel_memwatch.monitor.sampling.sources import Context
from otel_memwatch.monitor.sampling.sources.process_tree import ProcessTree
from otel_memwatch.runtime.kernel import PAGE_SIZE
from otel_memwatch.runtime.procfs.process import parse_watermark

MIB = 1 << 20
GUARD = 60.0
ROOT = Path(__file__).parents[6]
PROGRAMS = ROOT / "tests/programs/process_tree"
pytestmark = pytest.mark.skipif(
    not os.path.exists("/proc/self/clear_refs"), reason="the kernel cannot reset watermarks"
)


class Servant:
    """A process that holds and drops memory on command."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-S", str(PROGRAMS / "hold_on_command.py")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._answer()

    def _answer(self) -> None:
        assert self.process.stdout is not None
        assert self.process.stdout.readline()

    def do(self, word: str, size: int = 0) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{word} {size}\n")
        self.process.stdin.flush()
        self._answer()

    def watermark(self) -> int:
        return parse_watermark(Path(f"/proc/{self.process.pid}/status").read_bytes()) or 0


@pytest.fixture
def servant() -> Iterator[Servant]:
    servant = Servant()
    yield servant
    servant.process.kill()
    servant.process.communicate(timeout=GUARD)


def bounds(tree: ProcessTree) -> int | None:
    values = tree.read(time.monotonic())
    place = next(i for i, column in enumerate(tree.columns) if column.metric == "memwatch.tree.memory.bound")
    value = values[place]
    return None if value is None else int(value)


def test_a_blip_between_two_ticks_is_in_its_window_only(servant: Servant) -> None:
    tree = ProcessTree(Context(servant.process.pid, 0.1, exact=True))
    bounds(tree)
    quiet = bounds(tree)
    servant.do("blip", 200)
    loud = bounds(tree)
    after = bounds(tree)
    assert quiet is not None
    assert loud is not None
    assert after is not None
    assert quiet < 60 * MIB
    assert loud >= 200 * MIB
    assert loud < 300 * MIB
    assert after < 60 * MIB
    tree.finish(time.monotonic())


def test_lifetime_peak_is_kept_although_the_watermark_is_reset(servant: Servant) -> None:
    records = []
    tree = ProcessTree(Context(servant.process.pid, 0.1, exact=True, on_process=records.append))
    bounds(tree)
    servant.do("blip", 150)
    bounds(tree)
    bounds(tree)
    assert servant.watermark() < 60 * MIB
    tree.finish(time.monotonic())
    assert records[-1].peak is not None
    assert records[-1].peak >= 150 * MIB - 64 * PAGE_SIZE
    assert records[-1].peak_bound is not None
    assert records[-1].peak_bound >= records[-1].peak


def test_without_exact_nothing_is_reset(servant: Servant) -> None:
    servant.do("blip", 100)
    tree = ProcessTree(Context(servant.process.pid, 0.1))
    tree.read(time.monotonic())
    tree.read(time.monotonic())
    tree.finish(time.monotonic())
    assert servant.watermark() >= 100 * MIB - 64 * PAGE_SIZE
    assert not [column for column in tree.columns if column.metric == "memwatch.tree.memory.bound"]


def test_a_process_that_marks_operations_is_never_reset(servant: Servant) -> None:
    servant.do("blip", 100)
    pid = servant.process.pid
    tree = ProcessTree(Context(pid, 0.1, exact=True, marks_operations=lambda asked: asked == pid))
    for _ in range(3):
        bound = bounds(tree)
    assert bound is not None
    assert bound >= 100 * MIB - 64 * PAGE_SIZE
    tree.finish(time.monotonic())
    assert servant.watermark() >= 100 * MIB - 64 * PAGE_SIZE


def test_another_resetter_is_noticed_and_left_alone(servant: Servant) -> None:
    tree = ProcessTree(Context(servant.process.pid, 0.1, exact=True))
    servant.do("hold", 200)
    bounds(tree)
    bounds(tree)
    servant.do("drop")
    Path(f"/proc/{servant.process.pid}/clear_refs").write_text("5")
    bound = bounds(tree)
    # it had 200 MiB at the beginning of the window, whatever the watermark says now
    assert bound is not None
    assert bound >= 200 * MIB - 64 * PAGE_SIZE
    assert tree._windows is not None
    assert tree._windows.disturbed == {servant.process.pid}
    servant.do("blip", 80)
    bounds(tree)
    assert servant.watermark() >= 80 * MIB - 64 * PAGE_SIZE
    tree.finish(time.monotonic())


def test_bound_covers_the_control_groups_maximum() -> None:
    """Processes with random blips: the sum's bound is never below what the group was charged, cache and kernel aside."""
    from tests.support.control_group import Group

    group = Group(None)
    try:
        command = [
            sys.executable,
            "-m",
            "tests.support.tree_watch",
            json.dumps({"interval": 0.02, "exact": True}),
            "--",
        ]
        done = subprocess.run(
            [*command, sys.executable, "-S", str(PROGRAMS / "blips_in_a_group.py"), str(group.path)],
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=GUARD,
            check=True,
        )
        result = json.loads(done.stdout.splitlines()[-1])
        highest = max(tick.get("memwatch.tree.memory.bound", 0) for tick in result["ticks"])
        assert highest >= group.peak - 4 * MIB
        usage = max(tick.get("memwatch.tree.memory.usage", 0) for tick in result["ticks"])
        assert highest >= usage
    finally:
        group.remove()
