"""Targets that behave as no program should, and monitors inside monitors."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

from otel_memwatch.runtime.kernel import rss_error
from tests.support.torture import Report, needs_root, trial
from tests.support.wrapped import MIB, PROGRAM, work

ROOT = Path(__file__).resolve().parents[2]


def python(program: str) -> list[str]:
    """argv of a Python program that can import the package."""
    prelude = f"import sys; sys.path.insert(0, {str(ROOT)!r})\n" if (ROOT / "otel_memwatch").is_dir() else ""
    return [sys.executable, "-c", prelude + textwrap.dedent(program)]


def operations(path: Path) -> list[str]:
    """Names of all operations in the report."""
    return [operation["name"] for operation in Report(path).json["operations"]]


def test_it_closes_all_descriptors(tmp_path: Path) -> None:
    """In the midst of its operations too, and opens other files at once under the numbers that were ours."""
    program = """
        import os
        from otel_memwatch import operation
        place = os.path.join(os.environ["TMPDIR"], "own")
        with operation("before"):
            os.closerange(3, 1 << 16)
            files = [os.open(place, os.O_RDWR | os.O_CREAT) for _ in range(900)]
            kept = bytearray(20 << 20)
        with operation("after"):
            pass
        size = os.path.getsize(place)
        os.unlink(place)
        raise SystemExit(7 if size == 0 else 8)
    """
    with trial(tmp_path) as run:
        outcome = run.wrap(python(program))
        assert outcome.code == 7
        assert "after" in operations(run.out)
        assert run.report().json["peaks"]["main"]["bytes"] >= 20 * MIB


def test_it_clears_its_environment(tmp_path: Path) -> None:
    """Its children do not know of the run: they are counted all the same."""
    program = """
        import os, subprocess, sys
        from otel_memwatch import operation
        with operation("outer"):
            os.environ.clear()
            code = subprocess.run([sys.executable, "-I", "-c", "x = bytearray(40 << 20); raise SystemExit(3)"]).returncode
        os.execve("/bin/sh", ["sh", "-c", f"exit {code}"], {})
    """
    with trial(tmp_path) as run:
        assert run.wrap(python(program)).code == 3
        assert operations(run.out) == ["outer"]
        assert (run.report().json["peaks"]["process"]["high"] or 0) >= 40 * MIB


def test_it_becomes_another_program_again_and_again(tmp_path: Path) -> None:
    program = """
        import os, sys
        from otel_memwatch import operation
        step = int(sys.argv[1])
        with operation(f"step {step}"):
            kept = bytearray((step + 1) * 10 << 20)
        if step < 3:
            os.execv(sys.executable, [sys.executable, "-c", PROGRAM, str(step + 1)])
        raise SystemExit(5)
    """
    with trial(tmp_path) as run:
        source = python(program)[2].replace(
            "import os, sys\n", "import os, sys\nPROGRAM = open(sys.argv[2]).read()\n"
        )
        source = source.replace("str(step + 1)]", "str(step + 1), sys.argv[2]]")
        (tmp_path / "program.py").write_text(source)
        assert run.wrap([sys.executable, "-c", source, "0", str(tmp_path / "program.py")]).code == 5
        assert operations(run.out) == [f"step {step}" for step in range(4)]
        assert run.report().json["peaks"]["main"]["bytes"] >= 40 * MIB


def test_it_drops_its_privileges_in_the_middle_of_an_operation(tmp_path: Path) -> None:
    """What it opened as root stays open: the operation is closed, and so are those after it."""
    needs_root()
    program = """
        import os
        from otel_memwatch import operation
        with operation("as root"):
            os.setgroups([]); os.setgid(65534); os.setuid(65534)
            kept = bytearray(30 << 20)
        with operation("as nobody"):
            pass
        if os.fork() == 0:
            with operation("as a child of nobody"):
                pass
            os._exit(0)
        os.wait()
        raise SystemExit(6)
    """
    with trial(tmp_path) as run:
        bare = run.run(python(program))
        outcome = run.run(run.command(python(program)))
        assert outcome.code == bare.code == 6, outcome.err
        assert "Traceback" not in outcome.err
        assert operations(run.out) == ["as root", "as nobody"]
        assert "no longer recorded" in outcome.err or "not recorded" in outcome.err or "cannot" in outcome.err
        peak = run.report().json["peaks"]["main"]
        assert (peak["high"] or peak["bytes"]) >= 30 * MIB


def test_it_becomes_unreadable(tmp_path: Path) -> None:
    """Not dumpable: its files in /proc belong to root from then on."""
    with trial(tmp_path) as run:
        assert run.wrap(work("a10 s200 d a50 f s200 x8")).code == 8
        peak = run.report().json["peaks"]["main"]
        assert (peak["high"] or peak["bytes"]) >= 60 * MIB


def test_it_makes_others_unreadable_for_an_unprivileged_monitor(tmp_path: Path) -> None:
    """Descriptors that were open stay readable; what cannot be read is not zero."""
    needs_root()
    tmp_path.chmod(0o777)
    reading = ["--inh-caps", "+dac_read_search", "--ambient-caps", "+dac_read_search"]
    user = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups", *reading]
    with trial(tmp_path) as run:
        outcome = run.run([*user, *run.command(work("a10 s300 d a50 f s300 x8"), "--interval", "0.05")])
        assert outcome.code == 8, outcome.err
        peak = run.report().json["peaks"]["main"]
        assert (peak["high"] or peak["bytes"]) >= 60 * MIB


def test_it_kills_its_whole_group(tmp_path: Path) -> None:
    """Us included. What was recorded is a record."""
    with trial(tmp_path) as run:
        wrapped = run.start(run.command(["sh", "-c", "sleep 0.6; kill -9 0"], "--interval", "0.02"))
        outcome = run.wait(wrapped)
        assert outcome.code == -signal.SIGKILL
        assert run.report().state == "incomplete"
        assert run.report().ticks >= 5
        run.outlived = True


def test_it_signals_its_parent(tmp_path: Path) -> None:
    """Programs that tell their parent that they are ready, or to end: we are the parent, and do not die of it."""
    script = "kill -USR1 $PPID; kill -TERM $PPID; kill -HUP $PPID; sleep 0.3; exit 9"
    with trial(tmp_path) as run:
        outcome = run.run(run.command(["sh", "-c", script]))
        assert outcome.code == 9, outcome.err
        assert run.report().ended["exit_code"] == 9


def test_it_lowers_the_limits_of_its_parent(tmp_path: Path) -> None:
    """Only the program itself can do this: still no harm is done."""
    program = """
        import os, resource, time
        resource.prlimit(os.getppid(), resource.RLIMIT_NOFILE, (10, 10))
        time.sleep(0.3)
        raise SystemExit(9)
    """
    with trial(tmp_path) as run:
        outcome = run.run(run.command(python(program), "--interval", "0.02"))
        assert outcome.code == 9, outcome.err


def test_it_writes_nonsense_into_the_run_directory(tmp_path: Path) -> None:
    """Lines that are no operations, no JSON, no end: counted, reported, left out."""
    program = """
        import os, time
        time.sleep(0.3)
        place = os.environ.get("OTEL_MEMWATCH_RUN_DIR", os.environ["TMPDIR"])
        from otel_memwatch import operation
        with operation("sound"):
            with open(os.path.join(place, "operations-1.jsonl"), "wb") as file:
                file.write(b'{"open": 1, "time": "x"}\\n[[[[\\n' + b"[" * 200_000 + b"\\n" + os.urandom(100_000))
        with open(os.path.join(place, "samples.jsonl"), "ab") as file:
            file.write(b'[9e99, 1]\\nnonsense\\n{"schema": 1, "columns": 3}\\n[]\\n')
        with open(os.path.join(place, "processes.jsonl"), "ab") as file:
            file.write(b'{"event": "exit", "pid": 1e300, "time": 0, "start": 0}\\n' * 10)
    """
    with trial(tmp_path) as run:
        outcome = run.run(run.command(python(program)))
        assert outcome.code == 0
        report = run.report()
        assert "sound" in report.text
        assert "could not be read" in report.text


def test_it_rewrites_the_run_file(tmp_path: Path) -> None:
    """run.json is the monitor's: what the target puts there is replaced."""
    program = """
        import os, time
        time.sleep(0.3)
        place = os.path.join(os.environ["OTEL_MEMWATCH_RUN_DIR"], "run.json")
        os.unlink(place)
        os.symlink("/etc/passwd", place)
        raise SystemExit(2)
    """
    before = Path("/etc/passwd").read_bytes()
    with trial(tmp_path) as run:
        outcome = run.run(run.command(python(program)))
        assert outcome.code == 2
        assert Path("/etc/passwd").read_bytes() == before
        assert not (run.out / "run.json").is_symlink()
        assert run.report().ended["exit_code"] == 2


