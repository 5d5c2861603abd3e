"""The guard on real programs: verdicts, events, exit codes, and what is left of the process tree."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from importlib.resources import files
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from tests.support.control_group import memory_parent
from tests.support.torture import alive

EVENTS = json.loads((files("otel_memwatch.monitor.guard") / "events.schema.json").read_text())
VERDICT = json.loads((files("otel_memwatch.reports") / "verdict.schema.json").read_text())
GROWS = """
import time
kept = []
while True:
    kept.append(bytearray(b"x") * (4 << 20))
    time.sleep(0.03)
"""
HIDES = """
import os, signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
hidden = "import signal, time, os; signal.signal(signal.SIGTERM, signal.SIG_IGN); os.write(1, f'{os.getpid()}{chr(10)}'.encode()); time.sleep(600)"
def twice(session):
    if os.fork() == 0:
        if session:
            os.setsid()
        if os.fork() == 0:
            os.execv(sys.executable, [sys.executable, "-c", hidden])
        os._exit(0)
    os.wait()
twice(False)
twice(True)
subprocess.Popen([sys.executable, "-c", hidden], start_new_session=True)
time.sleep(600)
"""


class Done:
    """A `wrap` that ended, with its events."""

    def __init__(self, tmp_path: Path, *words: str, **more: Any) -> None:
        command = [
            sys.executable,
            "-m",
            "otel_memwatch",
            "wrap",
            "--no-report",
            "--out=r",
            "--events=events",
            "--summary=json",
            *words,
        ]
        self.process = subprocess.run(
            command, cwd=tmp_path, capture_output=True, text=True, timeout=120, **more
        )
        self.code, self.out, self.err = self.process.returncode, self.process.stdout, self.process.stderr
        events = tmp_path / "events"
        self.events = (
            [json.loads(line) for line in events.read_text().splitlines()] if events.is_file() else []
        )
        for one in self.events:
            jsonschema.validate(one, EVENTS)
        self.said = [line for line in self.err.splitlines() if not line.startswith("{")]
        (line,) = [line for line in self.err.splitlines() if line.startswith("{")]
        self.summary = json.loads(line)
        jsonschema.validate(self.summary, VERDICT)

    @property
    def kinds(self) -> list[tuple[str, str | None]]:
        return [(one["event"], one["kind"]) for one in self.events]


def python(program: str) -> list[str]:
    return ["--", sys.executable, "-c", program]


def test_a_run_at_its_limit_was_warned_of(tmp_path: Path) -> None:
    memory_parent()
    done = Done(
        tmp_path, "--limit=150MiB", "--warn=50%", "--warn=85%", "--limit-exit-code=99", *python(GROWS)
    )
    assert (done.code, done.summary["verdict"], done.said) == (99, "limit", [])
    assert done.kinds[0] == ("start", None)
    assert ("warning", "limit") in done.kinds
    assert done.kinds[-1] == ("verdict", "limit")
    of_limit = [one for one in done.events if one.get("of") == "limit"]
    assert of_limit[0]["bytes"] >= 75 << 20
    assert of_limit[0]["largest"][0]["command"].startswith("python")
    assert done.summary["largest"][0]["bytes"] > 75 << 20
    assert done.summary["limit"]["breached"] is True


@pytest.mark.parametrize("cgroup", ["auto", "off"])
def test_a_timeout_leaves_no_process_behind(tmp_path: Path, cgroup: str) -> None:
    done = Done(tmp_path, "--timeout=3s", "--kill-after=0.2s", f"--cgroup={cgroup}", *python(HIDES))
    pids = [int(line) for line in done.out.split()]
    assert pids  # three, unless the machine is very slow
    assert not any(map(alive, pids))
    assert done.code == -signal.SIGKILL
    assert done.kinds == [("start", None), ("verdict", "timeout")]
    assert (done.summary["verdict"], done.summary["ended"]["signal"]) == ("timeout", signal.SIGKILL)
    assert "--timeout 3.00 s" in done.summary["ended"]["reason"]


def test_a_command_that_left_its_cgroup_ends_too(tmp_path: Path) -> None:
    parent = memory_parent()
    program = f"import os, time; open('{parent}/cgroup.procs', 'w').write(str(os.getpid())); print(os.getpid(), flush=True); time.sleep(600)"
    done = Done(tmp_path, "--timeout=2s", "--kill-after=0.2s", *python(program))
    assert (done.code, done.kinds[-1]) == (124, ("verdict", "timeout"))
    assert not alive(int(done.out))


@pytest.mark.parametrize("cgroup", ["auto", "off"])
def test_sigterm_ends_all_processes_if_a_grace_period_is_set(tmp_path: Path, cgroup: str) -> None:
    command = [
        sys.executable, "-m", "otel_memwatch", "wrap", "--quiet", "--no-report", "--out=r", f"--cgroup={cgroup}", "--kill-after=0.2s",
        "--events=events", *python(HIDES),
    ]  # fmt: skip
    process = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    pids = [int(process.stdout.readline()) for _ in range(3)]
    process.terminate()
    assert process.wait(60) == -signal.SIGKILL
    assert not any(map(alive, pids))
    process.stdout.close()
    verdict = json.loads((tmp_path / "events").read_text().splitlines()[-1])
    assert (verdict["kind"], verdict["signal"]) == ("killed", signal.SIGKILL)


@pytest.mark.parametrize(("words", "lives"), [(["--kill-after=1s"], False), ([], True)])
def test_a_killed_guard_takes_the_command_along_if_a_grace_period_is_set(
    tmp_path: Path, words: list[str], lives: bool
) -> None:
    """As without the guard: a harness whose time is over kills the program that it started, and reads on until it ends."""
    command = [sys.executable, "-m", "otel_memwatch", "wrap", "--quiet", "--no-report", "--out=r", *words]
    program = "import os, time; print(os.getpid(), flush=True); time.sleep(600)"
    with subprocess.Popen(
        [*command, *python(program)], cwd=tmp_path, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        pid = int(process.stdout.readline())
        process.kill()
        if lives:
            process.wait()
            assert alive(pid)
            os.kill(pid, signal.SIGKILL)
        assert process.stdout.read() == ""  # ends: no process holds the pipe


def test_a_command_may_tidy_up_in_its_grace_period(tmp_path: Path) -> None:
    program = "import signal, sys, time; signal.signal(15, lambda *_: sys.exit(7)); open('ready', 'w'); time.sleep(600)"
    done = Done(tmp_path, "--timeout=2s", *python(program))
    assert (done.code, done.summary["ended"]["exit_code"]) == (124, 7)


def test_daemons_of_a_command_that_ends_by_itself_live_on(tmp_path: Path) -> None:
    program = "import subprocess; print(subprocess.Popen(['sleep', '60'], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True).pid)"
    done = Done(tmp_path, "--timeout=60s", "--leave=1MiB", *python(program))
    pid = int(done.out)
    assert alive(pid)
    os.kill(pid, signal.SIGKILL)
    assert (done.code, done.kinds) == (0, [("start", None), ("verdict", "finished")])
    assert done.events[-1]["peak"]["certainty"] in ("exact", "interval")


def test_a_machine_that_runs_short_ends_the_run(tmp_path: Path) -> None:
    total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    done = Done(tmp_path, f"--leave={total - (1 << 20)}B", *python("import time; time.sleep(600)"))
    assert (done.code, done.summary["verdict"]) == (-9, "machine")
    assert done.kinds == [("start", None), ("verdict", "machine")]
    assert "--leave" in done.summary["ended"]["reason"]


def test_the_machine_is_warned_of_without_a_cgroup(tmp_path: Path) -> None:
    done = Done(tmp_path, "--cgroup=off", "--warn=0.1%", *python("import time; time.sleep(0.5)"))
    assert (done.code, done.kinds[1]) == (0, ("warning", "machine"))
    assert done.events[1]["of"] == "machine"


def test_a_signal_of_another_is_killed(tmp_path: Path) -> None:
    done = Done(tmp_path, "--", "sh", "-c", "kill -TERM $$")
    assert (done.code, done.summary["verdict"]) == (-15, "killed")
    assert done.kinds[-1] == ("verdict", "killed")


def test_a_descriptor_is_not_inherited_by_the_command(tmp_path: Path) -> None:
    reader, writer = os.pipe()
    command = ["--", sys.executable, "-c", f"import os; os.fstat({writer})"]
    done = Done(tmp_path, f"--events={writer}", *command, pass_fds=(writer,))
    os.close(writer)
    with os.fdopen(reader) as file:
        events = [json.loads(line) for line in file]  # ends: no process holds the other end
    assert (done.code, "Bad file descriptor" in done.err) == (1, True)
    assert [one["event"] for one in events] == ["start", "verdict"]


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--events=fifo"], "events are not written to fifo: no program reads this FIFO."),
        (["--events=77"], "events are not written to descriptor 77: bad file descriptor."),
        (["--events=/dev/full"], "events are not written to /dev/full: no space left on device."),
        (["--summary-file=/dev/full"], "the summary file could not be made: No space left on device"),
        (["--leave=900TiB"], "--leave 900.00 TiB has no effect: the machine has "),
        (["--warn=90%", "--limit=900TiB"], "--limit 900.00 TiB has no effect: the machine has "),
    ],
)
def test_bad_input_is_one_sentence_and_the_command_is_unharmed(
    tmp_path: Path, words: list[str], sentence: str
) -> None:
    if any(word.startswith("--limit") for word in words):
        memory_parent()
    os.mkfifo(tmp_path / "fifo")
    done = Done(tmp_path, *words, "--", "sh", "-c", "echo done; exit 3")
    assert (done.code, done.out) == (3, "done\n")
    assert [line.startswith(f"otel-memwatch: {sentence}") for line in done.said] == [True], done.said


@pytest.mark.parametrize(
    "words",
    [
        ["--warn=120%"],
        ["--warn=0%"],
        ["--timeout=0"],
        ["--leave=-1"],
        ["--limit-exit-code=256"],
        ["--stalled=soon"],
        ["--limit=nan"],
        ["--events="],
        ["--summary=xml"],
    ],
)
def test_what_makes_no_sense_is_refused(tmp_path: Path, words: list[str]) -> None:
    command = [sys.executable, "-m", "otel_memwatch", "wrap", *words, "--", "touch", "started"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert (done.returncode, os.listdir(tmp_path)) == (2, [])
    assert len(done.stderr.splitlines()) == 1


def test_strict_fails_if_events_are_lost(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    assert Done(tmp_path, "--events=fifo", "--strict", "--", "true").code == 125


def test_a_run_that_cannot_be_recorded_has_a_line_too(tmp_path: Path) -> None:
    (tmp_path / "memwatch-runs").write_text("no directory")
    command = [sys.executable, "-m", "otel_memwatch", "wrap", "--summary=json", "--", "sh", "-c", "exit 4"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    summary = json.loads(done.stderr.splitlines()[-1])
    jsonschema.validate(summary, VERDICT)
    assert (done.returncode, summary["verdict"], summary["ended"]["exit_code"]) == (4, "finished", 4)


def test_each_repeated_run_has_its_verdict(tmp_path: Path) -> None:
    command = [
        sys.executable, "-m", "otel_memwatch", "wrap", "--quiet", "--out=r", "--repeat=3", "--timeout=1s", "--events=e", "--", "sh", "-c",
        "[ -e first ] || { touch first; exit 0; }; sleep 60",
    ]  # fmt: skip
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    kinds = [json.loads(line)["kind"] for line in (tmp_path / "e").read_text().splitlines()]
    assert (done.returncode, kinds) == (124, [None, "finished", None, "timeout"])


def test_neighbours_and_parent_live(tmp_path: Path) -> None:
    neighbour = subprocess.Popen(["sleep", "600"])
    try:
        done = Done(tmp_path, "--timeout=1s", "--cgroup=off", *python(HIDES))
        assert done.summary["verdict"] == "timeout"
        assert neighbour.poll() is None
    finally:
        neighbour.kill()
        neighbour.wait()


def test_children_from_before_are_spared(tmp_path: Path) -> None:
    """A program may start a child and then become `wrap`: the child is not part of the run."""
    script = f"sleep 600 >/dev/null 2>&1 & echo $! >before; exec {sys.executable} -m otel_memwatch wrap --quiet --cgroup off --timeout 0.5s -- sleep 600"
    done = subprocess.run(["sh", "-c", script], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    pid = int((tmp_path / "before").read_text())
    time.sleep(0.1)
    assert alive(pid)
    os.kill(pid, signal.SIGKILL)
    assert done.returncode == 124


def test_the_number_of_jobs_in_the_words_of_runners(tmp_path: Path) -> None:
    memwatch = [sys.executable, "-m", "otel_memwatch"]
    for mebibytes in (60, 30):
        program = f"x = bytearray(b'x') * ({mebibytes} << 20)"
        subprocess.run(
            [*memwatch, "wrap", "--quiet", "--no-report", *python(program)], cwd=tmp_path, check=True
        )

    def advise(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([*memwatch, "advise", *words], cwd=tmp_path, capture_output=True, text=True)

    document = json.loads(advise("--jobs", "--within=400MiB", "--for=json").stdout)
    assert document["words"]["make"] == f"make -j{document['jobs']}"
    assert document["needed"] <= 400 << 20 < document["next"]
    assert (
        advise("--jobs", "--within=400MiB", "--for=parallel").stdout
        == f"parallel --jobs {document['jobs']}\n"
    )
    for words in (
        ["--within=1GiB"],
        ["--for=make"],
        ["--jobs", "--for=slurm"],
        ["--jobs", "--within=much"],
        ["--jobs", "--within=9MiB", "--for=ninja"],
    ):
        refused = advise(*words)
        assert (refused.returncode, refused.stdout, len(refused.stderr.splitlines())) == (2, "", 1), words
