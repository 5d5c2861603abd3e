"""GPUs of open drivers: the text of a client, the cards, and what a tree of processes holds."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from otel_memwatch.errors import Unavailable
from otel_memwatch.monitor.sampling.sources import Context
from otel_memwatch.monitor.sampling.sources.gpu_drm import GpuDrm
from otel_memwatch.monitor.sampling.sources.gpu_drm.cards import figures, find_cards
from otel_memwatch.monitor.sampling.sources.gpu_drm.clients import LISTING, Clients
from otel_memwatch.runtime.procfs.drm import parse_drm_fdinfo
from tests.support.drm_tree import AMD, ARC, INTEL, RADEON, card, fdinfo, open_file

if TYPE_CHECKING:
    from pathlib import Path

KIB, MIB = 1024, 1024**2
RENDER = "/dev/dri/renderD128"


@pytest.mark.parametrize(
    ("name", "pci", "device_bytes", "system_bytes"),
    [
        ("amdgpu", AMD, 600 * MIB, 24 * MIB),
        ("amdgpu-old", AMD, 200 * MIB, 1 * MIB),
        ("i915", INTEL, 0, 6 * MIB),
        ("xe", ARC, 32 * MIB, 256 * KIB),
    ],
)
def test_a_client_shows_its_memory(name: str, pci: str, device_bytes: int, system_bytes: int) -> None:
    client = parse_drm_fdinfo(fdinfo(name))
    assert client is not None
    assert (client.pci, client.device_bytes, client.system_bytes) == (pci, device_bytes, system_bytes)


def test_engines_tell_time_or_cycles() -> None:
    amd, intel, arc = (parse_drm_fdinfo(fdinfo(name)) for name in ("amdgpu", "i915", "xe"))
    assert amd is not None
    assert intel is not None
    assert arc is not None
    assert amd.engines == {"gfx": 40_000_000_000}
    assert intel.engines == {"render": 500_000, "copy": 0, "video": 0}
    assert arc.engines == {}
    assert arc.cycles == {"rcs": (1_000_000, 4_000_000), "ccs": (0, 4_000_000)}


def test_stolen_memory_of_a_card_is_the_cards() -> None:
    client = parse_drm_fdinfo("drm-driver: i915\ndrm-client-id: 1\ndrm-resident-stolen-local0: 8 MiB\n")
    assert client is not None
    assert (client.device_bytes, client.system_bytes) == (8 * MIB, 0)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "pos:\t0\n",
        "drm-driver:\tamdgpu\n",
        "drm-driver:\tamdgpu\ndrm-client-id:\tx\n",
        "drm-client-id:\t3\n",
    ],
)
def test_what_is_no_client_is_none(text: str) -> None:
    assert parse_drm_fdinfo(text) is None


def test_a_value_that_is_no_number_is_left_out() -> None:
    client = parse_drm_fdinfo(
        "drm-driver: x\ndrm-client-id: 1\ndrm-resident-vram: many KiB\ndrm-total-vram: 7 KiB\n"
    )
    assert client is not None
    assert client.regions == {"vram": 7 * KIB}


@pytest.fixture
def tree(tmp_path: Path) -> tuple[Path, Path]:
    """A machine with a Radeon and Intel's own GPU."""
    proc, sys = tmp_path / "proc", tmp_path / "sys"
    proc.mkdir()
    card(sys, 0, INTEL, "i915", "0x8086")
    card(sys, 1, AMD, "amdgpu", "0x1002", RADEON)
    return proc, sys


def test_cards_are_found_once_with_what_their_drivers_tell(tree: tuple[Path, Path]) -> None:
    intel, amd = find_cards(tree[1])
    assert (intel.id, intel.vendor, intel.driver, figures(intel)) == (INTEL, "Intel", "i915", [])
    assert (amd.id, amd.name) == (AMD, "AMD GPU (amdgpu)")
    assert {figure.metric: figure.read() for figure in figures(amd)} == {
        "hw.gpu.memory.limit": 17163091968,
        "hw.gpu.memory.usage": 1073741824,
        "hw.gpu.utilization": 0.37,
        "memwatch.gpu.memory.utilization": 0.05,
        "hw.power": 43.0,
        "hw.temperature": 51.0,
    }


def test_nvidias_own_driver_and_plain_displays_are_left_out(tmp_path: Path) -> None:
    card(tmp_path, 0, AMD, "nvidia", "0x10de")
    plain = card(tmp_path, 1, INTEL, "ast", "0x1a03")
    (plain / "drm/renderD129").rmdir()
    assert find_cards(tmp_path) == []


