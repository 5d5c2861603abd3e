"""What a fleet costs a Prometheus: series and bytes of a run, and how long dashboards wait for thousands of them.

    python tests/bench/bench_fleet.py [--recorded 100] [--before 1000] [--runs 1000 10000] [--boards DIRECTORY ...]

So many jobs are recorded and scraped, for real, with all metrics (as it was before a size could be chosen) and as it is by
default; a fleet of a day is simulated from them and handed to a real Prometheus, with what the recording rules would have made
of it; every query of the dashboards is timed, with Grafana's own steps. Nothing here passes or fails.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
import urllib.parse
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from dashboards.promql import filled
from tests.support import fleet

DAY = 86_400
SECONDS = (120, 480)
"""A run lasts so long."""
STEP = 15
"""Seconds between scrapes."""
POINTS = 400
"""Points of a curve, as of a panel half a screen wide."""
GRAFANA = Path(__file__).parents[2] / "dashboards" / "grafana"
OF_A_FLEET = (
    "memwatch-fleet.json",
    "memwatch-ci.json",
    "memwatch-cost.json",
    "memwatch-groups.json",
    "memwatch-operations.json",
    "memwatch-gpu.json",
)


def sizes(title, runs, directory):
    """Series of a run; bytes of a run in blocks of a few hundred."""
    series = sorted(len(run.series) for run in runs)
    count = 200
    made = fleet.simulated(runs, count, _end(), 2 * 3600, SECONDS)
    directory.mkdir()
    data = fleet.blocks(made, directory, STEP)
    size = sum(file.stat().st_size for file in data.rglob("*") if file.is_file())
    by_kind = {run.service: len(run.series) for run in runs}
    print(f"{title:>12} {len(runs):>5} runs recorded, series of a run: {series[0]} to {series[-1]}, median {statistics.median(series):.0f}")  # fmt: skip
    print(f"{'':>12} " + ", ".join(f"{name} {number}" for name, number in by_kind.items()))
    print(f"{'':>12} {size / count / 1024:.1f} KiB a run in blocks of {count} runs of {SECONDS[0]} to {SECONDS[1]} s, scraped each {STEP} s")  # fmt: skip
    print(f"{'':>12} 10 000 such runs a day: {statistics.mean(series) * 1e4 / 1e6:.2f} million series, {size / count * 1e4 / 2**30:.2f} GiB", flush=True)  # fmt: skip


def _end():
    """The end of a block: the last hours are a separate block."""
    return time.time() // 7200 * 7200 - 60


def _asked(server, target, end, seconds):
    """Seconds until the answer is here, its bytes and its series."""
    step = max(15, seconds // POINTS)
    expression = filled(target["expr"], f"{seconds}s", f"{4 * step}s")
    if target["instant"]:
        path, arguments = "query", {"query": expression, "time": end}
    else:
        path = "query_range"
        arguments = {"query": expression, "start": end - seconds, "end": end, "step": step}
    began = time.perf_counter()
    with urllib.request.urlopen(
        f"{server.url}/api/v1/{path}", urllib.parse.urlencode(arguments).encode(), timeout=300
    ) as response:
        body = response.read()
    return time.perf_counter() - began, len(body), len(json.loads(body)["data"]["result"])


def cpu(pid):
    """CPU seconds of a process."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def queries(server, directory, end, repeat):
    """Each query by itself; then all of a dashboard, six at a time, as a browser asks for them."""
    for name in OF_A_FLEET:
        path = directory / name
        if not path.exists():
            continue
        asked = [
            (panel["title"], target)
            for panel in json.loads(path.read_text())["panels"]
            for target in panel.get("targets", ())
        ]
        found = []
        for title, target in asked:
            answers = [_asked(server, target, end, DAY) for _ in range(repeat)]
            found.append((min(taken for taken, *_ in answers), title, *answers[0][1:]))
        found.sort(reverse=True)
        whole, spent = [], []
        for _ in range(repeat):
            began, used = time.perf_counter(), cpu(server.process.pid)
            with ThreadPoolExecutor(6) as pool:
                list(pool.map(lambda one: _asked(server, one[1], end, DAY), asked))
            whole.append(time.perf_counter() - began)
            spent.append(cpu(server.process.pid) - used)
        slowest = ", ".join(f"{title} {taken:.2f} s" for taken, title, *_ in found[:3])
        print(
            f"{'':>12} {path.stem:>20}: {len(found):>2} queries, six at a time {min(whole):.2f} s, {min(spent):.2f} s of a processor; "
            f"the slowest alone {slowest}; "
            f"{sum(f[2] for f in found) / 2**20:.1f} MiB of answers, at most {max(f[3] for f in found)} series",
            flush=True,
        )


def timed(title, runs, count, directory, boards, repeat):
    end = _end()
    made = fleet.simulated(runs, count, end, DAY - 600, SECONDS)
    directory.mkdir()
    began = time.monotonic()
    server = fleet.served(made, directory, STEP)
    try:
        print(f"{title:>12} {count} runs within the 24 h that are asked for, made in {time.monotonic() - began:.0f} s; times are the shortest of {repeat}; load {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors", flush=True)  # fmt: skip
        for place in boards:
            print(f"{'':>12} dashboards of {place}")
            queries(server, Path(place), end, repeat)
    finally:
        server.close()


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--recorded", type=int, default=100, help="jobs that are recorded, half of them with all metrics"
    )
    parser.add_argument(
        "--before", type=int, default=1000, help="runs of the fleet with all metrics; 0: none"
    )
    parser.add_argument(
        "--runs", type=int, nargs="*", default=[1000, 10_000], help="runs of the fleet as it is by default"
    )
    parser.add_argument(
        "--boards", nargs="*", default=[str(GRAFANA)], help="directories of dashboards, as of another version"
    )
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--directory", help="where the data lie while it runs")
    chosen = parser.parse_args()
    times = max(1, chosen.recorded // 2 // len(fleet.KINDS))
    with tempfile.TemporaryDirectory(dir=chosen.directory) as place:
        directory = Path(place)
        before = fleet.record(directory / "all", times=times, options=fleet.BEFORE)
        sizes("all metrics", before, directory / "sizes-all")
        after = fleet.record(directory / "default", times=times)
        sizes("by default", after, directory / "sizes-default")
        if chosen.before:
            timed("all metrics", before, chosen.before, directory / "timed-all", chosen.boards, chosen.repeat)
        for count in chosen.runs:
            timed("by default", after, count, directory / f"timed-{count}", chosen.boards, chosen.repeat)


if __name__ == "__main__":
    main()
