"""Prints how often "kept by the allocator" is right: constructed heaps, by allocator and shape.

python -m tests.bench.heaps [--only ALLOCATOR] [--shape SHAPE]

Each program allocates some 200 MiB, touches all of it, and frees a part. Truth: its anonymous memory by the kernel, less that before the
first block, less the bytes of the blocks in use. The memory is kept if that is 32 MiB and half of all anonymous memory. jemalloc
and mimalloc are preloaded (Debian: libjemalloc2, libmimalloc2.0). Heaps of pymalloc consist of blocks up to 480 bytes.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import subprocess
import sys
import tempfile
import threading
from array import array
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

MIB = 1 << 20
ALL = 200 * MIB
PRELOADED = {"glibc": "", "jemalloc": "libjemalloc.so.2", "mimalloc": "libmimalloc.so.2.0", "pymalloc": ""}
"""Library that replaces malloc, by allocator."""
LARGEST_OF_PYMALLOC = 480


class Blocks:
    """Blocks of an allocator. Their bookkeeping takes 12 bytes for each."""

    def __init__(self, allocator: str) -> None:
        self._of_python = allocator == "pymalloc"
        library = ctypes.CDLL(None)
        self._malloc, self._free, self._fill = library.malloc, library.free, library.memset
        self._malloc.restype, self._free.argtypes = ctypes.c_void_p, [ctypes.c_void_p]
        self._fill.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t]
        self._addresses, self._sizes = array("Q"), array("I")
        self._objects: list[bytes | None] = []
        self.live = 0

    def __len__(self) -> int:
        return len(self._sizes)

    def add(self, size: int) -> None:
        """Allocate a block."""
        if self._of_python:
            size = min(max(size, 64), LARGEST_OF_PYMALLOC)
            self._objects.append(bytes(size - 33))
        else:
            address = self._malloc(size)
            self._fill(address, 1, size)
            self._addresses.append(address)
        self._sizes.append(size)
        self.live += size

    def fill(self, bytes_: int, size: Callable[[], int]) -> None:
        """Allocate blocks of some sizes."""
        until = self.live + bytes_
        while self.live < until:
            self.add(size())

    def free(self, which: Callable[[int], bool]) -> None:
        """Free some of the blocks."""
        for index, size in enumerate(self._sizes):
            if size and which(index):
                self.live -= size
                self._sizes[index] = 0
                if self._of_python:
                    self._objects[index] = None
                else:
                    self._free(self._addresses[index])


def _pages() -> int:
    return 4096


def _live(blocks: Blocks, rng: Random) -> None:
    blocks.fill(ALL, _pages)


def _sparse(blocks: Blocks, rng: Random) -> None:
    blocks.fill(ALL, _pages)
    blocks.free(lambda index: index % 200 != 0)


def _empty(blocks: Blocks, rng: Random) -> None:
    blocks.fill(ALL, _pages)
    blocks.free(lambda _: True)


def _two_thirds(blocks: Blocks, rng: Random) -> None:
    blocks.fill(ALL, _pages)
    blocks.free(lambda index: index % 3 != 0)


def _a_tenth(blocks: Blocks, rng: Random) -> None:
    blocks.fill(ALL, _pages)
    blocks.free(lambda index: index % 10 == 0)


def _large(blocks: Blocks, rng: Random) -> None:
    blocks.fill(ALL, lambda: 8 * MIB)
    blocks.free(lambda index: index % 10 != 0)


def _mixed(blocks: Blocks, rng: Random) -> None:
    blocks.fill(ALL, lambda: rng.randrange(16, 65536))
    blocks.free(lambda _: rng.random() < 0.85)


def _small(blocks: Blocks, rng: Random) -> None:
    blocks.fill(ALL // 2, lambda: rng.randrange(64, 448))
    blocks.free(lambda _: rng.random() < 0.9)


def _churned(blocks: Blocks, rng: Random) -> None:
    for _ in range(10):
        begin = len(blocks)
        blocks.fill(ALL // 10, lambda: rng.randrange(1024, 32768))
        blocks.free(lambda index, begin=begin: index >= begin and index % 4 == 0)  # type: ignore[misc]


def _threads(blocks: Blocks, rng: Random) -> None:
    """Free in other threads' arenas, one thread at a time."""
    for _ in range(8):
        one = threading.Thread(target=blocks.fill, args=(ALL // 8, _pages))
        one.start()
        one.join()
    blocks.free(lambda index: index % 100 != 0)


SHAPES: dict[str, Callable[[Blocks, Random], None]] = {
    "all in use": _live,
    "all but each 200th freed": _sparse,
    "all freed": _empty,
    "two of three freed": _two_thirds,
    "a tenth freed": _a_tenth,
    "blocks of 8 MiB, nine of ten freed": _large,
    "mixed sizes, 85 % freed at random": _mixed,
    "small blocks, 90 % freed at random": _small,
    "grown and freed in turns": _churned,
    "of 8 threads, all but each 100th freed": _threads,
}


def _anonymous() -> int:
    text = Path("/proc/self/status").read_text()
    return 1024 * int(text.partition("RssAnon:")[2].split()[0])


def construct(allocator: str, shape: str, truth: str) -> None:
    """Build a heap in this process, in an operation, and write the truth about it to a file."""
    from otel_memwatch import operation

    before = _anonymous()
    blocks = Blocks(allocator)
    with operation("Build"):
        SHAPES[shape](blocks, Random(1))
    Path(truth).write_text(json.dumps({"anonymous": _anonymous(), "before": before, "live": blocks.live}))


class Judged(NamedTuple):
    """A heap, its truth and its verdict; sizes in bytes."""

    allocator: str
    shape: str
    anonymous: int
    kept: int
    """Free resident memory."""
    finding: dict[str, Any] | None

    @property
    def is_kept(self) -> bool:
        """Return the truth."""
        return self.kept >= max(32 * MIB, self.anonymous / 2)

    @property
    def right(self) -> bool:
        """Return whether the verdict agrees with the truth."""
        return self.is_kept == (self.finding is not None)


def is_installed(allocator: str) -> bool:
    """Return whether the allocator can be preloaded."""
    environment = {**os.environ, "LD_PRELOAD": PRELOADED[allocator]}
    return not subprocess.run(["true"], env=environment, check=True, capture_output=True).stderr


def judge(allocator: str, shape: str, folder: Path) -> Judged:
    """Run a program that builds the heap, and return the verdict."""
    code = f"from tests.bench.heaps import construct; construct({allocator!r}, {shape!r}, 'truth.json')"
    root = str(Path(__file__).resolve().parents[2])
    environment = {
        **os.environ,
        "PYTHONPATH": root,
        "LD_PRELOAD": PRELOADED[allocator],
        "OTEL_MEMWATCH_REPORT": "no",
    }
    tool = [sys.executable, "-m", "otel_memwatch"]
    run = [*tool, "wrap", "--quiet", "--out", "run", "--", sys.executable, "-c", code]
    subprocess.run(run, cwd=folder, check=True, env=environment)
    truth = json.loads((folder / "truth.json").read_text())
    done = subprocess.run([*tool, "report", "run", "--json"], cwd=folder, check=True, capture_output=True)
    found = [one for one in json.loads(done.stdout)["findings"] if one["allocator"]]
    kept = max(0, truth["anonymous"] - truth["before"] - truth["live"])
    return Judged(allocator, shape, truth["anonymous"], kept, found[0] if found else None)


def main(allocators: list[str], shapes: list[str]) -> int:
    """Print a table; return the number of wrong verdicts."""
    print("| allocator | heap | anonymous | of it free, true | verdict | right |")
    print("| --- | --- | ---: | ---: | --- | --- |")
    wrong = 0
    for allocator in allocators:
        for shape in shapes:
            with tempfile.TemporaryDirectory() as folder:
                one = judge(allocator, shape, Path(folder))
            verdict = (
                "-"
                if one.finding is None
                else f"{one.finding['kind']}, {one.finding['allocator']} {one.finding['bytes'] / MIB:.0f}"
                f" ({one.finding['low'] / MIB:.0f}-{one.finding['high'] / MIB:.0f})"
            )
            wrong += not one.right
            print(
                f"| {allocator} | {shape} | {one.anonymous / MIB:.0f} | {one.kept / MIB:.0f} | {verdict} "
                f"| {'yes' if one.right else '**no**'} |",
                flush=True,
            )
    print(f"\nright: {len(allocators) * len(shapes) - wrong} of {len(allocators) * len(shapes)}")
    return wrong


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=PRELOADED)
    parser.add_argument("--shape", choices=SHAPES)
    chosen = parser.parse_args()
    main([chosen.only] if chosen.only else [*PRELOADED], [chosen.shape] if chosen.shape else [*SHAPES])
