"""Proportional and unique set size of real processes."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from otel_memwatch.monitor.sampling.sources import Context
from otel_memwatch.monitor.sampling.sources.memory_detail import FIRST_AFTER, MemoryDetail
from otel_memwatch.runtime.procfs import address_spaces
from otel_memwatch.runtime.procfs.address_spaces import AddressSpaces
from tests.support.proc_tree import KnownPids

FAMILY = Path(__file__).parents[4] / "programs/process_tree/family_shares_memory.py"
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
        now, values = time.monotonic(), detail.idle
        detail.read(now)
        for step in range(1, 600):
            values = detail.read(now + FIRST_AFTER + step)
            if values[0] is not None:
                break
        pss, uss, swap, needed, factor = values
        resident = (
            sum(child.memory_info().rss for child in children) + psutil.Process(family.pid).memory_info().rss
        )
        assert pss is not None
        assert uss is not None
        assert swap is not None
        assert 64 * MIB <= pss < 120 * MIB
        assert resident >= 4 * 64 * MIB
        assert uss < 40 * MIB
        assert needed is not None
        assert factor is None or 0 < factor <= 1
        # Without files, but with page tables and kernel stacks, of which five processes have at most 2 MiB.
        assert 64 * MIB <= needed < pss + 2 * MIB
        psutils = sum(p.memory_full_info().pss for p in (psutil.Process(family.pid), *children))
        assert pss == pytest.approx(psutils, rel=0.05)
    finally:
        family.communicate(timeout=GUARD)


_TWO_IN_ONE_SPACE = """
#define _GNU_SOURCE
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
static int child(void *unused) { (void)unused; pause(); return 0; }
int main(void) {
    size_t bytes = 200u << 20;
    volatile char *memory = memset(malloc(bytes), 1, bytes);
    char *stack = malloc(65536);
    int shares = clone(child, stack + 65536, CLONE_VM | SIGCHLD, NULL);
    int forked = fork();
    if (forked == 0) { pause(); return 0; }
    printf("%d %d\\n", shares, forked);
    fflush(stdout);
    getchar();
    kill(shares, SIGKILL);
    kill(forked, SIGKILL);
    while (wait(NULL) > 0) { }
    return memory[bytes - 1] != 1;
}
"""


@pytest.fixture
def two_in_one_space(tmp_path: Path) -> Iterator[tuple[int, int, int]]:
    """Pids: of a process with 200 MiB, of one that runs in its memory, of one that it has forked."""
    compiler = shutil.which("cc")
    assert compiler, "the tests need a C compiler (Debian package gcc)"
    (tmp_path / "spaces.c").write_text(_TWO_IN_ONE_SPACE)
    subprocess.run([compiler, "-O1", "-o", tmp_path / "spaces", tmp_path / "spaces.c"], check=True)
    process = subprocess.Popen(
        [tmp_path / "spaces"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    shares, forked = map(int, process.stdout.readline().split())
    try:
        yield process.pid, shares, forked
    finally:
        process.communicate("\n", timeout=GUARD)


@pytest.mark.parametrize(
    "compare", [address_spaces.compare, lambda _pid, _other: -1], ids=["kcmp", "refused"]
)
def test_one_address_space_of_two_processes_is_met_once(
    two_in_one_space: tuple[int, int, int], compare: Callable[[int, int], int]
) -> None:
    spaces = AddressSpaces("/proc", compare)
    extents = [Path(f"/proc/{pid}/smaps_rollup").read_bytes().split(b" ", 1)[0] for pid in two_in_one_space]
    assert len(set(extents)) == 1
    met = [spaces.is_new(pid, extent) for pid, extent in zip(two_in_one_space, extents, strict=True)]
    assert met == [True, False, True]


def test_the_pages_of_one_address_space_count_once(two_in_one_space: tuple[int, int, int]) -> None:
    detail = MemoryDetail(Context(two_in_one_space[0], 0.1, tree=KnownPids(list(two_in_one_space))))
    now = time.monotonic()
    detail.read(now)
    values = detail.idle
    for step in range(1, 600):
        values = detail.read(now + FIRST_AFTER + step)
        if values[0] is not None:
            break
        time.sleep(0.01)  # it may be read beside the ticks
    pss = values[0]
    assert pss is not None
    assert 195 * MIB <= pss <= 215 * MIB
