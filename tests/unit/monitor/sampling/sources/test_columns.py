"""Sources of the portable figures and of the host: each value belongs to its column."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from otel_memwatch import catalog
from otel_memwatch.monitor.sampling.sources import Context, portable
from otel_memwatch.monitor.sampling.sources.host import Host
from tests.support.proc_tree import KnownPids

MEMINFO = b"""MemTotal:       1000 kB
MemFree:         300 kB
MemAvailable:    600 kB
Buffers:          10 kB
Cached:          200 kB
SwapTotal:       100 kB
SwapFree:         40 kB
"""


def test_values_of_the_host_stand_in_their_columns(tmp_path: Path) -> None:
    (tmp_path / "meminfo").write_bytes(MEMINFO)
    (tmp_path / "loadavg").write_bytes(b"1.25 0.5 0.1 1/100 4242\n")
    source = Host(Context(root=1, interval=0.1, proc=tmp_path))
    values = {
        (column.metric, *(value for _, value in column.attributes)): value
        for column, value in zip(source.columns, source.read(0.0), strict=True)
    }
    source.close()
    usage, paging = catalog.SYSTEM_MEMORY_USAGE, catalog.SYSTEM_PAGING_USAGE
    assert values == {
        (usage, "used"): 400 << 10,
        (usage, "free"): 300 << 10,
        (usage, "buffers"): 10 << 10,
        (usage, "cached"): 200 << 10,
        (catalog.SYSTEM_MEMORY_LINUX_AVAILABLE,): 600 << 10,
        (catalog.SYSTEM_MEMORY_LIMIT,): 1000 << 10,
        (paging, "used"): 60 << 10,
        (paging, "free"): 40 << 10,
        (catalog.SYSTEM_CPU_LOGICAL_COUNT,): len(os.sched_getaffinity(0)),
        (catalog.MEMWATCH_SYSTEM_LOAD,): 1.25,
    }


def test_while_the_tree_sleeps_only_swap_is_read_each_second(tmp_path: Path) -> None:
    (tmp_path / "meminfo").write_bytes(MEMINFO)
    (tmp_path / "loadavg").write_bytes(b"1.25 0.5 0.1 1/100 4242\n")
    tree = KnownPids([1])
    source = Host(Context(root=1, interval=0.1, proc=tmp_path, tree=tree))
    source.read(1.0)
    assert (source.repeats().until, source.repeats().files) == (1.95, ())
    tree.sleeps = True
    until, values, (file,) = source.repeats()
    assert (until, values) == (2.95, source.idle)
    assert (file.next, file.every) == (1.95, pytest.approx(1.0))
    assert file.parts == (b"SwapTotal:       100 kB\nSwapFree:         40 kB\n",)
    (tmp_path / "meminfo").write_bytes(MEMINFO.replace(b"SwapTotal:       100", b"SwapTotal:         0"))
    source.read(3.0)
    assert source.repeats().files == (), "the machine has no swap"
    source.close()


def process(**facts: Any) -> Any:
    figures = {"num_fds": 7, "num_ctx_switches": SimpleNamespace(voluntary=3, involuntary=4)}
    used = portable._ProcessCounters(1.5, 0.5, 100, None)
    return SimpleNamespace(
        **{
            "rss": 10,
            "virtual": 20,
            "threads": 2,
            "used": used,
            "zombie": False,
            "start": 1.0,
            "optional": figures.get,
        }
        | facts
    )


def own_figures(main: Any) -> dict[tuple[str, ...], Any]:
    tree = portable._Tree(5.0, main, [process()], (9.0, 8.0, None, 7))
    return {
        (metric, *(value for _, value in attributes)): get(tree)
        for metric, attributes, get in (*portable._FAST, *portable._SLOW)
        if metric.startswith("process.")
    }


def test_figures_of_the_target() -> None:
    assert own_figures(process()) == {
        (catalog.PROCESS_MEMORY_USAGE,): 10,
        (catalog.PROCESS_CPU_TIME, "user"): 1.5,
        (catalog.PROCESS_CPU_TIME, "system"): 0.5,
        (catalog.PROCESS_MEMORY_VIRTUAL,): 20,
        (catalog.PROCESS_DISK_IO, "read"): 100,
        (catalog.PROCESS_DISK_IO, "write"): None,
        (catalog.PROCESS_THREAD_COUNT,): 2,
        (catalog.PROCESS_UNIX_FILE_DESCRIPTOR_COUNT,): 7,
        (catalog.PROCESS_CONTEXT_SWITCHES, "voluntary"): 3,
        (catalog.PROCESS_CONTEXT_SWITCHES, "involuntary"): 4,
        (catalog.PROCESS_UPTIME,): 4.0,
    }


def test_a_zombie_has_its_cpu_time_only_and_a_target_that_is_gone_nothing() -> None:
    known = {key for key, value in own_figures(process(zombie=True)).items() if value is not None}
    assert known == {(catalog.PROCESS_CPU_TIME, "user"), (catalog.PROCESS_CPU_TIME, "system")}
    assert set(own_figures(None).values()) == {None}
