"""Whatever a peak claims holds: random programs against a referee that is not ours.

The referee of a tree is the watermark of a control group that the program makes for itself, or the count by the script where its
children run one after the other; that of a process is the count by the script. OTEL_MEMWATCH_TEST_PROGRAMS=3000 tries so many new
programs (the nightly profile); without it a few dozen, always the same.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, Phase, currently_in_test_context, given, note, settings
from hypothesis import strategies as st

from otel_memwatch.model import ProcessNote
from tests.support.allocation_scripts import MIB, Child, Count, Script, count, scripts, words
from tests.support.control_group import memory_parent
from tests.support.wrapped import Wrapped, workload, wrap

PROGRAMS = int(os.environ.get("OTEL_MEMWATCH_TEST_PROGRAMS", "0"))
PROGRAM_ITSELF = (0.1 * MIB, 1.8 * MIB)
"""RSS of workload.c before it does anything: a forked child has few of its parent's file pages."""
FILE_PAGES = 2.5 * MIB
"""Pages of program and libraries that are resident and were charged to others, at most."""


def profile(programs: int) -> Any:
    """Few and always the same programs, or as many new ones as were asked for."""
    shares = PROGRAMS // 4 if PROGRAMS else programs
    return settings(
        max_examples=shares,
        derandomize=not PROGRAMS,
        database=None,
        deadline=None,
        phases=[Phase.explicit, Phase.generate, Phase.shrink]
        if PROGRAMS
        else [Phase.explicit, Phase.generate],
        suppress_health_check=list(HealthCheck),
        print_blob=True,
    )


class How(NamedTuple):
    """How a program is watched."""

    cgroup: str
    interval: str

    def options(self) -> list[str]:
        return ["--cgroup", self.cgroup, "--interval", self.interval]


WATCHED = st.builds(How, st.sampled_from(["auto", "off"]), st.sampled_from(["0.02", "0.1", "0.1", "0.7"]))


class Referee(NamedTuple):
    """What the group saw, in bytes."""

    watermark: int
    kernel: int


def tell(text: str) -> None:
    """Shows it beside a failing example."""
    if currently_in_test_context():
        note(text)


def run(script: Script, how: How, *, referee: bool) -> tuple[Wrapped, Referee | None]:
    """Runs a script under `wrap`, with a referee group if wanted; in a separate directory, which is removed."""
    argv = [workload(), *(["G"] if referee else []), *words(script), "w", *(["g"] if referee else [])]
    tell(f"{' '.join(how.options())} -- workload {' '.join(argv[1:])}")
    folder = Path(tempfile.mkdtemp(prefix="memwatch-certificate-"))
    try:
        done = wrap(argv, "--quiet", "--no-report", *how.options(), out=folder / "run", cwd=folder)
        assert done.code == 0, done.err
        assert not done.err
        peaks = done.info["peaks"]
        tell(str(peaks))
        tell((folder / "run/samples.jsonl").read_text())
        done.told = (folder / "run/processes.jsonl").read_text()
        tell(done.told)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    if not referee:
        return done, None
    (line,) = [line for line in done.out.splitlines() if line.startswith("referee")]
    return done, Referee(*map(int, line.split()[1:3]))


def check_claims(peak: dict[str, Any] | None, least: float, most: float, slack: float, name: str) -> None:
    """The truth lies between `least` and `most` bytes: nothing that the peak says may contradict that."""
    assert peak is not None, name
    low, high, certainty = peak["low"], peak["high"], peak["certainty"]
    assert certainty != "sampled", name
    assert low is None or low <= most + slack, (
        f"{name}: at least {low / MIB:.2f} of at most {most / MIB:.2f} MiB"
    )
    assert high is None or high >= least - slack, (
        f"{name}: at most {high / MIB:.2f} of at least {least / MIB:.2f} MiB"
    )
    if certainty == "exact":
        assert low <= peak["bytes"] <= high, name
        assert high - low <= max(4 * MIB, 0.025 * high) + 2 * slack, (
            f"{name}: {low} to {high} is not one figure"
        )


def unknowable(script: Script) -> bool:
    """Whether nothing need be known of largest process and tree: a process ignores SIGCHLD, and it may all be over at once."""
    return "i" in words(script)


def hidden(script: Script, done: Wrapped) -> bool:
    """Whether a child ignored SIGCHLD and no tick saw it: the existence of its children is unknown."""
    children = [step.script for step in script if not isinstance(step, str)]
    return any(map(unknowable, children)) and ProcessNote.IGNORES_CHILDREN not in done.told


