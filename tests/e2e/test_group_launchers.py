"""Groups by the launchers themselves, which take long to install and to start: with MEMWATCH_LONG=1."""

from __future__ import annotations

import json
import os
import platform
import shutil
import socket
import subprocess
import time
from pathlib import Path

import pytest

from tests.support.slurm import controller
from tests.support.wrapped import PROGRAM, environment, work

TIMEOUT = 400
TASKS = 50
TORCH_PYTHON = os.environ.get("OTEL_MEMWATCH_FRAMEWORKS_PYTHON")

needs_long = pytest.mark.skipif(
    os.environ.get("MEMWATCH_LONG") != "1", reason="launchers of others are asked by `sh tests/run.sh all`"
)


def report(place):
    done = subprocess.run(
        [*PROGRAM, "report", str(place), "--json"],
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
        env=environment(),
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@needs_long
@pytest.mark.timeout(0)
def test_an_array_of_slurm(tmp_path):
    assert shutil.which("slurmctld"), "slurmctld is not installed"
    if os.geteuid() != 0:
        pytest.skip("slurmd runs as root only")
    runs = tmp_path / "runs"
    task = tmp_path / "task.sh"
    words = " ".join(
        [*PROGRAM, "wrap", "--quiet", "--no-report", "--runs", str(runs), "--", *work("a20 s100")]
    )
    # Task 7 fails, and task 11 is not recorded at all.
    task.write_text(
        f'#!/bin/sh\n[ "$SLURM_ARRAY_TASK_ID" = 11 ] && exit 0\n[ "$SLURM_ARRAY_TASK_ID" = 7 ] && exec {words} x3\nexec {words}\n'
    )
    with controller(tmp_path) as variables:
        job = subprocess.run(
            ["sbatch", "--parsable", f"--array=1-{TASKS}", "--mem=10M", "--output=/dev/null", str(task)],
            env=variables, capture_output=True, text=True, check=True,
        ).stdout.strip()  # fmt: skip
        until = time.monotonic() + TIMEOUT
        while subprocess.run(
            ["squeue", "-h", "-j", job], env=variables, capture_output=True, text=True
        ).stdout.strip():
            assert time.monotonic() < until
            time.sleep(1)
    document = report(runs)
    assert document["group"]["id"] == f"slurm-array-{job}"
    assert document["group"]["size"] == TASKS
    assert document["missing"] == [11]
    assert [rank["rank"] for rank in document["ranks"]] == [n for n in range(1, TASKS + 1) if n != 11]
    assert document["first_death"]["rank"] == 7
    assert document["group"]["hosts"] == [platform.node()]
    assert len({rank["host"] for rank in document["ranks"]}) == 1


TRAIN = """
import os, time
import torch
import torch.distributed as dist
from otel_memwatch import operation
dist.init_process_group("gloo")
rank = dist.get_rank()
with operation("Load"):
    held = torch.ones(((20 + 10 * rank) << 20) // 4)
dist.barrier()
time.sleep(1)
dist.barrier()
dist.destroy_process_group()
"""


@pytest.mark.skipif(TORCH_PYTHON is None, reason="needs PyTorch: `sh tests/run.sh all`")
def test_torchrun_on_two_nodes(tmp_path):
    """Two nodes of one machine, two ranks each: torchrun starts `wrap`, which starts the program."""
    program = tmp_path / "train.py"
    program.write_text(TRAIN)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    python = str(TORCH_PYTHON)
    nodes = []
    for node in range(2):
        argv = [
            python, "-m", "torch.distributed.run", "--nnodes=2", f"--node-rank={node}", "--nproc-per-node=2",
            "--rdzv-backend=c10d", f"--rdzv-endpoint=127.0.0.1:{port}", "--rdzv-id=two-nodes", "--no-python",
            *PROGRAM, "wrap", "--quiet", "--no-report", "--runs", str(tmp_path / "runs"), "--", python, str(program),
        ]  # fmt: skip
        root = str(Path(__file__).parents[2])
        nodes.append(subprocess.Popen(argv, env=environment(PYTHONPATH=root, OMP_NUM_THREADS="1")))
    assert [node.wait(TIMEOUT) for node in nodes] == [0, 0]
    document = report(tmp_path / "runs")
    assert document["group"]["id"] == "two-nodes"
    assert document["group"]["launcher"] == "torchrun"
    assert [rank["rank"] for rank in document["ranks"]] == [0, 1, 2, 3]
    assert sorted(rank["local_rank"] for rank in document["ranks"]) == [0, 0, 1, 1]
    assert document["memory"]["largest"]["rank"] == 3
    told = subprocess.run(
        [*PROGRAM, "report", str(tmp_path / "runs")],
        capture_output=True,
        text=True,
        env=environment(),
    )
    assert "4 ranks on 1 host, started by torchrun" in told.stdout