# -- monitors in monitors


def test_a_monitor_in_a_monitor_in_a_monitor(tmp_path: Path) -> None:
    """Each has a separate record; the innermost one has the operations, all have the memory."""
    program = """
        from otel_memwatch import operation
        with operation("inmost"):
            kept = bytearray(50 << 20)
        raise SystemExit(11)
    """
    places = [tmp_path / name for name in ("outer", "middle", "inner")]
    with trial(tmp_path) as run:
        argv = python(program)
        for place in reversed(places):
            argv = [*PROGRAM, "wrap", "--out", str(place), "--no-plot", "--", *argv]
        outcome = run.run(argv)
        assert outcome.code == 11, outcome.err
        assert [operations(place) for place in places] == [[], [], ["inmost"]]
        for place in places:
            report = Report(place)
            assert report.ended["exit_code"] == 11
            # Those around the innermost see that another program resets the watermark: what it was in between they cannot know.
            assert report.json["peaks"]["process"]["low"] <= 90 * MIB
            assert (report.json["peaks"]["process"]["high"] or 1 << 62) >= 50 * MIB
        traces = [json.loads((place / "run.json").read_text())["trace"] for place in places]
        assert len({trace["trace_id"] for trace in traces}) == 1
        assert traces[1]["parent_span_id"] == traces[0]["span_id"]
        assert traces[2]["parent_span_id"] == traces[1]["span_id"]


