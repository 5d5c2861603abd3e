"""What it costs to report, plot and export a day at 10 Hz, against the budgets: 10 s of CPU and 500 MiB.

    python tests/bench/bench_offline.py [TICKS] [RUN]

The run is synthetic, with operations and as many columns as a real one on a machine without a GPU has. With RUN, a recorded
one, its ticks are repeated instead, with counters that go on rising: record one at 10 Hz of a minute or so before.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from otel_memwatch.catalog import METRICS, Instrument
from tests.support import recorded

SECONDS, MEBIBYTES = 10.0, 500.0
DAY = 864_000


def widen(path: Path) -> None:
    """Gives each tick a value for every metric of the tree, the control group and the machine."""
    names = [
        metric.name for metric in METRICS.values()
        if metric.source in {"process_tree", "cgroup", "host"} and metric.instrument is not Instrument.HISTOGRAM
    ]  # fmt: skip
    names = [name for name in names if name not in {"memwatch.tree.memory.usage", "process.memory.usage"}]
    samples = path / "samples.jsonl"
    narrow = samples.with_name("narrow")
    samples.rename(narrow)
    with narrow.open() as lines, samples.open("w") as out:
        header = json.loads(next(lines))
        header["columns"] += [
            {"metric": name, "unit": METRICS[name].unit, "attributes": {}, "period": 0} for name in names
        ]
        out.write(json.dumps(header) + "\n")
        rest = "".join(f",{123_456 * place}" for place in range(len(names))) + "]\n"
        out.writelines(line.rstrip("]\n") + rest for line in lines)
    narrow.unlink()


def repeated(run: Path, path: Path, ticks: int) -> Path:
    """A run of so many ticks: those of `run` again and again, without its processes but the first."""
    header, *lines = (run / "samples.jsonl").read_text().splitlines()
    rows = [json.loads(line) for line in lines]
    columns = json.loads(header)["columns"]
    rising = [i for i, c in enumerate(columns, 1) if METRICS[c["metric"]].instrument is Instrument.COUNTER]
    growth = {
        i: next((row[i] for row in reversed(rows) if len(row) > i and row[i] is not None), 0) for i in rising
    }
    path.mkdir()
    with (path / "samples.jsonl").open("w") as out:
        out.write(header + "\n")
        for number in range(ticks):
            round_, place = divmod(number, len(rows))
            row = list(rows[place])
            row[0] = round(row[0] + round_ * len(rows) / 10, 4)
            for i, by in growth.items():
                if len(row) > i and row[i] is not None:
                    row[i] = round(row[i] + round_ * by, 6)
            out.write(json.dumps(row, separators=(",", ":")) + "\n")
    info = json.loads((run / "run.json").read_text())
    begin, end = info["started"]["monotonic"], row[0]
    info["ended"] = {"wall": info["started"]["wall"] + end - begin, "monotonic": end}
    info["quality"]["ticks"] = ticks
    (path / "run.json").write_text(json.dumps(info))
    processes = (json.loads(line) for line in (run / "processes.jsonl").read_text().splitlines())
    kept = [
        p | ({"time": end} if p["event"] == "exit" else {})
        for p in processes
        if p["pid"] == info["target"]["pid"]
    ]
    (path / "processes.jsonl").write_text("".join(json.dumps(p) + "\n" for p in kept))
    return path


def measure(words: list[str]) -> tuple[float, float]:
    """Processor seconds and peak MiB of one command; wall time would have other work on the machine in it."""
    process = subprocess.Popen([sys.executable, "-m", "otel_memwatch", *words], stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0, words
    unit = 1 if sys.platform == "darwin" else 1024
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss * unit / 2**20


def main() -> None:
    """Prints one line for each command: figures and ratios to the budget."""
    ticks = int(sys.argv[1]) if len(sys.argv) > 1 else DAY
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "day"
        if len(sys.argv) > 2:
            repeated(Path(sys.argv[2]), path, ticks)
        else:
            widen(recorded.day(path, ticks=ticks))
        size = (path / "samples.jsonl").stat().st_size
        print(f"{ticks} ticks, {size / ticks:.0f} B each")
        for name, words in {
            "report --html": ["report", str(path), "--html", f"{folder}/day.html"],
            "report": ["report", str(path)],
            "report --json": ["report", "--json", str(path)],
            "plot": ["plot", str(path), "-o", f"{folder}/day.png"],
            "live --once": ["live", "--once", str(path)],
            "export csv": ["export", str(path), "--to", "csv", "-o", f"{folder}/day.csv"],
        }.items():
            seconds, peak = measure(words)
            share = ticks / DAY
            told = f"{seconds:6.2f} s {peak:6.0f} MiB, {seconds / SECONDS / share:5.2f} and {peak / MEBIBYTES:5.2f} of the budget"
            print(f"{name:14s}{told}", flush=True)


if __name__ == "__main__":
    main()
