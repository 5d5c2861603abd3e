"""Nothing that the surroundings lack, or lose while a run goes on, is the target's trouble."""

from __future__ import annotations

import json
import os
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from otel_memwatch.runtime.kernel import rss_error
from tests.support.control_group import Group, group
from tests.support.seccomp import NUMBERS, needs_filter, refuse
from tests.support.torture import LONG, NOBODY, alive, file_system, needs_root, trial, unprivileged, wait_for
from tests.support.wrapped import MIB, PROGRAM, work

REUSED_PIDS = Path(__file__).parents[1] / "programs" / "reused_pids.py"


# -- the disk


def test_a_disk_that_fills_up_while_we_record(tmp_path: Path) -> None:
    """Another program fills it: one line, a mark, and the target goes on."""
    with file_system(tmp_path / "disk", "size=600k") as disk, trial(tmp_path) as run:
        run.out = disk / "run"
        wrapped = run.start(run.command(work("s3000 x7"), "--interval", "0.002", "--no-report"))
        run.recorded(20)
        with pytest.raises(OSError, match="No space"):
            (disk / "ballast").write_bytes(bytes(MIB))
        outcome = run.wait(wrapped)
        assert outcome.code == 7
        assert len([line for line in outcome.ours if "No space left" in line]) == 1
        report = run.report()
        assert "No space left" in json.dumps(run.info["marks"])
        assert "No space left" in " ".join(report.text.split())  # lines are wrapped
        assert report.ended["exit_code"] == 7
        assert report.ticks >= 20


def test_a_disk_that_becomes_read_only(tmp_path: Path) -> None:
    """As after an error of the device. What was written before is a run."""
    with file_system(tmp_path / "disk", "size=8m") as disk, trial(tmp_path) as run:
        run.out = disk / "run"
        wrapped = run.start(run.command(work("s900 x7"), "--interval", "0.01"))
        run.recorded(5)
        # Descriptors that are open for writing keep a file system from being remounted: they are taken away first.
        subprocess.run(["mount", "-o", "remount,ro", disk], check=False, capture_output=True)
        subprocess.run(["mount", "--bind", "-o", "ro", disk, disk], check=True)
        subprocess.run(["mount", "-o", "remount,ro,bind", disk], check=True)
        try:
            outcome = run.wait(wrapped)
        finally:
            subprocess.run(["umount", "-l", disk], check=True)
        assert outcome.code == 7
        assert "Traceback" not in outcome.err
        assert run.report().ticks >= 5


# -- the run directory


def test_the_run_directory_is_removed(tmp_path: Path) -> None:
    """One line reports that the record is lost; nothing of it comes back."""
    with trial(tmp_path) as run:
        wrapped = run.start(run.command(work("s600 x7"), "--interval", "0.01"))
        run.recorded()
        while run.out.exists():  # a file may be written just when the directory is to go
            shutil.rmtree(run.out, ignore_errors=True)
        outcome = run.wait(wrapped)
        assert outcome.code == 7
        assert len(outcome.ours) == 2  # the trouble, and the summary's first line
        assert "removed or replaced" in outcome.err
        assert "the record is lost" in outcome.err
        assert not run.out.exists()


def test_the_run_directory_is_moved(tmp_path: Path) -> None:
    """The record is completed where it is now; its old path is left alone, whatever stands there."""
    with trial(tmp_path) as run:
        wrapped = run.start(run.command(work("s600 x7"), "--interval", "0.01", plot=True))
        run.recorded()
        other = tmp_path / "somebody-else's"
        other.mkdir()
        run.out.rename(tmp_path / "moved")
        run.out.symlink_to(other)
        outcome = run.wait(wrapped)
        assert outcome.code == 7
        assert list(other.iterdir()) == []
        run.out = tmp_path / "moved"
        report = run.report()
        assert (report.state, report.ended["exit_code"]) == ("finished", 7)
        assert "removed or replaced" in json.dumps(run.info["marks"])


def test_files_of_the_run_directory_are_removed(tmp_path: Path) -> None:
    with trial(tmp_path) as run:
        wrapped = run.start(run.command(work("s600 x7"), "--interval", "0.01"))
        run.recorded()
        for path in run.out.iterdir():
            path.unlink()
        assert run.wait(wrapped).code == 7
        assert run.report().ended["exit_code"] == 7


