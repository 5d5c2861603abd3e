"""How near the bounds of "memory needed" without a control group are to the truth, for programs that people run.

    python tests/bench/bench_bounds.py [--rounds 3] [--only make,pool] [--user 65534] [--into PAGE]

Each program runs under `wrap --cgroup off` inside a referee group, whose anonymous and shared memory is read every
millisecond. What the referee happened to see is a lower bound of the truth (`truth`), its watermark less the least page
cache is no exact one either: so `high` is false below the first, `low` above the watermark. Printed are truth, low, high, the estimate,
high / low, and the estimate's error; at the end the same of each family of programs. It asserts nothing about widths; a false
bound ends it with code 1.

    python tests/bench/bench_bounds.py --attack 1000 [--seed 1] [--user 65534]

Random programs of forks, execs, memory written and given back, shared and huge pages, against the watermark of a group that
each makes for itself. Each whose bounds are false is printed with its script.

Needs root and control groups of version 1, for the referee; with `--user` monitor and program are an ordinary user's.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shlex
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.support.control_group import Group, group
from tests.support.wrapped import PROGRAM, environment, workload

MIB = 1 << 20
SLACK = 1 * MIB
"""What the kernel's batches can hide from the referee, and the shell that enters its group."""

_C_FILE = (
    "".join(
        f"static int f{i}(int a,int b){{int s=0;for(int i=a;i<b;i++){{s+=i*{i}+(a^b);if(s%7==3)s-=a;}}return s;}}\n"
        for i in range(500)
    )
    + "int NAME(int a){return "
    + "+".join(f"f{i}(a,{i})" for i in range(500))
    + ";}\n"
)

_MAKEFILE = "all: $(addsuffix .o,a b c d e f)\n%.o: %.c\n\tgcc -O2 -c -o $@ $<\n"

_POOL = """
import multiprocessing as mp, os, time
data = bytearray({shared} << 20)
for i in range(0, len(data), 4096): data[i] = 1
def work(n):
    {work}
    return n
if __name__ == "__main__":
    with mp.get_context("fork").Pool(4, maxtasksperchild={tasks}) as pool:
        sum(pool.imap_unordered(work, range({items})))
"""
_READ = "s = sum(data[i] for i in range(0, len(data), 4096)); time.sleep(0.05)"
_WRITE = """for i in range(0, len(data) // 2, 4096):
        data[i] = 2
        if i % (1 << 20) == 0: time.sleep(0.002)"""
_CHURN = """for k in range(4):
        own = bytearray(24 << 20)
        for i in range(0, len(own), 4096): own[i] = 1
        del own; time.sleep(0.01)"""

_TRAIN = """
import numpy as np, time
weights = [np.ones((1024, 1024), "f4") for _ in range(16)]
for step in range(25):
    batch = np.random.default_rng(step).random((1024, 1024), dtype="f4")
    grads = [w * 0.5 + batch for w in weights]
    for w, g in zip(weights, grads): w -= g
    time.sleep(0.05)
"""

_LOADER = """
import multiprocessing as mp, numpy as np, time
def load(n):
    a = np.random.default_rng(n).random((512, 1024))
    return (a * 2).astype("f4")
if __name__ == "__main__":
    with mp.get_context("{how}").Pool(3) as pool:
        kept = []
        for batch in pool.imap(load, range(60)):
            kept = [*kept[-20:], batch]
            time.sleep(0.01)
"""


_FAMILIES = {
    "make": "makes",
    "sh,": "pipelines",
    "pipeline": "pipelines",
    "pool": "pools",
    "training": "trainings",
    "loader": "trainings",
}


class Kind(NamedTuple):
    """A program that is measured."""

    name: str
    argv: list[str]

    @property
    def family(self) -> str:
        """What people would call it; "others": the simple ones, beside the programs that people run."""
        named = (family for word, family in _FAMILIES.items() if self.name.startswith(word))
        return next(named, "others")


def python(program: str) -> list[str]:
    return [sys.executable, "-c", program]