def test_a_wrapped_program_that_watches_itself_and_wraps_others(tmp_path: Path) -> None:
    program = f"""
        import subprocess, sys
        from otel_memwatch import operation, watch
        with watch({str(tmp_path / "own")!r}, plot=False) as run:
            with operation("watched"):
                kept = bytearray(30 << 20)
            inner = [sys.executable, "-m", "otel_memwatch", "wrap", "--out", {str(tmp_path / "inner")!r}, "--no-plot", "--quiet"]
            code = subprocess.run([*inner, "--", "sh", "-c", "exit 4"]).returncode
        raise SystemExit(code)
    """
    with trial(tmp_path) as run:
        outcome = run.run(run.command(python(program)), env=run.variables(PYTHONPATH=str(ROOT)))
        assert outcome.code == 4, outcome.err
        assert Report(tmp_path / "inner").ended["exit_code"] == 4
        found = [
            name for place in (run.out, tmp_path / "own") if place.exists() for name in operations(place)
        ]
        assert found.count("watched") == 1


def test_the_target_of_an_attached_monitor_is_killed(tmp_path: Path) -> None:
    """`attach` ends with its target, and by a signal sent to it; the target does not notice either."""
    with trial(tmp_path) as run:
        for step, number in enumerate((signal.SIGKILL, signal.SIGTERM, signal.SIGINT)):
            run.out = tmp_path / f"run-{step}"
            target = run.start(work("a20 s60000"))
            attached = run.start([*PROGRAM, "attach", str(target.pid), "--out", str(run.out), "--no-plot"])
            run.recorded()
            os.kill(target.pid if step == 0 else attached.pid, number)
            assert run.wait(attached).code == 0
            assert (target.poll() is None) == (step > 0)
            target.kill()
            target.wait()
            report = run.report()
            assert report.state == "finished"
            assert report.json["peaks"]["main"]["bytes"] >= 20 * MIB - rss_error()


def test_two_monitors_of_one_process(tmp_path: Path) -> None:
    with trial(tmp_path) as run:
        target = run.start(work("a20 s60000"))
        attached = []
        for step in range(2):
            run.out = tmp_path / f"run-{step}"
            attached.append(
                run.start([*PROGRAM, "attach", str(target.pid), "--out", str(run.out), "--no-plot"])
            )
            run.recorded()
        target.kill()
        for process in attached:
            assert run.wait(process).code == 0
        target.wait()
        for step in range(2):
            peak = Report(tmp_path / f"run-{step}").json["peaks"]["main"]
            assert peak["low"] is None or peak["low"] <= 22 * MIB
            assert peak["high"] is None or peak["high"] >= 20 * MIB


def test_the_monitor_of_watch_is_killed(tmp_path: Path) -> None:
    """The program goes on, with its operations; the record is incomplete and loads."""
    program = f"""
        import json, os, signal, time
        from otel_memwatch import operation, watch
        run = watch({str(tmp_path / "run")!r})
        with operation("before"):
            pass
        monitor = json.load(open({str(tmp_path / "run" / "run.json")!r}))["monitor"]["pid"]
        os.kill(monitor, signal.SIGKILL)
        with operation("after"):
            kept = bytearray(10 << 20)
        run.stop()
        print("lived")
    """
    with trial(tmp_path) as run:
        done = run.run(python(program), env=run.variables(PYTHONPATH=str(ROOT)))
        assert (done.code, done.out) == (0, "lived\n"), done.err
        assert operations(run.out) == ["before", "after"]
        assert run.report().state == "incomplete"


def test_a_report_of_a_run_that_goes_on(tmp_path: Path) -> None:
    """Read in the middle of being written, many times: never damage, never a traceback."""
    with trial(tmp_path) as run:
        wrapped = run.start(run.command(work("( a5 s40 ) w " * 20 + "x3"), "--interval", "0.001"))
        run.recorded()
        while wrapped.poll() is None:
            report = Report(run.out)
            assert report.state in ("running", "finished")
            assert "could not be read" not in report.text
        assert run.wait(wrapped).code == 3
        subprocess.run([*PROGRAM, "report", str(run.out)], check=True, capture_output=True)
