"""Command line of the comparison; see the package."""

from __future__ import annotations

import argparse
import datetime as dt
import json
import os
import platform
from pathlib import Path
from typing import Any

from tests.bench.compare import measures, peers

RESULTS = Path(__file__).with_name("results")


def machine() -> dict[str, Any]:
    """What the figures were measured on."""
    model = next(
        (
            line.split(":")[1].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if "model name" in line
        ),
        platform.machine(),
    )
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "cpus": os.cpu_count(),
        "model": model,
        "memory": memory,
        "kernel": platform.release(),
        "python": platform.python_version(),
        "load": os.getloadavg(),
        "date": dt.datetime.now(dt.timezone.utc).date().isoformat(),
    }


def measure(names: list[str], repeats: int | None, only: list[str]) -> None:
    """Measures parts and keeps their results."""
    failed = peers.install_all()
    able = [peer for peer in measures.chosen(only) if peer.name not in failed]
    for name in names or list(measures.PARTS):
        part, usual = measures.PARTS[name]
        described = {
            "machine": machine(),
            "versions": {peer.name: peers.version(peer) for peer in able},
            "not_installed": failed,
            "repeats": repeats or usual,
            "result": part(able, repeats or usual),
        }
        RESULTS.mkdir(exist_ok=True)
        (RESULTS / f"{name}.json").write_text(json.dumps(described, separators=(",", ":")) + "\n")


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(prog="tests.bench.compare")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("install")
    measuring = commands.add_parser("measure")
    measuring.add_argument("parts", nargs="*", choices=[*measures.PARTS, []], default=[])
    measuring.add_argument("--repeats", type=int)
    measuring.add_argument("--only", action="append", default=[], help="name of a tool")
    commands.add_parser("table")
    commands.add_parser("picture").add_argument("file")
    given = parser.parse_args()
    if given.command == "install":
        print("\n".join(f"{name}: {why}" for name, why in peers.install_all().items()))
    elif given.command == "measure":
        measure(given.parts, given.repeats, given.only)
    else:
        from tests.bench.compare import tables

        if given.command == "table":
            print(tables.markdown(RESULTS))
        else:
            tables.picture(RESULTS, given.file)


main()
