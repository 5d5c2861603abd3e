"""One composition under `wrap`, beside a referee that sees all of it; and what is wrong with what the run claims."""

from __future__ import annotations

import functools
import io
import json
import os
import random
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from otel_memwatch.model import ProcessNote
from otel_memwatch.reports import render
from otel_memwatch.run import load
from otel_memwatch.runtime.kernel import processors
from otel_memwatch.truth.cgroup_windows import peak_error
from tests.support.counters import error_here, tree_error
from tests.support.wrapped import HERE, PROGRAM, environment
from tests.zoo.compositions import KINDS, InTurn, Leaf, Part, leaves
from tests.zoo.marked import Known, steps_of
from tests.zoo.surroundings import LINUX, VERSION, can_mark, surroundings, watcher

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
    """Of this, the most that no process can have been seen to have: kernel memory and files in memory that no process maps."""


class Told(NamedTuple):
    """What the referee says, in bytes; see workload.c."""

    watermark: int
    kernel: int
    needed: int
    mapped: int
    cache: int
    """Left at the end: a file, or a library, whose pages the kernel had dropped before."""


class Trial(NamedTuple):
    """Result of one composition."""

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
    """Kernel and processors, when that is not a machine with control groups of version 1."""
    operations: int = 0
    """Number of operations that the program marked, each judged like the run."""

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


