"""One composition under `wrap`, beside a referee that sees all of it; and what is wrong with what the run claims."""

from __future__ import annotations

import functools
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from otel_memwatch.model import ProcessNote
from tests.support.wrapped import HERE, PROGRAM, environment
from tests.zoo.compositions import KINDS, InTurn, Leaf, Part, leaves
from tests.zoo.surroundings import VERSION, surroundings, watcher

MIB = 1 << 20
OLD_FILE_MIB = 64
SLACK = 1.5 * MIB
"""Charged before the referee's group is entered, and what two groups may be charged ahead on each processor."""
MODES = {"group": ["--cgroup", "auto"], "off": ["--cgroup", "off"]}
"""How a composition is watched."""
USERS = ("root", "user", "contained")
"""Who watches it: root, a user without privileges, and one below a limit in a group that root made."""


class Truth(NamedTuple):
    """What the tree needed, in bytes: between `least` and `most`."""

    least: float
    most: float
    beside: float
    """Of this, the most that no process can have been seen to have: kernel memory and files in memory that nobody maps."""


class Told(NamedTuple):
    """What the referee says, in bytes; see workload.c."""

    watermark: int
    kernel: int
    needed: int
    mapped: int
    cache: int
    """Left at the end: a file, or a library, whose pages the kernel had dropped before."""


class Trial(NamedTuple):
    """How one composition was told."""

    part: Part
    mode: str
    user: str
    interval: str
    truth: Truth
    peaks: dict[str, Any]
    how: str
    """The command line of the watched program, to run it again."""
    problems: tuple[str, ...]

    machine: str = ""
    """Where, when that is not a machine with control groups of version 1."""

    def line(self) -> str:
        """As a line of JSON; of its part the leaves."""
        told = self._asdict() | {"part": list(leaves(self.part))}
        return json.dumps(told)


def trial_of(line: str) -> Trial:
    """What `Trial.line` made."""
    told = json.loads(line)
    part = InTurn(tuple(Leaf(*leaf) for leaf in told.pop("part")))
    return Trial(part, **told | {"truth": Truth(*told["truth"]), "problems": tuple(told["problems"])})


@functools.cache
def zoo() -> Path:
    """Directory that all may read, with the compiled program and a file whose pages are in the cache."""
    folder = Path(tempfile.mkdtemp(prefix="memwatch-zoo-"))
    folder.chmod(0o755)
    subprocess.run(
        ["cc", "-O1", "-pthread", "-DZOO", "-o", folder / "zoo", HERE / "workload.c"], check=True, timeout=120
    )
    old = folder / "old"
    old.write_bytes(b"o" * (OLD_FILE_MIB * MIB))
    old.chmod(0o666)
    return folder


