"""Our costs beside their goals and beside other tools, as one table in Markdown.

    python -m tests.bench.costs [--seconds 20] [--rounds 1] [--short 15] [--save FILE] [--docs]

The tools take turns. Times of short commands are medians of wall time. CPU times are those of a tool and its helpers over a
run of idle processes, without those processes, but with those that the tool leaves behind; the least of all rounds, since other
work only adds to it. "Best" is the least of the other tools, GNU time excepted, which takes no samples. The rows of a start are
printed in detail before.

`--save` keeps the CPU times of short commands and of a sample for CI, `--docs` puts the table into docs/benchmarks.md.
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
import os
import platform
import statistics
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from tests.bench import bench_pytest, bench_shell, bench_waiting
from tests.bench.bench_samples import GOALS
from tests.bench.compare import measures, peers

MIB = 1 << 20
OURS, USER = "otel-memwatch", "otel-memwatch, as a user"
TOOLS = (OURS, USER, "psrecord", "resource-tracker", "mprof", "con-duct", "GNU time")
GOAL_SECONDS = 20.0
MEMORY_MIB = 16.0
RECIPES = 2000
TEST_US = 40.0
DOCS = Path(__file__).parents[2] / "docs/benchmarks.md"
BEGIN, END = "<!-- costs:begin -->", "<!-- costs:end -->"


class Row(NamedTuple):
    """A line of the table: a figure of each tool."""

    name: str
    unit: str
    figures: Mapping[str, float]
    goal: float | None = None


def installed() -> list[peers.Peer]:
    """Install the tools; return those that work here."""
    peers.ENVIRONMENTS.mkdir(parents=True, exist_ok=True)
    peers.make_plain()
    chosen = sorted(
        (peer for peer in peers.PEERS if peer.name in TOOLS), key=lambda peer: TOOLS.index(peer.name)
    )
    failed = {peer.packages: peers.install(peer) for peer in chosen}
    for packages, reason in failed.items():
        if reason:
            print(f"{packages[0]}: left out, {reason}", file=sys.stderr)
    return [peer for peer in chosen if not failed[peer.packages]]


def starts(tools: Sequence[peers.Peer], repeats: int) -> list[Row]:
    """What short commands take under each tool, and with our other commands."""
    begun = measures.start(list(tools), repeats)
    rows = []
    for name, goal, whole in (
        ("true", 35.0, True),
        ("python -c pass", 30.0, False),
        ("until it runs", 25.0, False),
    ):
        medians = {tool: 1e3 * spread["median"] for tool, spread in begun[name].items()}
        bare = medians.pop("bare")
        label = f"`{name}`" if name != "until it runs" else name
        rows.append(
            Row(f"{label}, {'whole time' if whole else 'beyond bare'}", "ms", {
                tool: figure if whole else figure - bare for tool, figure in medians.items()
            }, goal)
        )  # fmt: skip
    python = peers.program("otel-memwatch", "python")
    only_us = {"alone": lambda command, _: command, OURS: bench_waiting.wrapped(python)}
    short, found = bench_waiting.taken(only_us, repeats, python)
    walls = {name: 1e3 * statistics.median(wall for wall, _ in times) for name, times in found.items()}
    for row in short:
        if row.name in {"true, without report", "--help", "--version", "operation", "recipe, recorded"}:
            bare = walls[row.beyond] if row.beyond and row.beyond != "true, alone" else 0.0
            rows.append(
                Row(
                    f"`{row.name}`" if row.name.startswith("-") else row.name,
                    "ms",
                    {OURS: walls[row.name] - bare},
                    row.goal,
                )
            )
    return rows


def samples(tools: Sequence[peers.Peer], seconds: float, rounds: int) -> list[Row]:
    """CPU time of each tool over a run of idle processes, and its memory with one at 10 Hz."""
    able = [peer for peer in tools if peer.sampling is not None]
    rows = []
    for peer in able:  # the first run with many processes may keep bytecode for the later ones
        measures.watch(peer, 50, 0.1, 2.0)
    for (size, hertz), goal in GOALS.items():
        measures.say(f"{size} processes, {hertz} Hz")
        found: dict[str, list[measures.Result]] = {peer.name: [] for peer in able}
        for _, peer in measures.turns(rounds, able):
            found[peer.name].append(measures.watch(peer, size, 1 / hertz, seconds))
        cpu = {name: min(entry["cpu_in_all"] for entry in entries) for name, entries in found.items()}
        rows.append(
            Row(f"CPU over {seconds:g} s, {size} idle, {hertz} Hz", "s", cpu, goal * seconds / GOAL_SECONDS)
        )
        if (size, hertz) == (1, 10):
            memory = {
                name: statistics.median(entry["memory"] for entry in entries) / MIB
                for name, entries in found.items()
            }
            rows.append(Row("memory of the monitor, report included", "MiB", memory))
    alone = next(peer for peer in able if peer.name == OURS)
    quiet = alone._replace(
        sampling=lambda interval: peers.ours("--quiet", "--no-report", "--interval", f"{interval:g}")
    )
    measures.say("memory")
    memory = [measures.watch(quiet, 1, 0.1, 6.0)["memory"] / MIB for _ in range(5)]
    return [
        *rows,
        Row("memory of the monitor, recording only", "MiB", {OURS: statistics.median(memory)}, MEMORY_MIB),
    ]


def others() -> list[Row]:
    """An empty test and a build."""
    measures.say("tests and a build")
    python = peers.program("otel-memwatch", "python")
    pip = [sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "pytest"]
    subprocess.run(pip, check=True)
    _, test = bench_pytest.cost(python)
    return [
        Row("an empty test under `pytest --memwatch`", "us", {OURS: 1e6 * test}, TEST_US),
        Row(f"CPU of a build of {RECIPES} recipes", "s", {OURS: bench_shell.build(RECIPES)}, 0.01 * RECIPES),
    ]


def markdown(rows: Sequence[Row], tools: Sequence[str]) -> str:
    """Return the table: figures, goals, and ratios to the goal and to the best other tool."""
    head = ["", *tools, "goal", "ours / goal", "ours / best other"]
    lines = [f"| {' | '.join(head)} |", f"| --- |{' ---: |' * (len(head) - 1)}"]
    for row in rows:
        ours = row.figures[OURS]
        rivals = [
            figure
            for tool, figure in row.figures.items()
            if tool not in {OURS, USER, "GNU time"} and figure > 0
        ]
        cells = [f"{row.figures[tool]:.3g}" if tool in row.figures else "" for tool in tools]
        cells += ["", ""] if row.goal is None else [f"{row.goal:.3g}", f"{ours / row.goal:.2f}"]
        cells.append(f"{ours / min(rivals):.2f}" if rivals else "")
        lines.append(f"| {row.name}, {row.unit} | {' | '.join(cells)} |")
    return "\n".join(lines)


def machine() -> str:
    """Return the date and the machine in a sentence."""
    today = dt.datetime.now(dt.timezone.utc).date().isoformat()
    return (
        f"Measured on {today} with {os.cpu_count()} processors, Linux {platform.release()}, "
        f"Python {platform.python_version()}; load at the beginning {os.getloadavg()[0]:.1f}."
    )


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--seconds", type=float, default=GOAL_SECONDS, help="length of a run of idle processes"
    )
    parser.add_argument("--rounds", type=int, default=1, help="rounds of these runs, of eight minutes each")
    parser.add_argument("--short", type=int, default=15, help="rounds of the short commands")
    parser.add_argument("--save", type=Path, help="file for CPU times in units of a bare interpreter, for CI")
    parser.add_argument("--docs", action="store_true", help="put the table into docs/benchmarks.md")
    given = parser.parse_args()
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # each start would compile 160 modules
    described, tools = machine(), installed()
    rows = [*starts(tools, given.short), *samples(tools, given.seconds, given.rounds), *others()]
    table = f"{markdown(rows, [peer.name for peer in tools])}\n\n{described}"
    print(table, flush=True)
    if given.save:
        figures = bench_waiting.in_units(
            bench_waiting.short_commands(bench_waiting.tools_to_compare(only_us=True), given.short), 3
        )
        given.save.write_text(json.dumps(figures, indent=1) + "\n")
    if given.docs:
        text = DOCS.read_text()
        before, after = text.split(BEGIN)[0], text.split(END)[1]
        DOCS.write_text(f"{before}{BEGIN}\n{table}\n{END}{after}")


if __name__ == "__main__":
    main()
