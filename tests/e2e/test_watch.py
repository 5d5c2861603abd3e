"""A running program that has itself recorded, and shell scripts that mark their phases."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from otel_memwatch.api import load_run
from tests.support.marked import MIB, PRELUDE, PROGRAMS, ROOT, read_file
from tests.support.torture import wait_for
from tests.support.wrapped import PROGRAM, environment

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" and "CI" not in os.environ, reason="looks for processes in /proc"
)

WATCHED = PRELUDE + (PROGRAMS / "watching.py").read_text()


def start(source: str | Path, directory: Path, **variables: str) -> subprocess.Popen[str]:
    import textwrap

    if isinstance(source, Path):
        script = source
    else:
        script = directory / "program.py"
        script.write_text(WATCHED + textwrap.dedent(source))
    return subprocess.Popen(
        [sys.executable, script],
        cwd=directory,
        env=environment(**{"PYTHONPATH": str(ROOT)} | variables),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finish(program: subprocess.Popen[str]) -> str:
    out, err = program.communicate(timeout=120)
    assert program.returncode == 0, err
    assert not err, err
    return out


def info(run: Path) -> dict[str, Any]:
    return dict(json.loads((run / "run.json").read_text()))


def wait_for_end(run: Path) -> dict[str, Any]:
    """run.json once the monitor has completed it; the time is a guard, not an expectation."""
    deadline = time.monotonic() + 60
    while info(run)["state"] != "finished":
        assert time.monotonic() < deadline, "the monitor does not end"
        time.sleep(0.05)
    return info(run)


def test_a_block_is_recorded(tmp_path: Path) -> None:
    finish(start(PROGRAMS / "watched_block.py", tmp_path))
    run = tmp_path / "run"
    assert info(run)["monitor"]["mode"] == "watch"
    (recorded,) = [found for path in run.glob("operations-*") for found in read_file(path)]
    assert recorded.opening["trace"] == info(run)["trace"]["trace_id"]
    assert recorded.opening["parent"] == info(run)["trace"]["span_id"]


def test_a_program_with_a_thousand_open_files_is_recorded_to_its_end(tmp_path: Path) -> None:
    """Its pipe to the monitor has a number that select(2) does not know."""
    source = """
    import os

    files = [os.open(os.devnull, os.O_RDONLY) for _ in range(1100)]
    with watch("run", **fast):
        touch(50)
    """
    finish(start(source, tmp_path))
    assert wait_for_end(tmp_path / "run")["marks"] == []
    assert "recording stopped by the program" in (tmp_path / "run/report.txt").read_text()


@pytest.mark.parametrize(
    ("highest", "limit", "state"),
    [(256, 4096, "finished"), (256, 64, "running"), (1024, 1024, "running"), (4096, 4096, "running")],
)
def test_files_that_take_the_numbers_of_the_monitors_pipes_stay_untouched(
    tmp_path: Path, highest: int, limit: int, state: str
) -> None:
    """Daemons and test suites close all descriptors they do not know. Without its pipe the monitor ends with the program."""
    program = subprocess.run(
        [sys.executable, PROGRAMS / "closes_descriptors_of_the_monitor.py", str(highest), str(limit)],
        cwd=tmp_path, env=environment(PYTHONPATH=str(ROOT)), capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert (program.returncode, program.stderr) == (0, "")
    assert program.stdout.endswith(f" ['before', 'after'] {state}\n"), program.stdout
    assert wait_for_end(tmp_path / "run")["marks"] == []


def test_the_monitor_is_neither_child_nor_member_nor_counted(tmp_path: Path) -> None:
    out = finish(
        start(
            """
            run = watch("run", **fast)
            (monitor,) = monitors()
            fields = open(f"/proc/{monitor}/stat").read().rpartition(")")[2].split()
            assert int(fields[1]) != os.getpid()
            assert os.getsid(monitor) != os.getsid(0)
            try: os.wait()
            except ChildProcessError: print("no child")
            time.sleep(0.2)
            assert run.stop()
            print(len(run.processes))
            """,
            tmp_path,
        )
    )
    assert out.split("\n") == ["no child", "1", ""]


@pytest.mark.parametrize("end", ["pass", "sys.exit(0)", "os._exit(0)", "os.kill(os.getpid(), 9)"])
def test_however_the_program_ends_the_record_is_completed(tmp_path: Path, end: str) -> None:
    program = start(
        f"""
        run = watch("run", **fast)
        with operation("work"): blip(50)
        {end}
        """,
        tmp_path,
    )
    program.communicate(timeout=60)
    assert program.returncode == (-9 if "kill" in end else 0)
    finished = wait_for_end(tmp_path / "run")
    assert finished["peaks"]["process"]["bytes"] >= 50 * MIB


def test_forked_children_neither_stop_it_nor_keep_it(tmp_path: Path) -> None:
    program = start(
        """
        run = watch("run", **fast)
        if os.fork() == 0:
            with operation("child"): blip(20)
            run.stop()                      # not the child's to stop
            sys.exit(0)
        os.wait()
        assert run.state == "running"
        if os.fork() == 0:
            os.close(1), os.close(2)        # let the test go on
            time.sleep(30)                  # lives on: the recording must end all the same
            os._exit(0)
        assert run.stop()
        assert run.state == "finished"
        assert [found.operation.name for found in run.operations] == ["child"]
        """,
        tmp_path,
    )
    finish(program)


def test_children_are_part_of_the_run(tmp_path: Path) -> None:
    finish(
        start(
            """
            import subprocess
            with watch("run", **fast) as run:
                subprocess.run([sys.executable, "-c", "from otel_memwatch import operation\\n"
                                "with operation('child'): x = bytearray(60 << 20)"], check=True)
            (child,) = run.operations
            assert child.operation.pid != os.getpid()
            assert child.operation.peak.bytes > 60 * MIB
            """,
            tmp_path,
        )
    )


def test_under_wrap_it_joins(tmp_path: Path) -> None:
    script = tmp_path / "program.py"
    script.write_text(
        WATCHED
        + """
