"""`stop` ends a recording; the recorded process goes on."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

from otel_memwatch.run import load
from tests.support.wrapped import PROGRAM, environment


def call(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*PROGRAM, "stop", *arguments], cwd=folder, env=environment(), capture_output=True, text=True, check=False,
        timeout=120,
    )  # fmt: skip


def recording(folder: Path, *arguments: str) -> subprocess.Popen[bytes]:
    """A recording with at least one sample."""
    started = subprocess.Popen(
        [*PROGRAM, *arguments],
        cwd=folder,
        env=environment(),
        stdin=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    samples = folder / "run/samples.jsonl"
    deadline = time.monotonic() + 60
    while not samples.exists() or samples.read_bytes().count(b"\n") < 2:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return started


def test_the_recording_ends_and_the_process_goes_on(tmp_path: Path) -> None:
    target = subprocess.Popen(["cat"], stdin=subprocess.PIPE)
    monitor = recording(tmp_path, "attach", "--out", "run", "--no-report", str(target.pid))
    try:
        done = call(tmp_path, "run")
        assert (done.returncode, done.stdout) == (0, "Stopped. otel-memwatch report run\n"), done.stderr
        run = load(tmp_path / "run")
        assert run.state == "finished"
        assert run.fields.exit.reason == "recording stopped"
        assert target.poll() is None
        again = call(tmp_path, "run")
        assert again.returncode != 0
        assert "run is not being recorded: it is finished." in again.stderr
    finally:
        monitor.communicate()
        target.communicate()
    assert target.returncode == 0


def test_a_number_may_be_the_name_of_a_run(tmp_path: Path) -> None:
    """A Slurm job is recorded under its number."""
    target = subprocess.Popen(["cat"], stdin=subprocess.PIPE)
    runs = tmp_path / "memwatch-runs"
    runs.mkdir()
    monitor = recording(runs, "attach", "--out", "run", "--name", "0", "--no-report", str(target.pid))
    try:
        done = call(tmp_path, "0")
        assert done.stdout == "Stopped. otel-memwatch report memwatch-runs/run\n", done.stderr
    finally:
        monitor.communicate()
        target.communicate()


def test_a_monitor_that_waits_for_its_target_is_stopped(tmp_path: Path) -> None:
    name = f"service-{os.getpid()}.py"
    (tmp_path / name).write_text("import sys; print(flush=True); sys.stdin.read()")
    target = subprocess.Popen(
        [sys.executable, name], cwd=tmp_path, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert target.stdout is not None
    target.stdout.readline()
    monitor = subprocess.Popen(
        [*PROGRAM, "attach", name, "--restart-wait", "600", "--quiet"],
        cwd=tmp_path, env=environment(), stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        runs = tmp_path / "memwatch-runs"
        deadline = time.monotonic() + 60
        while not list(runs.glob("*/samples.jsonl")):
            assert time.monotonic() < deadline
            time.sleep(0.02)
        target.communicate()
        assert monitor.stderr is not None
        assert "Waiting 600 s for it to start again" in monitor.stderr.readline()
        done = call(tmp_path, name)
        assert done.stdout.startswith("Stopped. "), done.stderr
        assert monitor.wait(60) == 0
        assert "it is finished" in call(tmp_path, name).stderr
    finally:
        monitor.kill()
        monitor.communicate()


def test_a_wrapped_command_is_left_alone(tmp_path: Path) -> None:
    wrapped = recording(tmp_path, "wrap", "--out", "run", "--no-report", "--", "cat")
    try:
        done = call(tmp_path, "run")
        assert done.returncode != 0
        assert "recorded by wrap, which ends with its command (kill " in done.stderr
        assert load(tmp_path / "run").state == "running"
    finally:
        wrapped.communicate()
    assert wrapped.returncode == 0


def test_a_monitor_that_died(tmp_path: Path) -> None:
    target = subprocess.Popen(["cat"], stdin=subprocess.PIPE)
    monitor = recording(tmp_path, "attach", "--out", "run", "--no-report", str(target.pid))
    monitor.kill()
    monitor.communicate()
    try:
        assert "run is not being recorded: its monitor died." in call(tmp_path, "run").stderr
    finally:
        target.communicate()
    assert call(tmp_path, "absent").returncode != 0
