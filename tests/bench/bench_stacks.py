"""Captured stacks: which line is named, what it costs beside other tools, and whether programs notice.

    python tests/bench/bench_stacks.py              ramps of eight kinds, and the cost beside other tools
    python tests/bench/bench_stacks.py --repeat 5   each ramp so often
    python tests/bench/bench_stacks.py --only numpy --no-ramps   costs of one kind
    python tests/bench/bench_stacks.py --identical  output of 100 programs with and without --stacks
    python tests/bench/bench_stacks.py --stops      time for which programs are stopped
    python tests/bench/bench_stacks.py --share      CPU time of captures in a run of a minute, in paired runs

Each ramp grows for at least 0.1 s in a function `ramp`, then the program works elsewhere with the memory held. A ramp counts
as named if the report's `running_at_peak` is in `ramp`. Programs whose libraries are missing are left out, and said so. Costs
are CPU seconds and elapsed seconds of program and tool together, the minimum of paired runs.

Stops are measured by the stopped program, which does nothing but read clocks and grow: time that passed while it neither ran
nor waited for a processor.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

PROGRAM = [sys.executable, "-m", "otel_memwatch"]
AFTER = "\ndef later(held):\n    time.sleep(0.3)\n    return len(held)\n\ntime.sleep(0.3)\nlater(ramp())\n"

PYTHON = """
import time
def ramp():
    held, until = [], time.monotonic() + 0.15
    while time.monotonic() < until or len(held) < 2000:
        held.append([object() for _ in range(1000)])
    return held
"""
NUMPY = """
import time
import numpy as np
def ramp():
    held, until = [], time.monotonic() + 0.15
    while time.monotonic() < until or len(held) < 40:
        held.append(np.ones(1 << 20))
    return held
"""
PANDAS = """
import time
import numpy as np
import pandas as pd
def ramp():
    held = [pd.DataFrame({"a": np.arange(100_000), "b": np.random.rand(100_000)}) for _ in range(60)]
    for _ in range(3):
        held.append(pd.concat(held[:60]))
    return held
"""
SKLEARN = """
import time
import numpy as np
from sklearn.preprocessing import PolynomialFeatures
def ramp():
    rows = np.random.rand(60_000, 12)
    return [PolynomialFeatures(3).fit_transform(rows)]
"""
THREADS = """
import threading, time
held = []
def ramp():
    until = time.monotonic() + 0.15
    while time.monotonic() < until:
        held.append(bytearray(2 << 20))
        time.sleep(0.001)
def idle():
    time.sleep(1)
time.sleep(0.3)
others = [threading.Thread(target=idle) for _ in range(3)]
worker = threading.Thread(target=ramp)
for one in [*others, worker]:
    one.start()
worker.join()
time.sleep(0.3)
"""
POOL = """
import multiprocessing, time
def ramp(_):
    held, until = [], time.monotonic() + 0.3
    while time.monotonic() < until:
        held.append(bytearray(2 << 20))
        time.sleep(0.003)
    time.sleep(0.3)
    return len(held)
if __name__ == "__main__":
    with multiprocessing.get_context("fork").Pool(3) as pool:
        time.sleep(0.3)
        print(len(pool.map(ramp, range(3))))
"""
EXEC = """
import subprocess, sys, time
if len(sys.argv) == 1:
    time.sleep(0.2)
    subprocess.run([sys.executable, __file__, "child"], check=True)
else:
    def ramp():
        held, until = [], time.monotonic() + 0.15
        while time.monotonic() < until:
            held.append(bytearray(2 << 20))
            time.sleep(0.001)
        return held
    time.sleep(0.2)
    kept = ramp()
    time.sleep(0.3)
"""
NATIVE = """
#include <stdlib.h>
#include <unistd.h>
static char *volatile kept;
__attribute__((noinline)) void ramp(void) {
    kept = malloc(300 << 20);
    for (long at = 0; at < 300L << 20; at += 4096) {
        kept[at] = 1;
        if (at % (2 << 20) == 0) usleep(1000);
    }
}
int main(void) { usleep(300000); ramp(); usleep(300000); return 0; }
"""
STOPS_PYTHON = """
import os, time
delays = os.open("/proc/thread-self/schedstat", os.O_RDONLY)
def clocks():
    # In this order: a thread is preempted at the ends of system calls, which the first is not.
    return time.monotonic_ns(), int(os.pread(delays, 99, 0).split()[1]) + time.thread_time_ns()
held, stops, began = [], [], time.monotonic_ns()
(now, busy), grown = clocks(), began
while now < began + 20e9:
    later, after = clocks()
    if (stop := (later - now) - (after - busy)) > 200_000:
        stops.append(stop / 1e6)
    if later > grown + 1e9:
        grown = later
        held.append(bytearray(20 << 20))
    now, busy = later, after
