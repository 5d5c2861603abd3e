"""How long a person waits: the whole time of commands of 0, 1, 5 and 60 s under us and under other tools, in one run.

    python tests/bench/bench_waiting.py [--seconds 0 1 5 60] [--rounds 3] [--operations 100000]
    python -m tests.bench.costs    # all goals beside the tools, as a table

Every tool in its default manner; the tools take turns. What a tool adds to the command alone is what one waits for. Behind
it, for us: the time from the command's end until the shell is back, against the budget, also after many operations.

First, short commands against the goals: the start of the command, `true` and Python under each tool, help, a recipe behind the
recording shell, and an operation in the program. Wall and CPU time, interleaved; the minimum too, which other work on the
machine disturbs least. `--save FILE` keeps their CPU times and that of a sample, in units of a bare interpreter, so the speed of
the machine is not in it. `--beside FILE` prints them beside those of such a file, as of the last release.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.bench.bench_shell import shells
from tests.bench.compare import peers
from tests.support.wrapped import PROGRAM, environment

Start = Callable[[list[str], Path], list[str]]
"""Gives the argv of a tool for a command and a folder that it may fill."""

BUDGET_MS = 60.0
NAMES = ("psrecord", "mprof", "con-duct", "GNU time", "resource-tracker")
OPERATION = "from otel_memwatch import operation\nwith operation('step'): pass"
MARKING = """
import sys, time
from otel_memwatch import operation
for number in range(int(sys.argv[1]) // 10):
    with operation("step"):
        for _ in range(9):
            with operation("batch"):
                pass
print(time.time(), flush=True)
"""


def ours(command: Sequence[str], folder: Path) -> list[str]:
    return wrapped(sys.executable)(command, folder)


def installed(python: str) -> str:
    """Return the program as users start it: the one beside an interpreter. `python -m otel_memwatch` also loads `runpy`."""
    return str(Path(python).with_name("otel-memwatch"))


def wrapped(python: str, *options: str) -> Start:
    """Return how `wrap` of an interpreter is started."""
    return lambda command, folder: [
        installed(python),
        "wrap",
        *options,
        "--out",
        f"{folder}/run",
        "--",
        *command,
    ]


def timed(argv: Sequence[str]) -> tuple[float, str]:
    """Seconds that it took, and what it wrote to its standard output."""
    begun = time.perf_counter()
    done = subprocess.run(
        argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment()
    )
    return time.perf_counter() - begun, done.stdout


def tools_to_compare(*, only_us: bool) -> dict[str, Start]:
    """How each tool is started, by its name."""
    tools: dict[str, Start] = {"alone": lambda command, _: command, "otel-memwatch": ours}
    for peer in peers.PEERS:
        if peer.name in NAMES and not only_us:
            failed = peers.install(peer)
            if failed:
                print(f"{peer.name}: left out, {failed}")
            else:
                tools[peer.name] = peer.start
    return tools


class Short(NamedTuple):
    """A short command in one manner."""

    name: str
    start: Start
    command: list[str]
    beyond: str | None = None
    """Name of the row that is subtracted before it is held against the goal."""
    goal: float | None = None
    """Milliseconds."""
    until_it_runs: bool = False
    """Whether the time ends when the command runs, which prints the time."""


def short_rows(tools: Mapping[str, Start], shell: str, interpreter: str) -> list[Short]:
    """The short commands, each under every tool, and those that only we have."""
    python, program = [interpreter, "-c", "pass"], installed(interpreter)
    alone = tools["alone"]
    rows = [Short(f"true, {name}", start, ["true"]) for name, start in tools.items()]
    rows += [Short(f"python, {name}", start, python, "python, alone") for name, start in tools.items()]
    goals = {"true, otel-memwatch": 35.0, "python, otel-memwatch": 30.0}
    now = ["date", "+%s.%N"]
    rows = [row._replace(goal=goals.get(row.name)) for row in rows]
    return [
        *rows,
        Short("interpreter, alone", alone, [interpreter, "-I", "-S", "-c", "pass"]),
        Short("command runs, alone", alone, now, until_it_runs=True),
        Short("command runs", wrapped(interpreter), now, "command runs, alone", 25.0, until_it_runs=True),
        Short(
            "true, without report",
            wrapped(interpreter, "--quiet", "--no-report"),
            ["true"],
            "true, alone",
            35.0,
        ),
        Short("--help", alone, [program, "--help"], goal=25.0),
        Short("--version", alone, [program, "--version"], goal=25.0),
        Short("operation", alone, [interpreter, "-c", OPERATION], "python, alone", 10.0),
        Short("recipe, bash", alone, ["env", "MAKELEVEL=1", "bash", "-c", "true"]),
        Short(
            "recipe, recorded",
            alone,
            ["env", "MAKELEVEL=1", shell, "-c", "true"],
            "recipe, bash",
            10.0,
        ),
        Short("script, recorded", alone, [shell, "-c", "true"], "recipe, bash"),
    ]


def taken(
    tools: Mapping[str, Start], rounds: int, python: str = sys.executable
) -> tuple[list[Short], dict[str, list[tuple[float, float]]]]:
    """Return the short commands with our program beside `python`, and wall and CPU seconds of each round by name.

    They take turns.
    """
    with shells() as (folder, compared):
        rows = short_rows(tools, compared["shells/bash"], python)
        found: dict[str, list[tuple[float, float]]] = {row.name: [] for row in rows}
        variables = environment()
        for _ in range(rounds):
            for row in rows:
                # The detached process may still make report and page.
                with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as used:
                    argv = row.start(row.command, Path(used))
                    found[row.name].append(
                        spent(argv, folder, variables, Path(used, "moment") if row.until_it_runs else None)
                    )
    return rows, found


def short_commands(tools: Mapping[str, Start], rounds: int) -> dict[str, float]:
    """Prints what short commands take, in turns, with the ratio to the goal; returns their CPU milliseconds."""
    rows, found = taken(tools, rounds)
    print(
        f"{'short commands, ms':<28}{'minimum':>9}{'median':>9}{'CPU':>9}{'beyond':>9}{'goal':>9}{'ratio':>9}"
    )
    least = {
        name: [1000 * min(column) for column in zip(*times, strict=True)] for name, times in found.items()
    }
    for row in rows:
        wall, cpu = least[row.name]
        beyond = wall - least[row.beyond][0] if row.beyond else wall
        median = 1000 * statistics.median(time for time, _ in found[row.name])
        goal = "" if row.goal is None else f"{row.goal:>9.0f}{beyond / row.goal:>9.2f}"
        print(f"{row.name:<28}{wall:>9.1f}{median:>9.1f}{cpu:>9.1f}{beyond:>9.1f}{goal}")
    for command in ("true", "python"):
        bare = least[f"{command}, alone"][0]
        beyond = {name: least[f"{command}, {name}"][0] - bare for name in tools if name != "alone"}
        beside_tools(f"{command}, ms beyond the command alone", beyond)
    return {name: cpu for name, (_, cpu) in least.items()}


def beside_tools(title: str, figures: Mapping[str, float]) -> None:
    """Prints a figure of each tool, and ours as a multiple of it: below 1 we need less."""
    ours = figures["otel-memwatch"]
    print(f"\n{title:<44}{'figure':>9}{'ours/it':>9}")
    for name, figure in sorted(figures.items(), key=lambda item: item[1]):
        print(f"  {name:<42}{figure:>9.2f}{ours / figure:>9.2f}")


def spent(
    argv: Sequence[str], folder: Path, variables: Mapping[str, str], moment: Path | None = None
) -> tuple[float, float]:
    """Seconds of wall and of CPU time that a command took, with all that it waited for.

    `moment`: a file for its output. The wall time then ends at the time that it prints.
    """
    begun, started = time.perf_counter(), time.time()
    with (moment or Path(os.devnull)).open("wb") as output:
        process = subprocess.Popen(argv, cwd=folder, env=variables, stdout=output, stderr=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert status == 0, (argv, status)
    wall = time.perf_counter() - begun if moment is None else float(moment.read_text()) - started
    return wall, usage.ru_utime + usage.ru_stime


def sample_costs(rounds: int, seconds: float = 4.0) -> dict[str, float]:
    """CPU milliseconds of a sample of one idle process; the least of all rounds. A rate without two samples is left out.

    Read while the run goes on, a second and a half after its first samples: start and end differ more from run to run than
    the samples of some seconds cost.
    """
    found = {}
    for hertz in (10, 100):
        costs = []
        for _ in range(rounds):
            with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
                options = ["--quiet", "--interval", f"{1000 // hertz}ms", "--out", f"{folder}/run"]
                argv = [*PROGRAM, "wrap", *options, "--", "sleep", f"{seconds + 60}"]
                process = subprocess.Popen(argv, env=environment(), stderr=subprocess.DEVNULL)
                try:
                    readings = [
                        cost_so_far(process, Path(folder, "run/samples.jsonl"), after)
                        for after in (1.5, seconds)
                    ]
                finally:
                    process.terminate()
                    process.wait()
            (before, first), (after, last) = readings
            if last > first > 0:
                costs.append(1000 * (after - before) / (last - first))
        if costs:
            found[f"a sample at {hertz} Hz"] = min(costs)
    return found


def cost_so_far(process: subprocess.Popen[bytes], samples: Path, pause: float) -> tuple[float, int]:
    """CPU seconds of the monitor and its samples after a pause, which begins with the first samples on disk."""
    until = time.monotonic() + 20
    while not (samples.exists() and samples.stat().st_size) and time.monotonic() < until:
        time.sleep(0.02)
    time.sleep(pause)
    lines = samples.read_bytes().count(b"\n") if samples.exists() else 0
    return time.clock_gettime((~process.pid << 3) | 2), lines


def in_units(figures: Mapping[str, float], rounds: int) -> dict[str, float]:
    """Return the CPU times of short commands and of a sample, the least of so many rounds, in units of a bare interpreter.

    It loads no `site`, so the packages beside it do not change the unit.
    """
    unit = figures["interpreter, alone"]
    together = {**figures, **sample_costs(rounds)}
    return {name: round(cpu / unit, 4) for name, cpu in together.items() if ", alone" not in name}


def beside(figures: Mapping[str, float], file: Path) -> str:
    """Return a table of the CPU times in bare interpreters, now and in the file, as Markdown."""
    before = json.loads(file.read_text())
    lines = [
        "| CPU time in units of `python -I -S -c pass` | last release | now | ratio |",
        "| --- | --- | --- | --- |",
    ]
    for name, now in figures.items():
        if name in before:
            lines.append(f"| {name} | {before[name]:.3g} | {now:.3g} | {now / before[name]:.2f} |")
    return "\n".join(lines) + "\n"


def whole_times(tools: Mapping[str, Start], seconds: Sequence[float], rounds: int) -> None:
    print(f"{'seconds in all':<16}" + "".join(f"{name:>16}" for name in tools))
    for length in seconds:
        found: dict[str, list[float]] = {name: [] for name in tools}
        for _ in range(rounds):
            for name, start in tools.items():
                with tempfile.TemporaryDirectory() as folder:
                    found[name].append(timed(start(["sleep", f"{length:g}"], Path(folder)))[0])
        medians = {name: statistics.median(times) for name, times in found.items()}
        print(f"sleep {length:<10g}" + "".join(f"{medians[name]:>16.2f}" for name in tools))
        print(
            f"{'  waited for':<16}" + "".join(f"{medians[name] - medians['alone']:>16.2f}" for name in tools)
        )


def until_the_shell_is_back(rounds: int, numbers: Sequence[int]) -> None:
    """From the command's last action to the end of `wrap`."""
    commands = {f"sleep {length}": ["sh", "-c", f"sleep {length}; date +%s.%N"] for length in (0, 1, 5)}
    for number in numbers:
        commands[f"{number} operations"] = [sys.executable, "-c", MARKING, str(number)]
    print(f"\n{'until the shell is back':<26}{'ms':>8}{'of the budget':>16}")
    for name, command in commands.items():
        waits = []
        for _ in range(rounds):
            with tempfile.TemporaryDirectory() as folder:
                _, written = timed(ours(command, Path(folder)))
                waits.append(1000 * (time.time() - float(written.split()[-1])))
        median = statistics.median(waits)
        print(f"{name:<26}{median:>8.0f}{median / BUDGET_MS:>16.2f}")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, nargs="*", default=[0, 1, 5, 60])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--operations", type=int, nargs="*", default=[1000, 100_000])
    parser.add_argument("--only-us", action="store_true", help="no other tools")
    parser.add_argument("--short", type=int, default=9, help="rounds of the short commands")
    parser.add_argument("--only-short", action="store_true", help="only the short commands")
    parser.add_argument("--samples", type=int, default=3, help="rounds of the samples, of 12 s each")
    parser.add_argument("--save", type=Path, help="file for the short commands' CPU times")
    parser.add_argument("--beside", type=Path, help="such a file, of the last release")
    arguments = parser.parse_args()
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # each start would compile 160 modules: 200 ms
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} CPUs")
    if not arguments.only_us:
        peers.ENVIRONMENTS.mkdir(parents=True, exist_ok=True)
    tools = tools_to_compare(only_us=arguments.only_us)
    figures = short_commands(tools, arguments.short)
    if arguments.save or arguments.beside:
        figures = in_units(figures, arguments.samples)
    if arguments.save:
        arguments.save.write_text(json.dumps(figures, indent=1) + "\n")
    if arguments.beside:
        table = beside(figures, arguments.beside)
        print("\n" + table, end="")
        if page := os.environ.get("GITHUB_STEP_SUMMARY"):
            with Path(page).open("a") as summary:
                summary.write(table)
    if arguments.only_short:
        return
    if not arguments.only_us:
        whole_times(tools, arguments.seconds, arguments.rounds)
    until_the_shell_is_back(arguments.rounds, arguments.operations)


if __name__ == "__main__":
    main()
