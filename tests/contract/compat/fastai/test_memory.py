"""GPU memory by number, on a stand-in for the driver; zeros where there is no GPU."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from typing import TYPE_CHECKING

import pytest

from tests.support import nvml

if TYPE_CHECKING:
    from pathlib import Path

GIB = nvml.GIB


@pytest.fixture
def machine(tmp_path: Path) -> nvml.Machine:
    made = nvml.Machine(tmp_path / "nvml")
    made.card(0, total=10 * GIB, used=7 * GIB)
    made.card(1, total=20 * GIB, used=5 * GIB)
    return made


def ask(code: str, machine: nvml.Machine | None = None, **variables: str) -> str:
    """Output of a program that uses the module."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("CUDA_")} | variables
    if machine is not None:
        environment |= machine.environment()
    environment["PYTHONPATH"] = os.pathsep.join(sys.path)
    program = "from otel_memwatch.compat.fastai import *\n" + textwrap.dedent(code)
    done = subprocess.run(
        [sys.executable, "-W", "always", "-c", program],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip() + done.stderr.strip()


def test_without_a_gpu_everything_is_zero(tmp_path: Path) -> None:
    output = ask(
        """
        print(gpu_mem_get(), gpu_mem_get(5), gpu_mem_get_all(), gpu_with_max_free_mem())
        print(gpu_mem_get_free(), gpu_mem_get_used(), gpu_mem_get_free_no_cache(), gpu_mem_get_used_no_cache())
        preload_pytorch()
        """
    )
    zeros = "GPUMemory(total=0, free=0, used=0)"
    assert output == f"{zeros} {zeros} [] (None, 0)\n0 0 0 0"


def test_all_devices_and_the_one_with_most_free_memory(machine: nvml.Machine) -> None:
    output = ask(
        """
        print(gpu_mem_get_all() == [GPUMemory(10240, 3072, 7168), GPUMemory(20480, 15360, 5120)])
        print(gpu_mem_get(1).used, gpu_mem_get().free, gpu_mem_get(2), gpu_mem_get(-1).total, gpu_with_max_free_mem())
        """,
        machine,
    )
    assert output == "True\n5120 3072 GPUMemory(total=0, free=0, used=0) 0 (1, 15360)"


def test_the_environment_decides_which_device_is_which(machine: nvml.Machine) -> None:
    code = (
        "print(len(gpu_mem_get_all()), gpu_mem_get(0).total, gpu_mem_get(1).total, gpu_with_max_free_mem())"
    )
    assert (
        ask(code, machine, CUDA_VISIBLE_DEVICES="1", CUDA_DEVICE_ORDER="PCI_BUS_ID") == "1 20480 0 (0, 15360)"
    )
    assert ask(code, machine, CUDA_VISIBLE_DEVICES=nvml.FIRST) == "1 10240 0 (0, 3072)"


def test_the_device_that_the_thread_has_set_is_found_by_what_cuda_calls_it(machine: nvml.Machine) -> None:
    """CUDA may count the faster device first, whatever the driver's order."""
    code = f"""
        import sys, threading, types
        from tests.support.fake_torch import Cuda
        cuda = Cuda(({nvml.SECOND.removeprefix("GPU-")!r}, {nvml.FIRST.removeprefix("GPU-")!r}))
        sys.modules["torch"] = types.SimpleNamespace(cuda=cuda)
        print(gpu_mem_get().total, gpu_mem_get(1).total)
        cuda.set_device(1)
        print(gpu_mem_get().total, gpu_mem_get_used(), gpu_mem_get_used_no_cache(), cuda.emptied)
    """
    assert ask(code, machine) == "20480 10240\n10240 7168 7168 1"


def test_without_pytorch_a_trace_shows_the_whole_device(machine: nvml.Machine) -> None:
    code = f"""
        import pathlib, sys
        sys.path.insert(0, {os.getcwd()!r})
        from tests.support import nvml
        trace = GPUMemTrace()
        machine = nvml.Machine(pathlib.Path({str(machine.script)!r}))
        machine.card(0, total=10 * nvml.GIB, used=8 * nvml.GIB)
        print(trace.data())
    """
    assert ask(code, machine) == "(1024, 0)"


def test_a_driver_in_trouble_is_reported_once(machine: nvml.Machine) -> None:
    machine.also("fail nvmlInitWithFlags 18")
    output = ask("print(gpu_mem_get(), gpu_mem_get_all())", machine)
    assert output.startswith("GPUMemory(total=0, free=0, used=0) []")
    assert output.count("GPU memory is given as 0") == 1
    assert "reboot" in output


def test_a_handle_of_the_driver_s_library(machine: nvml.Machine) -> None:
    code = """
        import pynvml; pynvml.nvmlInit()
        print(gpu_mem_get_used_fast(pynvml.nvmlDeviceGetHandleByIndex(1)))
    """
    assert ask(code, machine) == "5120"
