"""Readings of JVMs in a tree."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

from otel_memwatch.monitor.sampling.java_heaps import JavaHeaps
from otel_memwatch.runtime.kernel import CLOCK_TICKS, PAGE_SIZE
from otel_memwatch.truth.heap import kept_memory
from tests.unit.runtime.procfs.test_hsperfdata import MIB, hsperfdata_file

if TYPE_CHECKING:
    from pathlib import Path


def _process(proc: Path, pid: int, *, jvm: bool) -> None:
    started = int(time.clock_gettime(time.CLOCK_BOOTTIME) * CLOCK_TICKS)
    tmp = proc / str(pid) / "root/tmp"
    (tmp / "hsperfdata_user").mkdir(parents=True)
    pages = 280 * MIB // PAGE_SIZE
    (proc / str(pid) / "statm").write_text(f"{pages} {pages} 0 0 0 0 0\n")
    (proc / str(pid) / "stat").write_text(f"{pid} (java) S" + " 0" * 18 + f" {started} 0 0")
    (proc / str(pid) / "status").write_text(
        f"Name:\tjava\nNSpid:\t{pid}\t3\nUid:\t0\t0\t0\t0\nVmStk:\t1024 kB\nVmData:\t{320 * 1024} kB\nVmHWM:\t1 kB\n"
        f"RssAnon:\t{280 * 1024} kB\nRssFile:\t0 kB\nRssShmem:\t0 kB\nVmSwap:\t0 kB\nThreads:\t20\n"
        "SigIgn:\t0000000000000000\nvoluntary_ctxt_switches:\t1\nnonvoluntary_ctxt_switches:\t1\n"
    )
    if jvm:
        (tmp / "hsperfdata_user/3").write_bytes(hsperfdata_file())
        os.utime(tmp / "hsperfdata_user/3", (time.time() + 60,) * 2)


def test_a_jvm_is_found_by_the_file_that_it_publishes(tmp_path: Path) -> None:
    _process(tmp_path, 7, jvm=True)
    _process(tmp_path, 8, jvm=False)
    heaps = JavaHeaps(str(tmp_path))
    assert heaps.read([7, 8, 9], 100.0) == []  # young programs are left alone
    (found,) = heaps.read([7, 8, 9], 101.0)
    assert (found.pid, found.anonymous, found.private, found.threads) == (7, 280 * MIB, 321 * MIB, 20)
    kept = kept_memory(found)
    assert kept is not None
    # 195 MiB held no object, of which 41 MiB at most have no page.
    assert (kept.books.name, kept.bytes, kept.high) == ("JVM old generation", 154 * MIB, 195 * MIB)
    assert heaps.read([7], 101.5) == []
