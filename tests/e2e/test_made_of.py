"""Kinds of memory at the peak, of real programs and without any option."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.support.wrapped import PROGRAM, call, environment, rendered

MIB = 1 << 20
TARGET = """
import json, mmap, os, time
anonymous = [bytearray(90 << 20)]
shared = mmap.mmap(-1, 50 << 20)
shared.write(b"x" * (50 << 20))
model = open("model.bin", "rb")
mapped = mmap.mmap(model.fileno(), 0, access=mmap.ACCESS_READ)
sum(mapped[at] for at in range(0, 70 << 20, 4096))
path = os.path.join(os.environ["OTEL_MEMWATCH_RUN_DIR"], "made_of.json")
def complete():
    try:
        parts = json.load(open(path))["tree"]
    except FileNotFoundError:
        return False
    return any(name.endswith("model.bin") and size >= 69 << 20 for _, name, size in parts)
# Memory is read once it is level. If it seemed level before all was mapped, only more memory is worth another reading.
while not complete() and len(anonymous) < 20:
    until = time.monotonic() + 3
    while not complete() and time.monotonic() < until:
        time.sleep(0.01)
    if not complete():
        anonymous.append(bytearray(64 << 20))
"""


def _wrap(folder: Path) -> list[str]:
    (folder / "model.bin").write_bytes(b"x" * (70 << 20))
    (folder / "program.py").write_text(TARGET)
    return [*PROGRAM, "wrap", "--out", "run", "--", sys.executable, "program.py"]


def test_kinds_are_those_of_the_program(tmp_path: Path) -> None:
    subprocess.run(_wrap(tmp_path), cwd=tmp_path, env=environment(), check=True, capture_output=True)
    found: Any = json.loads(call("report", "run", "--json", cwd=tmp_path).stdout)["made_of"]
    kinds: dict[str, int] = {}
    for part in found["tree"]:
        kinds[part["kind"]] = kinds.get(part["kind"], 0) + part["bytes"]
    assert kinds["anonymous mappings"] + kinds["heap"] >= 90 * MIB
    assert sum(kinds.values()) <= 1.02 * found["level_bytes"]
    assert 50 * MIB <= kinds["shared memory"] <= 51 * MIB
    assert kinds["page tables"] > 0
    assert kinds["kernel stacks"] > 0
    model = next(part for part in found["tree"] if part["name"].endswith("model.bin"))
    assert 69 * MIB <= model["bytes"] <= 70 * MIB
    text = call("report", "run", cwd=tmp_path).stdout
    assert "Kinds of memory (at" in text
    assert "model.bin 70.0 MiB" in text
    assert "Kinds of memory (at" in rendered(tmp_path / "run", "report.html").read_text()


def test_a_small_command_has_no_file(tmp_path: Path) -> None:
    assert call("wrap", "--out", "run", "--", "true", cwd=tmp_path).returncode == 0
    assert not (tmp_path / "run" / "made_of.json").exists()
