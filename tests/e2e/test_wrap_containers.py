"""`wrap -- docker run`: the container is recorded beside its client, or one line says that only the client was."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from otel_memwatch.run import load
from tests.e2e.test_attach_groups import podman, tree_of
from tests.support.control_group import memory_parent
from tests.support.wrapped import PROGRAM, environment

MIB = 1 << 20
CONTAINER = "import sys; sys.stdin.readline(); held = bytearray(120 << 20); del held; print('done', flush=True); input()"


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Path]:
    """A client named docker: it asks the engine, which is the test, for a container, and ends when that says so."""
    for name in ("asked", "answered"):
        os.mkfifo(tmp_path / name)
    client = tmp_path / "docker"
    client.write_text(
        f"#!/bin/sh\necho run > {tmp_path}/asked\nread code < {tmp_path}/answered\nexit $code\n"
    )
    client.chmod(0o755)
    group = memory_parent() / ("d" * 32 + f"{os.getpid():032x}")
    yield client
    deadline = time.monotonic() + 30
    while group.is_dir() and time.monotonic() < deadline:
        with contextlib.suppress(OSError):
            group.rmdir()


def started(tmp_path: Path, *argv: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*PROGRAM, "wrap", "--no-report", "--out", "run", "--", *argv], cwd=tmp_path, env=environment(),
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def container(folder: Path, group: Path) -> subprocess.Popen[str]:
    """A container of a daemon: no descendant of the client."""
    group.mkdir()
    (folder / "id").write_text(group.name)
    return subprocess.Popen(
        [sys.executable, "-S", "-c", CONTAINER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        preexec_fn=lambda: (group / "cgroup.procs").write_text("0"),  # noqa: PLW1509 - one write to a file
    )  # fmt: skip


def samples(run: Path) -> int:
    try:
        return (run / "samples.jsonl").read_bytes().count(b"\n")
    except FileNotFoundError:
        return 0


def wait_for_more(run: Path, more: int = 3) -> None:
    wanted, deadline = samples(run) + more, time.monotonic() + 60
    while samples(run) < wanted:
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_a_container_of_a_daemon_is_recorded(tmp_path: Path, engine: Path) -> None:
    group = memory_parent() / ("d" * 32 + f"{os.getpid():032x}")
    wrapped = started(tmp_path, str(engine), "run", "--cidfile", "id", "--name", "web", "image")
    assert (tmp_path / "asked").read_text() == "run\n"
    process = container(tmp_path, group)
    try:
        assert process.stdin is not None
        assert process.stdout is not None
        wait_for_more(tmp_path / "run-container")
        process.stdin.write("\n")
        process.stdin.flush()
        assert process.stdout.readline() == "done\n"
        wait_for_more(tmp_path / "run-container")
        process.communicate("\n")
        (tmp_path / "answered").write_text("7\n")
        _, said = wrapped.communicate(timeout=60)
    finally:
        for one in (process, wrapped):
            one.kill()
            one.communicate()
    assert wrapped.returncode == 7
    assert "otel-memwatch: container web\n" in said
    assert "result        exit code 7" in said
    tree = tree_of(tmp_path / "run-container")
    assert tree["certainty"] == "exact"
    assert 120 * MIB <= tree["high"] < 140 * MIB
    assert load(tmp_path / "run-container").fields.target_group == ("container", "web", True)
    assert json.loads((tmp_path / "run/run.json").read_text())["exit"]["exit_code"] == 7


def test_a_client_without_a_container_says_so(tmp_path: Path, engine: Path) -> None:
    wrapped = started(tmp_path, str(engine), "run", "image")
    assert (tmp_path / "asked").read_text() == "run\n"
    (tmp_path / "answered").write_text("3\n")
    _, said = wrapped.communicate(timeout=60)
    assert wrapped.returncode == 3
    assert (
        "otel-memwatch: only the client was recorded: no container was found (pass --cidfile FILE to docker run).\n"
        in said
    )
    assert not (tmp_path / "run-container").exists()


def test_a_container_that_goes_on_after_its_client(tmp_path: Path, engine: Path) -> None:
    group = memory_parent() / ("d" * 32 + f"{os.getpid():032x}")
    wrapped = started(tmp_path, str(engine), "run", "--cidfile=id", "-d", "image")
    assert (tmp_path / "asked").read_text() == "run\n"
    process = container(tmp_path, group)
    try:
        wait_for_more(tmp_path / "run-container")
        (tmp_path / "answered").write_text("0\n")
        _, said = wrapped.communicate(timeout=60)
        assert process.poll() is None
    finally:
        for one in (process, wrapped):
            one.kill()
            one.communicate()
    assert wrapped.returncode == 0
    assert f"otel-memwatch attach --container {'d' * 12}" in said
    assert "recording stopped with the client after" in said
    assert load(tmp_path / "run-container").state == "finished"


def test_a_container_of_podman(tmp_path: Path) -> None:
    command, root = podman(), tmp_path / "root"
    for folder in ("bin", "proc", "sys", "dev", "etc", "tmp", "run"):
        (root / folder).mkdir(parents=True)
    shutil.copy(shutil.which("busybox") or "", root / "bin/busybox")
    script = "read line; busybox dd if=/dev/zero of=/dev/null bs=90M count=1; echo done; read line; exit 7"
    argv = [*command, "--rootfs", str(root), "/bin/busybox", "sh", "-c", script]
    wrapped = started(tmp_path, *argv)
    assert wrapped.stdin is not None
    assert wrapped.stdout is not None
    deadline = time.monotonic() + 60
    while samples(tmp_path / "run-container") < 3 and wrapped.poll() is None and time.monotonic() < deadline:
        time.sleep(0.02)
    if wrapped.poll() is None:
        wrapped.stdin.write("\n")
        wrapped.stdin.flush()
        assert wrapped.stdout.readline() == "done\n"
        wait_for_more(tmp_path / "run-container")  # the last sample lacks the disk I/O of ended processes
    _, said = wrapped.communicate("\n", timeout=120)
    if wrapped.returncode != 7:
        pytest.skip(f"podman cannot run a container here: {said}")
    tree = tree_of(tmp_path / "run-container")
    assert 90 * MIB <= tree["high"] < 110 * MIB
    assert tree["low"] > 80 * MIB
    assert "the container is not in the run's cgroup (conmon" in said
