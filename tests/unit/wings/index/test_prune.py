"""Removal takes finished runs and nothing else, whatever lies in or beside them."""

from __future__ import annotations

import json
import os
import shutil
import time
from typing import TYPE_CHECKING, Any

import pytest

from otel_memwatch.errors import RunError
from otel_memwatch.wings.index import prune
from otel_memwatch.wings.index.index import index
from otel_memwatch.wings.index.prune import old_runs, remove, resolve
from tests.support import recorded

if TYPE_CHECKING:
    from pathlib import Path

    from otel_memwatch.wings.index.prune import Removal


def run(path: Path, **changes: Any) -> Path:
    recorded.short(path)
    rewrite(path, **changes)
    return path


def rewrite(path: Path, **changes: Any) -> None:
    info = json.loads((path / "run.json").read_text())
    (path / "run.json").write_text(json.dumps(info | changes))


def pruned(root: Path, keep: int = 0, *, dry_run: bool = False) -> list[Removal]:
    old, _ = old_runs(index([root], for_removal=True), keep, None)
    return [remove(row, [str(root)], dry_run=dry_run) for row in old]


def running(**changes: Any) -> dict[str, Any]:
    """The description of a run whose monitor is this process."""
    host = {"name": os.uname().nodename}
    return {"state": "running", "host": host, "monitor": {"pid": os.getpid()},
            "started": {"wall": 4e9, "monotonic": 1.0}, "ended": None, **changes}  # fmt: skip


def test_a_finished_run_is_removed_with_its_directory(tmp_path: Path) -> None:
    run(tmp_path / "a")
    (would,) = pruned(tmp_path, dry_run=True)
    assert would.removed
    assert (tmp_path / "a/run.json").exists()
    (done,) = pruned(tmp_path)
    assert done == would
    assert done.size > 0
    assert not (tmp_path / "a").exists()


def test_a_run_that_is_named_itself_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run(tmp_path / "a")
    run(tmp_path / "b")
    assert pruned(tmp_path / "a")[0].removed
    monkeypatch.chdir(tmp_path / "b")
    (row,) = index(["."], for_removal=True)
    assert remove(row, ["."]).removed
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("name", "make"),
    [
        ("ckpt", lambda path: (path.mkdir(), (path / "1").touch())),
        ("result.csv", lambda path: path.touch()),
        ("memory.png", lambda path: path.mkdir()),
        ("report.txt", lambda path: path.symlink_to("/etc/hostname")),
        ("inner", lambda path: run(path, **running())),
    ],
)
def test_what_else_is_in_a_run_directory_stays_and_is_named(tmp_path: Path, name: str, make: Any) -> None:
    path = run(tmp_path / "a")
    make(path / name)
    before = sorted(path.rglob("*"))
    (would,) = pruned(tmp_path, dry_run=True)
    assert sorted(path.rglob("*")) == before
    (done,) = pruned(tmp_path)
    assert done == would
    assert done.removed
    assert name in done.note
    assert [one.name for one in path.iterdir()] == [name]
    assert set(before) >= set(path.rglob("*"))
    assert not (path / "run.json").exists()


@pytest.mark.parametrize(
    "content",
    [
        {"schema": 1},
        {"schema": 1, "id": "a", "state": "finished"},
        {"schema": 1, "id": "a", "started": {"wall": 1.0, "monotonic": 1.0}},
        {"schema": 1, "state": "finished", "started": {"wall": 1.0, "monotonic": 1.0}},
        {"schema": 1, "id": "a", "state": "done", "started": {"wall": 1.0, "monotonic": 1.0}},
        {"schema": 1, "id": "a", "state": "finished", "started": "yesterday"},
        {"schema": 1, "id": 7, "state": "finished", "started": {"wall": 1.0, "monotonic": 1.0}},
    ],
)
def test_a_description_of_something_else_is_no_run(tmp_path: Path, content: Any) -> None:
    (tmp_path / "app").mkdir()
    (tmp_path / "app/run.json").write_text(json.dumps(content))
    (tmp_path / "app/report.txt").touch()
    run(tmp_path / "a")
    old, foreign = old_runs(index([tmp_path], for_removal=True), 0, None)
    assert [row.path for row in old] == [f"{tmp_path}/a"]
    assert [row.path for row in foreign] == [f"{tmp_path}/app"]
    assert old_runs(index([tmp_path], for_removal=True), 1, None)[0] == []
    refused = remove(foreign[0], [str(tmp_path)])
    assert not refused.removed
    assert "does not describe a run" in refused.note
    assert (tmp_path / "app/report.txt").exists()


