"""Forks, signal handlers and other interpreters in the middle of marking: nothing hangs, nothing is mixed up."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import counters
from tests.support.marked import PROGRAMS, ROOT, Marked, read_file, succeed
from tests.support.torture import LONG
from tests.support.wrapped import environment, wrap

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="the programs fork")

STORM = Path(__file__).parents[1] / "support" / "fork_storm.py"
FORKS = {"first": (60, 10_000), "busy": (100, 10_000), "handler": (60, 10_000), "unseen": (30, 1_000)}
"""How many, and how many in the long profile."""


def storm(kind: str, forks: int, directory: Path) -> tuple[list[int], dict[int, list[Marked]]]:
    """Pids of the children, none of which hung or failed, and each process's operations."""
    seed = random.randrange(1 << 30)
    print(f"{kind} {forks} {seed}")
    directory.mkdir(exist_ok=True)
    done = subprocess.run(
        [sys.executable, "-W", "ignore", str(STORM), kind, str(forks), str(seed)],
        env=environment(OTEL_MEMWATCH_RUN_DIR=str(directory), PYTHONPATH=str(ROOT)),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    hung, failed, *children = map(int, done.stdout.split())
    assert (hung, failed) == (0, 0), done.stderr
    assert not done.stderr
    files: dict[int, list[Marked]] = {}
    for path in directory.iterdir():
        headers = [line for line in map(json.loads, path.read_text().splitlines()) if "schema" in line]
        if kind == "first" and not headers:  # the process ended before it had begun
            continue
        (pid,) = {header["pid"] for header in headers}
        assert path.name == f"operations-{pid}.jsonl"
        files[pid] = read_file(path)
    return children, files


@pytest.mark.parametrize("kind", FORKS)
def test_no_child_hangs_and_each_writes_a_separate_file(kind: str, tmp_path: Path) -> None:
    children, files = storm(kind, FORKS[kind][LONG], tmp_path)
    spans = [found.opening["span"] for marked in files.values() for found in marked]
    assert len(set(spans)) == len(spans), "a child drew an id of another process"
    own = {pid for pid, marked in files.items() if any(found.name == "Child" for found in marked)}
    if kind == "first":
        marked = [found for each in files.values() for found in each if found.name == "Child"]
        assert len(marked) == len(children)
        if not LONG:  # else numbers of processes come again
            assert not own & set(children), "what a child marked is in its parent's file"
        return
    assert own == set(children)
    for child in own:
        assert all(found.name in {"Child", "Below", "In handler"} or found.closing for found in files[child])


def test_a_pool_beside_the_first_operation(tmp_path: Path) -> None:
    program = tmp_path / "pool.py"
    program.write_text(
        """
import threading, multiprocessing as mp
from otel_memwatch import operation
def loader():
    with operation("Load"): bytearray(10 << 20)
def work(i):
    with operation("Work"): return i
if __name__ == "__main__":
    t = threading.Thread(target=loader); t.start()
    with mp.get_context("fork").Pool(4) as p: print(sum(p.map(work, range(20))))
    t.join()
"""
    )
    for number in range(6):
        done = wrap(
            [sys.executable, "-W", "ignore", str(program)],
            out=tmp_path / f"run{number}",
            timeout=60,
            PYTHONPATH=str(ROOT),
        )
        assert (done.code, done.out) == (0, "190\n"), done.err


@pytest.mark.skipif(sys.version_info >= (3, 14), reason="the module has another name")
def test_interpreters_of_one_process_do_not_disturb_each_other(tmp_path: Path) -> None:
    program = succeed(PROGRAMS / "interpreters.py", tmp_path)
    inside = program.named("Inside")
    assert len(inside) == 6 * 200
    assert all(found.closing for found in program.operations), "a phase ends with its interpreter"
    assert {found.closing["certainty"] for found in inside} == {"interval"}, "another one has the watermark"
    for found in program.named("Between"):
        assert found.closing["certainty"] == counters.of_process(found.closing["peak"])
        assert found.grown >= 19.5
    outside = program.one("Outside")
    assert outside.closing["high"] is not None, "exact, but for page faults of other threads"
    assert outside.grown >= 39.5


@pytest.mark.skipif(sys.version_info >= (3, 14), reason="the module has another name")
def test_the_first_interpreter_to_mark_has_the_watermark(tmp_path: Path) -> None:
    program = succeed(PROGRAMS / "interpreters.py", tmp_path, arguments=("inside",))
    inside = program.named("Inside")
    assert inside
    for found in inside:
        assert found.closing["certainty"] == counters.of_process(found.closing["peak"])


def test_a_child_leaves_its_parents_watermark_alone(tmp_path: Path) -> None:
    """By Python's fork, and by the C library's, which calls none of Python's hooks."""
    program = succeed(
        """
        import ctypes
        for fork in os.fork, ctypes.PyDLL(None).fork:
            with operation("Parent"):
                blip(30)
                child = fork()
                if child == 0:
                    for _ in range(50):
                        with operation("Child"): pass
                    os._exit(0)
                assert os.waitpid(child, 0)[1] == 0
        """,
        tmp_path,
    )
    assert len(program.named("Child")) == 100
    for parent in program.named("Parent"):
        assert parent.closing["certainty"] == counters.of_process(parent.closing["peak"])
        assert parent.grown >= 29.5
        assert len({found.pid for found in program.named("Child")} - {parent.pid}) == 2