def kinds(folder: Path) -> list[Kind]:
    """All programs; files that they need are made in `folder`."""
    for name in "abcdef":
        (folder / f"{name}.c").write_text(_C_FILE.replace("NAME", name))
    (folder / "Makefile").write_text(_MAKEFILE)
    (folder / "loader.py").write_text(_LOADER.format(how="spawn"))
    make = f"cd {shlex.quote(str(folder))} && rm -f *.o && make -s "
    sh = f"{sys.executable} -S -c"
    return [
        Kind("make -j1", ["sh", "-c", make + "-j1"]),
        Kind("make -j2", ["sh", "-c", make + "-j2"]),
        Kind("make -j4", ["sh", "-c", make + "-j4"]),
        Kind("sh, short C programs", ["sh", "-c", "for i in $(seq 150); do ls / | wc -l; expr $i + 1; done >/dev/null"]),
        Kind("sh, short pythons", ["sh", "-c", f"for i in $(seq 25); do {sh} 'import json'; {sh} pass; done"]),
        Kind("sh, larger pythons", ["sh", "-c", f"for i in 1 2 3 4 5 6; do {sh} 'x = bytearray(80 << 20); x[::4096] = bytes(len(x[::4096]))'; sleep 0.1; done"]),
        Kind("pipeline, sort", ["sh", "-c", "seq 2000000 | rev | sort -S 60M | uniq -c | tail -1 >/dev/null"]),
        Kind("pipeline, parallel xargs", ["sh", "-c", f"seq 12 | xargs -P 3 -n 1 {sh} 'import sys; x = b\"x\" * (int(sys.argv[1]) << 22)'"]),
        Kind("pool, read only", python(_POOL.format(shared=100, work=_READ, tasks=None, items=40))),
        Kind("pool, half written", python(_POOL.format(shared=80, work=_WRITE, tasks=None, items=20))),
        Kind("pool, allocate and free", python(_POOL.format(shared=40, work=_CHURN, tasks=None, items=40))),
        Kind("pool, replaced workers", python(_POOL.format(shared=60, work=_CHURN, tasks=1, items=24))),
        Kind("training, numpy", python(_TRAIN)),
        Kind("loader, fork", python(_LOADER.format(how="fork"))),
        Kind("loader, spawn", [sys.executable, str(folder / "loader.py")]),
        Kind("one process, steady", [workload(), "a200", "s700"]),
        Kind("one process, burst", [workload(), "s250", "a150", "f", "s250"]),
        Kind("fork tree", [workload(), "a60", "(", "a30", "s300", ")", "(", "a40", "s200", "(", "a20", "s200", ")", "w", ")", "s100", "f", "s300", "w"]),
        Kind("shared memory", [workload(), "m80", "(", "s300", ")", "(", "m20", "s300", ")", "s100", "w"]),
    ]  # fmt: skip


class Referee(threading.Thread):
    """Reads what a group has, every millisecond."""

    def __init__(self, watched: Group) -> None:
        super().__init__(daemon=True)
        self._stat = os.open(watched.path / "memory.stat", os.O_RDONLY)
        self.over = False
        self.most = 0
        self.cache: int | None = None

    def look(self) -> None:
        fields = dict(line.split() for line in os.pread(self._stat, 8192, 0).decode().splitlines())
        needed = int(fields["total_rss"]) + int(fields["total_shmem"])
        self.most = max(self.most, needed)

    def run(self) -> None:
        while not self.over:
            self.look()
            time.sleep(0.001)
        os.close(self._stat)


class Measured(NamedTuple):
    """One round, in bytes."""

    truth: int
    watermark: int
    tree: dict[str, Any]
    estimate: int

    @property
    def width(self) -> float:
        high = self.tree["high"]
        return float("inf") if high is None else high / max(1, self.tree["low"] or 0)

    @property
    def false(self) -> str:
        """Which bound is false; empty where none is."""
        low, high = self.tree["low"], self.tree["high"]
        if high is not None and high < self.truth - SLACK:
            return "HIGH IS FALSE"
        if low is not None and low > self.watermark + SLACK:
            return "LOW IS FALSE"
        return ""


def as_user(user: int | None) -> list[str]:
    """What makes a command that user's; `None`: ours."""
    return [] if user is None else ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups"]


