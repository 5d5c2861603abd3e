"""Huge pages of hugetlbfs: in no resident size, reported beside the figures of memory."""

from __future__ import annotations

import fcntl
import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from otel_memwatch.reports.summary import summary
from otel_memwatch.run import load
from tests.support.wrapped import wrap

RESERVED = Path("/proc/sys/vm/nr_hugepages")
PAGE = 2 << 20
PAGES = 8
MAPPED = f"""
import mmap, time
MAP_HUGETLB = 0x40000
memory = mmap.mmap(-1, {PAGES * PAGE}, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | MAP_HUGETLB)
for page in range(0, {PAGES * PAGE}, {PAGE}):
    memory[page] = 1
time.sleep(0.5)
"""


@pytest.fixture
def reserved() -> Iterator[None]:
    """So many huge pages as the program maps, more than are there already."""
    if "Hugepagesize:       2048 kB" not in Path("/proc/meminfo").read_text():
        pytest.skip("huge pages are of another size here")
    with RESERVED.open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # else workers side by side restore the numbers of each other
        before = RESERVED.read_text()
        try:
            RESERVED.write_text(f"{int(before) + PAGES}\n")
        except OSError:
            pytest.skip("only root may reserve huge pages")
        try:
            if int(RESERVED.read_text()) < int(before) + PAGES:
                pytest.skip("the kernel has no room for huge pages")
            yield
        finally:
            RESERVED.write_text(before)


@pytest.mark.usefixtures("reserved")
@pytest.mark.parametrize("group", ["auto", "off"])
def test_huge_pages_are_reported_beside_what_was_needed(group: str, tmp_path: Path) -> None:
    done = wrap([sys.executable, "-c", MAPPED], "--cgroup", group, out=tmp_path / "run")
    assert done.code == 0, done.err
    run = load(tmp_path / "run")
    assert run.peaks.tree is not None
    assert run.peaks.tree.bytes < PAGES * PAGE
    assert run.peaks.hugetlb is not None
    assert run.peaks.hugetlb.bytes == PAGES * PAGE
    assert "plus 16.0 MiB of huge pages (hugetlbfs)" in done.err
    # a record whose monitor died reports the same
    info = json.loads((tmp_path / "run" / "run.json").read_text())
    del info["peaks"]
    (tmp_path / "run" / "run.json").write_text(json.dumps(info))
    assert "plus 16.0 MiB of huge pages (hugetlbfs)" in summary(load(tmp_path / "run"))


def test_without_huge_pages_nothing_is_said(tmp_path: Path) -> None:
    done = wrap(["true"], "--cgroup", "off", out=tmp_path / "run")
    assert load(tmp_path / "run").peaks.hugetlb is None
    assert "huge pages" not in done.err