def run(
    part: Part,
    mode: str,
    user: str,
    interval: str,
    marks: random.Random | None = None,
    program: Sequence[str] = PROGRAM,
) -> Trial:
    """Runs and judges a composition.

    Args:
        part: the composition.
        mode: how it is watched.
        user: who watches it.
        interval: seconds between samples.
        marks: draws operations, if the program can referee them (`can_mark`).
        program: first words of the monitor's command line.
    """
    folder = Path(tempfile.mkdtemp(prefix="memwatch-zoo-run-"))
    os.chown(folder, *watcher(user))
    machine = "" if VERSION == 1 else f"Linux {LINUX[0]}.{LINUX[1]}, {processors()} processors"
    try:
        with surroundings(mode, user, marked=marks is not None) as around:
            target = [str(zoo() / "zoo"), around.enter, *part.words(), "w", "g"]
            if marks is not None and can_mark(inside=around.inside):
                steps = json.dumps(steps_of(part, marks))
                target = [sys.executable, "-m", "tests.zoo.marked", around.enter, str(zoo() / "zoo"), steps]
            options = ["--cgroup", "require"] if VERSION == 2 and around.inside else MODES[mode]
            argv = [
                *around.before,
                *program,
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
                return run(part, mode, user, interval, marks, program)  # an emulated one, which had no time
            ours = [line for line in done.stderr.splitlines() if not line.startswith("zoo: no ")]
            words = " ".join([mode, user, interval, "--", shlex.join(target)])
            if done.returncode or ours:
                trouble = f"trouble: {done.returncode}: {done.stderr}"
                nothing = {"tree": None}
                return Trial(part, mode, user, interval, Truth(0, 0, 0), nothing, words, (trouble,), machine)
            (line,) = [line for line in done.stdout.splitlines() if line.startswith("referee ")]
            known = [line for line in done.stdout.splitlines() if line.startswith("operations ")]
            info = json.loads((folder / "run/run.json").read_text())
            gap = max(float(interval), info["quality"]["longest_gap"] or 0.0)
            told = Told(*map(int, line.split()[1:]))
            beside = around.elsewhere.peak
            truth = _truth(part, told, beside, gap, own_group=around.inside)
            unknowable = not around.inside and _unknowable(part, (folder / "run/processes.jsonl").read_text())
        if unknowable:
            truth = truth._replace(least=0.0)
        problems = list(problems_of(truth, info["peaks"]["tree"], error_here(), own_group=around.inside))
        marked: dict[str, Known] = {}
        if known:
            marked = {name: Known(*fields) for name, fields in json.loads(known[0].split(" ", 1)[1]).items()}
            truths = {
                name: Truth(
                    0.0 if unknowable else max(0.0, one.least - _cache(part, told)),
                    one.most + beside,
                    truth.beside - told.kernel + one.kernel,
                )
                for name, one in marked.items()
            }
            problems += operation_problems(
                _report(folder / "run"), error_here(), truth, truths, marked, own_group=around.inside
            )
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return Trial(
        part, mode, user, interval, truth, info["peaks"], words, tuple(problems), machine, len(marked)
    )


def _report(directory: Path) -> dict[str, Any]:
    out = io.BytesIO()
    render("json", load(directory), out)
    return dict(json.loads(out.getvalue()))


def _unknowable(part: Part, told: str) -> bool:
    """Whether no process can receive the result of another one, as known.md says.

    Children of a parent that ignores SIGCHLD may have come and gone with it, all between two samples; other processes that
    ignore it may be known (`helper_left`). A process may have reset the watermark before any sample saw it.
    """
    kinds = {leaf.kind for leaf in leaves(part)}
    seen = any('"unawaited"' in line and ProcessNote.IGNORES_CHILDREN in line for line in told.splitlines())
    return ("unawaited" in kinds and not seen) or (
        "own_watermark_reset" in kinds and ProcessNote.WATERMARK_RESET not in told
    )


_LATE = 0.1
"""Seconds by which a tick may be late on a busy machine, at least: how late they were is recorded."""


def _cache(part: Part, told: Told) -> float:
    """Most page cache that the tree was charged for, in bytes."""
    return max(0, told.cache) + sum(KINDS[leaf.kind].cache * leaf.mib * MIB for leaf in leaves(part))


def _truth(part: Part, told: Told, elsewhere: int, gap: float, *, own_group: bool) -> Truth:
    unmapped = 0.0
    for leaf in leaves(part):
        kind = KINDS[leaf.kind]
        unmapped += kind.unmapped * leaf.mib * MIB
        if leaf.ms / 1000 < gap + _LATE:
            unmapped += kind.unfaulted * leaf.mib * MIB
    kernel, seen = told.kernel, [told.watermark - _cache(part, told), told.needed]
    if VERSION == 2 and not own_group:
        # It keeps no watermark of kernel memory, so only memory that was seen in processes is certain.
        kernel, seen = 0, [told.mapped]
    least = max(*seen, elsewhere)
    return Truth(max(0.0, least), told.watermark + elsewhere, kernel + unmapped)


def problems_of(
    truth: Truth, peak: dict[str, Any] | None, error: int, *, own_group: bool, of: str = ""
) -> Iterator[str]:
    """Yield a sentence for each claim about the tree that cannot be true.

    Args:
        truth: from the referee.
        peak: the claim; `None`: none.
        error: bytes by which the kernel's figures of a process are really off (`error_here`).
        own_group: whether the run had a separate cgroup.
        of: the part of the run that the claim is about.
    """
    if peak is None:
        return
    low, high = peak["low"], peak["high"]
    slack = SLACK + tree_error(error)
    above = SLACK + peak_error(tree_error(error))  # a watermark includes what is charged ahead
    told = f"truth {truth.least / MIB:.1f} to {truth.most / MIB:.1f} MiB, of it {truth.beside / MIB:.1f} beside the processes"
    said = f"{peak['certainty']} {(low or 0) / MIB:.1f} to {'?' if high is None else f'{high / MIB:.1f}'} ({peak['how']})"
    if peak["certainty"] == "exact" and (low > truth.most + above or high < truth.least - slack):
        yield f"false exact{of}: {said}; {told}"
    elif low is not None and low > truth.most + above:
        yield f"false lower bound{of}: {said}; {told}"
    elif high is not None and high < truth.least - slack - (0 if own_group else truth.beside):
        yield f"false upper bound{of}: {said}; {told}"


OWN_SLACK = 2 * MIB
"""Resident size that Python itself takes or gives back beside."""


def operation_problems(
    report: dict[str, Any],
    error: int,
    run_truth: Truth,
    truths: dict[str, Truth],
    marked: dict[str, Known],
    *,
    own_group: bool,
) -> Iterator[str]:
    """Claims about operations that cannot be true, or that contradict the run or the operation around them."""
    found = {operation["name"]: operation for operation in report["operations"]}
    if set(found) != set(truths):
        yield f"false record: operations {sorted(found)} of {sorted(truths)}"
        return
    whole = report["peaks"]["tree"]
    slack = OWN_SLACK + error
    for name, truth in truths.items():
        own, tree = found[name]["peak"], found[name]["tree_peak"]
        yield from problems_of(truth, tree, error, own_group=own_group, of=f" of operation {name!r}")
        size = marked[name].own
        if (own["low"] or 0) > size + slack or (own["high"] is not None and own["high"] < size - slack):
            yield f"false process of operation {name!r}: {own['low']} to {own['high']}; truth {size}"
        parent = marked[name].parent
        around = [("the run", whole), *([(repr(parent), found[parent]["tree_peak"])] if parent else [])]
        for what, outer in around:
            yield from contradictions(tree, outer, f"operation {name!r}", what)
        yield from contradictions(
            own, report["peaks"]["process"], f"process of operation {name!r}", "the run"
        )
    named = (whole or {}).get("operations") or ([whole["operation"]] if whole and whole["operation"] else [])
    # "At least" and "likely" name the operation in which so much was seen; a larger peak may have been in another.
    reached = (whole or {}).get("low") or 0
    if whole and whole["high"] is not None and not whole.get("operation_likely"):
        # Without a cgroup the figure excludes kernel memory and unmapped files, which may peak in another operation.
        seen = (truth.least - truth.beside for truth in truths.values())
        reached = run_truth.least if own_group else max(seen, default=0)
    if named and not any(truths[name].most + SLACK >= reached for name in named if name in truths):
        yield f"false attribution: the peak was in none of {named}"


def contradictions(
    part: dict[str, Any] | None, whole: dict[str, Any] | None, what: str, around: str
) -> Iterator[str]:
    """Yield a sentence for each bound by which a part needs more than the whole."""
    if part is None or whole is None:
        return
    for name in ("low", "high"):
        if part[name] is not None and whole[name] is not None and part[name] > whole[name]:
            yield f"false part: {what} has {name} {part[name] / MIB:.2f}, {around} {whole[name] / MIB:.2f} MiB"
