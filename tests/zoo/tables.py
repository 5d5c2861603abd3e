"""Figures of many trials, as tables in Markdown."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from tests.zoo.compositions import KINDS, leaves
from tests.zoo.trial import MIB, MODES, USERS, Trial


class Figures(NamedTuple):
    """What some trials come to; `None`: none of them has a result."""

    runs: int
    exact: float
    false_exact: int
    false_bounds: int
    median: float | None
    most: float | None
    """Width that 90 % do not exceed."""
    near: float | None
    """Share of the estimates that are within 10 % of the truth."""


def width(trial: Trial) -> float:
    """Upper by lower bound, both of a MiB at the least; exact is 1, no upper bound infinite."""
    peak = trial.peaks["tree"]
    if peak is not None and peak["certainty"] == "exact":
        return 1.0
    if peak is None or peak["high"] is None:
        return math.inf
    return float(max(peak["high"], MIB) / max(peak["low"] or 0, MIB))


def estimate_is_near(trial: Trial) -> bool | None:
    """Whether the best single figure is within 10 %, or a MiB, of the truth; `None`: there is none."""
    peak = trial.peaks["tree"] or {}
    told = peak.get("estimate") or (peak.get("bytes") if peak.get("certainty") == "exact" else None)
    if told is None:
        return None
    slack = max(1 << 20, 0.1 * trial.truth.most)
    return bool(trial.truth.least - slack <= told <= trial.truth.most + slack)


def figures(trials: Sequence[Trial]) -> Figures:
    """Figures of trials, of which there is at least one."""
    widths = sorted(map(width, trials))
    near = [found for found in map(estimate_is_near, trials) if found is not None]
    problems = [problem for trial in trials for problem in trial.problems]
    false_exact = sum("false exact" in problem for problem in problems)
    exact = sum(
        trial.peaks["tree"] is not None and trial.peaks["tree"]["certainty"] == "exact" for trial in trials
    )
    return Figures(
        len(trials),
        exact / len(trials),
        false_exact,
        len(problems) - false_exact,
        widths[len(widths) // 2],
        widths[math.ceil(0.9 * len(widths)) - 1],
        sum(near) / len(near) if near else None,
    )


def _times(ratio: float | None) -> str:
    if ratio is None or math.isinf(ratio):
        return "no bound"
    return f"{ratio:.2f}" if ratio < 10 else f"{ratio:.0f}"


def _cell(trials: Sequence[Trial]) -> str:
    if not trials:
        return "-"
    found = figures(trials)
    near = "" if found.near is None else f"; {100 * found.near:.0f} %"
    return f"{100 * found.exact:.0f} %; {_times(found.median)}, {_times(found.most)}{near}"


_MODES = {"group": "group", "off": "no group"}


def _row(name: str, trials: Sequence[Trial], modes: Sequence[str]) -> str:
    cells = [_cell([trial for trial in trials if trial.mode == mode]) for mode in modes]
    false = figures(trials)
    return f"| {name} | {len(trials)} | {' | '.join(cells)} | {false.false_exact} | {false.false_bounds} |"


def _table(
    head: str, rows: Iterable[tuple[str, Callable[[Trial], bool]]], trials: Sequence[Trial]
) -> Iterator[str]:
    """The ways without a watched program have no column."""
    modes = [mode for mode in MODES if any(trial.mode == mode for trial in trials)]
    yield f"| {head} | runs | {' | '.join(_MODES[mode] for mode in modes)} | false exact | false bounds |"
    yield f"| --- | ---: | {' | '.join('---' for _ in modes)} | ---: | ---: |"
    for name, belongs in rows:
        if of_row := [trial for trial in trials if belongs(trial)]:
            yield _row(name, of_row, modes)


def _beside(trials: Sequence[Trial]) -> Iterator[str]:
    """Yield a table of the programs that ran with few processors and with more, on the same kernel: medians of their widths."""
    machines: dict[str, dict[tuple[object, ...], float]] = {}
    for trial in trials:
        if trial.machine and trial.peaks["tree"] is not None:
            program = trial.mode, trial.user, trial.interval, tuple(leaves(trial.part))
            machines.setdefault(trial.machine, {})[program] = width(trial)
    rows = []
    for few, more in itertools.combinations(sorted(machines, key=_processors), 2):
        common = machines[few].keys() & machines[more].keys()
        for mode, user in itertools.product(MODES, USERS):
            both = [one for one in common if one[:2] == (mode, user)]
            if both and few.partition(",")[0] == more.partition(",")[0]:
                narrow, wide = ([machines[machine][one] for one in both] for machine in (few, more))
                ratios = [
                    1.0 if less == much else much / less for less, much in zip(narrow, wide, strict=True)
                ]
                medians = " | ".join(_times(sorted(one)[len(one) // 2]) for one in (narrow, wide, ratios))
                rows.append(f"| {user}, {more} | {_MODES[mode]} | {len(both)} | {medians} |")
    if rows:
        yield "| watched by | cgroup | programs | with few processors | with more | ratio |"
        yield "| --- | --- | ---: | ---: | ---: | ---: |"
        yield from (*rows, "")


def _processors(machine: str) -> int:
    """Return the number in "Linux 6.12, 64 processors"."""
    return int(machine.split()[-2])


def markdown(trials: Sequence[Trial]) -> str:
    """All tables: who watched, and every kind (a composition counts for each kind in it)."""

    def of_user(user: str, machine: str) -> Callable[[Trial], bool]:
        return lambda trial: (trial.user, trial.machine) == (user, machine)

    def of_kind(kind: str) -> Callable[[Trial], bool]:
        return lambda trial: any(leaf.kind == kind for leaf in leaves(trial.part))

    def with_operations(trial: Trial) -> bool:
        return trial.operations > 0

    everybody: list[tuple[str, Callable[[Trial], bool]]] = [("all", lambda _: True)]
    machines = sorted({trial.machine for trial in trials})
    watchers = [
        (f"{user}, {machine}" if machine else user, of_user(user, machine))
        for machine in machines
        for user in USERS
    ]
    return "\n".join(
        (
            *_table("watched by", [*everybody, *watchers, ("with operations", with_operations)], trials),
            "",
            *_beside(trials),
            *_table("kind", [(kind.replace("_", " "), of_kind(kind)) for kind in KINDS], trials),
        )
    )
