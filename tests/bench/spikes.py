"""Planted spikes of 5 ms under `wrap`: is each in the envelope, and in the right window?

    python -m tests.bench.spikes [SPIKES] [--cgroup off] [--interval 100ms]

A process touches 20 to 200 MiB every 0.1 s or so, for 5 ms, and writes down when and how much anonymous memory it had. In the record, each
window between two samples has bounds of its peak. A spike counts as

* in the envelope: the upper bound of a window in which it was is not below it
* in the right window: no window says with certainty that it had more than its spikes
* exact: bounds of such a window are at most 1 MiB or 0.5 % apart, and contain it

On a busy machine a spike lasts longer, so its duration is printed, too. The monitor may then have to wait for a processor between reading
the high-water mark of a window and resetting it. What the memory was meanwhile is not known, so the next window has a range, which contains
the spike. Such spikes are counted as "late": a quiet machine has none.
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
from typing import NamedTuple

from otel_memwatch.run import load
from otel_memwatch.run.cgroup_bounds import bounds_between
from otel_memwatch.run.conditions import RunConditions

MIB = 1 << 20
BASE = 24 * MIB
"""Bytes that the tree may need beyond the anonymous memory of the process: page tables, kernel memory, pages of files."""
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


def plant(number: int) -> None:
    """Make spikes in this process, and print them."""
    rng, spikes = random.Random(5), []
    with open("/proc/self/status", "rb", buffering=0) as status:
        for _ in range(number):
            time.sleep(rng.uniform(0.08, 0.14))
            start = time.monotonic()
            with mmap.mmap(
                -1, rng.randrange(20, 200) * MIB, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
            ) as memory:
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


def compare(spikes: list[Spike], windows: list[Window]) -> Counts:
    """Compare the bounds of windows with the spikes in them."""
    in_envelope = in_window = exact = late = 0
    for spike in spikes:
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
    return Counts(len(spikes), in_envelope, in_window, exact, late)


def _largest(spikes: list[Spike], window: Window) -> int:
    return max(
        (
            one.anonymous
            for one in spikes
            if one.start <= window.end + CLOCK and one.end >= window.start - CLOCK
        ),
        default=0,
    )


def run(number: int, options: list[str], folder: Path) -> Counts:
    """Record a process with spikes in `folder`."""
    code = f"from tests.bench.spikes import plant; plant({number})"
    words = ["wrap", "--quiet", "--no-report", "--out", "run", *options, "--", sys.executable, "-c", code]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[2])}
    program = [sys.executable, "-m", "otel_memwatch", *words]
    done = subprocess.run(program, cwd=folder, check=True, env=environment, stdout=subprocess.PIPE)
    (folder / "spikes.json").write_bytes(done.stdout)
    spikes = [Spike(*one) for one in json.loads(done.stdout)]
    return compare(spikes, windows_of(folder / "run"))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("number", type=int, nargs="?", default=1000)
    parser.add_argument("--cgroup", default="auto", help="as for wrap")
    parser.add_argument("--interval", default="auto", help="as for wrap")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as home:
        found = run(chosen.number, ["--cgroup", chosen.cgroup, "--interval", chosen.interval], Path(home))
        spans = [end - start for start, end, _ in json.loads(Path(home, "spikes.json").read_text())]
    print(
        f"{found.planted} spikes of {1000 * statistics.median(spans):.0f} ms (median): {found.in_envelope} in the envelope, {found.in_window} in the right window, {found.exact} exact, {found.late} late"
    )