with watch(**fast) as run:
    with operation("inside"): pass
assert run.state == "running"
with operation("after the block"): pass
with watch() as again: assert again.path == run.path
"""
    )
    done = subprocess.run(
        [*PROGRAM, "wrap", "--out", tmp_path / "run", "--no-plot", "--quiet", "--", sys.executable, script],
        env=environment(PYTHONPATH=str(ROOT)),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    found = [one for path in (tmp_path / "run").glob("operations-*") for one in read_file(path)]
    assert [one.name for one in found] == ["inside", "after the block"]
    assert not (tmp_path / "memwatch-runs").exists()


def test_mistakes_are_errors_before_anything_starts(tmp_path: Path) -> None:
    finish(
        start(
            """
            os.mkdir("there")
            for call in (lambda: watch("there"), lambda: watch(interval=0), lambda: watch(interval="nan"),
                         lambda: watch(nonsense=1), lambda: load_run("there"), lambda: load_run("missing"),
                         lambda: watch("a", out="b"), lambda: attach(os.getpid(), "there")):
                try: call()
                except MemwatchError as error: assert str(error)
                else: raise AssertionError
            assert monitors() == [] and os.listdir("there") == []
            assert "OTEL_MEMWATCH_RUN_DIR" not in os.environ
            """,
            tmp_path,
        )
    )


def test_trouble_with_the_monitor_does_not_stop_the_program(tmp_path: Path) -> None:
    program = start(
        """
        sys.executable = "/bin/false"
        with watch("one", **fast): print("on")
        sys.executable = "/nonexistent"
        with watch("two", **fast): print("and on")
        """,
        tmp_path,
    )
    out, err = program.communicate(timeout=60)
    assert (program.returncode, out) == (0, "on\nand on\n")
    assert err.count("nothing is recorded") == 2


def test_attach_to_another_process(tmp_path: Path) -> None:
    finish(
        start(
            """
            import subprocess
            other = subprocess.Popen([sys.executable, "-c", "x = bytearray(80 << 20); input()"], stdin=subprocess.PIPE)
            time.sleep(0.3)
            with attach(other.pid, "run", **fast) as run:
                time.sleep(0.2)
            assert run.peaks.process.bytes > 80 * MIB
            other.communicate(b"\\n")
            """,
            tmp_path,
        )
    )
    program = start('attach(2**22 + 5, "none", **fast)', tmp_path)
    _, err = program.communicate(timeout=60)
    assert program.returncode == 1
    assert "There is no process" in err
    assert "RunError" in err


BUSY = """
import os, time
def burn(seconds):
    until = time.process_time() + seconds
    while time.process_time() < until: pass