def test_foreign_things_in_the_run_directory(tmp_path: Path) -> None:
    """Pipes, links, directories where files of operations would be: no reader waits for them or follows them."""
    with trial(tmp_path) as run:
        wrapped = run.start(run.command(work("s800 x7"), "--interval", "0.01"))
        run.recorded()
        os.mkfifo(run.out / "operations-11.jsonl")
        (run.out / "operations-12.jsonl").symlink_to("/etc/passwd")
        (run.out / "operations-13.jsonl").mkdir()
        (run.out / "operations-14.jsonl").symlink_to("/dev/zero")
        (run.out / "operations-15.jsonl").write_bytes(b"\xff\x00{" * 1000)
        (run.out / "operations-.jsonl").write_text('{"open": 1, "time": 1e400}\n[]\n')
        outcome = run.wait(wrapped)
        assert outcome.code == 7
        assert "root:" not in run.report().text


# -- places


_NO_TEMPORARY_DIRECTORY = (
    "for d in /tmp /var/tmp /usr/tmp; do "
    "[ ! -d $d ] || { mount --bind $d $d && mount -o remount,bind,ro $d; }; done; "
)
"""Shell commands for a mount namespace: no directory that Python falls back to is writable."""


@pytest.mark.parametrize("root", [False, True])
def test_no_place_to_record(tmp_path: Path, root: bool) -> None:
    """Neither the working directory nor a temporary one is writable: the command runs unrecorded, after one line."""
    needs_root()
    with trial(tmp_path) as run:
        command = run.command(["sh", "-c", "echo $PPID; exit 4"], out=False)
        # Not even root can make a directory in /proc.
        script = f'{_NO_TEMPORARY_DIRECTORY} cd /{"proc" if root else ""} && exec "$@"'
        command = ["sh", "-c", script, "sh", *(command if root else unprivileged(command))]
        outcome = run.run(["unshare", "--mount", *command], env=run.variables(TMPDIR="/nowhere"))
        assert outcome.code == 4, outcome.err
        assert len(outcome.ours) == 1
        assert "nothing is recorded" in outcome.err
        left = list(Path("/sys/fs/cgroup").rglob(f"memwatch-{int(outcome.out)}-*"))
        assert left == [], "the run's cgroup is removed, although the run has no record"


def test_a_working_directory_that_may_not_be_written(tmp_path: Path) -> None:
    """Then the record is in the temporary directory, in a place of the user's own."""
    needs_root()
    with trial(tmp_path) as run:
        tmp_path.chmod(0o755)
        outcome = run.run(unprivileged(run.command(["sh", "-c", "exit 4"], out=False)), cwd="/")
        assert outcome.code == 4
        (runs,) = run.temporary.iterdir()
        assert runs.name == f"memwatch-runs-{NOBODY}"
        assert runs.stat().st_mode & 0o777 == 0o700
        (run.out,) = runs.iterdir()
        assert run.report().ended["exit_code"] == 4
        shutil.rmtree(runs)


def test_a_working_directory_that_is_gone(tmp_path: Path) -> None:
    with trial(tmp_path) as run:
        for options in (["--out", str(run.out)], []):
            gone = tmp_path / "gone"
            gone.mkdir()
            command = [*PROGRAM, "wrap", *options, "--", *work("a5 s400 x4")]
            script = f'cd "{gone}" && rmdir "{gone}" && exec "$@"'
            outcome = run.run(["sh", "-c", script, "sh", *command])
            assert outcome.code == 4, outcome.err
            assert "Traceback" not in outcome.err
            assert "could not be made" not in outcome.err
            assert "otel-memwatch report /" in outcome.err, "the summary names the record by its whole path"
            if not options:
                (runs,) = run.temporary.iterdir()
                (run.out,) = runs.iterdir()
            assert run.report().ended["exit_code"] == 4
            if not options:
                shutil.rmtree(runs)


@pytest.mark.parametrize("home", [None, "/nonexistent", "/proc"])
def test_no_home(tmp_path: Path, home: str | None) -> None:
    """The picture is drawn all the same; no cache stays in the temporary directory."""
    with trial(tmp_path) as run:
        variables = run.variables()
        variables.pop("HOME", None)
        if home is not None:
            variables |= {"HOME": home, "XDG_CONFIG_HOME": home, "XDG_CACHE_HOME": home}
        outcome = run.run(run.command(work("a5 s500"), plot=True), env=variables)
        assert outcome.code == 0
        assert (run.out / "memory.png").exists()
        assert "atplotlib" not in outcome.err


