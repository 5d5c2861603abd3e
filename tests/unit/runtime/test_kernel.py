"""Facts of the kernel, which the watched program imports too."""

from __future__ import annotations

import ast
import os
import time
from pathlib import Path

import pytest

from otel_memwatch.runtime import kernel

PAGE = os.sysconf("SC_PAGE_SIZE")


def test_counters_before_and_after_linux_6_2() -> None:
    """A resident size is the sum of three counters, each of which holds something back."""
    assert kernel.rss_error(256, 4, "6.1.0-53-amd64") == 3 * 64 * 256 * PAGE
    assert kernel.rss_error(256, 2, "6.18.44") == 3 * 31 * 2 * PAGE
    assert kernel.rss_error(1, 64, "6.2.0") == 3 * 127 * 64 * PAGE
    assert kernel.has_thread_counters("5.15.0-generic")
    assert not kernel.has_thread_counters("6.2")


@pytest.mark.parametrize(
    ("release", "numbers"),
    [
        ("6.1.0-18-amd64", (6, 1)),
        ("6.2", (6, 2)),
        ("6.12-rc3", (6, 12)),
        ("6.18+deb", (6, 18)),
        ("weird", (0, 0)),
        ("6.", (0, 0)),
        ("6.x", (0, 0)),
        ("v6.1", (0, 0)),
        ("", (0, 0)),
    ],
)
def test_release_numbers(release: str, numbers: tuple[int, int]) -> None:
    assert kernel.parse_release(release) == numbers


@pytest.mark.skipif(not hasattr(time, "CLOCK_BOOTTIME"), reason="Linux has this clock")
def test_start_of_a_process_is_on_the_monotonic_clock() -> None:
    ticks = int(Path("/proc/self/stat").read_bytes().rpartition(b")")[2].split()[19])
    start = kernel.monotonic_start(ticks)
    assert 0 < time.monotonic() - start < 24 * 3600
    assert kernel.monotonic_start(ticks + kernel.CLOCK_TICKS) - start == pytest.approx(1.0, abs=0.002)


def test_a_sum_with_an_unknown_part_is_unknown() -> None:
    assert kernel.sum_known([1, 2]) == 3
    assert kernel.sum_known([]) == 0
    assert kernel.sum_known([1, None, 2]) is None


def test_importing_it_costs_the_watched_program_nothing() -> None:
    """A bare Python has `os` and `time` loaded already; what stands under `if TYPE_CHECKING` is not run."""
    body = ast.parse(Path(kernel.__file__).read_text()).body
    names = {alias.name for node in body if isinstance(node, ast.Import) for alias in node.names}
    names |= {str(node.module) for node in body if isinstance(node, ast.ImportFrom)}
    assert names == {"__future__", "os", "time"}


@pytest.mark.parametrize("count", [1, 3, 256])
def test_tests_choose_the_number_of_processors(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    monkeypatch.setenv(kernel.PROCESSORS_VARIABLE, str(count))
    assert kernel.processors() == kernel.usable_processors() == count
    assert kernel.rss_error(1, release="6.2") == kernel.rss_error(1, count, "6.2")


@pytest.mark.parametrize("text", ["", "many"])
def test_the_number_of_processors_is_the_machines_whatever_pythons_is(
    monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    monkeypatch.setenv(kernel.PROCESSORS_VARIABLE, text)
    monkeypatch.setattr("os.cpu_count", lambda: 1000)
    assert 1 <= kernel.processors() < 1000


@pytest.mark.skipif(not Path("/proc/self/net/softnet_stat").exists(), reason="Linux has this list")
def test_processors_outside_a_container_or_an_affinity_mask_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """Under lxcfs, and with musl, `sysconf` knows only those that this process may use."""
    real = os.sysconf
    monkeypatch.delenv(kernel.PROCESSORS_VARIABLE, raising=False)
    monkeypatch.setattr(kernel, "_online", 0)
    monkeypatch.setattr("os.sysconf", lambda name: 1 if name == "SC_NPROCESSORS_ONLN" else real(name))
    online = len(Path("/proc/self/net/softnet_stat").read_text().splitlines())
    assert kernel.processors() == online == len(kernel.packets())
    monkeypatch.setattr(kernel, "_online", 0)
    monkeypatch.setattr(kernel, "_QUEUES", "/nonexistent")
    assert kernel.processors() == 1


@pytest.mark.parametrize(
    ("gibibytes", "cpus", "pages"), [(24, 2, 2 * 36), (24, 64, 64 * 125), (0.25, 1, 1 * 6)]
)
def test_a_count_of_pages_may_be_off_by_the_threshold_of_each_processor(
    gibibytes: float, cpus: int, pages: int
) -> None:
    assert kernel.vmstat_error(int(gibibytes * (1 << 30)) // kernel.PAGE_SIZE, cpus) == pages
