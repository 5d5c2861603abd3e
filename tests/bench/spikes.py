"""Planted spikes of 5 ms under `wrap` or `attach`: is each in the envelope, and in the right window?

    python -m tests.bench.spikes [SPIKES] [--cgroup off] [--interval 100ms]
    python -m tests.bench.spikes [SPIKES] --attach

A process touches 20 to 200 MiB every 0.1 s or so, for 5 ms, and writes down when and how much anonymous memory it had. In the record, each
window between two samples has bounds of its peak. A spike counts as

* in the envelope: the upper bound of a window in which it was is not below it
* in the right window: no window says with certainty that it had more than its spikes
* exact: bounds of such a window are at most 1 MiB or 0.5 % apart, and contain it

On a busy machine a spike lasts longer, so its duration is printed, too. The monitor may then have to wait for a processor between reading
the high-water mark of a window and resetting it. What the memory was meanwhile is not known, so the next window has a range, which contains
the spike. Such spikes are counted as "late": a quiet machine has none.

`--attach`: the process runs in a cgroup, which `attach --cgroup` records. Every other spike is larger than all before, by 0.6 MiB, so it
raises the high-water mark, which nothing resets. Each of these has to be exact.
"""

from __future__ import annotations

import argparse
import json
import math
import mmap
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from otel_memwatch.run import load
from otel_memwatch.run.cgroup_bounds import bounds_between
from otel_memwatch.run.conditions import RunConditions
from tests.support.control_group import group

if TYPE_CHECKING:
    from collections.abc import Iterator

MIB = 1 << 20
BASE = 24 * MIB
"""Bytes that the tree may need beyond the anonymous memory of the process: page tables, kernel memory, pages of files."""
STEP = 600 << 10
"""Bytes by which a spike that raises the mark exceeds all before: more than the kernel charges ahead of use on two processors."""
PROGRAM = [sys.executable, "-m", "otel_memwatch"]
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[2])}
CLOCK = 0.02
"""Seconds around a spike: a sample's readings follow its time."""


class Spike(NamedTuple):
    """A spike: monotonic seconds, and anonymous bytes of the process."""

    start: float
    end: float
    anonymous: int


class Window(NamedTuple):
    """Monotonic seconds of a window, and bounds of its peak in bytes."""

    start: float
    end: float
    low: int
    high: int | None
    gap: float = 0.0
    """Seconds from reading the mark of the window before to its reset."""


class Counts(NamedTuple):
    """Numbers of spikes."""

    planted: int
    in_envelope: int
    in_window: int
    exact: int
    late: int
    """Not exact, and the mark was reset late just before the window."""


def sizes(number: int, *, rising: bool) -> Iterator[int]:
    """Yield the bytes of each spike; rising: every other one is larger than all before."""
    rng = random.Random(5)
    for each in range(number):
        size = rng.randrange(20, 200) * MIB
        if rising:
            size = 30 * MIB + each // 2 * STEP - (rng.randrange(4, 30) * MIB if each % 2 else 0)
        yield size