@pytest.mark.parametrize(
    "closing",
    [">&-", "2>&-", "<&-", "<&- >&- 2>&-", ">/dev/full", "2>/dev/full"],
    ids=lambda words: words.replace("/", "_"),
)
def test_streams_that_are_closed_or_full(tmp_path: Path, closing: str) -> None:
    with trial(tmp_path) as run:
        script = ["sh", "-c", f'exec "$@" {closing}', "sh"]
        argv = work("a5 s300 x9")
        bare = run.run([*script, *argv])
        outcome = run.run([*script, *run.command(argv)])
        assert outcome.code == bare.code == 9
        assert run.report().ended["exit_code"] == 9


def test_the_plainest_locale(tmp_path: Path) -> None:
    """Names and arguments that are no text in it pass through unharmed."""
    name = os.fsdecode(b"\xe9\xff\xf0\x9f\x98\x80")
    with trial(tmp_path) as run:
        run.out = tmp_path / name
        variables = run.variables(
            LC_ALL="C", PYTHONUTF8="0", PYTHONCOERCECLOCALE="0", PYTHONIOENCODING="ascii"
        )
        outcome = run.run(run.command(["printf", "%s", name]), env=variables)
        assert (outcome.code, outcome.out) == (0, name)
        assert run.report().state == "finished"
        told = run.run([*PROGRAM, "report", str(run.out)], env=variables)
        assert told.code == 0
        assert "Traceback" not in told.err


# -- limits


def _limit(which: int, value: int) -> Callable[[], None]:
    return lambda: resource.setrlimit(which, (value, value))


@pytest.mark.parametrize("most", [9, 12, 16, 24, 64])
def test_few_descriptors(tmp_path: Path, most: int) -> None:
    """With 64 everything works; with fewer what has to be left out is reported. The target's limit stays."""
    children = "( a4 s400 ) " * 20
    with trial(tmp_path) as run:
        command = run.command(work(f"{children} s200 w x4"), "--interval", "0.02")
        outcome = run.run(command, preexec_fn=_limit(resource.RLIMIT_NOFILE, most))
        assert outcome.code == 4, outcome.err
        assert "Traceback" not in outcome.err
        if most == 64:
            report = run.report()
            assert report.json["totals"]["processes"] == 21
            assert "oo many open files" not in outcome.err


def test_too_few_descriptors_to_start_anything(tmp_path: Path) -> None:
    """One sentence and a shell's exit code; the command has not run."""
    with trial(tmp_path) as run:
        command = run.command(["sh", "-c", "echo ran; exit 4"])
        outcome = run.run(command, preexec_fn=_limit(resource.RLIMIT_NOFILE, 8))
        assert (outcome.code, outcome.out) in ((126, ""), (4, "ran\n"))
        assert "Traceback" not in outcome.err
        assert outcome.code == 4 or "Too many open files" in outcome.err


def test_no_more_processes_or_threads(tmp_path: Path) -> None:
    """Where the system allows us neither witness nor thread, the target runs."""
    needs_root()
    with trial(tmp_path) as run:
        tmp_path.chmod(0o777)
        limit = _limit(resource.RLIMIT_NPROC, 2)
        command = unprivileged(run.command(["sh", "-c", "exit 4"]))
        outcome = run.run(command, preexec_fn=limit)
        assert "Traceback" not in outcome.err
        assert outcome.code in (4, 126), outcome.err


def test_files_that_may_not_grow(tmp_path: Path) -> None:
    """RLIMIT_FSIZE ends the recording, not the monitor, not the target."""
    with trial(tmp_path) as run:
        command = run.command(work("s600 x4"), "--interval", "0.002", "--no-report")
        outcome = run.run(command, preexec_fn=_limit(resource.RLIMIT_FSIZE, 16384))
        assert outcome.code == 4
        assert "File too large" in outcome.err
        assert run.report().ticks > 5


# -- the kernel's view


