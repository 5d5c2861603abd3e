"""Size of an installation: packages, megabytes and seconds, in a fresh virtual environment without pip's cache.

python tests/bench/bench_install.py            the table, as it stands in docs/benchmarks.md
python tests/bench/bench_install.py --keep     also the new results, for tests/readme/generate.py
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
RESULTS = Path(__file__).parent / "results/install.json"
LIST = """
import importlib.metadata as m, json, os
def size(d): return sum(os.path.getsize(p) for f in d.files or () if (p := d.locate_file(f)).is_file())
print(json.dumps({d.name: [d.version, size(d)] for d in m.distributions() if d.name not in ("pip", "setuptools")}))
"""


def measure() -> dict[str, Any]:
    """Installs the tree once, and once more to tell what the compiler takes."""
    with tempfile.TemporaryDirectory(prefix="memwatch-install-") as folder:
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        python = f"{folder}/bin/python"
        began = time.perf_counter()
        subprocess.run([python, "-m", "pip", "install", "--quiet", "--no-cache-dir", str(ROOT)], check=True)
        seconds = time.perf_counter() - began
        listed = subprocess.run([python, "-c", LIST], check=True, capture_output=True, text=True).stdout
        started = min(start(python) for _ in range(10))
    return {
        "seconds": seconds,
        "packages": json.loads(listed),
        "start": started,
        "python": sys.version.split()[0],
    }


def start(python: str) -> float:
    """Seconds of `otel-memwatch --version`."""
    began = time.perf_counter()
    subprocess.run([python, "-m", "otel_memwatch", "--version"], check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - began


def markdown(result: dict[str, Any]) -> str:
    """The table."""
    packages = sorted(result["packages"].items(), key=lambda entry: -entry[1][1])
    shown = [(name, size) for name, (_, size) in packages if size >= 2e6]
    rest = packages[len(shown) :]
    megabytes = sum(size for _, (_, size) in packages) / 1e6
    lines = [
        f"{len(packages)} packages, {megabytes:.0f} MB on disk, installed in {result['seconds']:.0f} s with an empty cache of pip.",
        "",
        "| package | MB |",
        "| --- | ---: |",
        *(f"| {name} | {size / 1e6:.1f} |" for name, size in shown),
        f"| {len(rest)} others | {sum(size for _, (_, size) in rest) / 1e6:.1f} |",
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    result = measure()
    if "--keep" in sys.argv:
        RESULTS.parent.mkdir(exist_ok=True)
        RESULTS.write_text(json.dumps(result, indent=1) + "\n")
    print(markdown(result))
