"""Command line of the zoo; see the package."""

from __future__ import annotations

import argparse
import itertools
import os
import random
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.support.wrapped import PROGRAM
from tests.zoo import tables
from tests.zoo.compositions import KINDS, drawn
from tests.zoo.surroundings import prepare
from tests.zoo.trial import MODES, USERS, Trial, run, trial_of, zoo

BEGIN, END = "<!-- zoo -->", "<!-- zoo end -->"


_DELAYED = ("openat", "read", "pread64", "lseek", "close")
"""System calls of a sample that `--delays` delays."""


def delayed(dice: random.Random) -> tuple[str, ...]:
    """Words before the monitor's command that make it wait once within a sample, as for a processor."""
    call, number = dice.choice(_DELAYED), dice.randrange(1, dice.choice((40, 150, 400, 900)))
    delay = f"inject={call}:delay_enter={dice.choice((30, 100, 250))}ms:when={number}"
    return "strace", "-qq", "-o", "/dev/null", "-e", f"trace={call}", "-e", delay


def trials(
    count: int, seed: int, kinds: list[str], modes: list[str], users: list[str], jobs: int, *, delays: bool
) -> Iterator[Trial]:
    """So many random trials, the same ones for the same seed; each with up to `len(kinds)` kinds."""

    def one(number: int) -> Trial:
        dice = random.Random(f"{seed} {number}")
        most = min(len(kinds), dice.choice((1, 1, 2, 3, 4, 6)))
        part = drawn(dice, dice.sample(kinds, most))
        surroundings = list(itertools.product(modes, users))
        mode, user = surroundings[number % len(surroundings)]
        interval = dice.choice(("0.02", "0.1", "0.1", "0.7"))
        marks = (
            dice if dice.random() < 0.5 or delays else None
        )  # strace needs its right to read the interpreter
        before = delayed(random.Random(f"delay {seed} {number}")) if delays else ()
        return run(part, mode, user, interval, marks, (*before, *PROGRAM))

    zoo()
    prepare()
    with ThreadPoolExecutor(jobs) as pool:
        yield from pool.map(one, range(count))


def put_into(page: Path, text: str) -> None:
    """Puts tables between the two marks of a page."""
    before, rest = page.read_text().split(BEGIN)
    _, after = rest.split(END)
    page.write_text(f"{before}{BEGIN}\n{text}\n{END}{after}")


def main() -> int:
    """Runs compositions and prints the tables; 1 if a run claimed what is not true."""
    parser = argparse.ArgumentParser(prog="tests.zoo", description=__doc__)
    parser.add_argument("count", type=int, help="compositions to run")
    parser.add_argument("--minutes", type=float, help="no new ones after so long")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--kind", action="append", choices=list(KINDS), help="only these kinds")
    parser.add_argument("--mode", action="append", choices=list(MODES), help="only watched so")
    parser.add_argument("--user", action="append", choices=list(USERS), help="only watched by them")
    parser.add_argument("--delays", action="store_true", help="delay the monitor in a sample (needs strace)")
    parser.add_argument("--save", type=Path, help="a file that gets a line for each, for --also")
    parser.add_argument("--also", type=Path, action="append", default=[], help="trials that --save kept")
    parser.add_argument("--into", type=Path, help="a page that gets the tables between its two marks")
    given = parser.parse_args()
    done = [trial_of(line) for file in given.also for line in file.read_text().splitlines()]
    others = len(done)
    began = time.monotonic()
    for trial in trials(
        given.count,
        given.seed,
        given.kind or list(KINDS),
        given.mode or list(MODES),
        given.user or list(USERS),
        given.jobs,
        delays=given.delays,
    ):
        done.append(trial)
        if given.save:
            with given.save.open("a") as file:
                file.write(f"{trial.line()}\n")
        for problem in trial.problems:
            print(f"{problem}\n    {trial.how}", file=sys.stderr, flush=True)
        if given.minutes and time.monotonic() - began > 60 * given.minutes:
            break
    text = tables.markdown(done)
    print(text)
    print(f"\n{len(done) - others} compositions, seed {given.seed}, {time.monotonic() - began:.0f} s")
    if given.into:
        put_into(given.into, text)
    return int(any(trial.problems for trial in done))


if __name__ == "__main__":
    sys.exit(main())
