"""Ten programs as people run them; each takes a factor by which its data is larger. Run as `programs.py NAME FACTOR`.

Six make their peak in one process and one thread; in four several have a part in it, and the kernel's scheduler with them.
"""

from __future__ import annotations

import json
import multiprocessing
import subprocess
import sys
import threading
import time
from collections.abc import Callable

ALONE = ("json", "sort", "text", "sqlite", "tree", "shell")
TOGETHER = ("pool", "threads", "xargs", "pipeline")


def _json(factor: float) -> None:
    rows = [{"key": i, "value": str(i) * 8} for i in range(int(180_000 * factor))]
    text = json.dumps(rows)
    json.loads(text)


def _sort(factor: float) -> None:
    values = [(i * 7919) % 1_000_003 for i in range(int(2_000_000 * factor))]
    sorted(values)


def _text(factor: float) -> None:
    lines = [f"{i:08d} {'abc' * (i % 7)}" for i in range(int(760_000 * factor))]
    "\n".join(lines).upper().splitlines()


def _sqlite(factor: float) -> None:
    import sqlite3

    base = sqlite3.connect(":memory:")
    base.execute("create table t (a integer, b text)")
    base.executemany("insert into t values (?, ?)", ((i, str(i) * 10) for i in range(int(500_000 * factor))))
    base.execute("create index i on t (b)")


def _tree(factor: float) -> None:
    counts: dict[str, list[int]] = {}
    for i in range(int(700_000 * factor)):
        counts.setdefault(str(i % 200_000), []).append(i)


def _shell(factor: float) -> None:
    """One program after the other, as a build does."""
    for size in (20, 60, 110):
        program = f"x = bytearray(b'x') * {int(size * factor * (1 << 20))}; import time; time.sleep(0.15)"
        subprocess.run([sys.executable, "-c", program], check=True)


def _hold(factor: float) -> None:
    for _ in range(3):
        _ = bytearray(b"x") * int(45 * factor * (1 << 20))
        time.sleep(0.02)
        del _
        time.sleep(0.01)


def _pool(factor: float) -> None:
    with multiprocessing.get_context("fork").Pool(4) as pool:
        pool.map(_hold, [factor] * 8, chunksize=1)


def _threads(factor: float) -> None:
    workers = [threading.Thread(target=_json, args=(factor / 10,)) for _ in range(8)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()


def _xargs(factor: float) -> None:
    program = f"x = bytearray(b'x') * {int(40 * factor * (1 << 20))}; import time; time.sleep(0.05)"
    running = [subprocess.Popen([sys.executable, "-c", program]) for _ in range(6)]
    for one in running:
        one.wait()


def _pipeline(factor: float) -> None:
    write = f"import sys\nfor i in range({int(400_000 * factor)}): print(i * 7919 % 1000003)"
    read = "import sys; x = sorted(sys.stdin); print(len(x))"
    first = subprocess.Popen([sys.executable, "-c", write], stdout=subprocess.PIPE)
    subprocess.run([sys.executable, "-c", read], stdin=first.stdout, stdout=subprocess.DEVNULL, check=True)
    first.wait()


PROGRAMS: dict[str, Callable[[float], None]] = {
    "json": _json,
    "sort": _sort,
    "text": _text,
    "sqlite": _sqlite,
    "tree": _tree,
    "shell": _shell,
    "pool": _pool,
    "threads": _threads,
    "xargs": _xargs,
    "pipeline": _pipeline,
}

if __name__ == "__main__":
    PROGRAMS[sys.argv[1]](float(sys.argv[2]))
