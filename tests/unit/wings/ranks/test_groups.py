"""Which runs are one group: attempts, missing ranks, runs inside runs, several groups, and what its reports say."""

from __future__ import annotations

import io
import json
import os
import shlex
from importlib.resources import files
from pathlib import Path

import jsonschema
import pytest

from otel_memwatch.errors import UsageError
from otel_memwatch.reports import render
from otel_memwatch.run import load
from otel_memwatch.wings.ranks import group_json
from otel_memwatch.wings.ranks.group_text import text
from otel_memwatch.wings.ranks.groups import find_group
from tests.support.rank_runs import Clock, Course, rank_run
from tests.support.run_directory import MIB

SHORT = Course([0.0, 0.5, 2.0, 2.5], [10 * MIB, 100 * MIB, 10 * MIB, 0])
KILLED = {"exit_code": None, "signal": 9, "oom_kills": 0, "reason": "killed by SIGKILL"}
STOPPED = {"exit_code": None, "signal": 15, "oom_kills": 0, "reason": "killed by SIGTERM"}


def course(begin, peak, seconds=2.5):
    return Course(
        [begin, begin + 0.4, begin + seconds - 0.2, begin + seconds], [10 * MIB, peak * MIB, 10 * MIB, 0]
    )


def test_a_tree_of_ranks_is_a_group(tmp_path):
    for rank in range(4):
        rank_run(tmp_path / f"r{rank}", course(0.1 * rank, 100 + rank), rank=rank, size=4)
    group = find_group(str(tmp_path))
    assert [rank.rank for rank in group.ranks] == [0, 1, 2, 3]
    assert (group.missing, group.earlier, group.dead, group.first_death) == ((), (), (), None)
    assert 406 * MIB - 8 * MIB <= group.together.peak.low <= 406 * MIB <= group.together.peak.high
    assert group.together.peak.certainty.value == "exact"
    assert "exit code 0 for all" in text(group)


@pytest.mark.parametrize("dead", [(0,), (1, 3), (0, 1, 2, 3), (2,)])
def test_whatever_ranks_are_gone_they_are_named(tmp_path, dead):
    rank_run(tmp_path / "last", SHORT, rank=4, size=5)
    for rank in set(range(4)) - set(dead):
        rank_run(tmp_path / f"r{rank}", SHORT, rank=rank, size=5)
    group = find_group(str(tmp_path))
    assert group.missing == tuple(sorted(dead))
    words = {(0,): "rank 0", (1, 3): "ranks 1, 3", (2,): "rank 2"}.get(dead, "ranks 0-3")
    assert f"missing               {words}: no record" in text(group)


def test_who_died_first_and_why(tmp_path):
    rank_run(tmp_path / "r0", course(0, 100, 9), rank=0, size=3, exit=STOPPED)
    rank_run(tmp_path / "r1", course(0, 200, 5), rank=1, size=3, exit=KILLED)
    rank_run(tmp_path / "r2", course(0, 100, 8), rank=2, size=3, exit=STOPPED)
    group = find_group(str(tmp_path))
    death = group.first_death
    assert (death.rank.rank, death.others, round(death.at)) == (1, (), 5)
    assert [rank.rank for rank in group.dead] == [1, 2, 0]
    assert "failed first          rank 1 on node-one, 5.00 s after the start: killed by SIGKILL" in text(
        group
    )


def test_ranks_of_other_hosts_that_died_within_a_second_are_named_too(tmp_path):
    for rank, begin in enumerate((0.0, 0.7, 30.0)):
        clock = Clock(f"b{rank}")
        rank_run(tmp_path / f"r{rank}", course(begin, 100), rank=rank, size=3, clock=clock, exit=KILLED)
    group = find_group(str(tmp_path))
    assert [rank.rank for rank in group.first_death.others] == [1]
    assert "It may have been rank 1 too: clocks differ between hosts" in text(group)


@pytest.mark.parametrize(
    ("stops", "first", "others"),
    [(4.0, 1, []), (4.95, 0, [1]), (5.05, 0, []), (7.0, 0, [])],
)
def test_a_record_that_stops_just_before_another_rank_died_does_not_make_it_the_first(
    tmp_path, stops, first, others
):
    """One that stops long before does: ticks were due that never came."""
    rank_run(tmp_path / "r0", course(0, 100, 5), rank=0, size=2, exit=KILLED)
    rank_run(
        tmp_path / "r1", course(0, 100, stops), rank=1, size=2,
        state="running", ended=None, exit=None, peaks=None, host={"name": "elsewhere"},
    )  # fmt: skip
    os.utime(tmp_path / "r1" / "samples.jsonl", (1, 1))
    group = find_group(str(tmp_path))
    death = group.first_death
    assert (death.rank.rank, [rank.rank for rank in death.others]) == (first, others)
    assert ("It may have been rank 1 too: a record stops early" in text(group)) == bool(others)


