"""What operations say of memory, against programs that allocate a known amount.

The witness is the size that the program has mapped and written to, page by page. No monitor runs: the figures are made
in the program itself.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from otel_memwatch import load_run
from otel_memwatch.model import Certainty
from tests.support import counters
from tests.support.marked import PROGRAMS, Marked, Program, read_file, run, succeed
from tests.support.wrapped import wrap

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" and "CI" not in os.environ, reason="watermarks that can be reset are Linux's"
)

NEAR = 1.0
"""MiB by which a peak may miss the truth: the interpreter's own garbage, and the kernel's counters."""


def assert_grown(operation: Marked, mib: float) -> None:
    assert operation.closing["certainty"] == counters.of_process(operation.closing["peak"]), operation
    assert operation.grown == pytest.approx(mib, abs=NEAR), operation
    assert operation.closing["low"] <= operation.closing["peak"] <= operation.closing["high"]


def test_nested_operations_have_their_own_peaks(tmp_path: Path) -> None:
    program = succeed(
        """
        with operation("outer"):
            kept = touch(200)
            with operation("inner"):
                blip(500)
                more = touch(50)
            with operation("after"):
                blip(30)
        """,
        tmp_path,
    )
    assert_grown(program.one("outer"), 700)
    assert_grown(program.one("inner"), 500)
    assert_grown(program.one("after"), 30)
    assert program.one("outer").delta == pytest.approx(250, abs=NEAR)
    assert program.one("inner").delta == pytest.approx(50, abs=NEAR)


def test_an_operation_after_a_large_one_is_not_billed_for_it(tmp_path: Path) -> None:
    program = succeed(
        """
        with operation("large"):
            blip(500)
        with operation("nothing"):
            time.sleep(0.01)
        """,
        tmp_path,
    )
    assert_grown(program.one("large"), 500)
    assert abs(program.one("nothing").delta) < 5
    assert program.one("nothing").grown < 5


def test_equal_names_keep_figures_of_their_own(tmp_path: Path) -> None:
    program = succeed(
        """
        for size in (10, 80, 20):
            with operation("step", size=size):
                blip(size)
        """,
        tmp_path,
    )
    steps = program.named("step")
    assert [step.opening["attributes"] for step in steps] == [{"size": 10}, {"size": 80}, {"size": 20}]
    for step in steps:
        assert_grown(step, step.opening["attributes"]["size"])


def test_a_blip_of_27_ms_is_seen_every_time(tmp_path: Path) -> None:
    program = succeed(
        """
        import random
        sizes = random.Random(1)
        for turn in range(100):
            size = 64 if turn % 10 == 0 else sizes.randint(1, 24)
            with operation("blip", size=size):
                blip(size, 0.027 if size == 64 else 0)
        """,
        tmp_path,
    )
    blips = program.named("blip")
    assert len(blips) == 100
    for found in blips:
        assert_grown(found, found.opening["attributes"]["size"])


def test_a_c_call_that_holds_the_gil_is_seen_through(tmp_path: Path) -> None:
    program = succeed(
        """
        ticks = []
        def tick():
            while len(ticks) < 10_000:
                ticks.append(time.monotonic())
                time.sleep(0.001)
        threading.Thread(target=tick, daemon=True).start()
        with operation("sort"):
            numbers = sorted(range(3_000_000), key=float)
        with operation("upper"):
            text = b"x" * (100 * MIB)
            text = text.upper()
        print(max(b - a for a, b in zip(ticks, ticks[1:])))
        """,
        tmp_path,
    )
    assert float(program.out) > 0.05, "no C call held the GIL: this would prove nothing"
    upper = program.one("upper")
    assert_grown(upper, 200)
    assert upper.delta == pytest.approx(100, abs=NEAR)
    assert program.one("sort").grown > 3_000_000 * (8 + 32) / (1 << 20)


def test_threads_overlap_without_touching_each_others_figures(tmp_path: Path) -> None:
    program = succeed(
        PROGRAMS / "overlapping_threads.py",
        tmp_path,
    )
    assert_grown(program.one("early"), 100)
    assert_grown(program.one("overlapping"), 100)
    assert program.one("long").grown == pytest.approx(100, abs=NEAR + 1)  # a thread's stack and arena besides
    assert program.one("late").grown < 2
    assert program.one("long").opening["parent"] is None
    assert program.one("long").opening["thread"] != program.one("early").opening["thread"]


def test_operations_that_cross_instead_of_nesting(tmp_path: Path) -> None:
    program = succeed(
        """
        a, b = operation("a"), operation("b")
        a.__enter__()
        blip(150)
        b.__enter__()
        a.__exit__(None, None, None)
        blip(90)
        b.__exit__(None, None, None)
        """,
        tmp_path,
    )
    assert_grown(program.one("a"), 150)
    assert_grown(program.one("b"), 90)


def test_tasks_of_an_event_loop(tmp_path: Path) -> None:
    program = succeed(
        PROGRAMS / "overlapping_tasks.py",
        tmp_path,
    )
    everything = program.one("all")
    tasks = program.named("task")
    assert len(tasks) == 3
    assert all(task.opening["parent"] == everything.opening["span"] for task in tasks)
    assert everything.grown == pytest.approx(100, abs=21)  # two or all three at once: the loop's choice
    largest = max(task.closing["peak"] for task in tasks)
    assert everything.closing["peak"] == largest


def test_forked_children_count_for_themselves(tmp_path: Path) -> None:
    program = succeed(
        """
        with operation("parent"):
            kept = touch(50)
            child = os.fork()
            if child == 0:
                with operation("child"):
                    blip(120)
                os._exit(0)
            os.waitpid(child, 0)
            grandchild = os.fork()
            if grandchild == 0:
                sys.exit(0)                  # leaves the block that its parent opened
            os.waitpid(grandchild, 0)
        """,
        tmp_path,
    )
    parent, child = program.one("parent"), program.one("child")
    assert parent.pid != child.pid
    assert child.opening["parent"] == parent.opening["span"]
    assert child.opening["trace"] == parent.opening["trace"]
    assert_grown(parent, 50)
    assert_grown(child, 120)
    assert parent.closing["status"] == "ok"
    assert len(list(tmp_path.glob("operations-*.jsonl"))) == 2


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_multiprocessing(tmp_path: Path, method: str) -> None:
    program = succeed(
        f"""
        import multiprocessing
        def work(size):
            with operation("work", size=size):
                blip(size)
            return os.getpid()
        if __name__ == "__main__":
            with multiprocessing.get_context("{method}").Pool(2) as pool:
                pool.map(work, [10, 30, 50, 70], chunksize=1)
        """,
        tmp_path,
    )
    found = program.named("work")
    assert sorted(one.opening["attributes"]["size"] for one in found) == [10, 30, 50, 70]
    for one in found:
        assert_grown(one, one.opening["attributes"]["size"])


def test_the_size_of_the_program_that_started_it_does_not_count(tmp_path: Path) -> None:
    """`ru_maxrss` is never below what the parent had used at the exec: 300 MiB here."""
    program = succeed(
        """
        import subprocess
        if len(sys.argv) == 1:
            kept = touch(300)
            subprocess.run([sys.executable, __file__, "inner"], check=True)
        else:
            with operation("inner"):
                blip(40)
            with operation("twice"):
                kept = touch(500)
        """,
        tmp_path,
    )
    assert_grown(program.one("inner"), 40)
    assert_grown(program.one("twice"), 500)
    assert program.one("inner").opening["rss"] < 100 << 20
    (path,) = tmp_path.glob("operations-*.jsonl")
    assert '"floor":null' not in path.read_text().splitlines()[0]


def test_exec_goes_on_in_the_same_file(tmp_path: Path) -> None:
    program = succeed(
        """
        if len(sys.argv) == 1:
            with operation("before"):
                blip(20)
                os.execv(sys.executable, [sys.executable, __file__, "again"])
        with operation("after"):
            blip(10)
        """,
        tmp_path,
    )
    (path,) = tmp_path.glob("operations-*.jsonl")
    assert program.one("before").closing == {}
    assert_grown(program.one("after"), 10)
    assert len(read_file(path)) == 2


def test_nothing_is_lost_when_the_process_is_killed(tmp_path: Path) -> None:
    program = run(
        """
        import signal
        with operation("done"):
            blip(10)
        with operation("open"):
            with operation("innermost"):
                kept = touch(60)
                with operation("boundary"):
                    pass
                os.kill(os.getpid(), signal.SIGKILL)
        """,
        tmp_path,
    )
    assert program.code == -9
    assert_grown(program.one("done"), 10)
    assert program.one("open").closing == {}
    assert program.one("innermost").closing == {}
    assert program.one("boundary").closing["segment"] > 60 << 20


def test_thousands_open_at_once(tmp_path: Path) -> None:
    program = succeed(
        """
        many = [operation("many", n=n) for n in range(3000)]
        for n, one in enumerate(many):
            if n in (1000, 2000):
                blip(100 if n == 1000 else 50)
            one.__enter__()
        for one in many:
            one.__exit__(None, None, None)
        """,
        tmp_path,
    )
    many = program.named("many")
    assert len(many) == 3000
    assert all(one.closing for one in many)
    for number, one in enumerate(many):
        expected = 100 if number < 1000 else 50 if number < 2000 else 0
        assert one.grown == pytest.approx(expected, abs=3), number


def test_io_cpu_and_faults_are_those_of_the_operation(tmp_path: Path) -> None:
    program = succeed(
        PROGRAMS / "io_and_cpu.py",
        tmp_path,
    )
    mib = 1 << 20
    assert program.one("write").closing["write_chars"] == 3 * mib
    assert program.one("write").closing["read_chars"] == 0
    assert 3 * mib <= program.one("read").closing["read_chars"] < 3 * mib + 4096
    idle = program.one("idle").closing
    assert (idle["read_chars"], idle["write_chars"]) == (0, 0)
    assert idle["read_bytes"] == 0
    assert program.one("child").closing["read_chars"] >= 3 * mib
    busy = program.one("busy").closing
    assert 0.19 <= busy["cpu_user"] + busy["cpu_system"] < 0.5
    assert 2048 <= program.one("fault").closing["minor_faults"] < 2300


class TestWithoutReset:
    """`OTEL_MEMWATCH_EXACT=0`: exact where the watermark of the whole life rose, an interval where it did not."""

    @pytest.fixture
    def program(self, tmp_path: Path) -> Program:
        return succeed(
            """
            with operation("record"):
                blip(200)
            with operation("below"):
                with operation("inside"):
                    kept = touch(30)
                del kept
            with operation("new record"):
                kept = touch(300)
            import resource
            print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
            """,
            tmp_path,
            OTEL_MEMWATCH_EXACT="0",
        )

    def test_a_risen_watermark_is_exact(self, program: Program) -> None:
        for name, size in (("record", 200), ("new record", 300)):
            assert_grown(program.one(name), size)

    def test_otherwise_the_truth_lies_in_the_interval(self, program: Program) -> None:
        below = program.one("below")
        assert below.closing["certainty"] == "interval"
        truth = below.opening["rss"] + (30 << 20)
        assert below.closing["low"] <= truth + (1 << 20)
        assert below.closing["low"] >= truth - (1 << 20), "what inner boundaries saw counts"
        assert below.closing["high"] >= program.one("record").closing["peak"]

    def test_the_programs_own_watermark_is_left_alone(self, program: Program) -> None:
        assert int(program.out) * 1024 >= program.one("new record").closing["peak"] - (1 << 20)
        header = next(program.directory.glob("operations-*.jsonl")).read_text().splitlines()[0]
        assert '"exact":false' in header


def test_a_foreign_reset_is_noticed(tmp_path: Path) -> None:
    program = succeed(
        """
        with operation("disturbed"):
            memory = touch(100)
            with operation("boundary"):
                pass
            memory.close()
            with open("/proc/self/clear_refs", "w") as file:
                file.write("5")
        with operation("undisturbed"):
            blip(10)
        """,
        tmp_path,
    )
    disturbed = program.one("disturbed").closing
    assert disturbed["certainty"] == "interval"
    assert disturbed["high"] is None
    assert disturbed["peak"] >= 100 << 20
    assert_grown(program.one("undisturbed"), 10)


RESETS = """
import mmap, os, pathlib, time
from otel_memwatch import operation
samples = pathlib.Path(os.environ["OTEL_MEMWATCH_RUN_DIR"], "samples.jsonl")
def ticks():
    return samples.read_bytes().count(b"\\n") if samples.exists() else 0
