"""A run on a machine with GPUs, as far as a scripted driver can stand for them: record, report, and a driver that hangs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.support.nvml import FIRST, GIB, SECOND, Machine
from tests.support.wrapped import rendered

ROOT = Path(__file__).parents[2]
DEVICE = "GPU-0d1e2f30-1111-2222-3333-444455556666"

PROGRAM = """
import sys, time
from tests.support.standin_torch import Torch
torch = sys.modules["torch"] = Torch()
from otel_memwatch import operation
torch.devices[0].take(7 << 30); torch.devices[0].give(7 << 30)
with operation("train"):
    torch.devices[0].take(3 << 30)
    time.sleep(1.5)
"""


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path / "script")


def wrap(
    machine: Machine, run: Path, *options: str, program: Sequence[str] = (PROGRAM,), **variables: str
) -> subprocess.CompletedProcess[str]:
    """Run a Python program, with its arguments, under the product on that machine."""
    command = ["-m", "otel_memwatch", "wrap", "--no-plot", f"--out={run}", *options, "--"]
    return subprocess.run(
        [sys.executable, *command, sys.executable, "-c", *program],
        env={**os.environ, **machine.environment(), "PYTHONPATH": str(ROOT), **variables},
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )


def info(run: Path) -> Any:
    return json.loads((run / "run.json").read_text())


def test_devices_their_peaks_and_those_of_operations_are_reported(machine: Machine, tmp_path: Path) -> None:
    machine.card(0, uuid=DEVICE, used=5 * GIB, gpu=50, memory=10)
    machine.card(1)
    run = tmp_path / "run"
    wrap(machine, run, "--exact-gpu", CUDA_VISIBLE_DEVICES="0")
    assert [(gpu["id"], gpu["visible"], gpu["recorded"]) for gpu in info(run)["gpus"]] == [
        (DEVICE, True, True),
        (SECOND, False, False),
    ]
    peaks = info(run)["peaks"]["gpu"]
    assert list(peaks) == [DEVICE]
    assert peaks[DEVICE]["bytes"] == 7 * GIB, (
        "what the allocator held is more than what the driver was seen to tell"
    )
    report = rendered(run).read_text()
    assert "NVIDIA H100 80GB HBM3" in report
    assert "50 % busy on average" in report
    row = next(line for line in report.splitlines() if "train" in line and "GPU-0d1e" in line)
    assert "3.00 GiB  exact" in row


def test_doctor_names_a_device_and_what_it_does_not_report(machine: Machine) -> None:
    machine.card(0, uuid=DEVICE)
    machine.also("fail nvmlDeviceGetNvLinkState 3")
    done = subprocess.run(
        [sys.executable, "-m", "otel_memwatch", "doctor"],
        env={**os.environ, **machine.environment(), "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert "Traceback" not in done.stderr, done.stderr
    assert DEVICE in done.stdout
    assert "it does not report" in done.stdout
    assert "cost of watching" in done.stdout


def test_a_driver_that_hangs_leaves_the_rest_of_the_record(machine: Machine, tmp_path: Path) -> None:
    machine.card(0)
    machine.also("hang nvmlDeviceGetMemoryInfo_v2")
    run = tmp_path / "run"
    wrap(machine, run)
    assert info(run)["state"] == "finished"
    assert info(run)["sources"]["process_tree"]["state"] == "ok"
    nvidia = info(run)["sources"]["gpu_nvidia"]
    assert nvidia["state"] == "unavailable"
    assert "did not answer within" in nvidia["hint"]
    assert info(run)["gpus"] == []


def test_a_broken_driver_is_a_hint_not_an_error(machine: Machine, tmp_path: Path) -> None:
    machine.card(0, uuid=FIRST)
    machine.also("init 18")
    run = tmp_path / "run"
    done = wrap(machine, run)
    assert "Traceback" not in done.stderr
    assert "reboot" in info(run)["sources"]["gpu_nvidia"]["hint"]


def test_a_driver_that_opens_slowly_is_recorded_from_then_on(machine: Machine, tmp_path: Path) -> None:
    machine.card(0, uuid=FIRST, used=3 * GIB)
    machine.also("hang nvmlInitWithFlags")
    run = tmp_path / "run"
    scraped = tmp_path / "metrics.prom"
    live = [f"--textfile={scraped}", "--metric-interval=0.5"]
    options = ["wrap", f"--out={run}", *live, "--", sys.executable, "-c", "import time; time.sleep(9)"]
    monitor = subprocess.Popen(
        [sys.executable, "-m", "otel_memwatch", *options],
        env={**os.environ, **machine.environment(), "PYTHONPATH": str(ROOT)},
        stderr=subprocess.PIPE,
        text=True,
    )
    time.sleep(4.5)
    machine.without("hang")
    exported = False
    while monitor.poll() is None and not exported:
        time.sleep(0.1)
        exported = scraped.exists() and "hw_gpu_memory_usage_bytes{" in scraped.read_text()
    _, summary = monitor.communicate(timeout=60)
    assert exported, "live metrics include the GPU from its answer on"
    assert info(run)["sources"]["gpu_nvidia"]["state"] == "ok"
    assert [gpu["id"] for gpu in info(run)["gpus"]] == [FIRST]
    assert info(run)["peaks"]["gpu"][FIRST]["bytes"] == 3 * GIB
    assert "3.00 GiB used by all programs" in summary
    assert "unknown" not in summary
    assert FIRST in rendered(run, "report.html").read_text()


def test_the_summary_names_a_driver_that_never_opened(machine: Machine, tmp_path: Path) -> None:
    machine.card(0, uuid=FIRST, used=3 * GIB)
    machine.also("hang nvmlInitWithFlags")
    run = tmp_path / "run"
    done = wrap(machine, run, program=["import time; time.sleep(3.5)"])
    lines = [line.split(maxsplit=1) for line in done.stderr.splitlines()]
    (line,) = [rest[0] for first, *rest in lines if first == "GPU"]
    assert line.startswith("unknown: The NVIDIA driver did not answer within the run")


SHARED = """
import os, sys, time
text = open(sys.argv[1]).read().replace(f"used={2 << 30}", f"used={3 << 30}")
text += f"process 0 pid={os.getpid()} used={1 << 30}\\nprocess 0 pid=1 used={2 << 30}\\n"
with open(sys.argv[1] + ".next", "w") as script:
    script.write(text)
os.replace(sys.argv[1] + ".next", sys.argv[1])
time.sleep(2.5)
"""


@pytest.mark.skipif(
    os.readlink("/proc/self/ns/pid") != "pid:[4026531836]", reason="needs the initial PID namespace"
)
def test_the_figure_of_a_run_leaves_out_other_programs(machine: Machine, tmp_path: Path) -> None:
    machine.card(0, uuid=FIRST, used=2 * GIB)
    run = tmp_path / "run"
    done = wrap(machine, run, "--budget=gpu=2GiB", program=[SHARED, str(machine.script)])
    peaks = info(run)["peaks"]
    assert (peaks["gpu"][FIRST]["bytes"], peaks["gpu_tree"][FIRST]["bytes"]) == (3 * GIB, GIB)
    (line,) = [line for line in done.stderr.splitlines() if line.split()[:1] == ["GPU"]]
    assert "1.00 GiB (sampled)" in line
    assert line.endswith("3.00 GiB used by all programs")
