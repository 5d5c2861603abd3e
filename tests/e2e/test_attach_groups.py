"""`attach` to control groups: all of their processes, exact peaks above the earlier high-water mark, no reset, restarts."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from otel_memwatch.monitor.run_cgroup.own_cgroup import systemd_runs
from otel_memwatch.run import load
from tests.support.control_group import Group, group, memory_parent
from tests.support.programs import PROGRAMS, need_program
from tests.support.wrapped import PROGRAM, environment

MIB = 1 << 20
SPIKES = [sys.executable, "-S", str(PROGRAMS / "control_group/spikes.py")]


class Spiking:
    """A process of a group that allocates on demand."""

    def __init__(self, made: Group) -> None:
        self.process = subprocess.Popen(
            SPIKES,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            preexec_fn=made.enter,  # noqa: PLW1509 - it writes one file
        )

    def spike(self, size: int | str) -> None:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(f"{size}\n")
        self.process.stdin.flush()
        assert self.process.stdout.readline() == "done\n"

    def end(self) -> None:
        self.process.communicate()


@pytest.fixture
def made() -> Iterator[Group]:
    with group() as one:
        yield one


@contextlib.contextmanager
def spiking(made: Group) -> Iterator[Spiking]:
    one = Spiking(made)
    try:
        one.spike("")
        yield one
    finally:
        one.process.kill()
        one.process.communicate()


def start(folder: Path, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*PROGRAM, "attach", "--no-report", *arguments], cwd=folder, env=environment(),
        stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def wait_for_samples(run: Path, number: int = 2) -> int:
    """Wait until the record has this many lines of samples; return how many it has."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        with contextlib.suppress(FileNotFoundError):
            lines = (run / "samples.jsonl").read_bytes().count(b"\n")
            if lines > number:
                return lines
        time.sleep(0.02)
    raise AssertionError(f"{run} has no samples")


def wait_for_next(run: Path) -> None:
    """Wait for two more samples: the second began after now."""
    wait_for_samples(run, wait_for_samples(run) + 2)


def ended(watcher: subprocess.Popen[str]) -> str:
    _, said = watcher.communicate(timeout=60)
    assert watcher.returncode == 0, said
    return said


def tree_of(run: Path) -> dict[str, Any]:
    """The tree's peak, which the record alone has to give too."""
    live = json.loads((run / "run.json").read_text())["peaks"]["tree"]
    unfinished = run.with_name(f"{run.name}-unfinished")
    shutil.copytree(run, unfinished)
    text = (unfinished / "run.json").read_text().replace('"peaks": {', '"not_peaks": {')
    (unfinished / "run.json").write_text(text)
    again = load(unfinished).peaks.tree
    assert again is not None
    assert again._replace(at=None).to_json() == {**live, "at": None}
    return dict(live)


def test_a_spike_above_the_earlier_peak_is_exact_and_nothing_is_reset(tmp_path: Path, made: Group) -> None:
    with spiking(made) as one:
        one.spike(60)
        watcher = start(tmp_path, "--cgroup", str(made.path), "--out", "run")
        wait_for_next(tmp_path / "run")
        one.spike(200)
        wait_for_next(tmp_path / "run")
        one.spike(20)
        wait_for_next(tmp_path / "run")
        assert made.peak >= 200 * MIB  # the kernel's own figure still covers the whole life
        one.end()
        assert f"otel-memwatch: cgroup {made.path}\n" in ended(watcher)
    tree = tree_of(tmp_path / "run")
    assert tree["certainty"] == "exact"
    assert tree["low"] <= made.peak
    assert 200 * MIB <= tree["high"] < 220 * MIB


def test_a_spike_below_the_earlier_peak_is_within_the_bounds(tmp_path: Path, made: Group) -> None:
    with spiking(made) as one:
        one.spike(150)
        watcher = start(tmp_path, "--cgroup", str(made.path), "--out", "run")
        wait_for_next(tmp_path / "run")
        one.spike(90)
        wait_for_next(tmp_path / "run")
        one.end()
        ended(watcher)
    tree = tree_of(tmp_path / "run")
    assert tree["certainty"] == "interval"
    assert (
        tree["low"] < 110 * MIB
    )  # a busy machine may sample within the spike; the interpreter needs some MiB
    assert 150 * MIB <= tree["high"] < 170 * MIB


