"""`runs prune` beside real runs: those that go on, those of commands that left files, and links of other users."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import time
from typing import TYPE_CHECKING

import pytest

from otel_memwatch.record.format import is_run_file
from tests.support import recorded
from tests.support.wrapped import PROGRAM, call, environment

if TYPE_CHECKING:
    from pathlib import Path

WRAP = ("wrap", "--quiet", "--no-report")


def recorded_run(out: str, *command: str, cwd: Path) -> None:
    done = call(*WRAP, "--out", out, "--", *command, cwd=cwd)
    assert done.returncode == 0, done.stderr


def started(out: str, *, cwd: Path) -> subprocess.Popen[bytes]:
    """A run that goes on until the pipe "gate" is opened."""
    os.mkfifo(cwd / "gate")
    process = subprocess.Popen(
        [*PROGRAM, *WRAP, "--out", out, "--", "cat", "gate"], cwd=cwd, env=environment()
    )
    until = time.monotonic() + 60
    while not (cwd / out / "samples.jsonl").exists():
        assert time.monotonic() < until
        time.sleep(0.02)
    return process


def killed(process: subprocess.Popen[bytes], cwd: Path) -> None:
    """Kills the monitor, and ends the command, which goes on without it."""
    process.kill()
    process.wait()
    with contextlib.suppress(OSError):
        os.close(os.open(cwd / "gate", os.O_WRONLY | os.O_NONBLOCK))


def test_a_run_that_goes_on_inside_another_is_recorded_to_its_end(tmp_path: Path) -> None:
    recorded_run("a/outer", "true", cwd=tmp_path)
    process = started("a/outer/inner", cwd=tmp_path)
    try:
        for _ in range(2):  # the second time the outer run is gone, and the inner one is found
            done = call("runs", "prune", "--keep", "0", "a", cwd=tmp_path)
            assert done.returncode == 0, done.stderr
        assert "0 runs of 1 removed" in done.stderr
        (tmp_path / "gate").write_bytes(b"")
        assert process.wait(60) == 0
    finally:
        killed(process, tmp_path)
    assert json.loads((tmp_path / "a/outer/inner/run.json").read_text())["state"] == "finished"
    assert os.listdir(tmp_path / "a/outer") == ["inner"]


def test_files_that_the_command_wrote_into_its_run_directory_stay(tmp_path: Path) -> None:
    script = "mkdir $OTEL_MEMWATCH_RUN_DIR/ckpt; echo x > $OTEL_MEMWATCH_RUN_DIR/ckpt/1"
    recorded_run("b/r", "sh", "-c", script, cwd=tmp_path)
    done = call("runs", "prune", "--keep", "0", "b", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, "b/r\n")
    assert [line for line in done.stderr.splitlines() if "ckpt" in line] == done.stderr.splitlines()[:1]
    assert [path.name for path in (tmp_path / "b").rglob("*")] == ["r", "ckpt", "1"]


def test_a_directory_of_another_program_stays(tmp_path: Path) -> None:
    app = tmp_path / "d/app"
    app.mkdir(parents=True)
    (app / "run.json").write_text('{"schema": 1}')
    (app / "data.txt").write_text("data")
    done = call("runs", "prune", "--keep", "0", "d", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, "")
    assert "d/app stays: its run.json does not describe a run of otel-memwatch" in done.stderr
    assert sorted(path.name for path in app.iterdir()) == ["data.txt", "run.json"]


def test_an_index_that_calls_a_running_run_finished_is_not_believed(tmp_path: Path) -> None:
    import sqlite3

    home = tmp_path / "memwatch-runs"
    first = recorded.short(home / "r00")
    for number in range(1, 40):
        shutil.copytree(first, home / f"r{number:02}")
    process = started("memwatch-runs/going", cwd=tmp_path)
    try:
        assert call("runs", cwd=tmp_path).returncode == 0
        status = (home / "going/run.json").stat()
        database = sqlite3.connect(home / ".memwatch-index.sqlite")
        database.execute("UPDATE runs SET directory=?, changed=?, size=?, inode=? WHERE directory=?",
                         (b"going", status.st_mtime_ns, status.st_size, status.st_ino, b"r00"))  # fmt: skip
        database.commit()
        database.close()
        done = call("runs", "prune", "--keep", "0", cwd=tmp_path)
        assert "40 runs of 41 removed" in done.stderr
        assert (home / "going/run.json").exists()
    finally:
        killed(process, tmp_path)


def test_a_run_whose_monitor_was_killed_is_removed(tmp_path: Path) -> None:
    process = started("k/r", cwd=tmp_path)
    killed(process, tmp_path)
    done = call("runs", "prune", "--keep", "0", "k", cwd=tmp_path)
    assert done.stdout == "k/r\n", done.stderr
    assert not (tmp_path / "k/r").exists()


@pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("setpriv"), reason="needs root and setpriv")
def test_a_link_of_another_user_leads_root_nowhere(tmp_path: Path) -> None:
    recorded_run("rootsruns/important", "true", cwd=tmp_path)
    for directory in (tmp_path, *tmp_path.parents):
        if directory != directory.parent and not directory.stat().st_mode & 0o001:
            directory.chmod(directory.stat().st_mode | 0o011)
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o1777)
    link = ["setpriv", "--reuid", "nobody", "--clear-groups", "ln", "-s"]
    subprocess.run([*link, tmp_path / "rootsruns", shared / "x"], check=True)
    done = call("runs", "prune", "--keep", "0", "shared", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, "")
    subprocess.run([*link, tmp_path / "rootsruns", shared / "memwatch-runs"], check=True)
    for words in ((), ("memwatch-runs",), ("memwatch-runs/",)):
        done = call("runs", "prune", "--keep", "0", *words, cwd=shared)
        assert (done.returncode, done.stdout) == (1, "")
        assert "memwatch-runs is a link of another user" in done.stderr.replace(
            "memwatch-runs/", "memwatch-runs"
        )
    assert (tmp_path / "rootsruns/important/run.json").exists()


def test_every_file_of_a_run_with_everything_is_known_and_removed(tmp_path: Path) -> None:
    script = (
        "import otel_memwatch, subprocess, sys\n"
        "with otel_memwatch.operation('Load'): x = bytearray(1 << 20)\n"
        "subprocess.run([sys.executable, '-m', 'otel_memwatch', 'mark', 'Sort'], check=True)\n"
    )
    done = call("wrap", "--quiet", "--out", "e/r", "--plot", "--group", "g", "--rank", "0", "--budget", "memory=8GiB",
                "--", "python3", "-c", script, cwd=tmp_path)  # fmt: skip
    assert done.returncode == 0, done.stderr
    for style in ((), ("--style", "phases")):
        assert call("plot", "e/r", *style, cwd=tmp_path).returncode == 0
    names = sorted(os.listdir(tmp_path / "e/r"))
    assert {"budgets.json", "memory.png", "phases.png", "report.html", "report.txt"} <= set(names)
    assert sum(name.startswith("operations-") for name in names) >= 1
    assert [name for name in names if not is_run_file(name)] == []
    assert call("runs", "prune", "--keep", "0", "e", cwd=tmp_path).stdout == "e/r\n"
    assert not (tmp_path / "e/r").exists()


def test_runs_that_disappear_while_they_are_listed_fail_no_listing(tmp_path: Path) -> None:
    home = tmp_path / "memwatch-runs"
    first = recorded.short(home / "stays")
    for _ in range(4):
        for number in range(300):
            shutil.copytree(first, home / f"r{number:03}")
        listing = [
            subprocess.Popen([*PROGRAM, "runs", *form], cwd=tmp_path, env=environment(),
                             stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            for form in (["--json"], ["--json", "--last", "200"], ["--format", "csv"], [])
        ]  # fmt: skip
        time.sleep(0.3)
        for number in range(300):
            shutil.rmtree(home / f"r{number:03}")
        for process in listing:
            out, err = process.communicate(timeout=100)
            assert (process.returncode, err) == (0, b"")
            assert b"stays" in out