def test_the_last_attempt_counts_and_the_others_are_listed(tmp_path):
    for attempt in range(2):
        for rank in range(3 - attempt):
            rank_run(
                tmp_path / f"a{attempt}r{rank}", course(10.0 * attempt, 100), rank=rank, size=3,
                identity={"launcher": "torchrun", "attempt": attempt},
            )  # fmt: skip
    group = find_group(str(tmp_path))
    assert [rank.run.id for rank in group.ranks] == ["a1r0", "a1r1"]
    assert [rank.run.id for rank in group.earlier] == ["a0r0", "a0r1", "a0r2"]
    assert group.missing == (2,)  # it was there before, and is not in the attempt that counts


def test_without_a_count_the_later_start_is_the_last_attempt(tmp_path):
    for attempt in range(2):
        for rank in range(3 - attempt):
            rank_run(tmp_path / f"a{attempt}r{rank}", course(10.0 * attempt, 100), rank=rank, size=3)
    group = find_group(str(tmp_path))
    assert [rank.run.id for rank in group.ranks] == ["a1r0", "a1r1"]
    assert group.missing == (2,)


def test_tasks_of_an_array_are_tried_again_one_by_one(tmp_path):
    told = {"launcher": "slurm array", "first": 1, "step": 3, "size": 4}
    for rank in (1, 4, 10):
        rank_run(tmp_path / f"r{rank}", course(0.0, 100), rank=rank, identity=told)
    rank_run(tmp_path / "again", course(10.0, 100), rank=4, identity={**told, "attempt": 1})
    group = find_group(str(tmp_path))
    assert [(rank.rank, rank.run.id) for rank in group.ranks] == [(1, "r1"), (4, "again"), (10, "r10")]
    assert group.missing == (7,)


def test_a_rank_inside_the_run_of_its_host_is_not_added_up_twice(tmp_path):
    for host in "ab":
        clock = Clock(host)
        outer = rank_run(
            tmp_path / host,
            course(0.0, 300),
            rank=ord(host) - ord("a"),
            size=2,
            clock=clock,
            group="slurm-1.0",
        )
        for local in range(2):
            inner = rank_run(
                tmp_path / f"{host}{local}", course(0.1, 100), rank=2 * (host == "b") + local, size=4, clock=clock, group="train"
            )  # fmt: skip
            inner.write_info(trace={**inner.info["trace"], "parent_span_id": outer.info["trace"]["span_id"]})
    group = find_group(str(tmp_path))
    assert (group.name, group.more) == ("train", ("slurm-1.0",))
    assert [rank.rank for rank in group.ranks] == [0, 1, 2, 3, None, None]
    assert group.missing == ()
    assert group.together.peak.low <= 600 * MIB <= group.together.peak.high < 700 * MIB
    assert len(group.numbered) == 4


def test_several_groups_in_one_tree_are_distinguished_by_name(tmp_path):
    for name in ("one", "two"):
        for rank in range(2):
            rank_run(tmp_path / f"{name}{rank}", SHORT, rank=rank, size=2, group=name)
    with pytest.raises(UsageError, match="holds 2 groups: one, two"):
        find_group(str(tmp_path))
    group = find_group(f"{tmp_path}:two")
    assert (group.name, len(group.ranks)) == ("two", 2)
    assert find_group(f"{tmp_path}:three") is None


