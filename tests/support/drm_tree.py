"""Trees of /proc and /sys with GPUs of open drivers, built in a directory."""

from __future__ import annotations

from pathlib import Path

DATA = Path(__file__).parents[1] / "data/drm"

AMD, INTEL, ARC = "0000:04:00.0", "0000:00:02.0", "0000:03:00.0"


def fdinfo(name: str, **changed: object) -> str:
    """A driver's fdinfo from tests/data/drm; keyword "client_id=7" changes the value of "drm-client-id"."""
    lines = (DATA / f"{name}.txt").read_text().splitlines()
    for key, value in changed.items():
        wanted = f"drm-{key.replace('_', '-')}:"
        lines = [f"{wanted}\t{value}" if line.startswith(wanted) else line for line in lines]
    return "\n".join([*lines, ""])


def open_file(proc: Path, pid: int, number: int, target: str, text: str = "pos:\t0\n") -> None:
    """Gives a process an open file."""
    for folder in ("fd", "fdinfo"):
        (proc / str(pid) / folder).mkdir(parents=True, exist_ok=True)
    link = proc / str(pid) / "fd" / str(number)
    link.unlink(missing_ok=True)
    link.symlink_to(target)
    (proc / str(pid) / "fdinfo" / str(number)).write_text(text)


def card(
    sys: Path, number: int, pci: str, driver: str, vendor: str, files: dict[str, object] | None = None
) -> Path:
    """Adds a card with a render node; returns its directory."""
    device = sys / "devices/pci0000:00" / pci
    for folder in (f"drm/card{number}", f"drm/renderD{128 + number}", "power", "hwmon/hwmon3"):
        (device / folder).mkdir(parents=True)
    drivers = sys / "bus/pci/drivers" / driver
    drivers.mkdir(parents=True, exist_ok=True)
    (device / "driver").symlink_to(drivers)
    for name, value in {"vendor": vendor, "power/runtime_status": "active", **(files or {})}.items():
        (device / name).parent.mkdir(parents=True, exist_ok=True)
        (device / name).write_text(f"{value}\n")
    places = sys / "class/drm"
    for name in (f"card{number}", f"renderD{128 + number}", f"card{number}-DP-1"):
        (places / name).mkdir(parents=True)
        (places / name / "device").symlink_to(device)
    return device


RADEON: dict[str, object] = {
    "mem_info_vram_total": 17163091968,
    "mem_info_vram_used": 1073741824,
    "gpu_busy_percent": 37,
    "mem_busy_percent": 5,
    "hwmon/hwmon3/power1_average": 43000000,
    "hwmon/hwmon3/temp1_input": 51000,
}