def run(part: Part, mode: str, user: str, interval: str) -> Trial:
    """Runs and judges a composition."""
    folder = Path(tempfile.mkdtemp(prefix="memwatch-zoo-run-"))
    os.chown(folder, *watcher(user))
    machine = "" if VERSION == 1 else f"version 2, Linux {'.'.join(os.uname().release.split('.')[:2])}"
    try:
        with surroundings(mode, user) as around:
            target = [str(zoo() / "zoo"), around.enter, *part.words(), "w", "g"]
            options = ["--cgroup", "require"] if VERSION == 2 and around.inside else MODES[mode]
            argv = [
                *around.before,
                *PROGRAM,
                *("wrap", "--out", str(folder / "run"), "--quiet", "--no-plot", "--no-report"),
                *(*options, "--interval", interval, "--"),
                *target,
            ]
            variables = environment(
                ZOO_FILE=str(zoo() / "old"),
                ZOO_ELSEWHERE=str(around.elsewhere.path),
                HOME=str(folder),
                PYTHONPATH=str(HERE.parents[1]),
                **around.variables,
            )
            try:
                done = subprocess.run(
                    argv, cwd=folder, capture_output=True, text=True, timeout=300, check=False, env=variables
                )
            except subprocess.TimeoutExpired as error:  # the others go on
                done = subprocess.CompletedProcess(argv, -1, "", f"{error}\n")
            if "the service manager gave no cgroup within" in done.stderr:
                return run(part, mode, user, interval)  # an emulated one, which had no time
            ours = [line for line in done.stderr.splitlines() if not line.startswith("zoo: no ")]
            words = " ".join([mode, user, interval, "--", *target])
            if done.returncode or ours:
                trouble = f"trouble: {done.returncode}: {done.stderr}"
                nothing = {"tree": None}
                return Trial(part, mode, user, interval, Truth(0, 0, 0), nothing, words, (trouble,), machine)
            (line,) = [line for line in done.stdout.splitlines() if line.startswith("referee")]
            info = json.loads((folder / "run/run.json").read_text())
            gap = max(float(interval), info["quality"]["longest_gap"] or 0.0)
            told = Told(*map(int, line.split()[1:]))
            truth = _truth(part, told, around.elsewhere.peak, gap, own_group=around.inside)
        if not around.inside and _unknowable(part, (folder / "run/processes.jsonl").read_text()):
            truth = truth._replace(least=0.0)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    problems = problems_of(part, truth, info, own_group=around.inside)
    return Trial(part, mode, user, interval, truth, info["peaks"], words, tuple(problems), machine)


def _unknowable(part: Part, told: str) -> bool:
    """Whether nobody can be told of what a process had, as README says.

    Children of a parent that ignores SIGCHLD may have come and gone with it, all between two ticks; a process may have
    reset its own watermark before any tick saw it.
    """
    kinds = {leaf.kind for leaf in leaves(part)}
    return ("nobody_waits" in kinds and ProcessNote.IGNORES_CHILDREN not in told) or (
        "own_watermark_reset" in kinds and ProcessNote.WATERMARK_RESET not in told
    )


_LATE = 0.1
"""Seconds by which a tick may be late on a busy machine, at least: how late they were is recorded."""


def _truth(part: Part, told: Told, elsewhere: int, gap: float, *, own_group: bool) -> Truth:
    cache, unmapped = float(max(0, told.cache)), 0.0
    for leaf in leaves(part):
        kind = KINDS[leaf.kind]
        cache += kind.cache * leaf.mib * MIB
        unmapped += kind.unmapped * leaf.mib * MIB
        if leaf.ms / 1000 < gap + _LATE:
            unmapped += kind.unfaulted * leaf.mib * MIB
    kernel, seen = told.kernel, [told.watermark - cache, told.needed]
    if VERSION == 2 and not own_group:
        # It keeps no watermark of kernel memory, so that of what processes had only what was seen is certain.
        kernel, seen = 0, [told.mapped]
    least = max(*seen, elsewhere)
    return Truth(max(0.0, least), told.watermark + elsewhere, kernel + unmapped)


def problems_of(part: Part, truth: Truth, info: dict[str, Any], *, own_group: bool) -> Iterator[str]:
    """Claims that cannot be true, each in a sentence."""
    peak = info["peaks"]["tree"]
    if peak is None:
        return
    low, high = peak["low"], peak["high"]
    slack = SLACK + info["rss_error_bytes"]
    told = f"truth {truth.least / MIB:.1f} to {truth.most / MIB:.1f} MiB, of it {truth.beside / MIB:.1f} beside the processes"
    said = f"{peak['certainty']} {(low or 0) / MIB:.1f} to {'?' if high is None else f'{high / MIB:.1f}'} ({peak['how']})"
    if peak["certainty"] == "exact" and (low > truth.most + slack or high < truth.least - slack):
        yield f"false exact: {said}; {told}"
    elif low is not None and low > truth.most + slack:
        yield f"false lower bound: {said}; {told}"
    elif high is not None and high < truth.least - slack - (0 if own_group else truth.beside):
        yield f"false upper bound: {said}; {told}"
