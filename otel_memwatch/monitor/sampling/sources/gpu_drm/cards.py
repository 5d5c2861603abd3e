"""Cards in /sys/class/drm, and the figures that their drivers report for a whole card."""

from __future__ import annotations

import os
import re

from otel_memwatch import catalog
from otel_memwatch.runtime.typed import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from pathlib import Path

    from otel_memwatch.model import Value

_PCI = re.compile(r"[0-9a-f]{4,}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-9a-f]$")
_VENDORS = {"0x1002": "AMD", "0x8086": "Intel", "0x10de": "NVIDIA"}
_CARD = re.compile(r"card\d+$")

AWAKE = ("active", "unsupported")
"""States in which a card may be read: reading a suspended card would wake it."""


class Card(NamedTuple):
    """One GPU with an open driver."""

    id: str
    """PCI address, "0000:03:00.0", or the name of its device if it is on no PCI bus."""
    driver: str
    vendor: str
    name: str
    device: Path
    """Its directory in /sys."""

    def awake(self) -> bool:
        """Return whether reading leaves its power state unchanged."""
        state = _text(self.device / "power/runtime_status")
        return state is None or state in AWAKE


class CardFigure(NamedTuple):
    """One file of a driver about a card."""

    metric: str
    path: Path
    scale: float
    """Factor from its number to bytes, watts, joules, degrees, or a share of 1."""

    def read(self) -> Value:
        """Return its value; `None` if it is unreadable at present."""
        text = _text(self.path)
        try:
            number = int(text or "")
        except ValueError:
            return None
        return number if self.scale == 1 else number * self.scale


def find_cards(sys: Path) -> list[Card]:
    """Return the GPUs that can compute or draw for programs: those with a render node, without NVIDIA's own driver."""
    found = {}
    try:
        names = sorted(os.listdir(sys / "class/drm"))
    except OSError:
        return []
    for name in names:
        device = sys / "class/drm" / name / "device"
        if _CARD.match(name) and any(device.glob("drm/renderD*")):
            address = device.resolve().name
            driver = (device / "driver").resolve().name if (device / "driver").exists() else "unknown"
            if not driver.startswith("nvidia"):
                vendor = _VENDORS.get(_text(device / "vendor") or "", "unknown")
                title = _text(device / "product_name") or f"{vendor} GPU ({driver})"
                address = address.lower() if _PCI.match(address.lower()) else address
                found[address] = Card(address, driver, vendor, title, device)
    return [found[key] for key in sorted(found)]


def figures(card: Card) -> list[CardFigure]:
    """Return the figures of a card that have a file."""
    device = card.device
    sensors = sorted(device.glob("hwmon/hwmon*"))
    wanted: list[tuple[str, list[Path], float]] = [
        (
            catalog.HW_GPU_MEMORY_LIMIT,
            [device / "mem_info_vram_total", *device.glob("tile*/physical_vram_size_bytes")],
            1,
        ),
        (catalog.HW_GPU_MEMORY_USAGE, [device / "mem_info_vram_used"], 1),
        (catalog.HW_GPU_UTILIZATION, [device / "gpu_busy_percent"], 0.01),
        (catalog.MEMWATCH_GPU_MEMORY_UTILIZATION, [device / "mem_busy_percent"], 0.01),
        (
            catalog.HW_POWER,
            [sensor / file for sensor in sensors for file in ("power1_average", "power1_input")],
            1e-6,
        ),
        (catalog.HW_ENERGY, [sensor / "energy1_input" for sensor in sensors], 1e-6),
        (catalog.HW_TEMPERATURE, [sensor / "temp1_input" for sensor in sensors], 1e-3),
    ]
    return [
        CardFigure(metric, path, scale)
        for metric, paths, scale in wanted
        if (path := next((path for path in paths if path.exists()), None)) is not None
    ]


def _text(path: Path) -> str | None:
    try:
        return path.read_text(errors="replace").strip() or None
    except OSError:
        return None
