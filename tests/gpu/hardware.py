"""What the claims need of a machine: an NVIDIA GPU with its driver, and PyTorch with CUDA or CUDA's library alone."""

from __future__ import annotations

import ctypes
import importlib.util
import os
import subprocess
import sys
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
MIB = 1024**2


@cache
def missing() -> str | None:
    """Why nothing can be claimed here; `None`: nothing is missing."""
    try:
        cuda = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return "no CUDA driver"
    count = ctypes.c_int()
    if cuda.cuInit(0) or cuda.cuDeviceGetCount(ctypes.byref(count)) or not count.value:
        return "no GPU that CUDA can use"
    return None


@cache
def nvml_missing() -> str | None:
    """Why the driver's management library cannot take part."""
    if importlib.util.find_spec("pynvml") is None:
        return "no nvidia-ml-py"
    try:
        ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        return "no libnvidia-ml.so.1"
    return None


@cache
def torch_missing() -> str | None:
    """Why PyTorch cannot take part."""
    if importlib.util.find_spec("torch") is None:
        return "no PyTorch"
    code = "import torch; raise SystemExit(not torch.cuda.is_available())"
    return "PyTorch without CUDA" if run(code, check=False).returncode else None


def run(code: str, *arguments: str, check: bool = True, **variables: str) -> subprocess.CompletedProcess[str]:
    """Runs a separate program: CUDA is initialised once in a process, and one test must not spoil the next."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), **variables}
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        capture_output=True,
        text=True,
        env=environment,
        timeout=600,
        check=False,
    )
    if check and done.returncode:
        raise AssertionError(f"exit code {done.returncode}:\n{done.stdout}\n{done.stderr}")
    return done


RAW = """
import ctypes
_cuda = ctypes.CDLL("libcuda.so.1")
def _ok(code):
    assert code == 0, f"CUDA error {code}"
def context(ordinal=0):
    device, made = ctypes.c_int(), ctypes.c_void_p()
    _ok(_cuda.cuInit(0))
    _ok(_cuda.cuDeviceGet(ctypes.byref(device), ordinal))
    _ok(_cuda.cuDevicePrimaryCtxRetain(ctypes.byref(made), device))
    _ok(_cuda.cuCtxSetCurrent(made))
def take(size):
    pointer = ctypes.c_uint64()
    _ok(_cuda.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(size)))
    return pointer
def give(pointer):
    _ok(_cuda.cuMemFree_v2(pointer))
"""
"""Source of a program's beginning: memory from CUDA itself, which no allocator sees."""