def test_the_summary_of_a_rank_prints_a_command_that_works(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("slurm-array-1", "other one"):
        for rank in range(2):
            rank_run(tmp_path / f"memwatch-runs/{name[0]}{rank}", SHORT, rank=rank, size=2, group=name)
    for directory, name in (("s0", "slurm-array-1"), ("o1", "other one")):
        out = io.BytesIO()
        render("summary", load(Path("memwatch-runs", directory)), out)
        (line,) = [
            line
            for line in out.getvalue().decode().splitlines()
            if "otel-memwatch report memwatch-runs:" in line or "report 'memwatch" in line
        ]
        *_, given = shlex.split(line)
        assert given == f"memwatch-runs:{name}"
        assert find_group(given).name == name


def test_a_group_is_found_by_its_name_where_runs_are_kept(tmp_path, monkeypatch):
    monkeypatch.setenv("OTEL_MEMWATCH_RUNS", str(tmp_path))
    rank_run(tmp_path / "r0", SHORT, rank=0, size=1, group="train-7")
    assert find_group("train-7").name == "train-7"
    assert find_group("train-8") is None
    assert find_group(None) is None
    assert find_group(str(tmp_path / "r0")) is None  # a run is a run


@pytest.mark.parametrize("offset", [0.0, 0.5, 7200.0])
def test_across_hosts_the_hosts_own_peaks_are_added_up(tmp_path, offset):
    """Peaks at different times count in full, whatever the wall clocks say."""
    for rank in range(4):
        clock = Clock(f"b{rank % 2}", offset=offset * (rank % 2), monotonic=1000.0 + 500 * (rank % 2))
        begin = 10.0 * (rank % 2)
        rank_run(tmp_path / f"r{rank}", course(begin, 100 + 100 * rank), rank=rank, size=4, clock=clock)
    group = find_group(str(tmp_path))
    peak = group.together.peak
    assert 990 * MIB <= peak.low <= 1000 * MIB <= peak.high <= 1004 * MIB
    assert (peak.how, peak.at) == ("sum of the hosts' own peaks", None)
    assert sum(host.high for host in group.together.hosts) == pytest.approx(peak.high, abs=2)
    assert "sum of the hosts' own peaks" in text(group)
    assert group.sum_curve(100)[1] is None


def test_what_older_records_say_of_their_clocks_is_passed_over(tmp_path):
    for rank in range(2):
        made = rank_run(tmp_path / f"r{rank}", SHORT, rank=rank, size=2)
        made.append("clock.jsonl", {"monotonic": 5000.0, "wall": 0.0, "error": 0.01})
    assert find_group(str(tmp_path)).together.peak.low >= 190 * MIB


def test_a_rank_whose_record_stops_makes_it_at_least(tmp_path):
    rank_run(tmp_path / "r0", SHORT, rank=0, size=2)
    made = rank_run(tmp_path / "r1", SHORT, rank=1, size=2)
    made.write_info(
        state="running", ended=None, exit=None, peaks=None, host={**made.info["host"], "name": "elsewhere"}
    )
    os.utime(tmp_path / "r1" / "samples.jsonl", (1, 1))
    group = find_group(str(tmp_path))
    assert group.state == "incomplete"
    assert group.together.peak.high is None
    assert group.first_death.rank.rank == 1


def test_empty_and_damaged_directories_beside_the_ranks_are_passed_over(tmp_path):
    rank_run(tmp_path / "r0", SHORT, rank=0, size=3)
    (tmp_path / "r1").mkdir()
    broken = rank_run(tmp_path / "r2", SHORT, rank=2, size=3)
    (broken.path / "run.json").write_text('{"half": ')
    assert find_group(str(tmp_path)).missing == (1, 2)
    half = rank_run(tmp_path / "r3", SHORT, rank=1, size=3)
    (half.path / "samples.jsonl").unlink()  # uploaded by half
    assert find_group(str(tmp_path)).missing == (2,)
    assert find_group(str(tmp_path)).together.peak.low <= 200 * MIB


def test_a_rank_whose_ticks_are_gone_counts_with_its_peak(tmp_path):
    """Its peak is known, and not when it was: the sum is not below the other rank's, and not above both."""
    rank_run(tmp_path / "r0", SHORT, rank=0, size=2)
    (rank_run(tmp_path / "r1", SHORT, rank=1, size=2).path / "samples.jsonl").unlink()
    peak = find_group(str(tmp_path)).together.peak
    assert peak.low == 100 * MIB
    assert 200 * MIB <= peak.high < 202 * MIB


def test_the_document_is_as_its_schema_says(tmp_path):
    rank_run(tmp_path / "r0", SHORT, rank=0, size=3, exit=KILLED)
    rank_run(tmp_path / "r2", SHORT, rank=2, size=3, clock=Clock("other"))
    document = json.loads(group_json.text(find_group(str(tmp_path))))
    schema = json.loads((files("otel_memwatch.wings.ranks") / "group.schema.json").read_text())
    jsonschema.validate(document, schema)
    assert document["missing"] == [1]
    assert document["first_death"]["rank"] == 0
    assert document["clocks"] == {
        "reference": "wall clocks",
        "error": None,
        "hosts": [{"clock": "one", "error": None}, {"clock": "other", "error": None}],
    }
