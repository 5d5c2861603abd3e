"""How operations behave inside a program: kinds of functions, contexts, phases, and whatever goes wrong."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import otel_memwatch
from tests.support import counters
from tests.support.marked import PRELUDE, PROGRAMS, Program, run, succeed
from tests.support.wrapped import call, environment

pytestmark = pytest.mark.skipif(
    sys.platform == "win32" and "CI" not in os.environ, reason="the programs fork, exec and use signals"
)


def tree(program: Program) -> dict[str, str | None]:
    """Name of each operation's parent."""
    names = {found.opening["span"]: found.name for found in program.operations}
    return {found.name: names.get(found.opening["parent"]) for found in program.operations}


def test_every_kind_of_function_can_be_decorated(tmp_path: Path) -> None:
    program = succeed(
        PROGRAMS / "kinds_of_functions.py",
        tmp_path,
    )
    parents = tree(program)
    assert parents == {
        "plain": None,
        "named_after_itself": None,
        "coroutine": None,
        "in coroutine": "coroutine",
        "generator": None,
        "in generator": "generator",
        "beside generator": None,
        "async generator": None,
        "in async generator": "async generator",
        "beside async generator": None,
        "method": None,
        "static": None,
        "class method": None,
        "partial": None,
    }
    assert all(found.closing["status"] == "ok" for found in program.operations)
    assert program.one("plain").opening["attributes"] == {"kind": "function"}


def test_exceptions_pass_through_untouched(tmp_path: Path) -> None:
    program = succeed(
        PROGRAMS / "exceptions.py",
        tmp_path,
    )
    ends = {found.name: (found.closing["status"], found.closing["error"]) for found in program.operations}
    assert ends == {
        "own": ("error", "Mine"),
        "interrupt": ("error", "KeyboardInterrupt"),
        "exit 0": ("ok", None),
        "exit 3": ("error", "SystemExit"),
        "generator": ("error", "Mine"),
        "given up": ("ok", None),
        "cancelled": ("error", "CancelledError"),
    }


def test_context_goes_where_opentelemetrys_goes(tmp_path: Path) -> None:
    program = succeed(
        PROGRAMS / "contexts.py",
        tmp_path,
    )
    inherits = "outer" if sys.version_info >= (3, 14) and not sys._is_gil_enabled() else None
    assert tree(program) == {
        "outer": None,
        "bare thread": inherits,
        "thread with context": "outer",
        "around tasks": "outer",
        "task 1": "around tasks",
        "task 2": "around tasks",
        "task 1 in thread": "around tasks",
        "task 2 in thread": "around tasks",
        "executor": inherits,
    }
    assert len({found.opening["trace"] for found in program.operations}) == 1


def test_the_same_object_can_be_entered_again_and_anywhere(tmp_path: Path) -> None:
    program = succeed(
        PROGRAMS / "entered_again.py",
        tmp_path,
    )
    assert len(program.named("again")) == 202
    assert all(found.closing for found in program.operations)
    first, second = program.named("again")[:2]
    assert second.opening["parent"] == first.opening["span"]
    assert program.one("innermost").opening["parent"] == second.opening["span"]
    assert program.one("after inner").opening["parent"] == first.opening["span"]
    recursive = program.named("recursive")
    assert len(recursive) == 51
    assert [one.opening["parent"] for one in recursive[1:]] == [one.opening["span"] for one in recursive[:-1]]
    assert program.one("afterwards").opening["parent"] is None


def test_the_deepest_recursion_is_not_made_shallower_by_an_error_of_ours(tmp_path: Path) -> None:
    program = run(
        """
        def down():
            with operation("down"):
                down()
        try: down()
        except RecursionError: print("as without us")
        """,
        tmp_path,
    )
    assert program.code == 0, program.err
    assert program.out == "as without us\n"


def test_phases_follow_each_other(tmp_path: Path) -> None:
    program = succeed(
        """
        mark("load")
        with operation("read"): pass
        mark("train", epochs=2)
        with operation("epoch"):
            mark("forward")
            mark("backward")
            with operation("gradient"): pass
        with operation("second epoch"): pass
        mark(None)
        with operation("alone"): pass
        def worker():
            mark("worker 1"); mark("worker 2")
        thread = threading.Thread(target=worker); thread.start(); thread.join()
        mark("export")
        """,
        tmp_path,
    )
    assert tree(program) == {
        "load": None,
        "read": "load",
        "train": None,
        "epoch": "train",
        "forward": "epoch",
        "backward": "epoch",
        "gradient": "backward",
        "second epoch": "train",
        "alone": None,
        "worker 1": None,
        "worker 2": None,
        "export": None,
    }
    for earlier, later in (("load", "train"), ("forward", "backward"), ("worker 1", "worker 2")):
        end, begin = program.one(earlier).closing["time"], program.one(later).opening["time"]
        assert end <= begin
    assert program.one("backward").closing["time"] <= program.one("epoch").closing["time"]
    assert all(found.closing for found in program.operations), "the end of the program ends the last phases"


