"""What a run claims of programs of every kind of memory use, against a referee that sees all of it; see tests/zoo.

MEMWATCH_LONG=1 tries a thousand new compositions, watched in every way by everybody.
"""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from tests.support.torture import LONG
from tests.zoo.__main__ import trials
from tests.zoo.compositions import KINDS, Leaf, drawn
from tests.zoo.marked import Known
from tests.zoo.trial import MIB, MODES, USERS, Truth, operation_problems, run, zoo

pytestmark = pytest.mark.skipif(
    os.geteuid() != 0 or not Path("/sys/fs/cgroup/memory/memory.max_usage_in_bytes").exists(),
    reason="the referee is a control group of version 1 that root makes inside its own",
)
TOGETHER = 7
NAMES = sorted(KINDS)


@pytest.mark.parametrize("first", range(0, len(NAMES), TOGETHER))
def test_every_kind(first: int) -> None:
    """Each once, some together, in a control group of the run's own."""
    dice = random.Random(first)
    trial = run(drawn(dice, NAMES[first : first + TOGETHER]), "group", "root", "0.02")
    assert not trial.problems, trial.how


def test_operations_of_a_composition() -> None:
    """The referee is reset at both ends of each operation."""
    trial = run(Leaf("plain", 24, 150), "group", "root", "0.02", random.Random(1))
    assert not trial.problems, (trial.problems, trial.how)
    assert trial.operations >= 3


def test_what_is_read_again_from_a_disk_is_no_memory_needed() -> None:
    """Pages of a file that the kernel has dropped are charged to their next reader: to the referee."""
    with (zoo() / "old").open("rb+") as old:
        os.fsync(old.fileno())
        os.posix_fadvise(old.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    trial = run(Leaf("file_read", 24, 0), "off", "user", "0.1")
    assert not trial.problems, trial.problems
    assert trial.truth.least < 2 << 20


def peak(low: int, high: int, **more: object) -> dict[str, object]:
    """Return bounds in MiB, as the report has them."""
    return {
        "low": low * MIB,
        "high": high * MIB,
        "certainty": "interval",
        "how": "",
        "operation": None,
        **more,
    }


@pytest.mark.parametrize(
    ("tree", "own", "run", "problem"),
    [
        (peak(30, 32), peak(20, 21), peak(40, 50, operation="part"), ""),
        (peak(36, 60), peak(20, 21), peak(40, 50), "false lower bound of operation 'part'"),
        (peak(20, 25), peak(20, 21), peak(40, 50), "false upper bound of operation 'part'"),
        (peak(30, 32, certainty="exact"), peak(30, 31), peak(40, 50), "false process of operation 'part'"),
        (
            peak(30, 60),
            peak(20, 21),
            peak(40, 50),
            "false part: operation 'part' has high 60.00, the run 50.00",
        ),
        (peak(30, 32), peak(20, 21), peak(40, 50, operation="empty"), "false attribution"),
    ],
)
def test_the_referee_of_operations(
    tree: dict[str, object], own: dict[str, object], run: dict[str, object], problem: str
) -> None:
    """30 MiB of the tree and 20 of the process in one operation, 5 in another; the run had 30 or 45."""
    report = {
        "operations": [
            {"name": "part", "peak": own, "tree_peak": tree},
            {"name": "empty", "peak": peak(20, 21), "tree_peak": None},
        ],
        "peaks": {"tree": run, "process": peak(30, 40)},
    }
    truths = {"part": Truth(30 * MIB, 31 * MIB, 0), "empty": Truth(5 * MIB, 6 * MIB, 0)}
    marked = {name: Known(0, 0, 20 * MIB, None) for name in truths}
    whole = Truth(30 * MIB, 31 * MIB, 0)
    found = list(operation_problems(report, 0, whole, truths, marked, own_group=True))
    assert found == [] if not problem else any(one.startswith(problem) for one in found), found


@pytest.mark.parametrize(("own_group", "problems"), [(True, 1), (False, 0)])
def test_the_referee_leaves_kernel_memory_out_where_the_figure_does(own_group: bool, problems: int) -> None:
    """The program needs 30 MiB in one operation; in the other 25 and 20 MiB of the kernel, for its sockets."""
    tree = peak(20, 60, operation="memory")
    report = {
        "operations": [
            {"name": name, "peak": peak(20, 21), "tree_peak": None} for name in ("memory", "sockets")
        ],
        "peaks": {"tree": tree, "process": peak(20, 40)},
    }
    truths = {"memory": Truth(30 * MIB, 31 * MIB, 0), "sockets": Truth(45 * MIB, 46 * MIB, 20 * MIB)}
    marked = {
        "memory": Known(30 * MIB, 31 * MIB, 20 * MIB, None),
        "sockets": Known(45 * MIB, 46 * MIB, 20 * MIB, None, 20 * MIB),
    }
    whole = Truth(45 * MIB, 46 * MIB, 20 * MIB)
    found = list(operation_problems(report, 0, whole, truths, marked, own_group=own_group))
    assert len(found) == problems, found
    tree["operation"] = "sockets"
    truths["sockets"] = Truth(25 * MIB, 26 * MIB, 0)
    (problem,) = operation_problems(report, 0, whole, truths, marked, own_group=own_group)
    assert problem.startswith("false attribution")


@pytest.mark.skipif(not LONG, reason="half an hour: MEMWATCH_LONG=1")
def test_many_compositions() -> None:
    """Others at each run; the seed is reported."""
    seed = random.randrange(1 << 30)
    tried = 0
    for trial in trials(1000, seed, NAMES, list(MODES), list(USERS), jobs=2):
        assert not trial.problems, f"seed {seed}: {trial.how}"
        tried += 1
    assert tried == 1000
