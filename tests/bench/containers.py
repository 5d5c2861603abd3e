"""Peaks of commands in containers of podman, compared with the peaks of the same commands in a separate cgroup.

    python -m tests.bench.containers [COMMANDS] [--seed N] [--slower N] [--keep FOLDER]

Each command of busybox reads a buffer of 20 to 200 MiB once or more, with pauses before and after. `wrap -- podman run` records the
container, `wrap` without podman the command in a separate cgroup. Needs podman and busybox, beside version 1 of control groups also
runc. Without root, the containers are rootless, which needs version 2 alone. MEMWATCH_COMMAND replaces the command `python -m
otel_memwatch`.

* equal: both peaks are exact, and at most 1 MiB or 0.5 % apart
* inside: one peak is a range or unknown, and the ranges overlap
* only the client: the container ended before it was recorded
"""

from __future__ import annotations

import argparse
import random
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from otel_memwatch.run import load
from tests.bench.guard import MEMWATCH

MIB = 1 << 20
VERSION_2 = Path("/sys/fs/cgroup/cgroup.controllers").exists()
ENGINE = [
    "podman",
    *(() if VERSION_2 else ("--runtime", "runc", "--cgroup-manager=cgroupfs")),
    "run",
    "--rm",
    "--network=none",
]
LIMITS = ["--ulimit=nofile=1000:1000", "--ulimit=nproc=1000:1000"]
CLOSE, SHARE = MIB, 0.005
_ATTEMPTS = 3
"""Largest number of recordings of a command without a container."""


def root(folder: Path) -> Path:
    """Make the files of a container."""
    for name in ("bin", "proc", "sys", "dev", "etc", "tmp", "run"):
        (folder / name).mkdir(parents=True)
    shutil.copy(shutil.which("busybox") or "", folder / "bin/busybox")
    return folder


def script(rng: random.Random) -> str:
    """Return a shell command. The seconds before its first read are to be set: `PAUSE`."""
    reads = [
        f"/bin/busybox dd if=/dev/zero of=/dev/null bs={rng.randrange(20, 200)}M count=1"
        for _ in range(rng.randint(1, 3))
    ]
    return f"/bin/busybox sleep PAUSE; {'; '.join(reads)} 2>/dev/null; /bin/busybox sleep 0.5"


def peak(folder: Path, run: str, *argv: str) -> dict[str, Any] | None:
    """Record a command; return the tree's peak of a run. `None`: only the client was recorded."""
    words = ["wrap", "--quiet", "--no-report", "--out", "run", "--", *argv]
    done = subprocess.run([*MEMWATCH, *words], cwd=folder, capture_output=True, text=True)
    if "only the client was recorded" in done.stderr:
        return None
    if done.returncode or not (folder / run).exists():
        raise RuntimeError(f"{run} was not recorded (exit code {done.returncode}): {done.stderr}")
    found = load(folder / run).peaks.tree
    return {"bytes": 0, "certainty": None, "low": 0, "high": None} if found is None else found.to_json()


def reference(folder: Path, command: str) -> dict[str, Any] | None:
    """Record a command without a container, again if the peak is not exact, which says nothing about containers."""
    for attempt in range(_ATTEMPTS):
        place = folder / str(attempt)
        place.mkdir(parents=True)
        found = peak(place, "run", shutil.which("busybox") or "", "sh", "-c", command)
        if found is not None and found["certainty"] == "exact":
            break
    return found


def verdict(container: dict[str, Any] | None, alone: dict[str, Any] | None) -> str:
    """Return "equal", "inside", "only the client" or "different"."""
    if container is None or alone is None:
        return "only the client"
    difference = abs(container["bytes"] - alone["bytes"])
    exact = container["certainty"] == alone["certainty"] == "exact"
    if exact and difference <= max(CLOSE, SHARE * alone["bytes"]):
        return "equal"
    apart = any(
        one["high"] is not None and one["high"] < (other["low"] or 0)
        for one, other in ((container, alone), (alone, container))
    )
    return "different" if apart else "inside"


def main(number: int, seed: int, slower: int, keep: Path | None) -> None:
    """Print the verdicts, and each pair that is not equal; `keep`: folder for the records of these pairs."""
    if keep is not None:
        keep.mkdir()
    rng, counts = random.Random(seed), {"equal": 0, "inside": 0, "only the client": 0, "different": 0}
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as home:
        files = root(Path(home, "root"))
        for each in range(number):
            command = script(rng)
            pauses = [f"{rng.randrange(2, 6) / 10 * factor:.1f}" for factor in (slower, 1)]
            folders = Path(home, f"{each}-container"), Path(home, f"{each}-alone")
            folders[0].mkdir()
            inside = (*ENGINE, *LIMITS, "--rootfs", str(files), "/bin/busybox", "sh", "-c")
            container = peak(folders[0], "run-container", *inside, command.replace("PAUSE", pauses[0]))
            alone = reference(folders[1], command.replace("PAUSE", pauses[1]))
            found = verdict(container, alone)
            counts[found] += 1
            if found != "equal":
                print(found, command, container, alone, flush=True)
            if each % 10 == 9:
                print(f"  {each + 1} done", flush=True)
            for folder in folders:
                if found == "equal" or keep is None:
                    shutil.rmtree(folder)
                else:
                    shutil.move(folder, keep / folder.name)
    print(", ".join(f"{name} {count} of {number}" for name, count in counts.items()))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("number", type=int, nargs="?", default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--slower", type=int, default=1, help="factor of the pause in a container, for a slow machine"
    )
    parser.add_argument("--keep", type=Path, help="folder for the records of pairs that are not equal")
    chosen = parser.parse_args()
    main(chosen.number, chosen.seed, chosen.slower, chosen.keep)
