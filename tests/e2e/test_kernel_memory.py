"""Kernel memory that a user can read, page tables and kernel stacks, without a cgroup and with one."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.support.control_group import memory_parent
from tests.support.wrapped import MIB, wrap

SPARSE = """
import mmap, time
size = 16 << 30
memory = mmap.mmap(-1, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x4000)  # MAP_NORESERVE
memory.madvise(15)  # MADV_NOHUGEPAGE
for place in range(0, size, 2 << 20):
    memory[place] = 1
time.sleep(0.5)
"""
"""8192 pages, each with a separate page table."""
THREADS = """
import os, threading, time
threading.stack_size(64 << 10)
end = threading.Event()
for _ in range(1000):
    threading.Thread(target=end.wait, daemon=True).start()
time.sleep(2)  # a tree with so many threads is sampled less often
os._exit(0)
"""

needs_group = pytest.mark.skipif(
    not (memory_parent() / "memory.max_usage_in_bytes").exists(), reason="needs a cgroup of version 1"
)


@needs_group
@pytest.mark.parametrize("program", [SPARSE, THREADS], ids=["sparse", "threads"])
def test_needed_memory_means_the_same_with_and_without_a_cgroup(tmp_path: Path, program: str) -> None:
    peaks = {}
    for cgroup in ("auto", "off"):
        done = wrap(
            [sys.executable, "-S", "-c", program],
            "--quiet",
            "--no-report",
            "--cgroup",
            cgroup,
            out=tmp_path / cgroup,
            cwd=tmp_path,
        )
        assert done.code == 0, done.err
        peaks[cgroup] = done.info["peaks"]["tree"]
    charged, read = peaks["auto"], peaks["off"]
    assert read["excludes"] == ["kernel"]
    assert "excludes" not in charged
    # The rest is kernel memory that no user can read: about 9 KiB for each thread (task_struct and others).
    rest = 1000 * 10 * 1024 + MIB if program is THREADS else 2 * MIB
    assert charged["low"] - rest <= read["low"] <= charged["high"] + 1.5 * MIB
    assert read["high"] >= charged["low"] - rest
