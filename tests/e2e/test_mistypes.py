"""The sentence that helps, where a command was mistyped."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest

from tests.support.wrapped import PROGRAM, environment

if TYPE_CHECKING:
    from pathlib import Path


def call(place: Path, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*PROGRAM, *words],
        cwd=place,
        env=environment(**variables),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize(
    ("command", "told"),
    [
        (["sleep 1"], "otel-memwatch wrap -- sh -c 'sleep 1'"),
        (["cd", "/"], "it is a shell built-in"),
        (["FOO=1", "ls"], "to set a variable: FOO=... otel-memwatch wrap -- COMMAND"),
    ],
)
def test_commands_that_are_none(command: list[str], told: str, tmp_path: Path) -> None:
    done = call(tmp_path, "wrap", "--", *command)
    assert done.returncode == 127
    assert told in done.stderr
    assert done.stderr.count("\n") == 1


def test_an_option_after_the_command_is_the_commands(tmp_path: Path) -> None:
    done = call(tmp_path, "wrap", "--no-plot", "--", "false", "--quiet")
    assert done.returncode == 1
    assert "--quiet was passed to the command" in done.stderr
    assert (
        "was passed to the command" not in call(tmp_path, "wrap", "--no-plot", "--", "true", "--quiet").stderr
    )


def test_the_options_of_a_run_within_a_run_are_not_the_outer_ones(tmp_path: Path) -> None:
    inner = [sys.executable, "-m", "otel_memwatch", "wrap", "--quiet", "--no-report", "--", "false"]
    done = call(tmp_path, "wrap", "--no-plot", "--", *inner)
    assert done.returncode == 1
    assert "was passed to the command" not in done.stderr


def test_the_name_of_a_container_is_no_misplaced_option(tmp_path: Path) -> None:
    client = tmp_path / "podman"
    client.write_text("#!/bin/sh\nexit 3\n")
    client.chmod(0o755)
    done = call(tmp_path, "wrap", "--no-plot", "--", str(client), "run", "--name", "web", "image")
    assert done.returncode == 3
    assert "was passed to the command" not in done.stderr


def test_a_variable_that_no_process_reads_is_reported(tmp_path: Path) -> None:
    done = call(tmp_path, "wrap", "--no-plot", "true", OTEL_MEMWATCH_INTERVL="3")
    assert done.returncode == 0
    assert done.stderr.startswith("otel-memwatch: OTEL_MEMWATCH_INTERVL is not a setting")


def test_attach_by_name(tmp_path: Path) -> None:
    """A script of a name that nothing else has: none, one, two of it."""
    name = f"job-{os.getpid()}.py"
    script = tmp_path / name
    script.write_text("import sys; sys.stdin.read()")
    done = call(tmp_path, "attach", name)
    assert done.returncode == 2
    assert f'No process has the name "{name}"' in done.stderr
    argv = [sys.executable, str(script)]
    jobs = [subprocess.Popen(argv, stdin=subprocess.PIPE, cwd=tmp_path) for _ in range(2)]
    try:
        done = call(tmp_path, "attach", name)
        assert done.returncode == 2
        assert f'Cannot attach to "{name}": 2 unrelated processes have this name' in done.stderr
        assert all(str(job.pid) in done.stderr for job in jobs)
        jobs[1].communicate()
        # It is reaped with that; what is left is the intended one.
        watcher = subprocess.Popen(
            [*PROGRAM, "attach", name, "--no-plot", "--out", "run"], cwd=tmp_path, env=environment(),
            stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        # Not before its first tick: a process that ends earlier is gone when it is to be read.
        samples = tmp_path / "run/samples.jsonl"
        while not samples.exists() or samples.read_bytes().count(b"\n") < 2:
            assert watcher.poll() is None
            time.sleep(0.02)
        jobs[0].communicate()
        _, told = watcher.communicate(timeout=60)
        assert watcher.returncode == 0
        assert name in told
    finally:
        for job in jobs:
            job.kill()
            job.wait()


def test_a_process_that_restarts_is_recorded_again_by_name(tmp_path: Path) -> None:
    """A worker that outlives the first master is not its successor."""
    name = f"again-{os.getpid()}.py"
    script = tmp_path / name
    script.write_text("import os, sys\nif os.fork(): sys.stdin.read()\nelse: os.read(int(sys.argv[1]), 1)\n")
    watcher = None
    workers, release = os.pipe()
    runs: list[Path] = []
    try:
        for number in range(2):
            job = subprocess.Popen(
                [sys.executable, str(script), str(workers)],
                stdin=subprocess.PIPE,
                cwd=tmp_path,
                pass_fds=[workers],
            )
            watcher = watcher or subprocess.Popen(
                [*PROGRAM, "attach", name, "--no-report", "--restart-wait", "60"], cwd=tmp_path, env=environment(),
                stderr=subprocess.PIPE, text=True,
            )  # fmt: skip
            assert watcher.stderr is not None
            while len(runs) <= number or not _has_sample(runs[number]):
                assert watcher.poll() is None, watcher.stderr.read()
                time.sleep(0.02)
                runs = sorted((tmp_path / "memwatch-runs").glob("*"))
            job.communicate()
            while f'"{name}" ended. Waiting 60 s for it to start again' not in (
                line := watcher.stderr.readline()
            ):
                assert line, "it ended"
            if not number:
                time.sleep(1.5)  # it looks for it at least once, and finds the worker
                assert len(list((tmp_path / "memwatch-runs").glob("*"))) == 1
                os.write(release, b"x")
        watcher.send_signal(signal.SIGINT)
        watcher.communicate(timeout=60)
    finally:
        os.close(release)
        os.close(workers)
        if watcher is not None:
            watcher.kill()
            watcher.wait()
    assert [json.loads((run / "run.json").read_text())["name"] for run in runs] == [name, name]


def _has_sample(run: Path) -> bool:
    samples = run / "samples.jsonl"
    return samples.exists() and samples.read_bytes().count(b"\n") >= 2


def test_attach_to_a_forking_server_by_name(tmp_path: Path) -> None:
    """A master and its workers have one name, and are one target: the master."""
    name = f"server-{os.getpid()}.py"
    script = tmp_path / name
    script.write_text(
        "import os, sys\n"
        "for _ in range(2):\n"
        "    if os.fork() == 0:\n"
        "        os.read(0, 1); os._exit(0)\n"
        "print('forked', flush=True)\n"
        "os.read(0, 1); os.wait(); os.wait()\n"
    )
    master = subprocess.Popen(
        [sys.executable, str(script)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=tmp_path
    )
    try:
        assert master.stdout is not None
        assert master.stdout.readline() == b"forked\n"
        watcher = subprocess.Popen(
            [*PROGRAM, "attach", name, "--no-plot", "--out", "run"], cwd=tmp_path, env=environment(),
            stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        samples = tmp_path / "run/samples.jsonl"
        while not samples.exists() or samples.read_bytes().count(b"\n") < 2:
            assert watcher.poll() is None
            time.sleep(0.02)
        master.communicate()
        watcher.communicate(timeout=60)
        assert watcher.returncode == 0
        info = json.loads((tmp_path / "run/run.json").read_text())
        assert info["target"]["pid"] == master.pid
        lines = (tmp_path / "run/processes.jsonl").read_text().splitlines()
        assert len({json.loads(line).get("pid") for line in lines} - {None}) == 3
    finally:
        master.kill()
        master.wait()
