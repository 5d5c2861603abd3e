"""Parser of /proc/PID/fdinfo/FD for a GPU's device file: memory and engine time of one client of an open driver.

Documentation/gpu/drm-usage-stats.rst of the kernel defines the keys. The driver names the regions:

* `vram`, `vram0`, `local0`, `stolen-local0`: memory of the GPU
* `gtt`, `system0`, `stolen-system0`, `cpu` and others: memory of the machine
"""

from __future__ import annotations

from otel_memwatch.runtime.typed import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

_UNITS = {"": 1, "KiB": 1024, "MiB": 1024**2, "GiB": 1024**3}
_DEVICE_REGIONS = ("vram", "local")
"""Parts of region names for memory of the GPU."""
_ASPECTS = ("resident", "memory", "total")
"""Keys for held memory, best first: resident pages, the same under its older name, requested memory."""


class DrmClient(NamedTuple):
    """One client of a GPU. Several file descriptors may share a client."""

    driver: str
    """Kernel driver: "amdgpu", "i915", "xe" ..."""
    pci: str | None
    """PCI address, "0000:03:00.0"; `None` for a GPU without a PCI bus."""
    client: int
    """Number of the client, unique within its device."""
    regions: Mapping[str, int]
    """Bytes held, by region."""
    engines: Mapping[str, int]
    """Nanoseconds of work of each engine for it, if the driver counts time."""
    cycles: Mapping[str, tuple[int, int]]
    """Cycles of each engine for it and in total, if the driver counts only cycles."""

    @property
    def device_bytes(self) -> int:
        """Return the memory of the GPU that it holds, in bytes."""
        return sum(held for region, held in self.regions.items() if _on_device(region))

    @property
    def system_bytes(self) -> int:
        """Return the memory of the machine that it holds for the GPU, in bytes."""
        return sum(held for region, held in self.regions.items() if not _on_device(region))


def parse_drm_fdinfo(text: str) -> DrmClient | None:
    """Return the client; `None` for another kind of file, or if the driver does not number its clients."""
    keys = {}
    for line in text.splitlines():
        key, _, value = line.partition(":")
        if key.startswith("drm-"):
            keys[key[4:]] = value.strip()
    if "driver" not in keys or not keys.get("client-id", "").isdigit():
        return None
    engines = _numbers(keys, "engine-")
    totals = _numbers(keys, "total-cycles-")
    return DrmClient(
        keys["driver"],
        keys.get("pdev") or None,
        int(keys["client-id"]),
        _regions(keys),
        {name: value for name, value in engines.items() if not name.startswith("capacity-")},
        {
            name: (cycles, totals[name])
            for name, cycles in _numbers(keys, "cycles-").items()
            if name in totals and name not in engines
        },
    )


def _on_device(region: str) -> bool:
    return any(part in region for part in _DEVICE_REGIONS)


def _regions(keys: Mapping[str, str]) -> dict[str, int]:
    regions: dict[str, int] = {}
    for aspect in _ASPECTS:
        for region, held in _numbers(keys, aspect + "-").items():
            if not region.startswith("cycles-"):
                regions.setdefault(region, held)
    return regions


def _numbers(keys: Mapping[str, str], prefix: str) -> dict[str, int]:
    """Return the numeric values of the keys with this prefix, in bytes, nanoseconds or cycles."""
    numbers = {}
    for key, value in keys.items():
        if key.startswith(prefix):
            digits, _, unit = value.partition(" ")
            if digits.isdigit():
                numbers[key[len(prefix) :]] = int(digits) * _UNITS.get(unit.strip(), 1)
    return numbers
