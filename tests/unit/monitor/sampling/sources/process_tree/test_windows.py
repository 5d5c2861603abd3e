"""Windowed watermarks: the rules of the bound that need no process."""

from __future__ import annotations

from pathlib import Path

from otel_memwatch.monitor.sampling.sources.process_tree.windows import (
    FAULT_AROUND,
    _prefix_bound,
    fault_bytes,
)

MIB = 1 << 20


def test_bound_of_a_scan_covers_every_mixture() -> None:
    # while the first process already fell from 10 to 1, the second had not yet fallen
    assert _prefix_bound([10, 2, 3], [1, 9, 3]) == 13
    assert _prefix_bound([2, 10], [9, 1]) == 19
    assert _prefix_bound([200], [20]) == 20
    assert _prefix_bound([], []) == 0


def test_bytes_of_one_fault(tmp_path: Path) -> None:
    assert fault_bytes(tmp_path, "6.1.0") == FAULT_AROUND
    pages = tmp_path / "kernel/mm/transparent_hugepage"
    pages.mkdir(parents=True)
    (pages / "enabled").write_text("always [madvise] never\n")
    assert fault_bytes(tmp_path, "6.1.0") == 2 * MIB
    (pages / "hpage_pmd_size").write_text(f"{32 * MIB}\n")
    assert fault_bytes(tmp_path, "6.1.0") == 32 * MIB
    (pages / "enabled").write_text("always madvise [never]\n")
    assert fault_bytes(tmp_path, "6.1.0") == FAULT_AROUND
    assert fault_bytes(tmp_path, "6.18.44-x") == 32 * MIB  # the page cache has large folios all the same