def write(mib):
    with open("written", "wb", buffering=0) as file:
        file.write(bytes(mib << 20))
        os.fsync(file.fileno())
def work(seconds, mib):
    burn(seconds)
    write(mib)
    if os.fork() == 0:                  # a child that is waited for: its use is its parent's
        burn(seconds)
        os._exit(0)
    os.wait()
"""
"""A program that uses CPU time itself and by a child that has gone, and writes to disk."""

USED_NOTHING_BEFORE = """
totals, (main,) = run.totals, [one for one in run.processes if one.pid == pid]
assert totals["cpu_seconds"] < 0.6, totals
assert totals["write_bytes"] < 10 * MIB, totals
assert totals["write_chars"] < 10 * MIB, totals
assert main.cpu_seconds < 0.6, main
assert (main.write_chars or 0) < 10 * MIB, main
assert main.minor_faults < 5000, main
"""
"""What was used in a recorded time in which 0.2 s and 2 MiB were, after 1.6 s and 60 MiB before it."""


def test_what_was_used_before_attach_is_not_of_the_run(tmp_path: Path) -> None:
    finish(
        start(
            f"""
            import subprocess
            program = {BUSY!r} + "work(0.8, 60); print('ready', flush=True); input(); work(0.1, 2); "
            program += "print('done', flush=True); input()"
            other = subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            assert other.stdout.readline() == b"ready\\n"
            with attach(other.pid, "run", **fast) as run:
                other.stdin.write(b"\\n"), other.stdin.flush()
                assert other.stdout.readline() == b"done\\n"
                time.sleep(0.1)
            pid = other.pid
            other.communicate(b"\\n")
            exec({USED_NOTHING_BEFORE!r})
            assert totals["cpu_seconds"] > 0.15, totals
            assert totals["write_chars"] > 1 * MIB, totals
            """,
            tmp_path,
        )
    )


def test_what_was_used_before_watch_is_not_of_the_run(tmp_path: Path) -> None:
    finish(
        start(
            f"""
            exec({BUSY!r})
            work(0.8, 60)
            with watch("run", **fast) as run:
                work(0.1, 2)
            pid = os.getpid()
            exec({USED_NOTHING_BEFORE!r})
            assert totals["cpu_seconds"] > 0.15, totals
            """,
            tmp_path,
        )
    )


def test_live_metrics_of_the_tree_begin_with_the_run(tmp_path: Path) -> None:
    """A counter that begins with what was used before would count it again in every run of one notebook."""
    finish(
        start(
            f"""
            exec({BUSY!r})
            work(0.8, 60)
            with watch("run", textfile=os.getcwd() + "/metrics.prom", metric_interval=0.2, metrics="all", **fast) as run:
                work(0.1, 2)
                until = time.monotonic() + 60
                while "process_cpu_time" not in (during := open("metrics.prom").read() if os.path.exists("metrics.prom") else ""):
                    assert time.monotonic() < until, during
                    time.sleep(0.05)
                time.sleep(0.5)
                before = [line.split() for line in open("metrics.prom") if line.startswith("process_cpu_time_seconds_total")]
            assert sum(float(words[1]) for words in before) > 0.8, before
            lines = [line.split() for line in open("metrics.prom") if not line.startswith("#")]
            def total(name):
                return sum(float(words[1]) for words in lines if words[0].startswith(name))
            assert 0.15 < total("memwatch_tree_cpu_time_seconds_total") < 0.6, lines
            assert total("memwatch_tree_disk_io_bytes_total") < 10 * MIB, lines
            """,
            tmp_path,
        )
    )


def test_under_hostile_settings_of_the_interpreter(tmp_path: Path) -> None:
    """Modules of the working directory, warnings as errors: the monitor is not the program's to break."""
    (tmp_path / "click.py").write_text("raise SystemExit(7)")
    (tmp_path / "psutil.py").write_text("raise SystemExit(7)")
    finish(start('with watch("run", **fast): time.sleep(0.1)', tmp_path, PYTHONWARNINGS="error"))
    assert info(tmp_path / "run")["state"] == "finished"