def test_other_processes_are_hidden(tmp_path: Path) -> None:
    """/proc with hidepid=2, as an unprivileged user: the own tree is seen as ever."""
    needs_root()
    with trial(tmp_path) as run:
        tmp_path.chmod(0o777)
        command = unprivileged(run.command(work("( a30 s500 ) ( a20 s500 ) s300 w x4"), "--interval", "0.02"))
        script = 'mount -t proc -o hidepid=2 proc /proc && exec "$@"'
        outcome = run.run(["unshare", "--mount", "sh", "-c", script, "sh", *command])
        assert outcome.code == 4, outcome.err
        report = run.report()
        assert report.json["totals"]["processes"] == 3
        peak = report.json["peaks"]["process"]
        # A watermark may be off by the counters' error, and its lower bound allows for as much again.
        assert 30 * MIB - 2 * rss_error() <= peak["low"] <= 33 * MIB, peak
        assert 30 * MIB <= (peak["high"] or 1 << 40) <= 40 * MIB, peak


def test_no_proc_at_all(tmp_path: Path) -> None:
    """Nothing can be read: the target runs, and we say why there is no record of it."""
    needs_root()
    with trial(tmp_path) as run:
        command = run.command(["sh", "-c", "exit 4"])
        script = 'mount -t tmpfs none /proc && exec "$@"'
        outcome = run.run(["unshare", "--mount", "sh", "-c", script, "sh", *command])
        assert outcome.code == 4, outcome.err
        assert "Traceback" not in outcome.err


def test_numbers_of_processes_are_used_again(tmp_path: Path) -> None:
    """In a pid namespace whose next number is set back again and again: no process is taken for another."""
    needs_root()
    with trial(tmp_path) as run:
        command = run.command([sys.executable, str(REUSED_PIDS)], "--interval", "0.01")
        outcome = run.run(["unshare", "--pid", "--fork", "--mount-proc", *command])
        assert outcome.code == 0, outcome.err
        asked, different = map(int, outcome.out.split())
        assert different < asked, "the numbers were not used again"
        seen = [json.loads(line) for line in (run.out / "processes.jsonl").read_text().splitlines()]
        births = {(line["pid"], line["start"]) for line in seen if line["event"] == "seen"}
        assert len(births) == asked + 1
        assert run.report().json["totals"]["processes"] == asked + 1


def test_many_processes(tmp_path: Path) -> None:
    """All there at once; the budget stretches the reading, the record says so."""
    number = 5000 if LONG else 1200
    with trial(tmp_path) as run:
        until = f"[ $(grep -c seen $OTEL_MEMWATCH_RUN_DIR/processes.jsonl) -gt {number} ]"
        script = f'for i in $(seq {number}); do sleep 99 & pids="$pids $!"; done; until {until}; do sleep 0.2; done; kill $pids'
        outcome = run.run(run.command(["sh", "-c", f"{script}; wait; exit 4"]))
        assert outcome.code == 4
        report = run.report()
        assert report.json["totals"]["processes"] >= number


def test_the_clock_is_set(tmp_path: Path) -> None:
    """The wall clock leaps while we record (libfaketime is not needed: a preloaded clock_gettime does it)."""
    compiler = shutil.which("cc")
    assert compiler, "the tests need a C compiler (Debian package gcc)"
    source = tmp_path / "leap.c"
    source.write_text("""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>
static int (*real)(clockid_t, struct timespec *);
static long calls;
int clock_gettime(clockid_t clock, struct timespec *t) {
    if (!real) real = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    int result = real(clock, t);
    if (clock == CLOCK_REALTIME) t->tv_sec += ++calls % 3 * 86400 - 86400;
    return result;
}
""")
    subprocess.run([compiler, "-shared", "-fPIC", "-o", tmp_path / "leap.so", source], check=True)
    with trial(tmp_path) as run:
        variables = run.variables(LD_PRELOAD=str(tmp_path / "leap.so"))
        outcome = run.run(run.command(["sleep", "0.8"], "--interval", "0.05"), env=variables)
        assert outcome.code == 0
        report = run.report()
        assert 0.7 < report.json["run"]["seconds"] < 30
        assert report.ticks >= 8
        assert report.json["quality"]["longest_gap"] < 30


def test_a_time_namespace(tmp_path: Path) -> None:
    """Where boot was a month ago in the target's view as in ours: starts and ends of processes stay in order."""
    needs_root()
    probe = subprocess.run(
        ["unshare", "--time", "--monotonic", "1000", "true"], capture_output=True, check=False
    )
    if probe.returncode:
        pytest.skip("the kernel has no time namespaces")
    with trial(tmp_path) as run:
        command = run.command(work("( a20 s300 ) w x4"), "--interval", "0.02")
        shift = ["unshare", "--time", "--monotonic", "2600000", "--boottime", "2700000", "--fork"]
        outcome = run.run([*shift, *command])
        assert outcome.code == 4, outcome.err
        report = run.report()
        assert 0.2 < report.json["run"]["seconds"] < 30
        assert report.json["totals"]["processes"] == 2