def test_all_processes_of_the_group_and_no_others(tmp_path: Path, made: Group) -> None:
    """Two unrelated processes are in the group. Both are recorded, until the last one ends."""
    with spiking(made) as first, spiking(made) as second:
        watcher = start(tmp_path, "--cgroup", str(made.path), "--out", "run")
        wait_for_next(tmp_path / "run")
        first.end()
        wait_for_next(tmp_path / "run")
        assert watcher.poll() is None
        second.end()
        ended(watcher)
    lines = (tmp_path / "run/processes.jsonl").read_text().splitlines()
    pids = {json.loads(line).get("pid") for line in lines} - {None}
    assert pids == {first.process.pid, second.process.pid}


def test_a_peak_that_another_program_resets_has_no_upper_bound(tmp_path: Path, made: Group) -> None:
    if not made.v1:
        pytest.skip("only version 1 resets the peak for all readers")
    with spiking(made) as one:
        one.spike(100)
        watcher = start(tmp_path, "--cgroup", str(made.path), "--out", "run")
        wait_for_next(tmp_path / "run")
        (made.path / "memory.max_usage_in_bytes").write_text("0")
        wait_for_next(tmp_path / "run")
        one.end()
        ended(watcher)
    tree = tree_of(tmp_path / "run")
    assert tree["certainty"] == "interval"
    assert tree["high"] is None


def test_the_recording_of_a_path_ends_with_its_group(tmp_path: Path, made: Group) -> None:
    with spiking(made) as one:
        watcher = start(tmp_path, "--cgroup", str(made.path))
        deadline = time.monotonic() + 60
        while not (runs := list((tmp_path / "memwatch-runs").glob("*"))):
            assert time.monotonic() < deadline
            time.sleep(0.02)
        wait_for_samples(runs[0])
        one.end()
        assert "Waiting" not in ended(watcher)


def test_a_group_that_is_removed_before_its_last_reading_has_no_upper_bound(tmp_path: Path) -> None:
    """A service manager removes a group with its last process; a busy machine may delay the monitor."""
    made = Group(None)
    with spiking(made) as one:
        watcher = start(tmp_path, "--cgroup", str(made.path), "--out", "run")
        wait_for_samples(tmp_path / "run")
        one.spike(50)
        wait_for_next(tmp_path / "run")
        watcher.send_signal(signal.SIGSTOP)
        one.end()
        made.remove()
        watcher.send_signal(signal.SIGCONT)
        ended(watcher)
    tree = tree_of(tmp_path / "run")
    assert tree["low"] >= 50 * MIB
    assert tree["high"] is None
    (mark,) = json.loads((tmp_path / "run/run.json").read_text())["marks"]
    assert "removed before its last reading" in mark["text"]


def test_a_unit_that_restarts_is_recorded_again(tmp_path: Path) -> None:
    """A recording by name is a series of runs: the group was removed, and made again."""
    name = f"memwatch-test-{os.getpid()}.service"
    unit = memory_parent() / name
    runs: list[Path] = []
    watcher = None
    try:
        for number in range(2):
            unit.mkdir()
            process = subprocess.Popen(
                SPIKES,
                stdin=subprocess.PIPE,
                preexec_fn=lambda: (unit / "cgroup.procs").write_text("0"),  # noqa: PLW1509 - as above
            )
            if watcher is None:
                watcher = start(tmp_path, "--unit", name)
            deadline = time.monotonic() + 60
            while len(runs := sorted((tmp_path / "memwatch-runs").glob("*"))) <= number:
                assert watcher.poll() is None
                assert time.monotonic() < deadline
                time.sleep(0.02)
            wait_for_samples(runs[-1])
            process.communicate()
            _removed(unit)
            assert watcher.stderr is not None
            while f"unit {name} ended. Waiting 60 s for it to start again" not in (
                line := watcher.stderr.readline()
            ):
                assert line, "it ended"
        assert watcher is not None
        watcher.send_signal(signal.SIGINT)
        ended(watcher)
    finally:
        if watcher is not None:
            watcher.kill()
            watcher.communicate()
        if unit.is_dir():
            _removed(unit)
    assert [load(run).fields.name for run in runs] == [name, name]