def test_clients_are_counted_once_however_many_files_show_them(tree: tuple[Path, Path]) -> None:
    proc = tree[0]
    for pid, number in ((100, 5), (100, 6), (200, 5)):
        open_file(proc, pid, number, RENDER, fdinfo("amdgpu"))
    open_file(proc, 200, 7, RENDER, fdinfo("amdgpu-old"))
    open_file(proc, 200, 8, RENDER, fdinfo("i915"))
    open_file(proc, 200, 9, "/tmp/x", fdinfo("amdgpu", client_id=99))
    open_file(proc, 300, 5, RENDER, fdinfo("amdgpu", client_id=77))
    held = Clients(proc, [INTEL, AMD]).read([100, 200], 0.0)
    assert held is not None
    assert held[AMD][:3] == (800 * MIB, 25 * MIB, 800 * MIB)
    assert held[INTEL][:3] == (0, 6 * MIB, 0)


def test_device_files_opened_later_are_found(tree: tuple[Path, Path]) -> None:
    proc = tree[0]
    open_file(proc, 100, 1, "/dev/null")
    clients = Clients(proc, [AMD])
    before = clients.read([100], 0.0)
    open_file(proc, 100, 5, RENDER, fdinfo("amdgpu"))
    after = clients.read([100], LISTING)
    assert before is not None
    assert after is not None
    assert (before[AMD].device_bytes, after[AMD].device_bytes) == (0, 600 * MIB)


def test_processes_that_may_not_be_looked_into_leave_it_unknown(tree: tuple[Path, Path]) -> None:
    proc = tree[0]
    clients = Clients(proc, [AMD])
    assert clients.read([100], 0.0) is None
    open_file(proc, 200, 5, RENDER, fdinfo("amdgpu"))
    assert (clients.read([100, 200], 1.0) or {})[AMD].device_bytes == 600 * MIB


def test_engine_time_goes_on_when_its_client_is_gone(tree: tuple[Path, Path]) -> None:
    proc = tree[0]
    open_file(proc, 100, 5, RENDER, fdinfo("amdgpu"))
    open_file(proc, 200, 5, RENDER, fdinfo("amdgpu", client_id=31, engine_gfx="2000000000 ns"))
    clients = Clients(proc, [AMD])
    assert (clients.read([100, 200], 0.0) or {})[AMD].seconds == 42.0
    open_file(proc, 200, 5, RENDER, fdinfo("amdgpu", client_id=31, engine_gfx="2500000000 ns"))
    assert (clients.read([200], 1.0) or {})[AMD].seconds == 42.5


def test_cycles_become_time_by_their_part_of_all_cycles(tree: tuple[Path, Path]) -> None:
    proc = tree[0]
    open_file(proc, 100, 5, RENDER, fdinfo("xe"))
    clients = Clients(proc, [ARC])
    clients.read([100], 10.0)
    changed = fdinfo("xe", cycles_rcs=1_500_000, total_cycles_rcs=6_000_000)
    open_file(proc, 100, 5, RENDER, changed)
    assert (clients.read([100], 14.0) or {})[ARC].seconds == pytest.approx(4.0 * 0.25)


def read(source: GpuDrm) -> dict[tuple[str, str], object]:
    """The next values that come, by metric and device."""
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        values = source.read(time.monotonic())
        named = zip(source.columns, values, strict=True)
        known = {(column.metric, dict(column.attributes)["hw.id"]): value for column, value in named}
        if any(value is not None for value in known.values()):
            return known
        time.sleep(0.005)
    raise AssertionError("nothing came")


def test_the_source_reads_cards_and_tree(tree: tuple[Path, Path]) -> None:
    proc, sys = tree
    open_file(proc, 100, 5, RENDER, fdinfo("amdgpu"))
    source = GpuDrm(Context(100, 0.1, proc=proc, sys=sys), period=0.02)
    try:
        values = read(source)
    finally:
        source.close()
    assert values["hw.gpu.memory.usage", AMD] == 1073741824
    assert values["memwatch.tree.gpu.memory.usage", AMD] == 600 * MIB
    assert values["memwatch.process.gpu.memory.usage", AMD] == 600 * MIB
    assert values["memwatch.tree.gpu.memory.system", INTEL] == 0
    assert ("hw.gpu.memory.usage", INTEL) not in values
    assert [device["id"] for device in source.info()] == [INTEL, AMD]


def test_a_sleeping_card_is_not_woken(tree: tuple[Path, Path]) -> None:
    proc, sys = tree
    (sys / "devices/pci0000:00" / AMD / "power/runtime_status").write_text("suspended\n")
    open_file(proc, 100, 5, RENDER, fdinfo("i915"))
    source = GpuDrm(Context(100, 0.1, proc=proc, sys=sys), period=0.02)
    try:
        values = read(source)
    finally:
        source.close()
    assert values["hw.gpu.utilization", AMD] is None
    assert values["memwatch.tree.gpu.memory.system", INTEL] == 6 * MIB


def test_without_such_a_gpu_the_source_is_absent(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match="No GPU with an open driver"):
        GpuDrm(Context(100, 0.1, proc=tmp_path, sys=tmp_path))
