"""Recipes: runs that share one file."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from otel_memwatch.errors import RunError
from otel_memwatch.model import Certainty
from otel_memwatch.record.recipes import recipe_lines
from otel_memwatch.run import load
from otel_memwatch.wings.index.command import prune_command
from otel_memwatch.wings.index.find import find_run, find_runs
from otel_memwatch.wings.index.index import index
from otel_memwatch.wings.index.prune import remove_recipes
from tests.support.wrapped import MIB

ID = "20260101T000000Z-bash-100"


def line(**changes: Any) -> dict[str, Any]:
    """A recipe of one process that had 40 MiB, without a cgroup."""
    return {
        "schema": 1,
        "id": ID,
        "command": ["/bin/bash", "-c", "cc x.c"],
        "cwd": "/src",
        "host": {
            "name": "h", "system": "Linux", "release": "6.8.0", "machine": "x86_64", "cpus": 2,
            "memory_bytes": 8 << 30, "swap_bytes": 0,
        },
        "stat": "101 (bash) Z 100 99 99 0 -1 0 11000 0 0 0 0 0 0 0 20 0 1 0 10000 0 0\n",
        "io": "rchar: 1000\nwchar: 7\n",
        "target": {"pid": 101, "start": 100.0, "floor": 3 * MIB},
        "started": {"wall": 1.7e9, "monotonic": 100.0},
        "ended": {"wall": 1.7e9 + 0.5, "monotonic": 100.5},
        "monitor_pid": 100,
        "processors": 2,
        "page_bytes": 4096,
        "traceparent": "00-0123456789abcdef0123456789abcdef-0123456789abcdef-01",
        "exit": {"exit_code": 0, "signal": None},
        "usage": {
            "max_rss": 40 * MIB, "cpu_user": 0.3, "cpu_system": 0.1, "minor_faults": 11000, "major_faults": 0,
            "read_bytes": 4096, "write_bytes": 0, "assigned": 102, "helpers": 1,
        },
        "own_cgroup": None,
    } | changes  # fmt: skip


def store(place: Path, *lines: dict[str, Any] | bytes) -> Path:
    data = [
        one if isinstance(one, bytes) else json.dumps(one, separators=(",", ":")).encode() + b"\n"
        for one in lines
    ]
    (place / "recipes.jsonl").write_bytes(b"".join(data))
    return place / ID


def parent(pids: int) -> dict[str, Any]:
    """Changes of a recipe with children: the shell waited for some, and the machine assigned this many pids."""
    usage = line()["usage"]
    return {
        "stat": line()["stat"].replace(" 11000 0 ", " 200 10800 "),
        "usage": usage | {"assigned": 102 + pids},
    }


def test_a_process_alone_is_known_from_both_sides(tmp_path: Path) -> None:
    run = load(store(tmp_path, line()))
    assert run.state == "finished"
    assert run.seconds == 0.5
    assert run.totals["cpu_seconds"] == 0.4
    assert run.totals["read_chars"] == 1000
    assert run.peaks.process is not None
    assert run.peaks.process.certainty is Certainty.EXACT
    assert run.peaks.process.bytes == 40 * MIB
    tree = run.peaks.tree
    assert tree is not None
    assert tree.low == 0, "all of it may be pages of files"
    assert tree.high is not None
    assert 40 * MIB <= tree.high < 42 * MIB


def test_of_several_processes_the_largest_is_no_bound(tmp_path: Path) -> None:
    run = load(store(tmp_path, line(**parent(3))))
    tree = run.peaks.tree
    assert tree is not None
    assert (tree.certainty, tree.bytes, tree.high) == (Certainty.SAMPLED, 40 * MIB, None)
    assert run.peaks.process is not None
    assert run.peaks.process.certainty is not Certainty.EXACT


def test_an_own_cgroup_makes_the_peak_exact(tmp_path: Path) -> None:
    group = {
        "peak": 90 * MIB, "usage": 100_000, "limit": 9223372036854771712, "oom_kill": 0, "total_cache": 0,
        "total_rss": 0, "total_shmem": 0, "total_unevictable": 0, "total_pgfault": 10900,
        "hierarchical_memory_limit": 1 << 30,
    }  # fmt: skip
    run = load(store(tmp_path, line(**parent(3), own_cgroup="/sys/fs/cgroup/memory/x", cgroup=group)))
    tree = run.peaks.tree
    assert tree is not None
    assert tree.certainty is Certainty.EXACT
    assert (tree.low or 0) <= 90 * MIB <= (tree.high or 0)
    assert run.limits["cgroup_bytes"] == 1 << 30
    assert run.ending.oom_kills == 0


def test_a_signal_is_the_end(tmp_path: Path) -> None:
    run = load(store(tmp_path, line(exit={"exit_code": None, "signal": 9})))
    assert run.ending.reason == "killed by SIGKILL"
    assert run.verdict == "killed"


def test_recipes_stand_among_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ids = [f"20260101T000000Z-bash-{pid}" for pid in range(50)]
    store(tmp_path, *(line(id=name) for name in ids))
    low = load(tmp_path / ids[0]).peaks.tree.low  # type: ignore[union-attr]
    for _ in range(2):  # made, then from the cache
        rows = index([tmp_path])
        assert [row.id for row in rows] == sorted(ids)
        assert {row.state for row in rows} == {"finished"}
        assert {row.memory for row in rows} == {low}
    monkeypatch.setenv("OTEL_MEMWATCH_RUNS", str(tmp_path))
    assert find_run(ids[3]) == tmp_path / ids[3]
    assert [row.id for row in find_runs([str(tmp_path / ids[3])])] == [ids[3]]


def test_a_changed_line_is_read_anew(tmp_path: Path) -> None:
    ids = [f"20260101T000000Z-bash-{pid}" for pid in range(50)]
    store(tmp_path, *(line(id=name) for name in ids))
    index([tmp_path])
    usage = line()["usage"] | {"max_rss": 50 * MIB}
    store(tmp_path, *(line(id=name, usage=usage) for name in ids))
    assert {row.process for row in index([tmp_path])} == {50 * MIB}


def test_torn_and_foreign_lines_lose_no_other(tmp_path: Path) -> None:
    whole = json.dumps(line(), separators=(",", ":")).encode()
    store(tmp_path, b"\xff\x00 nonsense\n", whole[:60] + b"\n", line(), whole.replace(b"100", b"7", 1)[:-9])
    assert [name for name, _ in recipe_lines(tmp_path)] == [ID]
    assert load(tmp_path / ID).peaks.process is not None
    with pytest.raises(RunError, match="There is no run"):
        load(tmp_path / "20260101T000000Z-bash-7")


def test_names_of_a_line_never_leave_the_directory(tmp_path: Path) -> None:
    store(
        tmp_path,
        line(id="../../etc"),
        line(id=""),
        line(id="a/b"),
        line(id=".."),
        line(id="20260101T000000Z-bash-1/.."),
    )
    assert [name for name, _ in recipe_lines(tmp_path)] == []


@pytest.mark.parametrize("seed", range(40))
def test_hostile_values_are_unknown(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    values = (None, "", "x", -1, 1 << 80, 1e400, float("nan"), [], [1], {}, {"a": 1}, True)
    hostile: dict[str, Any] = line(**parent(2), own_cgroup="/x", cgroup={"peak": 1, "usage": 1, "limit": 1})
    for name in chance.sample([name for name in hostile if name not in ("schema", "id")], 6):
        hostile[name] = chance.choice(values)
    for name in ("usage", "cgroup", "target", "ended", "host"):
        if isinstance(hostile[name], dict) and hostile[name]:
            hostile[name] = hostile[name] | {chance.choice(list(hostile[name])): chance.choice(values)}
    path = store(tmp_path, hostile)
    (row,) = index([tmp_path])
    assert row.path == str(path)


def test_prune_removes_the_oldest_recipes_and_their_operations(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = [f"2026010{day}T000000Z-bash-1" for day in range(1, 6)]
    lines = [line(id=name, started={"wall": 1.7e9 + n, "monotonic": 100.0}) for n, name in enumerate(ids)]
    store(tmp_path, *lines[:2], b"torn\n", *lines[2:])
    (tmp_path / ids[0]).mkdir()
    (tmp_path / ids[0] / "operations-101.jsonl").touch()
    (tmp_path / ids[1]).mkdir()
    (tmp_path / ids[1] / "mine").touch()
    monkeypatch.chdir(tmp_path.parent)
    for arguments, left in ((["--dry-run"], ids), ([], ids[3:])):
        done = CliRunner().invoke(prune_command, [tmp_path.name, "--keep", "2", *arguments])
        assert done.exit_code == 0
        assert [text for text in done.stdout.split() if text.startswith(tmp_path.name)] == [
            f"{tmp_path.name}/{name}" for name in ids[:3]
        ]
        assert [row.id for row in index([tmp_path.name])] == left
    assert sorted(entry.name for entry in tmp_path.iterdir()) == [ids[1], "recipes.jsonl"]


def test_prune_follows_no_link(tmp_path: Path) -> None:
    there, here = tmp_path / "there", tmp_path / "here"
    there.mkdir()
    here.mkdir()
    store(there, line())
    (here / "recipes.jsonl").symlink_to(there / "recipes.jsonl")
    assert not remove_recipes(str(here), [ID], [str(here)]).removed
    assert [name for name, _ in recipe_lines(there)] == [ID]