def measure(argv: list[str], options: list[str], user: int | None) -> Measured:
    """Runs a program under `wrap` without a group of the run's own, beside a referee."""
    with group() as watched, tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o777)
        (watched.path / "tasks").chmod(0o666)
        referee = Referee(watched)
        referee.start()
        enter = ["sh", "-c", f'echo 0 > {watched.path}/tasks; exec "$@"', "sh"]
        wrap = [
            *as_user(user),
            *PROGRAM,
            "wrap",
            "--cgroup",
            "off",
            "--quiet",
            "--no-report",
            "--out",
            f"{folder}/run",
            *options,
        ]
        subprocess.run([*wrap, "--", *enter, *argv], env=environment(), check=True, stdin=subprocess.DEVNULL)
        referee.over = True
        referee.join()
        tree = json.loads(Path(folder, "run/run.json").read_text())["peaks"]["tree"]
        estimate = tree.get("estimate")
        return Measured(referee.most, watched.peak, tree, tree["bytes"] if estimate is None else estimate)


def random_script(dice: random.Random, depth: int = 3, mapped: int = 0, slow: int = 1) -> list[str]:
    """Words for workload.c. `slow`: by how much longer it sleeps, so ticks see more of it."""
    words: list[str] = []
    for _ in range(dice.randint(1, 6)):
        kind = dice.choice("aaahmcccffs(((tevw")
        size = dice.choice([1, 2, 5, 9, 20, 40])
        if kind in "ah":
            words.append(f"{kind}{size}")
            mapped += 1
        elif kind == "m" and dice.random() < 0.5:
            words.append(f"m{size}")
            mapped += 1
        elif kind == "c" and mapped:
            words.append(f"c{size}")
        elif kind == "f" and mapped:
            words.append("f")
            mapped -= 1
        elif kind == "s":
            words.append(f"s{slow * dice.choice([0, 1, 3, 10, 30, 80, 150])}")
        elif kind == "t" and dice.random() < 0.2:
            words.append("t2")
        elif kind == "e" and depth < 3 and dice.random() < 0.3:
            words.append("e")
            mapped = 0
        elif kind == "w":
            words.append("w")
        elif kind == "(" and depth:
            for _ in range(dice.choice([1, 1, 2, 4])):
                words += ["(", *random_script(dice, depth - 1, mapped, slow), ")"]
        if slow > 1 and kind in "ahmcf(":
            words.append(f"s{slow * dice.choice([0, 10, 30])}")
    return words