print(*stops)
"""
STOPS_NATIVE = """
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
static long long of(clockid_t clock) {
    struct timespec t;
    clock_gettime(clock, &t);
    return t.tv_sec * 1000000000LL + t.tv_nsec;
}
static int delays;
static long long busy(void) {
    char text[100] = "";
    long long ran, waited = 0;
    pread(delays, text, 99, 0);
    sscanf(text, "%lld %lld", &ran, &waited);
    return of(CLOCK_THREAD_CPUTIME_ID) + waited;
}
int main(void) {
    delays = open("/proc/thread-self/schedstat", O_RDONLY);
    long long began = of(CLOCK_MONOTONIC), now = began, was = busy(), grown = began;
    while (now < began + 20000000000LL) {
        long long later = of(CLOCK_MONOTONIC), is = busy();
        if (later - now - (is - was) > 200000) printf("%f ", (later - now - (is - was)) / 1e6);
        if (later > grown + 1000000000LL) { grown = later; memset(malloc(20 << 20), 1, 20 << 20); }
        now = later; was = is;
    }
    return 0;
}
"""
STEPS = """
import time
held = []
for _ in range(60):
    held.append(bytearray(8 << 20))
    time.sleep(1)
"""
RAMPS = {
    "pure Python": (PYTHON + AFTER, ()),
    "numpy": (NUMPY + AFTER, ("numpy",)),
    "pandas": (PANDAS + AFTER, ("pandas",)),
    "scikit-learn": (SKLEARN + AFTER, ("sklearn",)),
    "threads": (THREADS, ()),
    "fork pool": (POOL, ()),
    "exec'd child": (EXEC, ()),
    "C with symbols": (NATIVE, ()),
}
TOOLS: dict[str, list[str]] = {
    "alone": [],
    "wrap": [*PROGRAM, "wrap", "--quiet", "--runs", "runs", "--"],
    "wrap --stacks": [*PROGRAM, "wrap", "--quiet", "--stacks", "--runs", "runs", "--"],
    "memray": ["memray", "run", "-q", "-f", "-o", "memray.bin"],
    "scalene": ["scalene", "run", "-o", "scalene.json"],
    "fil": ["fil-profile", "--no-browser", "-o", "fil", "run"],
    "heaptrack": ["heaptrack", "-o", "heaptrack"],
    "tracemalloc": [sys.executable, "-X", "tracemalloc=1"],
}
_SCRIPTS = {"memray", "scalene", "fil", "tracemalloc"}
"""Tools that start the interpreter themselves."""


def command_of(name: str, folder: Path) -> list[str]:
    """Write the program of a ramp, and return its command."""
    source, _ = RAMPS[name]
    stem = "ramp_" + "".join(c if c.isalnum() else "_" for c in name)
    if source == NATIVE:
        (folder / f"{stem}.c").write_text(source)
        subprocess.run(["cc", "-O1", "-g", "-o", folder / stem, folder / f"{stem}.c"], check=True)
        return [str(folder / stem)]
    (folder / f"{stem}.py").write_text(source)
    return [sys.executable, str(folder / f"{stem}.py")]


def missing(name: str) -> list[str]:
    """Return the libraries of a ramp that are not installed."""
    return [module for module in RAMPS[name][1] if importlib.util.find_spec(module) is None]


def named(command: list[str], folder: Path, number: int) -> tuple[bool, str]:
    """Record a ramp; return whether it was named, and the words of the summary."""
    run = folder / f"run{number}"
    subprocess.run(
        [*PROGRAM, "wrap", "--stacks", "--quiet", "--out", run, "--", *command], cwd=folder, check=False
    )
    done = subprocess.run([*PROGRAM, "report", run, "--json"], capture_output=True, text=True, check=False)
    found = json.loads(done.stdout)["running_at_peak"]
    if found is None:
        return False, "nothing captured"
    frame = found["own"] or found["innermost"]
    return frame["function"].split(".")[0] == "ramp", f"{frame['function']}:{frame['line']}"


def ramps(folder: Path, repeat: int, names: Sequence[str]) -> None:
    """Print which ramps are named."""
    total = right = number = 0
    for name in names:
        if missing(name):
            print(f"{name:15} left out: {', '.join(missing(name))} is not installed")
            continue
        command, hits, others = command_of(name, folder), 0, []
        for _ in range(repeat):
            number += 1
            hit, words = named(command, folder, number)
            hits += hit
            if not hit:
                others.append(words)
        total, right = total + repeat, right + hits
        print(f"{name:15} {hits} of {repeat}  {', '.join(others)}", flush=True)
    print(f"{'all':15} {right} of {total} (goal: 19 of 20)")


def cost(command: list[str], folder: Path) -> tuple[float, float] | None:
    """Return CPU and elapsed seconds of a command with its children; `None` if it failed."""
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    done = subprocess.run(
        command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False
    )
    if done.returncode:
        return None
    seconds, after = time.monotonic() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, seconds


def costs(folder: Path, repeat: int, names: Sequence[str]) -> None:
    """Print the cost of each installed tool on each ramp, in turns."""
    print(f"\n{'CPU s (elapsed s)':15} " + " ".join(f"{tool:>15}" for tool in TOOLS))
    for name in names:
        if missing(name):
            continue
        command = command_of(name, folder)
        native = len(command) == 1
        found: dict[str, list[tuple[float, float] | None]] = {}
        for _ in range(repeat):
            for tool, prefix in TOOLS.items():
                alone = not prefix or prefix[0] == sys.executable
                if (native and tool in _SCRIPTS) or not (alone or shutil.which(prefix[0])):
                    continue
                words = [*prefix, *(command[1:] if tool in _SCRIPTS else command)]
                found.setdefault(tool, []).append(cost(words, folder))
        cells = []
        for tool in TOOLS:
            worked = [one for one in found.get(tool, ()) if one is not None]
            best = tuple(map(min, zip(*worked, strict=True)))
            cells.append(f"{best[0]:.2f} ({best[1]:.2f})" if best else "failed" if tool in found else "-")
        print(f"{name:15} " + " ".join(f"{cell:>15}" for cell in cells), flush=True)


def identical(folder: Path, number: int) -> None:
    """Print how many programs have the same output and exit code with and without --stacks."""
    same = 0
    for seed in range(number):
        script = (
            f"import random, sys, time\nr = random.Random({seed})\nheld = []\n"
            "for n in range(r.randrange(3, 12)):\n"
            "    held.append(bytearray(r.randrange(1, 9) << 20))\n    time.sleep(r.random() / 50)\n"
            "    print(n, len(held[-1]), file=r.choice([sys.stdout, sys.stderr]), flush=True)\n"
            "sys.exit(r.randrange(4))\n"
        )
        results = []
        for words in ([], ["--stacks"]):
            runs = folder / f"same{seed}{len(words)}"
            command = [
                *PROGRAM,
                "wrap",
                "--quiet",
                "--runs",
                runs,
                *words,
                "--",
                sys.executable,
                "-c",
                script,
            ]
            done = subprocess.run(command, cwd=folder, capture_output=True, check=False)
            results.append((done.returncode, done.stdout, done.stderr))
        same += results[0] == results[1]
        if results[0] != results[1]:
            print(f"seed {seed}: {results[0]!r} without, {results[1]!r} with --stacks", flush=True)
    print(f"{same} of {number} programs had the same output and exit code with and without --stacks")


def stops(folder: Path) -> None:
    """Print for how long programs were stopped without --stacks and with it."""
    (folder / "stops.py").write_text(STOPS_PYTHON)
    (folder / "stops.c").write_text(STOPS_NATIVE)
    subprocess.run(["cc", "-O1", "-g", "-o", folder / "stops", folder / "stops.c"], check=True)
    for name, program in (("Python", [sys.executable, folder / "stops.py"]), ("C", [folder / "stops"])):
        for words in ([], ["--stacks"]):
            command = [*PROGRAM, "wrap", "--quiet", "--runs", "runs", *words, "--", *program]
            done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)
            found = [float(word) for word in done.stdout.split()]
            middle = statistics.median(found) if found else 0.0
            print(
                f"{name:7} {' '.join(words) or 'without':9} {len(found)} stops, median {middle:.2f} ms, "
                f"longest {max(found, default=0.0):.2f} ms, {sum(found) / 20_000:.2%} of 20 s",
                flush=True,
            )


def share(folder: Path, repeat: int) -> None:
    """Print the CPU time that --stacks adds to a run of a minute, the median of paired runs in turns."""
    command, added = [sys.executable, "-c", STEPS], []
    for _ in range(repeat):
        without, with_stacks = (cost([*TOOLS[tool], *command], folder) for tool in ("wrap", "wrap --stacks"))
        assert without is not None
        assert with_stacks is not None
        added.append(with_stacks[0] - without[0])
    listed = ", ".join(f"{1000 * seconds:.0f}" for seconds in added)
    print(f"--stacks adds {statistics.median(added) / 60:.2%} of a core to a run of 60 s ({listed} ms)")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--identical", action="store_true")
    parser.add_argument("--stops", action="store_true")
    parser.add_argument("--share", action="store_true")
    parser.add_argument("--no-costs", action="store_true")
    parser.add_argument("--no-ramps", action="store_true")
    parser.add_argument(
        "--only", action="append", choices=list(RAMPS), help="a kind of ramp; may be repeated"
    )
    given = parser.parse_args()
    os.environ["PATH"] = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if given.identical:
            identical(folder, 100)
            return
        if given.stops:
            stops(folder)
            return
        if given.share:
            share(folder, given.repeat)
            return
        names = given.only or list(RAMPS)
        if not given.no_ramps:
            ramps(folder, given.repeat, names)
        if not given.no_costs:
            costs(folder, given.repeat, names)


if __name__ == "__main__":
    main()