def test_the_description_decides_at_the_moment_of_removal(tmp_path: Path) -> None:
    path = run(tmp_path / "a")
    (row,) = index([tmp_path], for_removal=True)
    rewrite(path, **running())
    assert "changed" in remove(row, [str(tmp_path)]).note
    (row,) = index([tmp_path], for_removal=True)
    assert row.state == "running"
    refused = remove(row._replace(state="finished"), [str(tmp_path)])
    assert (refused.removed, refused.note) == (False, f"{path} stays: it is still running")
    assert (path / "samples.jsonl").exists()


def test_a_run_whose_monitor_died_is_removed(tmp_path: Path) -> None:
    run(tmp_path / "a", **running(monitor={"pid": 2**22 + 1}))
    assert pruned(tmp_path)[0].removed


def test_a_run_of_another_machine_counts_as_dead_after_a_day(tmp_path: Path) -> None:
    path = run(tmp_path / "a", **running(host={"name": "elsewhere"}, started={"wall": 1.0, "monotonic": 1.0}))
    ago = time.time() - 7200
    for file in path.iterdir():
        os.utime(file, (ago, ago))
    (refused,) = pruned(tmp_path)
    assert (refused.removed, "may still be running" in refused.note) == (False, True)
    ago -= 86400
    for file in path.iterdir():
        os.utime(file, (ago, ago))
    assert pruned(tmp_path)[0].removed


def test_no_link_is_followed_at_any_depth(tmp_path: Path) -> None:
    important = run(tmp_path / "elsewhere/important")
    root = tmp_path / "shared"
    (root / "deep").mkdir(parents=True)
    (root / "x").symlink_to(tmp_path / "elsewhere")
    (root / "deep/x").symlink_to(tmp_path / "elsewhere")
    (root / "run").symlink_to(important)
    (root / "odd").mkdir()
    (root / "odd/run.json").symlink_to(important / "run.json")
    assert not any(one.removed for one in pruned(root))
    assert (important / "run.json").exists()
    assert len(list(root.iterdir())) == 4


@pytest.mark.parametrize("swapped", ["a", "a/b", "a/b/r"])
def test_a_directory_that_becomes_a_link_meanwhile_is_not_followed(tmp_path: Path, swapped: str) -> None:
    root = tmp_path / "root"
    run(root / "a/b/r")
    (row,) = index([root], for_removal=True)
    shutil.copytree(root, tmp_path / "copy", symlinks=True)
    shutil.rmtree(root / swapped)
    (root / swapped).symlink_to(tmp_path / "copy" / swapped)
    assert not remove(row, [str(root)]).removed
    assert (tmp_path / "copy/a/b/r/run.json").exists()


def test_the_named_directory_may_be_a_link_of_ours_but_of_no_other_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(tmp_path / "real/a")
    (tmp_path / "link").symlink_to(tmp_path / "real")
    assert resolve(f"{tmp_path}/link/") == f"{tmp_path}/real"
    assert resolve(f"{tmp_path}/real") == f"{tmp_path}/real"
    assert resolve("absent") == "absent"
    real = os.lstat(tmp_path / "link").st_uid
    monkeypatch.setattr(prune.os, "geteuid", lambda: real + 12345)
    monkeypatch.setattr(prune, "_ROOT", -1)
    with pytest.raises(RunError, match="link of another user"):
        resolve(f"{tmp_path}/link")


def test_the_oldest_are_chosen_and_what_goes_on_stays(tmp_path: Path) -> None:
    for days in range(4):
        run(tmp_path / f"r{days}", started={"wall": 1e9 - days * 86400, "monotonic": 1.0})
    run(tmp_path / "going", **running())
    (tmp_path / "torn").mkdir()
    (tmp_path / "torn/run.json").write_text("{")
    rows = index([tmp_path], for_removal=True)
    old, foreign = old_runs(rows, 1, 1.5 * 86400, now=1e9 + 1)
    assert ([row.id for row in old], foreign) == (["r3", "r2"], [])
    assert [row.id for row in old_runs(rows, 3, None)[0]] == ["r3"]


def test_the_cache_beside_the_runs_is_not_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from otel_memwatch.wings.index import index as index_module
    from otel_memwatch.wings.index import index_cache

    monkeypatch.setattr(index_module, "_WORTH_KEEPING", 1)
    run(tmp_path / "a")
    index([tmp_path])
    monkeypatch.setattr(index_cache, "IndexCache", None)
    assert [row.id for row in index([tmp_path], for_removal=True)] == ["a"]