def attack(programs: int, seed: int, options: list[str], user: int | None) -> int:
    """Runs random programs; gives how many had a false bound."""
    false, widths, errors = 0, [], []
    for number in range(seed, seed + programs):
        dice = random.Random(number)
        script = random_script(dice, slow=dice.choice([1, 6]))
        interval = dice.choice(["0.02", "0.1", "0.1", "0.3"])
        with group() as watched, tempfile.TemporaryDirectory() as folder:
            os.chmod(folder, 0o777)
            (watched.path / "tasks").chmod(0o666)
            words = [f"G{watched.path}", *script, "w", "g"]
            wrap = [*as_user(user), *PROGRAM, "wrap", "--cgroup", "off", "--quiet", "--no-report"]
            wrap += ["--out", f"{folder}/run"]
            wrap += ["--interval", interval, *options, "--", workload(), *words]
            done = subprocess.run(wrap, env=environment(), stdout=subprocess.PIPE, text=True, check=False)
            line = [line for line in done.stdout.splitlines() if line.startswith("referee")]
            if done.returncode or not line:
                print(f"{number}: ended with {done.returncode}", flush=True)
                continue
            watermark, kernel = map(int, line[0].split()[1:3])
            tree = json.loads(Path(folder, "run/run.json").read_text())["peaks"]["tree"]
        # Each processor may be charged a batch ahead, and freed huge pages stay charged for a moment.
        least, most = watermark - kernel - 2 * SLACK, watermark + 2 * SLACK
        low, high = tree["low"], tree["high"]
        if (high is not None and high < least) or (low is not None and low > most):
            false += 1
            print(
                f"{number}: FALSE, truth {watermark - kernel}..{watermark}: {tree} {interval} {' '.join(words)}",
                flush=True,
            )
        if high is not None and watermark > 8 * MIB:
            widths.append(high / max(low or 1, 1))
            errors.append(
                abs(
                    (tree["bytes"] if tree.get("estimate") is None else tree["estimate"])
                    / (watermark - kernel)
                    - 1
                )
            )
    widths.sort()
    print(
        f"{programs} programs, {false} with a false bound; of {len(widths)} above 8 MiB: width median {statistics.median(widths):.2f}, "
        f"90 % {widths[int(0.9 * (len(widths) - 1))]:.2f}; estimate within 10 %: {sum(e <= 0.1 for e in errors)}"
    )
    return false


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default="", help="parts of names, separated by commas")
    parser.add_argument("--options", default="")
    parser.add_argument("--attack", type=int, default=0, metavar="N", help="N random programs instead")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--into", type=Path, help="a page that gets the table between its two marks")
    parser.add_argument("--user", type=int, help="number of the user who watches, and runs, the programs")
    arguments = parser.parse_args()
    options = shlex.split(arguments.options)
    if arguments.attack:
        return 1 if attack(arguments.attack, arguments.seed, options, arguments.user) else 0
    wanted = arguments.only.split(",")
    told: dict[str, list[tuple[float, float]]] = {}
    rows = ["| MiB | truth | between | about | width |", "| --- | ---: | ---: | ---: | ---: |"]
    false = 0
    print(
        f"{'MiB, the median of all rounds':28}{'truth':>8}{'low':>8}{'high':>8}{'estimate':>9}{'width':>7}{'error':>7}"
    )
    with tempfile.TemporaryDirectory() as folder:
        for kind in kinds(Path(folder)):
            if not any(part in kind.name for part in wanted):
                continue
            for path in (Path(folder), *Path(folder).iterdir()):
                path.chmod(0o777)
            rounds = [measure(kind.argv, options, arguments.user) for _ in range(arguments.rounds)]
            rounds.sort(key=lambda m: m.width)
            middle = rounds[len(rounds) // 2]
            error = statistics.median(m.estimate / m.truth - 1 for m in rounds)
            told.setdefault(kind.family, []).append((middle.width, abs(error)))
            wrong = [m.false for m in rounds if m.false]
            false += len(wrong)
            high = middle.tree["high"]
            if kind.family != "others":
                rows.append(row(kind.name, middle))
            print(
                f"{kind.name:28}{middle.truth / MIB:8.1f}{(middle.tree['low'] or 0) / MIB:8.1f}"
                f"{'-' if high is None else format(high / MIB, '.1f'):>8}{middle.estimate / MIB:9.1f}"
                f"{middle.width:7.2f}{100 * error:+6.0f}%  {middle.tree['certainty']}, {middle.tree['how']} {' '.join(wrong)}",
                flush=True,
            )
    for family, programs in told.items():
        print(f"{family:28}{summary(programs)}")
    run = [program for family, programs in told.items() if family != "others" for program in programs]
    if run:
        print(f"{'all of these but others':28}{summary(run)}")
    print(f"false bounds: {false}")
    if arguments.into:
        rows.append(f"| **all** | | | | {summary(run)} |")
        put_into(arguments.into, "\n".join(rows))
    return 1 if false else 0


def row(name: str, measured: Measured) -> str:
    """A line of the table: what was needed, its bounds, the estimate, and the upper bound by the lower one."""
    low, high = (
        "?" if size is None else f"{size / MIB:.1f}" for size in (measured.tree["low"], measured.tree["high"])
    )
    truth, about = (f"{size / MIB:.1f}" for size in (measured.truth, measured.estimate))
    return f"| {name} | {truth} | {low} to {high} | {about} | {measured.width:.2f} |"


def put_into(page: Path, table: str) -> None:
    """Replace what stands between the marks of a page."""
    before, rest = page.read_text(encoding="utf-8").split("<!-- bounds -->\n")
    _, after = rest.split("<!-- end of bounds -->\n")
    marked = f"<!-- bounds -->\n{table}\n<!-- end of bounds -->\n"
    page.write_text(before + marked + after, encoding="utf-8")


def summary(programs: list[tuple[float, float]]) -> str:
    """The widths and the errors of some programs, in words."""
    widths = sorted(width for width, _ in programs)
    near = sum(error <= 0.1 for _, error in programs)
    return (
        f"width: median {statistics.median(widths):.2f}, 90 % {widths[round(0.9 * (len(widths) - 1))]:.2f}; "
        f"estimate within 10 %: {near} of {len(programs)}"
    )


if __name__ == "__main__":
    sys.exit(main())
