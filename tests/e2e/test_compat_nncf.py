"""NNCF's memory monitor on the new base: its documents' examples, and what it used to get wrong."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from otel_memwatch.api import load_run
from otel_memwatch.compat.nncf.monitor_log import parse
from tests.support.programs import PROGRAMS, environment, run, run_file, run_program

MIB = 2**20
STEMS = {f"{kind}_memory_usage{suffix}" for kind in ("rss", "system") for suffix in ("", "_from-zero")}
EIGHT = {f"{stem}.{ending}" for stem in STEMS for ending in ("txt", "png")}
MONITOR = [sys.executable, "-m", "otel_memwatch.compat.nncf"]

COMPAT = PROGRAMS / "compat"


def log(directory: Path, stem: str) -> tuple[list[float], list[float]]:
    parsed = parse((directory / f"{stem}.txt").read_text())
    assert parsed.unit == "MiB"
    return parsed.times, parsed.memory


def run_of(logs: Path) -> Path:
    (found,) = logs.glob("run-*")
    return found


def test_example_1_a_command_is_logged(tmp_path: Path) -> None:
    allocate = str(COMPAT / "nncf_allocate.py")
    done = run([*MONITOR, "--log-dir", "./allocation_logs", sys.executable, allocate], tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    logs = tmp_path / "allocation_logs"
    assert {path.name for path in logs.iterdir() if path.is_file()} == EIGHT
    times, memory = log(logs, "rss_memory_usage")
    assert times[0] == 0
    assert len(times) > 5
    assert 80 < max(memory) < 200
    assert memory[-1] > 0, "no false drop at the end"
    # Nothing of the monitor is in the figures: the command begins at nothing.
    assert log(logs, "rss_memory_usage_from-zero")[1][0] == 0
    lines = done.stdout.splitlines()
    assert lines[:5] == [
        "done 5",
        "",
        "Memory summary:",
        "Memory type    From zero    Peak value",
        "-------------  -----------  ------------",
    ]
    assert lines[6].split() == ["rss", "False", str(int(max(memory))), "MiB"]
    assert [line.split()[:2] for line in lines[5:]] == [
        ["rss", "True"],
        ["rss", "False"],
        ["system", "True"],
        ["system", "False"],
    ]


def test_example_1_a_command_with_options(tmp_path: Path) -> None:
    tool = tmp_path / "optimum-cli"
    tool.write_text(
        f"#!{sys.executable}\nimport json, sys\njson.dump(sys.argv[1:], open('seen.json', 'w'))\n"
    )
    tool.chmod(0o755)
    words = ["export", "openvino", "--model", "a   b", "--log-dir", "mine", "-h", "c;echo x", "$HOME", ""]
    done = run(
        [*MONITOR, "optimum-cli", *words], tmp_path, env=environment(PATH=f"{tmp_path}:{os.environ['PATH']}")
    )
    assert done.returncode == 0, done.stderr
    assert json.loads((tmp_path / "seen.json").read_text()) == words
    assert {path.name for path in (tmp_path / "memory_logs").iterdir() if path.is_file()} == EIGHT
    assert not (tmp_path / "mine").exists()


@pytest.mark.parametrize(
    ("line", "code", "printed"),
    [
        ("echo 'a b' --flag v", 0, "a b --flag v"),
        ("true && GREETING=hello printenv GREETING | tr h j", 0, "jello"),
        ("exit 7", 7, ""),
        ("kill -9 $$", -9, ""),
    ],
)
def test_a_quoted_command_goes_through_the_shell(line: str, code: int, printed: str, tmp_path: Path) -> None:
    """The only way in which the older tool took options of the command."""
    done = run([*MONITOR, "--log-dir", "d", line], tmp_path)
    assert done.returncode == code, done.stderr
    assert done.stdout.splitlines()[0] == printed
    assert {path.name for path in (tmp_path / "d").iterdir() if path.is_file()} == EIGHT


def test_there_are_as_many_samples_as_intervals(tmp_path: Path) -> None:
    run_file(COMPAT / "nncf_samples.py", tmp_path)


def test_a_program_whose_name_has_a_blank_is_no_command_line(tmp_path: Path) -> None:
    tool = tmp_path / "my tool"
    tool.write_text("#!/bin/sh\necho own\n")
    tool.chmod(0o755)
    assert run([*MONITOR, str(tool)], tmp_path).stdout.splitlines()[0] == "own"


@pytest.mark.thorough
def test_example_2_three_monitors_that_save_at_exit(tmp_path: Path) -> None:
    run_file(COMPAT / "nncf_three_monitors.py", tmp_path)
    logs = tmp_path / "memory_logs"
    names = {"rss_memory_usage", "system_memory_usage", "system_memory_usage_from-zero"}
    assert {path.name for path in logs.iterdir()} == {f"{n}.{e}" for n in names for e in ("txt", "png")}
    times, memory = log(logs, "rss_memory_usage")
    assert 75 < max(memory) - memory[0] < 110
    # The logs saved later have no sample from the drawing of the earlier ones, but one at their own end.
    first_saved, from_zero = log(logs, "system_memory_usage_from-zero")
    assert from_zero[0] == 0
    assert len(times) > 5
    assert sum(time > first_saved[-1] for time in times) <= 2
    assert not (tmp_path / "memwatch-runs").exists()


def test_example_3_the_context(tmp_path: Path) -> None:
    output = run_file(COMPAT / "nncf_context.py", tmp_path)
    system, rss = map(float, output.split())
    assert 75 < rss < 110
    assert system >= 0
    assert {path.name for path in (tmp_path / "memory_logs").iterdir()} == EIGHT


def test_a_user_s_exception_passes_and_short_blocks_have_data(tmp_path: Path) -> None:
    run_file(COMPAT / "nncf_short_blocks.py", tmp_path)


def test_a1_every_peak_is_found_however_short(tmp_path: Path) -> None:
    output = run_file(COMPAT / "nncf_short_peaks.py", tmp_path)
    peaks = [float(line) for line in output.split()]
    assert len(peaks) == 8
    assert all(380 <= peak <= 420 for peak in peaks), peaks


def test_a3_a_call_that_holds_the_interpreter_does_not_stop_the_samples(tmp_path: Path) -> None:
    output = run_file(COMPAT / "nncf_held_interpreter.py", tmp_path)
    held, gap, count = map(float, output.split())
    assert held > 0.8
    assert gap < held / 2
    assert count > 10 * held


@pytest.mark.quiet
def test_a4_children_that_come_and_go_do_not_end_the_sampler(tmp_path: Path) -> None:
    """Other programs can only make its gaps longer: the best of three recordings counts."""
    loop = "i=0; while [ $i -lt 600 ]; do /bin/true; i=$((i+1)); done"
    script = f"for n in 1 2 3 4 5 6 7 8; do ( {loop} ) & done; wait"
    gaps = []
    while len(gaps) < 3 and not (gaps and min(gaps) < 0.5):
        place = tmp_path / str(len(gaps))
        place.mkdir()
        done = run([*MONITOR, "sh", "-c", script], place)
        assert done.returncode == 0
        times, _ = log(place / "memory_logs", "rss_memory_usage")
        system, _ = log(place / "memory_logs", "system_memory_usage")
        assert len(times) > 3
        assert times[-1] > 0.7 * system[-1]
        gaps.append(load_run(run_of(place / "memory_logs")).quality["longest_gap"] / system[-1])
    assert min(gaps) < 0.5


@pytest.mark.parametrize(
    ("whom", "number"),
    [
        ("target", signal.SIGKILL),
        ("monitor", signal.SIGKILL),
        ("monitor", signal.SIGTERM),
        pytest.param("monitor", signal.SIGINT, marks=pytest.mark.thorough),
        pytest.param("target", signal.SIGTERM, marks=pytest.mark.thorough),
        pytest.param("target", signal.SIGINT, marks=pytest.mark.thorough),
    ],
)
def test_a6_a_record_remains_when_one_dies(tmp_path: Path, number: signal.Signals, whom: str) -> None:
    code = "import os, time; open('pid', 'w').write(str(os.getpid())); time.sleep(60)"
    process = subprocess.Popen(
        [*MONITOR, sys.executable, "-c", code],
        cwd=tmp_path,
        env=environment(),
        stdout=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        samples = tmp_path / "memory_logs"
        _wait_for(lambda: (tmp_path / "pid").exists() and _ticks(samples) >= 5)
        target = int((tmp_path / "pid").read_text())
        monitor = json.loads((run_of(samples) / "run.json").read_text())["monitor"]["pid"]
        os.kill(target if whom == "target" else monitor, number)
        process.wait(60)
    finally:
        _kill_all(process)
    found = load_run(run_of(samples))
    if whom == "monitor" and number == signal.SIGKILL:
        assert found.state == "incomplete"
    else:
        assert found.ending.signal == number
        assert {path.name for path in samples.iterdir()} >= EIGHT
        assert process.returncode == -number
    exported = run(
        [
            sys.executable,
            "-m",
            "otel_memwatch",
            "export",
            str(found.path),
            "--to",
            "monitor-log",
            "-o",
            "again",
        ],
        tmp_path,
    )
    assert exported.returncode == 0, exported.stderr
    times, memory = log(tmp_path / "again", "rss_memory_usage")
    assert len(times) >= 5
    assert max(memory) > 3


def _ticks(logs: Path) -> int:
    return sum(path.read_bytes().count(b"\n") for path in logs.glob("run-*/samples.jsonl"))


def _wait_for(condition: object) -> None:
    deadline = time.monotonic() + 60
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < deadline
        time.sleep(0.05)


def _kill_all(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait(30)


@pytest.mark.parametrize(
    ("command", "code"),
    [
        (["true"], 0),
        (["no_such_command_here"], 127),
        ([sys.executable, "-c", "raise SystemExit(3)"], 3),
        ([sys.executable, "-c", "import os; os.kill(os.getpid(), 9)"], -9),
    ],
)
def test_a7_the_exit_code_is_the_command_s_and_logs_are_always_there(
    tmp_path: Path, command: list[str], code: int
) -> None:
    done = run([*MONITOR, *command], tmp_path)
    assert done.returncode == code
    assert "Memory summary:" in done.stdout
    names = {path.name for path in (tmp_path / "memory_logs").iterdir() if path.is_file()}
    if code != 127:
        assert {f"{stem}.txt" for stem in STEMS} <= names
    else:
        assert "no_such_command_here" in done.stderr
        assert len(done.stderr.splitlines()) == 1


def test_a8_arguments_pass_verbatim(tmp_path: Path) -> None:
    words = ["--flag", "a   b", "c;echo x", "--log-dir", "", "*"]
    done = run([*MONITOR, "--", sys.executable, "-c", "import sys; print(sys.argv[1:])", *words], tmp_path)
    assert done.returncode == 0
    assert done.stdout.splitlines()[0] == str(words)


def test_a9_shared_pages_are_distinguished_from_the_sum(tmp_path: Path) -> None:
    code = """