def _removed(path: Path) -> None:
    """Remove a group whose last process has ended, as a service manager does."""
    deadline = time.monotonic() + 60
    while True:
        try:
            path.rmdir()
        except OSError:
            assert time.monotonic() < deadline
            time.sleep(0.02)
        else:
            return


def test_targets_that_cannot_be_recorded(tmp_path: Path, made: Group) -> None:
    for arguments, sentence in (
        (("--cgroup", str(made.path)), f"No process runs in {made.path}"),
        (
            ("--unit", "no-such-unit"),
            'No process of unit "no-such-unit.service" runs here'
            if systemd_runs()
            else 'systemd does not run here, so there is no unit "no-such-unit.service"',
        ),
        (("--cgroup", str(made.path), "--pod", "x"), "attach needs one target"),
        ((), "attach needs one target"),
        (("--unit", "x", "4711"), "attach needs one target"),
        (("--unit", "x", "--restart-wait", "soon"), "--restart-wait"),
    ):
        watcher = start(tmp_path, *arguments)
        _, said = watcher.communicate(timeout=60)
        assert watcher.returncode not in (0, None)
        assert sentence in said
        assert "Traceback" not in said
    assert not (tmp_path / "memwatch-runs").exists()


def test_the_record_of_a_killed_recording_loads(tmp_path: Path, made: Group) -> None:
    with spiking(made) as one:
        watcher = start(tmp_path, "--cgroup", str(made.path), "--out", "run")
        wait_for_next(tmp_path / "run")
        one.spike(100)
        wait_for_next(tmp_path / "run")
        watcher.kill()
        watcher.communicate()
        one.end()
    tree = load(tmp_path / "run").peaks.tree
    assert tree is not None
    assert tree.low is not None
    assert tree.low >= 95 * MIB
    assert tree.high is None  # what came later is not known


def podman() -> list[str]:
    """The start of a command that runs a container; skips the test without root or podman, and fails in CI without podman."""
    if os.geteuid():
        pytest.skip("needs root")
    for program in ("podman", "busybox"):
        need_program(program, "apt-get install podman runc busybox-static")
    runtime = ["--runtime", "runc"] if shutil.which("runc") else []
    limits = ["--ulimit=nofile=1000:1000", "--ulimit=nproc=1000:1000"]
    return ["podman", *runtime, "--cgroup-manager=cgroupfs", "run", "--rm", "-i", "--network=none", *limits]


def test_a_container_of_podman_by_its_name(tmp_path: Path) -> None:
    run, root, name = podman(), tmp_path / "root", f"memwatch-test-{os.getpid()}"
    for folder in ("bin", "proc", "sys", "dev", "etc", "tmp", "run"):
        (root / folder).mkdir(parents=True)
    shutil.copy(shutil.which("busybox") or "", root / "bin/busybox")
    script = (
        "echo began; read line; busybox dd if=/dev/zero of=/dev/null bs=90M count=1; echo done; read line"
    )
    container = subprocess.Popen(
        [*run, "--name", name, "--rootfs", str(root), "/bin/busybox", "sh", "-c", script],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert container.stdin is not None
        assert container.stdout is not None
        if container.stdout.readline() != "began\n":
            pytest.skip(f"podman cannot run a container here: {container.communicate()[1]}")
        watcher = start(tmp_path, "--container", name, "--out", "run")
        wait_for_next(tmp_path / "run")
        container.stdin.write("\n")
        container.stdin.flush()
        assert container.stdout.readline() == "done\n"
        wait_for_next(tmp_path / "run")
        container.communicate("\n", timeout=60)
        assert f"otel-memwatch: container {name}\n" in ended(watcher)
    finally:
        subprocess.run(["podman", "rm", "-f", name], capture_output=True, check=False)
        container.kill()
        container.communicate()
    tree = tree_of(tmp_path / "run")
    assert 90 * MIB <= tree["high"] < 105 * MIB
    assert tree["low"] > 80 * MIB