def test_attributes_can_be_added_while_it_runs(tmp_path: Path) -> None:
    program = succeed(
        """
        with operation("work", a=1) as work:
            work.set(rows=5)
            work.set(more="x")
        print(work.figures.peak, work.figures.certainty)
        """,
        tmp_path,
    )
    peak, certainty = program.out.split()
    assert certainty == counters.of_process(int(peak))
    assert program.one("work").opening["attributes"] == {"a": 1}
    assert program.one("work").closing["attributes"] == {"rows": 5, "more": "x"}


def test_names_that_are_none_are_reported_once(tmp_path: Path) -> None:
    program = run(
        """
        class Hostile:
            def __str__(self): raise RuntimeError
            def __eq__(self, other): raise RuntimeError
        for name in ("", None, 5, b"x", "y" * 1_000_000, "line\\nbreak \\ud800 \\x00 \u00fc", Hostile(), [1]):
            with operation(name, odd=Hostile(), **{"": 1, "x" * 10000: {}}): pass
            mark(name)
        print("unharmed")
        """,
        tmp_path,
    )
    assert (program.code, program.out) == (0, "unharmed\n")
    assert program.err.count("\n") == 1
    names = [found.name for found in program.operations]
    assert "(no name)" in names
    assert "line\nbreak ? \x00 ü" in names
    assert max(map(len, names)) <= 512


ENDLESS = """
for turn in range(300):
    with operation("work", padding="x" * 500): pass
    mark("phase")
print("unharmed")
"""


def test_a_run_directory_that_cannot_be_written(tmp_path: Path) -> None:
    missing = tmp_path / "missing"
    program = run(ENDLESS, tmp_path / "scripts", OTEL_MEMWATCH_RUN_DIR=str(missing))
    assert (program.code, program.out) == (0, "unharmed\n")
    assert (
        program.err == f"otel-memwatch: operations are not recorded: {missing}: No such file or directory.\n"
    )
    assert not missing.exists()


def test_a_run_directory_that_is_deleted_meanwhile(tmp_path: Path) -> None:
    program = run(
        """
        import shutil
        with operation("before"): pass
        shutil.rmtree(os.environ["OTEL_MEMWATCH_RUN_DIR"])
        with operation("after"): pass
        child = os.fork()
        if child == 0:
            with operation("child"): pass
            with operation("child"): pass
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        print("unharmed")
        """,
        tmp_path / "scripts",
        OTEL_MEMWATCH_RUN_DIR=str(shutil.copytree(tmp_path, tmp_path / "run")),
    )
    assert (program.code, program.out) == (0, "unharmed\n")
    assert program.err.count("otel-memwatch:") == 1, "only the child had something to say"


def test_a_full_disk(tmp_path: Path) -> None:
    program = run(
        "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))\n" + ENDLESS, tmp_path
    )
    assert (program.code, program.out) == (0, "unharmed\n")
    assert program.err.count("\n") == 1
    assert "File too large" in program.err
    (path,) = tmp_path.glob("operations-*.jsonl")
    assert path.stat().st_size <= 20_000


def test_no_stderr_no_warning_no_exception(tmp_path: Path) -> None:
    program = run(
        "sys.stderr.close(); sys.stderr = None\n" + ENDLESS,
        tmp_path / "scripts",
        OTEL_MEMWATCH_RUN_DIR=str(tmp_path / "missing"),
    )
    assert (program.code, program.out) == (0, "unharmed\n")


def test_fork_storm(tmp_path: Path) -> None:
    program = succeed(
        """
        def descend(depth):
            with operation("level", depth=depth):
                children = []
                for _ in range(3 if depth < 3 else 0):
                    pid = os.fork()
                    if pid == 0:
                        descend(depth + 1)
                        os._exit(0)
                    children.append(pid)
                for pid in children:
                    assert os.waitpid(pid, 0)[1] == 0
        descend(0)
        """,
        tmp_path,
    )
    levels = program.named("level")
    assert len(levels) == 1 + 3 + 9 + 27
    assert all(found.closing["status"] == "ok" for found in levels)
    assert len({found.opening["span"] for found in levels}) == 40, "forked processes drew the same ids"
    spans = {found.opening["span"]: found for found in levels}
    for found in levels:
        depth = found.opening["attributes"]["depth"]
        if depth:
            assert spans[found.opening["parent"]].opening["attributes"]["depth"] == depth - 1
    assert len({found.pid for found in levels}) == 40


