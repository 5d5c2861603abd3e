"""The stand-in for NVIDIA's driver library: compiled from nvml.c, scripted by a file that tests replace."""

from __future__ import annotations

import ctypes
import os
import subprocess
import tempfile
from functools import cache
from pathlib import Path

LIBRARY = "libnvidia-ml.so.1"
VARIABLE = "STANDIN_NVML"
GIB = 1024**3

H100 = "NVIDIA_H100_80GB_HBM3"
FIRST = "GPU-11111111-aaaa-bbbb-cccc-000000000001"
SECOND = "GPU-22222222-aaaa-bbbb-cccc-000000000002"


@cache
def directory() -> Path:
    """A directory that holds the compiled library; for LD_LIBRARY_PATH of a process to be."""
    path = Path(tempfile.mkdtemp(prefix="standin-nvml-"))
    source = Path(__file__).with_name("nvml.c")
    compiler = os.environ.get("CC", "cc")
    options = ["-Wall", "-Werror", "-shared", "-fPIC", "-O1", f"-Wl,-soname,{LIBRARY}"]
    subprocess.run([compiler, *options, "-o", str(path / LIBRARY), str(source)], check=True)
    return path


def load() -> None:
    """Loads it into this process: code that asks for the driver's library by name gets it from now on."""
    ctypes.CDLL(str(directory() / LIBRARY))


class Machine:
    """What the stand-in answers."""

    def __init__(self, script: Path) -> None:
        self.script = script
        self.log = script.with_suffix(".log")
        self._devices: dict[str, dict[str, object]] = {}
        self.lines: list[str] = []
        """Further lines of the script: processes, samples, failures ..."""
        self.write()

    def environment(self) -> dict[str, str]:
        """Variables by which another process finds the stand-in."""
        return {VARIABLE: str(self.script), "LD_LIBRARY_PATH": str(directory())}

    def card(self, index: int, **figures: object) -> None:
        """Adds a card, or changes figures of it."""
        known = self._devices.setdefault(
            f"device {index}",
            {
                "uuid": [FIRST, SECOND][index]
                if index < 2
                else f"GPU-{index:08d}-aaaa-bbbb-cccc-000000000000",
                "pci": f"00000000:{index + 1:02x}:00.0",
                "name": H100,
                "total": 80 * GIB,
                "used": 0,
            },
        )
        known.update(figures)
        self.write()

    def instance(self, card: int, index: int, **figures: object) -> None:
        """Adds a MIG instance, or changes figures of it."""
        known = self._devices.setdefault(
            f"mig {card} {index}",
            {
                "uuid": f"MIG-{card}{index}{'0' * 6}-dddd-eeee-ffff-000000000000",
                "name": f"{H100}_MIG_1g.10gb",
            },
        )
        known.update(figures)
        self.card(card, mig=1)

    def also(self, *lines: str) -> None:
        """Adds lines."""
        self.lines.extend(lines)
        self.write()

    def without(self, beginning: str) -> None:
        """Takes out the lines that begin so."""
        self.lines = [line for line in self.lines if not line.startswith(beginning)]
        self.write()

    def calls(self, function: str) -> int:
        """How often a function was called so far."""
        return self.log.read_text().split("\n").count(function) if self.log.exists() else 0

    def write(self) -> None:
        """Replaces the script, at one moment."""
        devices = [
            " ".join([head, *(f"{key}={value}" for key, value in figures.items())])
            for head, figures in self._devices.items()
        ]
        text = "\n".join([f"log {self.log}", "driver 570.86.15", *devices, *self.lines, ""])
        fresh = self.script.with_suffix(".new")
        fresh.write_text(text)
        fresh.replace(self.script)
