"""Pairs of programs with a known cause of their difference: prints how many `compare` explains.

python -m tests.bench.causes [DIRECTORY]

Two pairs have no cause that a record shows; there "not explained" is right.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

from otel_memwatch.run import load
from otel_memwatch.wings.gate.causes import explain

WORKERS = """
import subprocess, sys, time
code = "x = bytearray({each} << 20); import time; time.sleep(0.8)"
work = [subprocess.Popen([sys.executable, "-c", code]) for _ in range({n})]
[one.wait() for one in work]
"""
POOL = """
import multiprocessing as m, time
def work(_):
    x = bytearray({each} << 20)
    time.sleep(0.8)
if __name__ == "__main__":
    big = bytearray({parent} << 20)
    with m.get_context("{how}").Pool({n}) as pool:
        pool.map(work, range({n}), 1)
"""
OPERATION = """
import time
from otel_memwatch import operation
kept = []
with operation("load"):
    kept.append(bytearray({load} << 20))
    time.sleep(0.15)
with operation("train"):
    for _ in range({steps}):
        with operation("step"):
            kept.append(bytearray({step} << 20))
            time.sleep(0.02)
    batch = bytearray({batch} << 20)
    time.sleep(0.15)
"""
TOKENIZER = """
import time
from otel_memwatch import operation
with operation("load"):
    a = bytearray(30 << 20)
{more}
time.sleep(0.3)
"""
MAPPED = """
import mmap, tempfile, time
file = tempfile.TemporaryFile()
file.write(bytes({mapped} << 20))
file.flush()
view = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
sum(view[i] for i in range(0, len(view), 4096))
time.sleep(1.2)
"""
TABLES = """
import mmap, time
x = bytearray(20 << 20)
view = mmap.mmap(-1, {n} << 30, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, prot=mmap.PROT_READ)
view.madvise(mmap.MADV_NOHUGEPAGE)
for start in range(0, len(view), 1 << 30):
    view[start : start + (1 << 30) : 4096]  # the page of zeros: no memory but page tables
time.sleep(0.5)
"""
THREADS = """
import threading, time
def work():
    x = bytearray(1 << 20)
    time.sleep(0.8)
all_ = [threading.Thread(target=work) for _ in range({n})]
[one.start() for one in all_]
[one.join() for one in all_]
"""
GROWING = """
import time
kept = []
for _ in range({n}):
    kept.append(bytearray(4 << 20))
    time.sleep(0.05)
"""
INPUT = """
import pathlib, tempfile, time
with tempfile.NamedTemporaryFile() as file:
    pathlib.Path(file.name).write_bytes(bytes({read} << 20))
    {operation}data = pathlib.Path(file.name).read_bytes()
    time.sleep(0.4)
"""
FORKED = """
import os, time
big = bytearray(80 << 20)
children = []
for _ in range(3):
    pid = os.fork()
    if not pid:
        if {write}:
            for i in range(0, len(big), 4096):
                big[i] = 1
        time.sleep(0.9)
        os._exit(0)
    children.append(pid)
