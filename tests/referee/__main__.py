"""Command line of the referee; see the package."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from tests.referee.programs import PROGRAMS, Program
from tests.referee.trial import MIB, USERS, Trial, Truth, run


def line(trial: Trial) -> str:
    """Return one line of the table, in Markdown."""
    truth, peak = trial.truth, trial.peak
    needed = (
        "-"
        if truth is None
        else f"{truth.needed_least / MIB:.1f}..{truth.most / MIB:.1f} ({truth.mapped / MIB:.1f})"
    )
    if peak is None:
        return f"| {trial.program} | {trial.user} | {needed} | - | - | - | {trial.problem} | - |"
    figure = f"{(peak['estimate'] or peak['bytes']) / MIB:.1f}"
    low, high = peak["low"], peak["high"]
    bounds = f"{(low or 0) / MIB:.1f}..{'-' if high is None else f'{high / MIB:.1f}'}"
    error, width = trial.error(), trial.width()
    off = "-" if error is None else f"{100 * error:+.0f} %"
    return (
        f"| {trial.program} | {trial.user} | {needed} | {figure} ({off}) | {bounds} | {peak['certainty']}"
        f" | {trial.problem.upper() or 'true'} | {'-' if width is None else f'{width:.2f}'} |"
    )


def share(trials: Sequence[Trial], most: float) -> str:
    """Return the share of trials whose headline is at most so far off, or by a MiB."""
    near = [
        trial
        for trial in trials
        if (error := trial.error()) is not None
        and trial.truth is not None
        and (abs(error) <= most or abs(error) * trial.truth.needed_least <= MIB)
    ]
    return f"{len(near)} of {len(trials)} ({100 * len(near) / max(1, len(trials)):.0f} %)"


def summary(trials: Sequence[Trial]) -> list[str]:
    """Return a row for each user."""
    rows = [
        "| user | runs | exact | false exact | false bounds | no figure | width median, p90 | within 5 % | within 20 % |",
        "| --- | ---: | ---: | ---: | ---: | ---: | --- | --- | --- |",
    ]
    for user in USERS:
        of_user = [trial for trial in trials if trial.user == user]
        known = [trial for trial in of_user if trial.peak is not None]
        if not known:
            continue
        widths = sorted(trial.width() or float("inf") for trial in known)
        exact = sum(trial.peak is not None and trial.peak["certainty"] == "exact" for trial in known)
        false_exact = sum(trial.problem.startswith("false exact") for trial in known)
        false = sum(trial.problem.startswith("false") for trial in known) - false_exact
        rows.append(
            f"| {user} | {len(known)} | {exact} | {false_exact} | {false} | {len(of_user) - len(known)}"
            f" | {widths[len(widths) // 2]:.2f}, {widths[int(0.9 * (len(widths) - 1))]:.2f}"
            f" | {share(known, 0.05)} | {share(known, 0.2)} |"
        )
    return rows


def trial_of(text: str) -> Trial:
    """Return a trial that --save wrote."""
    fields = json.loads(text)
    return Trial(*fields[:2], fields[2] and Truth(*fields[2]), *fields[3:])


def main() -> int:
    """Run programs and print the tables; 1 if a figure was false."""
    parser = argparse.ArgumentParser(prog="tests.referee", description=__doc__)
    parser.add_argument("--only", action="append", help="programs whose name or kind contains this")
    parser.add_argument("--user", action="append", choices=USERS, help="only watched by them")
    parser.add_argument("--part", default="1/1", help="N/M: every M-th program, from the N-th")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="no new programs after so long")
    parser.add_argument("--save", type=Path, help="a file that gets a line for each, for --also")
    parser.add_argument("--also", type=Path, action="append", default=[], help="trials that --save kept")
    parser.add_argument("--list", action="store_true", help="list the programs and what is missing")
    given = parser.parse_args()
    number, parts = map(int, given.part.split("/"))
    chosen: list[Program] = [
        program
        for program in PROGRAMS[number - 1 :: parts]
        if given.only is None or any(word in program.name or word in program.kind for word in given.only)
    ]
    missing = {program.name: program.missing() for program in PROGRAMS if program.missing()}
    done = [trial_of(text) for file in given.also for text in file.read_text().splitlines()]
    if given.list:
        print("\n".join(f"{program.kind}: {program.name}" for program in PROGRAMS))
        chosen = []
    began = time.monotonic()
    print("| program | user | needed (mapped), MiB | figure | bounds | certainty | verdict | width |")
    print("| --- | --- | ---: | ---: | ---: | --- | --- | ---: |")
    for trial in done:
        print(line(trial))
    for program in chosen:
        if program.name in missing or time.monotonic() - began > 60 * given.minutes:
            continue
        for user in given.user or USERS:
            trial = run(program, user)
            done.append(trial)
            print(line(trial), flush=True)
            if given.save:
                with given.save.open("a") as file:
                    file.write(json.dumps(trial) + "\n")
    print("\n" + "\n".join(summary(done)))
    print(f"\n{len(PROGRAMS)} programs, of which missing here: {len(missing)}")
    for name, needs in missing.items():
        print(f"- {name}: {', '.join(needs)}")
    print(f"\n{time.monotonic() - began:.0f} s")
    return int(any(trial.problem.startswith("false") for trial in done))


if __name__ == "__main__":
    sys.exit(main())
