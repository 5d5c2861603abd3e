"""Number of commands that fit at once: a mix, one command, overlaps, and nothing known."""

from __future__ import annotations

import json
from itertools import combinations

import pytest

from otel_memwatch.errors import UsageError
from otel_memwatch.wings.advice.jobs import RUNNER_BYTES, jobs_json, jobs_text, jobs_within
from otel_memwatch.wings.index.indexed_run import IndexedRun

MIB = 1 << 20


def row(needed: int, name: str, **more: object) -> IndexedRun:
    """A command that needed so many MiB, exactly."""
    fields: dict[str, object] = {
        "path": f"runs/{name}", "id": name, "state": "finished", "command_json": json.dumps(["build", name]), "seconds": 1.0,
        "memory": needed * MIB, "low": needed * MIB, "high": needed * MIB, "certainty": "exact", "cpus": 8,
    }  # fmt: skip
    return IndexedRun(**(fields | more))  # type: ignore[arg-type]


MIX = [row(200, f"link {n}") for n in range(5)] + [row(20, f"compile {n}") for n in range(40)]


@pytest.mark.parametrize("within", [150, 300, 500, 700, 900, 1100, 1300, 1500])
def test_a_mix_is_limited_by_its_largest_commands(within: int) -> None:
    found = jobs_within(MIX, within * MIB)
    sizes = sorted((row.high or 0 for row in MIX), reverse=True)
    most = max(n for n in range(len(sizes) + 1) if sum(sizes[:n]) <= within * MIB)
    small = 1 + within // 900  # runner and margin take as much as one of the small commands, or two
    assert most - small <= found.jobs <= most
    assert sum(sizes[: found.jobs]) + RUNNER_BYTES * bool(found.jobs) <= found.needed <= within * MIB


def test_any_combination_of_that_many_fits() -> None:
    sizes = [300, 100, 90, 80, 10, 5]
    found = jobs_within([row(size, str(size)) for size in sizes], 600 * MIB)
    assert all(sum(some) <= 600 for some in combinations(sizes, found.jobs))


def test_one_command_is_repeated() -> None:
    found = jobs_within([row(1000, "test")], 12_000 * MIB)
    assert found.jobs == 11
    assert "1 command recorded; further ones count as the largest" in jobs_text(found)
    assert "memory allows more jobs than the machine has processors (8)" in jobs_text(found)


def test_a_command_counts_with_its_largest_run_and_as_often_as_it_ran_in_one_build() -> None:
    builds = [row(100, "a", started=0.0), row(300, "a", started=2000.0)]
    assert [one.needed for one in jobs_within(builds, 1000 * MIB).largest] == [300 * MIB]
    one_build = [*builds, row(100, "a", started=2005.0)]
    assert [one.needed for one in jobs_within(one_build, 1000 * MIB).largest] == [300 * MIB] * 2
    other = [row(100, "a", cwd="/x"), row(100, "a", cwd="/y")]
    assert jobs_within(other, 1000 * MIB).commands == 2


def test_a_peak_without_an_upper_bound_has_a_margin() -> None:
    found = jobs_within(
        [row(100, "a", high=None, certainty="interval"), row(100, "b", oom_kills=1)], 1000 * MIB
    )
    assert [one.needed for one in found.largest] == [125 * MIB] * 2
    assert "2 commands without an upper bound" in jobs_text(found)


def test_nothing_fits() -> None:
    found = jobs_within([row(1000, "huge")], 500 * MIB)
    assert found.jobs == 0
    assert jobs_text(found).startswith("not even one command fits into 500.0 MiB")


def test_runs_without_a_peak_are_no_basis() -> None:
    with pytest.raises(UsageError, match="No run has a known peak"):
        jobs_within([row(1, "a", memory=None, low=None, high=None)], MIB)


def test_the_document_has_the_words_of_each_runner() -> None:
    document = jobs_json(jobs_within(MIX, 700 * MIB))
    assert document["words"] == {
        "make": "make -j3", "ninja": "ninja -j3", "pytest-xdist": "pytest -n 3", "parallel": "parallel --jobs 3",
    }  # fmt: skip
    assert json.loads(json.dumps(document)) == document
