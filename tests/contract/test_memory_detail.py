"""Proportional and unique set size of real processes."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from otel_memwatch.monitor.sources import Context
from otel_memwatch.monitor.sources.memory_detail import FIRST_AFTER, MemoryDetail
from tests.support.proc_tree import KnownPids

FAMILY = Path(__file__).parents[1] / "programs/process_tree/family_shares_memory.py"
MIB = 1 << 20
GUARD = 60.0


@pytest.mark.skipif(
    not os.path.exists("/proc/self/smaps_rollup"), reason="the kernel does not sum up mappings"
)
def test_shared_pages_count_once() -> None:
    family = subprocess.Popen(
        [sys.executable, "-S", str(FAMILY)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert family.stdout is not None
        family.stdout.readline()
        children = psutil.Process(family.pid).children()
        known = KnownPids([family.pid, *(child.pid for child in children)])
        context = Context(family.pid, 0.1, tree=known)
        detail = MemoryDetail(context)
        now, values = time.monotonic(), (None, None, None)
        detail.read(now)
        for step in range(1, 600):
            values = detail.read(now + FIRST_AFTER + step)
            if values[0] is not None:
                break
        pss, uss, swap = values
        resident = (
            sum(child.memory_info().rss for child in children) + psutil.Process(family.pid).memory_info().rss
        )
        assert pss is not None
        assert uss is not None
        assert swap is not None
        assert 64 * MIB <= pss < 120 * MIB
        assert resident >= 4 * 64 * MIB
        assert uss < 40 * MIB
        psutils = sum(p.memory_full_info().pss for p in (psutil.Process(family.pid), *children))
        assert pss == pytest.approx(psutils, rel=0.05)
    finally:
        family.communicate(timeout=GUARD)