[os.waitpid(pid, 0) for pid in children]
"""
PLAIN = """
import time
x = bytearray({size} << 20)
time.sleep(0.3)
"""
FUNCTION = """
import time
kept = []
def add(size):
    for _ in range(size // 10):
        kept.append(bytearray(10 << 20))
        time.sleep(0.05)
def load():
    add(50)
def build(size):
    for _ in range(size // 10):
        kept.append(bytearray(10 << 20))
        time.sleep(0.05)
load()
build({build})
time.sleep(0.2)
"""
IMPORT = "from otel_memwatch import operation\n"
OPERATIONS = {"load": 30, "steps": 5, "step": 4, "batch": 20}
POOLS = {"each": 40, "parent": 10, "how": "fork", "n": 2}


class Pair(NamedTuple):
    """Two programs and the right answer."""

    name: str
    base: str
    head: str
    kinds: tuple[str, ...]
    """Kinds of causes of which the largest has to be one; "note": mapped files; none: not explained."""
    word: str = ""
    """Part of its words."""
    options: tuple[str, ...] = ()
    """Of `wrap`, for both runs."""


def _operations(**changed: int) -> str:
    return OPERATION.format(**{**OPERATIONS, **changed})


def _pool(**changed: object) -> str:
    return POOL.format(**{**POOLS, **changed})


SAME = _operations()
PAIRS = (
    Pair("more workers", WORKERS.format(each=40, n=2), WORKERS.format(each=40, n=4), ("processes",), "2 processes more"),
    Pair("fewer workers", WORKERS.format(each=40, n=4), WORKERS.format(each=40, n=1), ("processes",), "3 processes fewer"),
    Pair("a larger pool", _pool(), _pool(n=4), ("processes",), "2 processes more"),
    Pair("larger workers", WORKERS.format(each=30, n=3), WORKERS.format(each=60, n=3), ("process",), "3 processes"),
    Pair("a sidecar", PLAIN.format(size=40), "x = bytearray(40 << 20)\n" + WORKERS.format(each=60, n=1), ("processes",), "only in the head"),
    Pair("a larger batch", SAME, _operations(batch=70), ("operation",), "train"),
    Pair("a smaller batch", _operations(batch=70), SAME, ("operation",), "train"),
    Pair("a leak in one operation", _operations(step=0), _operations(step=10), ("operation",), "step"),
    Pair("more repeats of an operation", SAME, _operations(steps=20), ("operation",), "step"),
    Pair("a larger load", SAME, _operations(load=90), ("operation",), "load"),
    Pair("a new operation", TOKENIZER.format(more=""), TOKENIZER.format(more="with operation('load_tokenizer'):\n    b = bytearray(60 << 20)"), ("operation",), "load_tokenizer"),
    Pair("a removed operation", TOKENIZER.format(more="with operation('cache'):\n    b = bytearray(60 << 20)"), TOKENIZER.format(more=""), ("operation",), "only in the base"),
    Pair("a library that maps more", MAPPED.format(mapped=10), MAPPED.format(mapped=80), ("note",), "mapped files"),
    Pair("one more thread pool", THREADS.format(n=2), THREADS.format(n=42), ("threads",), "40 threads more"),
    Pair("fork instead of spawn", _pool(how="spawn", parent=80, each=1, n=3), _pool(parent=80, each=1, n=3), ("processes", "process", "sharing")),
    Pair("children write what they shared", FORKED.format(write=False), FORKED.format(write=True), ("sharing", "process")),
    Pair("a longer run only", GROWING.format(n=20), GROWING.format(n=45), ("longer run",), "had ended"),
    Pair("an input twice as large", INPUT.format(read=50, operation=""), INPUT.format(read=100, operation=""), ("input",), "bytes read"),
    Pair("more page tables", TABLES.format(n=1), TABLES.format(n=7), ("page tables", "kernel"), "page tables"),
    Pair("a function that keeps more", FUNCTION.format(build=30), FUNCTION.format(build=130), ("function",), "build", ("--stacks",)),
    Pair("a larger constant", PLAIN.format(size=50), PLAIN.format(size=100), ()),
    Pair("a smaller constant", PLAIN.format(size=120), PLAIN.format(size=60), ()),
)  # fmt: skip


def record(place: Path, name: str, program: str, *options: str) -> Path:
    """Record a program as a user would."""
    file, run = place / name / "job.py", place / name / "run"
    file.parent.mkdir(parents=True)
    file.write_text(program)
    command = [
        sys.executable,
        "-m",
        "otel_memwatch",
        "wrap",
        "--quiet",
        "--out",
        str(run),
        *options,
        "--",
        sys.executable,
        str(file),
    ]
    subprocess.run(command, check=True, cwd=place)
    return run


def judge(pair: Pair, place: Path) -> tuple[bool, str]:
    """Return whether the explanation is right, and its words."""
    runs = [record(place, name, getattr(pair, name), *pair.options) for name in ("base", "head")]
    explained = explain([load(runs[0])], [load(runs[1])])
    if explained is None:
        return False, "nothing"
    causes = [f"{one.bytes / (1 << 20):+.1f} MiB {one.text}" for one in explained.causes]
    words = "; ".join([*causes, f"rest {explained.rest / (1 << 20):+.1f} MiB", *explained.notes])
    if not pair.kinds:
        return not explained.is_explained, words
    if pair.kinds == ("note",):
        return any(pair.word in note for note in explained.notes), words
    if not explained.causes:
        return False, words
    first = explained.causes[0]
    return first.kind in pair.kinds and pair.word in first.text and explained.is_explained, words


def main() -> None:
    """Print each pair, and how many are right."""
    right = 0
    for number, pair in enumerate(PAIRS):
        with tempfile.TemporaryDirectory(dir=sys.argv[1] if len(sys.argv) > 1 else None) as place:
            good, words = judge(pair, Path(place))
        right += good
        print(f"{number + 1:>2} {'right' if good else 'WRONG':<6} {pair.name}: {words}", flush=True)
    print(f"{right} of {len(PAIRS)} right")


if __name__ == "__main__":
    main()