# -- control groups


def test_the_own_control_group_is_removed(tmp_path: Path) -> None:
    """Another program moves the target out of it and takes it away: the record is completed without."""
    needs_root()
    with group() as elsewhere, trial(tmp_path) as run:
        wrapped = run.start(run.command(work("a20 s1200 x4"), "--interval", "0.02", "--cgroup", "require"))
        target = run.recorded(10)
        (elsewhere.path / "cgroup.procs").write_text(str(target))
        Path(run.info["own_cgroup"]).rmdir()
        outcome = run.wait(wrapped)
        assert outcome.code == 4, outcome.err
        assert "Traceback" not in outcome.err
        report = run.report()
        assert report.state == "finished", outcome.err
        assert report.ended["exit_code"] == 4
        assert "cgroup" in report.text


def test_the_groups_of_killed_monitors_are_swept(tmp_path: Path) -> None:
    """A monitor that was killed cannot remove its group; the next one does."""
    needs_root()
    with group() as place, trial(tmp_path) as run:
        command = run.command(work("s60000"), "--cgroup", "require")
        wrapped = run.start(command, preexec_fn=place.enter)
        target = run.recorded()
        left = Path(run.info["own_cgroup"])
        wrapped.kill()
        wrapped.wait(60)
        os.kill(target, 9)
        wait_for(lambda: not alive(target))
        assert left.is_dir()
        run.out = tmp_path / "next"
        next_one = run.command(["true"], "--cgroup", "require")
        assert run.wait(run.start(next_one, preexec_fn=place.enter)).code == 0
        assert not left.exists()


def _told(report: Any) -> str:
    return str(report.ended["reason"])


def test_out_of_memory_with_the_monitor_outside(tmp_path: Path) -> None:
    """The group of the target alone is too small: who died, and why, is reported; the monitor lives."""
    needs_root()
    with trial(tmp_path) as run:
        wrapped = run.start(run.command(work("( s700 a90 s2000 ) a10 s1500 x4"), "--cgroup", "require"))
        run.recorded()
        own = Path(run.info["own_cgroup"])
        limit = next(own / name for name in ("memory.limit_in_bytes", "memory.max") if (own / name).exists())
        limit.write_text(str(48 * MIB))
        assert run.wait(wrapped).code == 4
        report = run.report()
        assert report.ended["oom_kills"] >= 1
        assert "OOM" in _told(report)


def test_a_group_with_hardly_any_memory_for_us(tmp_path: Path) -> None:
    """Monitor and target in a group that is too small for the monitor: whichever dies, no earlier sample is lost."""
    needs_root()
    limited: Group
    with group(24 * MIB) as limited, trial(tmp_path) as run:
        command = run.command(
            work("a2 s800 x4"), "--cgroup", "off", "--interval", "0.02", "--prometheus", "0"
        )
        outcome = run.wait(run.start(command, preexec_fn=limited.enter))
        assert outcome.code in (4, -9)
        for part in run.out.glob(
            ".report.html.*.part"
        ):  # the process that makes the page may be killed as well
            part.unlink()
        if (run.out / "samples.jsonl").exists():
            report = run.report()
            assert report.state == ("finished" if outcome.code == 4 else "incomplete")
        time.sleep(0.9)


@needs_filter
@pytest.mark.parametrize("call", NUMBERS)
def test_a_system_call_that_is_refused(call: str, tmp_path: Path) -> None:
    """The command runs to its end and is waited for; one line reports that it is not recorded."""
    with trial(tmp_path) as run:
        command = run.command(["sh", "-c", "sleep 0.3; echo done; exit 7"], "--cgroup", "off")
        outcome = run.run(command, preexec_fn=lambda: refuse(call))
        assert (outcome.code, outcome.out) == (7, "done\n")
        assert "Traceback" not in outcome.err
        assert len([line for line in outcome.ours if "Function not implemented" in line]) == 1
        shutil.rmtree(run.out, ignore_errors=True)
        strict = run.run(run.command(["sleep", "0.3"], "--strict"), preexec_fn=lambda: refuse(call))
        assert strict.code == 125