def test_signal_handlers_and_finalizers_may_mark_too(tmp_path: Path) -> None:
    program = succeed(
        """
        import signal, gc
        def handler(*_):
            with operation("handler"): pass
        signal.signal(signal.SIGALRM, handler)
        signal.setitimer(signal.ITIMER_REAL, 0.0005, 0.0005)
        class Finalized:
            def __init__(self): self.me = self
            def __del__(self):
                with operation("finalizer"): pass
        end = time.monotonic() + 0.5
        while time.monotonic() < end:
            Finalized()
            with operation("main"): pass
        signal.setitimer(signal.ITIMER_REAL, 0)
        gc.collect()
        """,
        tmp_path,
    )
    found = program.operations
    assert {one.name for one in found} == {"main", "handler", "finalizer"}
    assert all(one.closing for one in found)
    assert {one.closing["certainty"] for one in found} <= {"exact", "interval"}
    # One that begins in the middle of another one's boundary cannot have a separate boundary: only a lower bound.
    assert all(one.closing["high"] is not None for one in found if one.name == "main")
    for one in found:
        assert one.closing["high"] is None or one.closing["low"] <= one.closing["peak"] <= one.closing["high"]
    # Between reading the watermark and resetting it a whole garbage collection may run: then bounds, but seldom.
    main = [one for one in found if one.name == "main"]
    sure = [one for one in main if counters.is_counter_error(one.closing["low"], one.closing["high"])]
    assert len(sure) > 0.9 * len(main)


def test_threads_that_mark_without_end_lose_nothing(tmp_path: Path) -> None:
    program = succeed(
        """
        def use(n):
            for _ in range(200):
                with operation(f"thread {n}"):
                    with operation(f"inner {n}"): pass
        threads = [threading.Thread(target=use, args=(n,)) for n in range(8)]
        [thread.start() for thread in threads]; [thread.join() for thread in threads]
        """,
        tmp_path,
    )
    found = program.operations
    assert len(found) == 8 * 200 * 2
    assert all(one.closing for one in found)
    names = {one.opening["span"]: one.name for one in found}
    for one in found:
        if one.name.startswith("inner"):
            assert names[one.opening["parent"]] == one.name.replace("inner", "thread")


def test_at_the_end_of_the_interpreter(tmp_path: Path) -> None:
    program = succeed(
        PROGRAMS / "end_of_interpreter.py",
        tmp_path,
    )
    assert program.one("at exit").closing == {}


def test_outside_a_run_it_is_nothing(tmp_path: Path) -> None:
    script = tmp_path / "program.py"
    script.write_text(
        PRELUDE
        + """
with operation("a", b=1) as work:
    work.set(c=2)
    mark("x"); mark(None)
assert work.figures is None
@operation("f")
def f(): return 1
assert f() == 1
@operation("g")
def g(): yield 1
assert list(g()) == [1]
assert not any("memwatch" in os.readlink(f"/proc/self/fd/{n}") for n in os.listdir("/proc/self/fd")
               if os.path.exists(f"/proc/self/fd/{n}"))
print(sorted(name for name in sys.modules if name.startswith("opentelemetry") or name == "json"))
"""
    )
    done = subprocess.run(
        [sys.executable, "-S", script],
        env=environment(PYTHONPATH=str(Path(otel_memwatch.__file__).parents[1])),
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "[]\n"
    assert list(tmp_path.iterdir()) == [script]


def test_operations_of_finalizers_and_signal_handlers_in_the_middle_of_anything(tmp_path: Path) -> None:
    """Garbage is collected at nearly every allocation, in the middle of boundaries and of `ContextVar.set` too."""
    program = succeed(
        PROGRAMS / "finalizers.py",
        tmp_path,
    )
    for name, times in {"outer": 1500, "inner": 1500, "final": 3000, "generator": 1500}.items():
        found = program.named(name)
        assert len(found) == times
        assert all(one.closing for one in found)
    assert all(one.closing["status"] == "ok" for one in program.operations)
    outer = [one.closing for one in program.named("outer")]
    assert sum(counters.is_counter_error(closing["low"], closing["high"]) for closing in outer) > 1000


WATCHED = """
import os, time
from pathlib import Path
from otel_memwatch import operation

def is_watched():
    mine = f"ino:{os.stat('/proc/self').st_ino:x} "
    found = Path(f"/proc/{os.getppid()}/fdinfo").iterdir()
    return any(mine in file.read_text() for file in found if file.exists())

until = time.monotonic() + 20
while not is_watched():
    assert time.monotonic() < until, "never watched"
while is_watched():
    assert time.monotonic() < until, "still watched"
    with operation("step"): time.sleep(0.02)
"""


@pytest.mark.skipif(not os.path.exists("/proc/self/clear_refs"), reason="the kernel cannot reset watermarks")
def test_the_monitor_does_not_watch_resets_of_a_process_that_announces_them(tmp_path: Path) -> None:
    """Each event costs the process 1 us, and two belong to an operation."""
    (tmp_path / "program.py").write_text(WATCHED)
    done = call("wrap", "--no-report", "--out=run", "--", sys.executable, "program.py", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