with operation("resets"):
    memory = mmap.mmap(-1, 60 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    for place in range(0, len(memory), mmap.PAGESIZE):
        memory[place] = 1
    before = ticks()
    while ticks() < before + 3:
        time.sleep(0.02)
    memory.close()
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")
"""


def test_a_sample_refutes_an_exact_peak_after_a_reset_by_the_program(tmp_path: Path) -> None:
    """No boundary saw the memory: the program's own figure is exact and too low."""
    done = wrap([sys.executable, "-c", RESETS], out=tmp_path / "run")
    assert done.code == 0, done.err
    (found,) = load_run(tmp_path / "run").operations
    assert found.operation.peak is not None
    assert (found.operation.peak.high, found.operation.peak.certainty) == (None, Certainty.INTERVAL)
    assert found.operation.peak.bytes >= 60 << 20


def test_a_program_that_closes_all_descriptors_goes_on_being_recorded(tmp_path: Path) -> None:
    program = succeed(
        """
        with operation("before"):
            pass
        os.closerange(3, 4096)
        mine = [os.open(os.path.join(os.environ["OTEL_MEMWATCH_RUN_DIR"], f"mine{n}"), os.O_RDWR | os.O_CREAT)
                for n in range(8)]
        with operation("after"):
            blip(25)
        assert all(os.fstat(descriptor).st_size == 0 for descriptor in mine)
        """,
        tmp_path,
    )
    assert_grown(program.one("after"), 25)