def plant(number: int, *, rising: bool = False) -> None:
    """Make spikes in this process, and print them."""
    rng, spikes = random.Random(6), []
    with open("/proc/self/status", "rb", buffering=0) as status:
        for size in sizes(number, rising=rising):
            time.sleep(rng.uniform(0.08, 0.14))
            start = time.monotonic()
            with mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as memory:
                memory[:: mmap.PAGESIZE] = bytes(len(memory) // mmap.PAGESIZE)
                status.seek(0)
                anonymous = 1024 * int(status.read(4096).partition(b"RssAnon:")[2].split()[0])
                time.sleep(0.005)
            spikes.append((start, time.monotonic(), anonymous))
    print(json.dumps(spikes))  # a file would move page cache, which widens the bounds of windows around it


def windows_of(run: Path) -> list[Window]:
    """Return the windows of a record. With a cgroup of the run, a row has the bounds of the window before."""
    recorded = load(run)
    conditions, samples = RunConditions.of(recorded.info), recorded.samples()
    if conditions.own_cgroup:
        columns = bounds_between(samples, conditions, all_ended=True)
        gap_at = {round(one.time, 4): one.gap or 0.0 for one in samples.each(recorded.started)}
        columns = (*columns, [gap_at.get(round(start, 4), 0.0) for start in columns[0].tolist()])
        rows = list(zip(*map(list, columns), strict=True))
    else:
        times = (samples.time + recorded.started).tolist()
        lows, highs = (samples.field(name).tolist() for name in ("needed_low", "needed_high"))
        rows = list(
            zip([recorded.started, *times], times, times, lows, highs, [0.0] * len(times), strict=False)
        )
    return [
        Window(begin, until, 0 if math.isnan(low) else int(low), None if math.isnan(high) else int(high), gap)
        for begin, _, until, low, high, gap in rows
    ]


def compare(spikes: list[Spike], windows: list[Window], chosen: list[Spike] | None = None) -> Counts:
    """Compare the bounds of windows with the spikes in them, or with some of these."""
    chosen = spikes if chosen is None else chosen
    in_envelope = in_window = exact = late = 0
    for spike in chosen:
        near = [one for one in windows if one.start <= spike.end + CLOCK and one.end >= spike.start - CLOCK]
        in_envelope += any(one.high is None or one.high >= spike.anonymous for one in near)
        in_window += bool(near) and all(one.low <= _largest(spikes, one) + BASE for one in near)
        is_exact = any(
            one.high is not None
            and one.high - one.low <= max(MIB, 0.005 * one.high)
            and one.high >= spike.anonymous
            and one.low <= _largest(spikes, one) + BASE
            for one in near
        )
        exact += is_exact
        late += not is_exact and any(one.gap for one in near)
    return Counts(len(chosen), in_envelope, in_window, exact, late)


def _largest(spikes: list[Spike], window: Window) -> int:
    return max(
        (
            one.anonymous
            for one in spikes
            if one.start <= window.end + CLOCK and one.end >= window.start - CLOCK
        ),
        default=0,
    )


def planting(number: int, *, attached: bool) -> list[str]:
    """Return a command that makes spikes; attached: after a line on its standard input."""
    begin = "input(); " if attached else ""
    return [
        sys.executable,
        "-c",
        f"from tests.bench.spikes import plant; {begin}plant({number}, rising={attached})",
    ]


def recorded(folder: Path, printed: bytes) -> tuple[list[Spike], list[Window]]:
    """Keep what the process printed beside its record; return its spikes, and the windows of the record."""
    (folder / "spikes.json").write_bytes(printed)
    return [Spike(*one) for one in json.loads(printed)], windows_of(folder / "run")


def run(number: int, options: list[str], folder: Path) -> Counts:
    """Record a process with spikes in `folder`."""
    words = ["wrap", "--quiet", "--no-report", "--out", "run", *options, "--"]
    program = [*PROGRAM, *words, *planting(number, attached=False)]
    done = subprocess.run(program, cwd=folder, check=True, env=ENVIRONMENT, stdout=subprocess.PIPE)
    return compare(*recorded(folder, done.stdout))


def run_attached(number: int, folder: Path) -> tuple[Counts, Counts]:
    """Attach to the cgroup of a process with spikes; return the counts of those that raise its mark, and of the others."""
    with group() as made:
        target = subprocess.Popen(
            planting(number, attached=True), cwd=folder, env=ENVIRONMENT, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            preexec_fn=made.enter,  # noqa: PLW1509 - it writes one file
        )  # fmt: skip
        words = ["attach", "--no-report", "--out", "run", "--cgroup", str(made.path)]
        watcher = subprocess.Popen([*PROGRAM, *words], cwd=folder, env=ENVIRONMENT, stderr=subprocess.DEVNULL)
        while not (folder / "run/samples.jsonl").exists():
            time.sleep(0.1)
        time.sleep(1.0)
        printed, _ = target.communicate(b"\n")
        watcher.wait()
    spikes, windows = recorded(folder, printed)
    return compare(spikes, windows, spikes[::2]), compare(spikes, windows, spikes[1::2])


def words_of(found: Counts) -> str:
    """Return the counts in words."""
    return (
        f"{found.planted} spikes: {found.in_envelope} in the envelope, {found.in_window} in the right window, "
        f"{found.exact} exact, {found.late} late"
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("number", type=int, nargs="?", default=1000)
    parser.add_argument("--cgroup", default="auto", help="as for wrap")
    parser.add_argument("--interval", default="auto", help="as for wrap")
    parser.add_argument("--attach", action="store_true")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as home:
        if chosen.attach:
            above, others = run_attached(chosen.number, Path(home))
            print(f"above all before: {words_of(above)}; others: {words_of(others)}")
        else:
            options = ["--cgroup", chosen.cgroup, "--interval", chosen.interval]
            print(words_of(run(chosen.number, options, Path(home))))
        spans = [end - start for start, end, _ in json.loads(Path(home, "spikes.json").read_text())]
    print(f"a spike lasted {1000 * statistics.median(spans):.0f} ms (median)")