def check_processes(done: Wrapped, truth: Count, script: Script) -> None:
    """The target's own process and the largest one, by the script's own count."""
    peaks = done.info["peaks"]
    for name, mib in (("main", truth.own), ("process", truth.process)):
        least, most = (mib * MIB + itself for itself in PROGRAM_ITSELF)
        if name == "process" and hidden(script, done):
            least = 0.0
        if name == "main" and "e" in script and '"note":"exec"' not in done.told:
            least = 0.0  # it was another program before the first sample
        if peaks[name] is not None or not unknowable(script):
            check_claims(peaks[name], least, most, error_of(done), name)


def error_of(run: Wrapped) -> float:
    """Bytes by which the kernel's counters may be off, as the run itself states them, and a little of the program's own."""
    return float(run.info["rss_error_bytes"]) + 0.3 * MIB


needs_v1 = pytest.mark.skipif(
    not (memory_parent() / "memory.max_usage_in_bytes").exists(),
    reason="in version 2 a group with processes cannot have a group with the memory controller inside",
)


@pytest.mark.parametrize(
    ("script", "how"),
    [
        # over before the first look: no process received what the child of a parent that ignores SIGCHLD had
        (("i", "a1", "a6", Child(("i", "a8", "k9"), waits=True)), How("auto", interval="0.02")),
        (("i", "s400", Child(("a60",), waits=False), "s400"), How("off", interval="0.7")),
    ],
)
@needs_v1
def test_found_before(script: Script, how: How) -> None:
    """Programs about which a claim was once wrong."""
    check_concurrent(script, how)


def check_concurrent(script: Script, how: How) -> None:
    done, referee = run(script, how, referee=True)
    assert referee is not None
    truth = count(script)
    check_processes(done, truth, script)
    own_group = how.cgroup == "auto"
    # The charge of the program's own first pages went to the group around the referee's, the pages of its files to
    # their first reader. Each of the two groups may be charged a batch ahead on each processor.
    least = referee.watermark - (0 if own_group else referee.kernel)
    most = referee.watermark + (1.5 * MIB if own_group else FILE_PAGES)
    if not own_group and hidden(script, done):
        least = 0.0
    if done.info["peaks"]["tree"] is not None or not unknowable(script):
        check_claims(done.info["peaks"]["tree"], least, most, error_of(done) + 1 * MIB, "tree")
    if own_group:
        cgroup = done.info["peaks"]["cgroup"]
        assert cgroup["certainty"] == "exact"
        assert cgroup["high"] >= referee.watermark


@needs_v1
@profile(14)
@given(scripts(), WATCHED)
def test_trees_whose_processes_overlap(script: Script, how: How) -> None:
    """Children beside each other and beside their parent, killed ones, orphans, ignored SIGCHLD."""
    check_concurrent(script, how)


@profile(10)
@given(scripts(in_turn=True), WATCHED)
def test_trees_whose_processes_take_turns(script: Script, how: How) -> None:
    """What the whole tree needs is known without any group."""
    done, _ = run(script, how, referee=False)
    check_by_count(done, script)


@profile(10)
@given(scripts(in_turn=True, files=True), WATCHED)
def test_page_cache_is_not_needed_memory(script: Script, how: How) -> None:
    """Files that are written beside: the group is charged for their pages, the tree does not need them."""
    done, _ = run(script, how, referee=False)
    check_by_count(done, script)


def check_by_count(done: Wrapped, script: Script) -> None:
    """Processes and tree, by the script's own count; a control group counts page tables and kernel stacks too."""
    truth = count(script)
    peaks = done.info["peaks"]
    check_processes(done, truth, script)
    kernel = 0.004 * truth.tree * MIB * 2 + truth.processes * 0.4 * MIB
    least, most = truth.tree * MIB + 0.1 * MIB, truth.tree * MIB + FILE_PAGES + kernel
    check_claims(peaks["tree"], least, most, error_of(done) + 1 * MIB, "tree")


def test_children_of_a_daemon_that_outlives_the_target(tmp_path: Path) -> None:
    """Only the daemon knew that its child had 150 MiB, and no process has waited for the daemon: no process has an upper bound.

    The tree has one, if any: the daemon was informed of its child's page faults too.
    """
    how = How("off", interval="5")
    script = Path(__file__).parents[1] / "programs/daemon_with_children.py"
    program = [sys.executable, "-S", str(script), "150"]
    done = wrap(program, "--quiet", "--no-report", *how.options(), out=tmp_path / "run", cwd=tmp_path)
    os.kill(int(done.out), signal.SIGKILL)
    assert done.code == 0, done.err
    peaks = done.info["peaks"]
    assert peaks["process"]["high"] is None, peaks
    assert peaks["tree"]["high"] is None or peaks["tree"]["high"] >= 150 * MIB, peaks