import os, time
big = bytearray(300 << 20)
children = [os.fork() for _ in range(1)]
for _ in range(3):
    if children[-1]: children.append(os.fork())
time.sleep(2.5)
if all(children): [os.wait() for _ in children]
"""
    done = run([*MONITOR, sys.executable, "-c", code], tmp_path)
    assert done.returncode == 0
    _, memory = log(tmp_path / "memory_logs", "rss_memory_usage")
    assert max(memory) > 1200, "the sum of resident memory counts shared pages for each"
    peak = load_run(run_of(tmp_path / "memory_logs")).peaks.tree
    assert peak is not None
    assert 300 * MIB <= peak.bytes <= 430 * MIB


def test_wrap_writes_the_same_logs(tmp_path: Path) -> None:
    wrapped = [
        sys.executable,
        "-m",
        "otel_memwatch",
        "wrap",
        "--log-dir",
        "logs",
        "--out",
        "r",
        "--quiet",
        "--plot",
    ]
    done = run([*wrapped, "--", "sleep", "0.5"], tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert {path.name for path in (tmp_path / "logs").iterdir()} == EIGHT
    assert (tmp_path / "r" / "memory.png").exists()


def test_mistakes_on_the_command_line(tmp_path: Path) -> None:
    assert run(MONITOR, tmp_path).returncode == 2
    shown = run([*MONITOR, "--help"], tmp_path)
    assert "A directory to save logs at. './memory_logs' by default." in " ".join(shown.stdout.split())
    (tmp_path / "file").write_text("")
    done = run([*MONITOR, "--log-dir", "file", "true"], tmp_path)
    assert done.returncode != 0
    assert "Traceback" not in done.stderr


def test_visualize_exists(tmp_path: Path) -> None:
    data = Path(__file__).parents[1] / "data" / "phi3_asym.csv"
    output = run_program(
        f"from otel_memwatch.compat.nncf import visualize\nvisualize({str(data)!r}, 'out')\n", tmp_path
    )
    assert output == f"Saving image to : {Path('out') / 'phi3_asym.png'}\n"
    golden = Path(__file__).parents[1] / "golden" / "phi3_asym.md"
    assert (tmp_path / "out" / "phi3_asym.md").read_text() == golden.read_text()


def test_in_a_wrapped_program_its_run_is_used_and_forked_children_do_no_harm(tmp_path: Path) -> None:
    (tmp_path / "job.py").write_text(
        """
import os, sys, time
from otel_memwatch.compat.nncf import MemoryMonitor
with MemoryMonitor() as monitor:
    if os.fork() == 0:
        monitor.stop(); sys.exit(0)
    os.wait()
    blip = bytearray(100 << 20); del blip
    time.sleep(0.3)
print(max(monitor.get_data(memory_from_zero=True)[1]), os.listdir("."))
"""
    )
    done = run(
        [
            sys.executable,
            "-m",
            "otel_memwatch",
            "wrap",
            "--out",
            "r",
            "--quiet",
            "--",
            sys.executable,
            "job.py",
        ],
        tmp_path,
    )
    assert done.returncode == 0, done.stderr
    assert 95 < float(done.stdout.split()[0]) < 130
    assert "memwatch-runs" not in done.stdout
    done = run([sys.executable, "job.py"], tmp_path)
    assert done.returncode == 0, done.stderr
    assert 95 < float(done.stdout.split()[0]) < 130
    assert not (tmp_path / "memwatch-runs").exists()
