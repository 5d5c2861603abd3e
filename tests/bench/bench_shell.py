"""What a rule of a workflow costs more because a recording shell runs it: the installed `bash` beside the real one.

    python tests/bench/bench_shell.py [--rules 200] [--seconds 0.1] [--snakemake PROGRAM]
    python tests/bench/bench_shell.py --make 2000

Each rule runs under one shell and then under the other, one at a time and two at a time: wall time a rule, and CPU time of it with all
that it started. With Snakemake also workflows of as many rules, with `-c 2`, in turns: their whole time, a rule. None may be lost.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from otel_memwatch.wings.index.index import index
from tests.support.wrapped import PROGRAM, environment

BUDGET_MS = 60.0
RECIPE_MS = 10.0
"""CPU time of a short recipe with its recording."""
SNAKEFILE = """
rule all:
    input: expand("out/{n}", n=range(RULES))
rule one:
    output: "out/{n}"
    shell: "sleep SECONDS; echo {wildcards.n} > {output}"
"""


@contextmanager
def shells() -> Iterator[tuple[Path, dict[str, str]]]:
    """A folder, and the shells to compare by name: the real one and the installed one."""
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(
            [*PROGRAM, "shell", "--install", "shells"],
            cwd=folder,
            env=environment(),
            check=True,
            stdout=subprocess.DEVNULL,
        )
        yield Path(folder), {"bash": shutil.which("bash") or "bash", "shells/bash": f"{folder}/shells/bash"}


def one(shell: str, script: str) -> tuple[float, float]:
    """Seconds of wall and of CPU time that it took, with all that it started and waited for."""
    begun = time.perf_counter()
    pid = os.posix_spawn(shell, [shell, "-c", script], environment())
    _, status, usage = os.wait4(pid, 0)
    assert status == 0, (shell, status)
    return time.perf_counter() - begun, usage.ru_utime + usage.ru_stime


def loops(rules: int, script: str) -> None:
    """Prints what each shell takes, and what ours takes more; the lower tenth is what it takes where nothing else runs just then."""
    print(f"\n{f'{script}, {rules} times':<32}{'wall ms':>16}{'CPU ms':>16}{'more wall':>16}{'more CPU':>16}")
    print(" " * 32 + f"{'10 %':>8}{'50 %':>8}" * 4)
    with shells() as (folder, compared):
        os.chdir(folder)
        for together in (1, 2):
            found: dict[str, list[tuple[float, float]]] = {name: [] for name in compared}
            with ThreadPoolExecutor(together) as pool:
                for _ in range(rules // together):
                    for name, shell in compared.items():
                        found[name] += pool.map(partial(one, shell), [script] * together)
            columns = {
                name: [
                    1000 * sorted(column)[len(column) * percent // 100]
                    for column in zip(*times, strict=True)
                    for percent in (10, 50)
                ]
                for name, times in found.items()
            }
            for name, taken in columns.items():
                more = [mine - plain for mine, plain in zip(taken, columns["bash"], strict=True)]
                print(
                    f"{f'{together} at a time, {name}':<32}"
                    + "".join(f"{figure:>8.1f}" for figure in taken + more)
                )
        recorded = len(index([folder / "memwatch-runs"]))
        print(f"recorded: {recorded} of {rules + rules // 2 * 2}")


def build(recipes: int) -> float:
    """Prints wall and CPU time of a build of so many recipes with make, by the real shell and by ours; returns our CPU seconds."""
    print(f"\nmake, {recipes} recipes, s{'wall':>12}{'CPU':>9}")
    names = " ".join(f"t{number}" for number in range(recipes))
    with shells() as (folder, compared):
        (folder / "Makefile").write_text(f"all: {names}\n{names}:\n\t@true; :\n")
        for name, shell in compared.items():
            begun = time.perf_counter()
            pid = os.posix_spawn(
                shutil.which("make") or "make",
                ["make", "-s", "-C", str(folder), f"SHELL={shell}"],
                environment(),
            )
            _, status, usage = os.wait4(pid, 0)
            assert status == 0, name
            cpu = usage.ru_utime + usage.ru_stime
            print(f"  {name:<20}{time.perf_counter() - begun:>12.1f}{cpu:>9.2f}")
        print(f"budget {RECIPE_MS * recipes / 1000:g} s of CPU, ratio {1000 * cpu / RECIPE_MS / recipes:.2f}")
        assert len(index([folder / "memwatch-runs"])) == recipes
    return cpu


def snakemake(program: str, rules: int, seconds: float, rounds: int) -> None:
    print(f"\nSnakemake, {rules} rules of {seconds} s, -c 2")
    found: dict[str, list[float]] = {"bash": [], "shells/bash": []}
    for _ in range(rounds):
        for name, times in found.items():
            with shells() as (folder, _):
                text = SNAKEFILE.replace("RULES", str(rules)).replace("SECONDS", str(seconds))
                (folder / "Snakefile").write_text(text)
                variables = environment()
                if name != "bash":
                    variables["PATH"] = f"{folder}/shells:{variables['PATH']}"
                begun = time.perf_counter()
                subprocess.run(
                    [program, "-q", "-c", "2"],
                    cwd=folder,
                    env=variables,
                    check=True,
                    capture_output=True,
                )
                times.append(time.perf_counter() - begun)
                assert len(list((folder / "out").iterdir())) == rules
                recorded = len(list((folder / "memwatch-runs").glob("*/run.json")))
                assert recorded == (0 if name == "bash" else rules), recorded
                print(f"{name:<20}{times[-1]:>8.1f} s")
    more = statistics.median(found["shells/bash"]) - statistics.median(found["bash"])
    # Two rules run at a time, so what one waits for is twice what it adds to the whole.
    print(
        f"a rule adds {1000 * more / rules:.1f} ms to the whole, and takes {2000 * more / rules:.1f} ms longer, budget {BUDGET_MS:g}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rules", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=0.1)
    parser.add_argument("--rounds", type=int, default=3, help="workflows, each without and with us")
    parser.add_argument("--snakemake", metavar="PROGRAM", help="a workflow too, with this Snakemake")
    parser.add_argument("--make", type=int, metavar="RECIPES", help="only a build of so many recipes")
    arguments = parser.parse_args()
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} CPUs")
    if arguments.make:
        build(arguments.make)
        return
    for script in ("true", f"sleep {arguments.seconds}"):
        loops(arguments.rules, script)
    if arguments.snakemake:
        snakemake(arguments.snakemake, arguments.rules, arguments.seconds, arguments.rounds)


if __name__ == "__main__":
    main()