@pytest.mark.parametrize("flag", ["-I", "-E"])
def test_a_program_that_ignores_the_variables_of_python(flag: str, tmp_path: Path) -> None:
    """Its monitor ignores them too; otherwise it would not find Python's own library."""
    script = tmp_path / "program.py"
    script.write_text(
        f"import sys\nsys.path.append({str(ROOT)!r})\n"
        "import otel_memwatch\nwith otel_memwatch.watch('run', report=False, plot=False): pass\n"
    )
    done = subprocess.run(
        [sys.executable, flag, script],
        cwd=tmp_path,
        env=environment(PYTHONHOME="/nonexistent"),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "recording stopped by the program" in done.stderr
    assert info(tmp_path / "run")["state"] == "finished"


class TestMark:
    """`otel-memwatch mark` in a shell script."""

    def shell(self, script: str, directory: Path, **variables: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["sh", "-c", script.replace("MARK", " ".join([*PROGRAM, "mark"]))],
            env=environment(PYTHONPATH=str(ROOT), **variables),
            cwd=directory,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    def test_phases_end_one_another(self, tmp_path: Path) -> None:
        done = self.shell(
            """
            MARK 'load "data"'
            dd if=/dev/zero of=big bs=1M count=5 2>/dev/null
            MARK train
            MARK --end
            MARK --end
            MARK left-open
            """,
            tmp_path,
            OTEL_MEMWATCH_RUN_DIR=str(tmp_path),
            TRACEPARENT="00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        )
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
        (path,) = tmp_path.glob("operations-mark-*.jsonl")
        load, train, left = read_file(path)
        assert (load.name, train.name, left.name) == ('load "data"', "train", "left-open")
        assert load.closing["time"] == train.opening["time"]
        assert load.closing["write_chars"] >= 5 * MIB
        assert train.closing["write_chars"] < MIB
        assert load.closing["cpu_user"] + load.closing["cpu_system"] >= 0
        assert load.closing["peak"] is None
        assert left.closing == {}
        assert {one.opening["trace"] for one in (load, train, left)} == {"0af7651916cd43dd8448eb211c80319c"}
        assert load.opening["parent"] == "b7ad6b7169203331"

    def test_outside_a_run_it_is_nothing(self, tmp_path: Path) -> None:
        done = self.shell("MARK a && MARK --end", tmp_path)
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
        assert list(tmp_path.iterdir()) == []

    def test_a_run_directory_that_is_gone_fails_no_script(self, tmp_path: Path) -> None:
        done = self.shell("MARK a", tmp_path, OTEL_MEMWATCH_RUN_DIR="/nonexistent/run")
        assert done.returncode == 0
        assert done.stderr.count("\n") == 1

    @pytest.mark.parametrize("words", ["", "a --end", "--nonsense"])
    def test_misuse_is_reported_in_a_sentence(self, tmp_path: Path, words: str) -> None:
        done = self.shell(f"MARK {words}", tmp_path)
        assert done.returncode == 2
        assert done.stderr.count("\n") == 1


def test_an_exec_does_not_end_the_recording(tmp_path: Path) -> None:
    """The process goes on as another program, which had the peak; no call has ended the recording."""
    program = """
        run = watch("run", **fast)
        after = "kept = bytearray(70 << 20); import time; time.sleep(0.5)"
        os.execv(sys.executable, [sys.executable, "-c", after])
    """
    finish(start(program, tmp_path))
    wait_for(lambda: load_run(tmp_path / "run").state == "finished")
    run = load_run(tmp_path / "run")
    assert run.ending.reason == "ended"
    assert run.peaks.process is not None
    assert 70 << 20 < run.peaks.process.bytes < 140 << 20
    assert run.peaks.process.high is None or run.peaks.process.high < 200 << 20


def test_the_latest_run_is_the_one_that_this_program_recorded(tmp_path: Path) -> None:
    program = """
        from otel_memwatch import load_run
        with watch("older", **fast):
            pass
        with watch("elsewhere/mine", **fast):
            pass
        print(load_run().path)
    """
    assert finish(start(program, tmp_path)).strip().endswith("elsewhere/mine")
