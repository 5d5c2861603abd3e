"""Many runs as one table, with a cache that changes nothing."""

from __future__ import annotations

import gc
import json
import os
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from otel_memwatch.errors import RunError, UsageError
from otel_memwatch.record.format import INDEX_FILE
from otel_memwatch.wings.index import index as index_module
from otel_memwatch.wings.index import index_cache
from otel_memwatch.wings.index.find import find_paths, find_run, find_running, find_runs
from otel_memwatch.wings.index.index import index
from otel_memwatch.wings.index.indexed_run import IndexedRun
from tests.support import recorded

NEEDED: recorded.Series = ("memwatch.tree.memory.needed.low", {})
OTHERS_ANON: recorded.Series = ("memwatch.cgroup.memory.anon", {})


def growing(path: Path) -> Path:
    """A run whose tree has needed 120 MiB in its last tick."""
    series = [recorded.CPU_USER, NEEDED, OTHERS_ANON, recorded.PSS]
    # The last tick has the columns in front only; a proportional set size has pages of files in it, a group may be others' too.
    ticks = [
        (0.1, 0.1, 100 * recorded.MIB, 999 * recorded.MIB, 999 * recorded.MIB),
        (0.2, 0.2, 120 * recorded.MIB, 999 * recorded.MIB, 999 * recorded.MIB),
        (0.3, 0.3),
    ]
    return recorded.record(path, seconds=0.3, series=series, ticks=ticks)


def run(path: Path, **changes: Any) -> Path:
    changes.pop("kind", recorded.short)(path)
    file = path / "run.json"
    info = json.loads(file.read_text())
    info["started"]["wall"] += changes.pop("later", 0)
    file.write_text(json.dumps(info | changes))
    return path


def test_a_row_has_the_file_pages_of_the_largest_process_and_the_swap_of_the_machine(tmp_path: Path) -> None:
    host = {"name": "node7", "memory_bytes": 8 << 30, "swap_bytes": 2 << 30}
    now = run(tmp_path / "now", file_bytes=344 << 20, own_cgroup="/sys/fs/cgroup/own", host=host)
    old = run(tmp_path / "old")
    processes = recorded.process(100, 0.0, 0.3, 90, file=30 << 20)
    killed = recorded.record(tmp_path / "killed", seconds=0.3, processes=processes, state="running")
    os.utime(killed / "samples.jsonl", (0, 0))
    rows = {row.id: row for row in index([now, old, killed])}
    assert (rows["now"].file_bytes, rows["now"].host_swap, rows["now"].own_cgroup) == (344 << 20, 2 << 30, 1)
    assert (rows["old"].file_bytes, rows["old"].host_swap, rows["old"].own_cgroup) == (None, None, 0)
    assert rows["killed"].state == "incomplete"
    assert rows["killed"].file_bytes == 30 << 20


@pytest.mark.parametrize(("evidence", "charged"), [("cgroup_peak", 1), ("page_faults", 0)])
def test_a_row_states_from_the_evidence_whether_the_memory_was_charged_to_a_cgroup(
    tmp_path: Path, evidence: str, charged: int
) -> None:
    """The words are for people: their English may change, and another program's may name a cgroup."""
    tree = recorded.peak(90) | {"evidence": [evidence], "how": "cgroup watermark"}
    (row,) = index([run(tmp_path / "run", peaks={"tree": tree})])
    assert row.charged == charged


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Three runs in the usual place: "a" of yesterday, "b" of today, and one whose run.json is none."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("OTEL_MEMWATCH_RUNS", raising=False)
    directory = tmp_path / "memwatch-runs"
    run(directory / "b", later=86400, name="train", tags={"rule": "align"}, input_bytes=5)
    run(directory / "a", name="train")
    (directory / "broken").mkdir()
    (directory / "broken" / "run.json").write_text("{")
    return directory


def test_all_runs_are_listed_by_their_start_broken_ones_with_the_reason(runs: Path) -> None:
    rows = index()
    assert [os.path.basename(row.path) for row in rows if row.state == "finished"] == ["a", "b"]
    (broken,) = [row for row in rows if row.state == "broken"]
    assert broken.id == "broken"
    assert broken.error
    (one,) = index([runs / "b"])
    assert (one.name, one.tags, one.input_bytes) == ("train", {"rule": "align"}, 5)


def test_a_row_shows_what_the_run_does(runs: Path) -> None:
    from otel_memwatch.run import load

    told = load(runs / "a")
    (row,) = index([runs / "a"])
    tree = told.peaks.tree
    assert tree is not None
    assert (row.memory, row.low, row.high, row.certainty) == (
        tree.bytes,
        tree.low,
        tree.high,
        tree.certainty.value,
    )
    assert (row.seconds, row.cpu, row.command) == (
        round(told.seconds, 6),
        told.totals["cpu_seconds"],
        told.command,
    )


def test_a_directory_that_is_not_there_is_a_mistake_but_for_the_usual_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert index() == []
    with pytest.raises(RunError, match="There is no directory nowhere"):
        index(["nowhere"])


def test_runs_are_found_in_a_tree_and_what_is_no_run_is_left_out(runs: Path) -> None:
    run(runs / "array-7/task-1/run")
    (runs.parent / "letters").mkdir()
    (runs.parent / "letters/letter.txt").touch()
    assert {row.path for row in index([runs.parent])} >= {f"{runs}/array-7/task-1/run", f"{runs}/a"}
    assert "letters" not in {row.id for row in index([runs.parent])}
    assert len(index([runs, runs / "a", runs.parent])) == 4


@pytest.mark.usefixtures("runs")
def test_the_newest_run_is_intended_where_none_is_named() -> None:
    assert find_run(None).name == find_run("latest").name == "b"
    assert str(find_run("memwatch-runs/a/run.json")) == "memwatch-runs/a"


@pytest.mark.usefixtures("runs")
def test_a_name_is_one_run_or_all_of_that_name() -> None:
    assert (
        find_run("train").name
        == find_run("latest:train").name
        == find_run("latest:memwatch-runs").name
        == "b"
    )
    assert [row.id for row in find_runs(["train"])] == ["a", "b"]
    assert [row.id for row in find_runs(["a", "latest:train", "memwatch-runs/a"])] == ["a", "b"]
    assert len(find_runs(["memwatch-runs"])) == len(find_runs([])) == 3
    with pytest.raises(UsageError, match="neither a path nor the name of a run"):
        find_runs(["absent"])
    with pytest.raises(UsageError, match="There is no run of the name absent"):
        find_run("latest:absent")
    assert str(find_run("absent")) == "absent"
    with pytest.raises(RunError, match="There is no run absent"):
        find_running("absent")


def test_a_job_is_named_as_advise_prints_it(runs: Path) -> None:
    """`advise` printed "train.py: request ..." and refused `advise train.py`."""
    run(runs / "sorted", name=None, tags={"rule": "sort"}, command=["bash", "-c", "sort x"], later=9)
    run(runs / "python", name=None, command=["python", "some/train.py", "--epochs", "3"], later=10)
    assert find_run("sort").name == "sorted"
    assert [row.id for row in find_runs(["train.py"])] == ["python"]
    Path("train.py").write_text("pass")
    assert find_run("train.py").name == "python"


@pytest.mark.parametrize("beside", ["a program", "a directory"])
def test_a_name_that_is_also_a_path_without_runs_is_the_name(
    runs: Path, monkeypatch: pytest.MonkeyPatch, beside: str
) -> None:
    """`wrap --name train -- ./train`, as in README: the program lies in the current directory."""
    monkeypatch.chdir(runs.parent)
    if beside == "a program":
        Path("train").write_text("#!/bin/sh\nsleep 1\n")
    else:
        Path("train/source").mkdir(parents=True)
    assert [row.id for row in find_runs(["train"])] == ["a", "b"]
    assert find_run("train").name == "b"
    assert [path.name for path in find_paths("train")] == ["a", "b"]
    if beside == "a directory":
        run(Path("train/run"))
        assert [row.path for row in find_runs(["train"])] == ["train/run"], "a path with runs goes first"
        assert str(find_run("train")) == "train"


@pytest.mark.usefixtures("runs")
def test_runs_kept_elsewhere_are_found_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run(tmp_path / "elsewhere/c")
    monkeypatch.setenv("OTEL_MEMWATCH_RUNS", "elsewhere")
    assert find_run(None).name == "c"


def test_without_any_run_one_has_to_be_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match="There is no run below memwatch-runs"):
        find_run(None)


@pytest.fixture
def many(runs: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The three runs with a cache beside them."""
    monkeypatch.setattr(index_module, "_WORTH_KEEPING", 1)
    return runs


def test_the_cache_changes_nothing(many: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = index()
    assert (many / INDEX_FILE).stat().st_mode & 0o777 == 0o600
    with monkeypatch.context() as patched:
        patched.setattr(index_module, "row_of", None)  # no run is read again
        assert index() == first
    (many / INDEX_FILE).unlink()
    assert index() == first


def test_only_what_is_intended_is_kept_in_memory(many: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a hundred thousand runs the rows alone take 200 MiB."""
    monkeypatch.setattr(index_cache, "_TOGETHER", 4)
    for number in range(30):
        run(many / f"n{number}", later=number)
    alive = 0

    def counted(row: IndexedRun) -> bool:
        nonlocal alive
        alive = max(
            alive, sum(1 for one in gc.get_objects() if type(one) is IndexedRun and one.path != row.path)
        )
        return row.id.startswith("n") and int(row.id[1:]) % 2 == 0

    gc.freeze()  # what exists already is not looked through
    for _ in range(2):  # without and with the cache
        alive = 0
        assert [row.id for row in index(newest=2, accepts=counted)] == ["n26", "n28"]
        assert alive <= 10
    gc.unfreeze()
    every = index()
    assert index(accepts=lambda row: row.name == "train") == [row for row in every if row.name == "train"]


def test_what_was_read_stays_though_the_reader_is_interrupted(
    many: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(9):
        run(many / f"n{number}")
    monkeypatch.setattr(index_cache, "_TOGETHER", 4)
    seen = 0

    def interrupted(_: IndexedRun) -> bool:
        nonlocal seen
        seen += 1
        if seen == 10:
            raise KeyboardInterrupt
        return True

    with pytest.raises(KeyboardInterrupt):
        index(accepts=interrupted)
    with sqlite3.connect(many / INDEX_FILE) as database:
        assert database.execute("SELECT count(*) FROM runs").fetchone() == (8,)
    database.close()


@pytest.mark.parametrize(
    "harm",
    [
        lambda file: file.write_bytes(b"not a database, and long enough to be looked at" * 100),
        lambda file: file.write_bytes(file.read_bytes()[:4096] + b"\xff" * 8192),
        lambda file: file.write_bytes(b""),
        lambda file: (file.unlink(), file.mkdir()),
        lambda file: (file.unlink(), file.symlink_to("/dev/null")),
    ],
)
def test_a_cache_that_is_damaged_changes_nothing(many: Path, harm: Any) -> None:
    first = index()
    harm(many / INDEX_FILE)
    assert index() == first
    assert index() == first


def test_what_has_changed_is_read_again(many: Path) -> None:
    index()
    info = json.loads((many / "a/run.json").read_text())
    replacement = many / "a/.new"
    replacement.write_text(json.dumps(info | {"name": "other"}))
    replacement.replace(many / "a/run.json")
    run(many / "c", later=9)
    (many / "broken/run.json").unlink()
    (many / "broken").rmdir()
    assert {row.id: row.name for row in index()} == {"a": "other", "b": "train", "c": None}


def test_a_run_that_goes_on_is_not_kept(many: Path) -> None:
    path = run(many / "going", kind=growing, state="running", ended=None, exit=None, peaks=None)
    info = json.loads((path / "run.json").read_text())
    info["monitor"] = {"pid": os.getpid()}
    info["host"]["name"] = os.uname().nodename
    info["started"]["wall"] = 4e9
    (path / "run.json").write_text(json.dumps(info))
    (row,) = [row for row in index() if row.id == "going"]
    assert (row.state, row.high, row.certainty) == ("running", None, "interval")
    assert (row.low, row.cpu) == (120 * recorded.MIB, 0.3)
    with sqlite3.connect(many / INDEX_FILE) as database:
        kept = database.execute("SELECT id FROM runs").fetchall()
    database.close()
    assert sorted(kept) == [("a",), ("b",), ("broken",)]


def test_text_that_no_database_takes_is_no_trouble(many: Path) -> None:
    run(many / "odd", name="\udcff", tags={"a": "\udcfe"}, command=["\udcff"], cwd="/\udcff")
    assert index() == index()
    assert "\\udcff" in {row.name for row in index()}


def test_the_newest_are_the_same_as_of_all_whatever_has_changed(many: Path) -> None:
    for number in range(9):
        run(many / f"n{number}", later=number)
    for newest in (1, 3, 99):
        assert index(newest=newest) == index()[-newest:]
    (many / "b/run.json").unlink()  # it was the newest
    (many / "n8/run.json").unlink()
    (many / "n8/samples.jsonl").unlink()
    info = json.loads((many / "n0/run.json").read_text())
    info["started"]["wall"] += 10**6
    (many / "n0/run.json").write_text(json.dumps(info | {"name": "begun again"}))
    for newest in (1, 2, 4):
        (many / INDEX_FILE).touch()
        assert index(newest=newest) == index()[-newest:]
        for ids in ({"n0"}, {"a"}, {"n0", "n3", "n6"}, set()):
            matching = [row for row in index() if row.id in ids]
            assert index(newest=newest, accepts=lambda row, ids=ids: row.id in ids) == matching[-newest:]
    assert "begun again" in {row.name for row in index(newest=3)}
    with sqlite3.connect(many / INDEX_FILE) as database:
        database.execute("UPDATE runs SET name = 'stale' WHERE id = 'n5'")
        database.execute("UPDATE runs SET size = 1")
    database.close()
    assert "stale" not in {row.name for row in index(newest=8)}


def _write_index(directory: Path, *statements: str) -> None:
    database = sqlite3.connect(directory / INDEX_FILE)
    for statement in statements:
        database.execute(statement)
    database.commit()
    database.close()


@pytest.mark.parametrize("newest", [None, 2])
@pytest.mark.parametrize(
    "column_and_value",
    [
        "started='abc'", "started=NULL", "started=9e999", "started=x'00'", "tags_json='{'", "tags_json='[1]'",
        """tags_json='{"a": 1}'""", "tags_json=NULL", "command_json='[[1]]'", "command_json='{}'", "command_json=7",
        "command_json=replace(hex(zeroblob(100000)), '00', '[')", "memory='1'", "memory=1.5", "memory=x'01'", "name=7",
        "name=x'ff'", "name=cast(x'ff' as text)", "certainty='sure'", "state='running'", "state='ended'", "cpu='x'",
        "seconds=-9e999", "reason=NULL", "error=1", "id=NULL", "rank='0'", "exit_code='0'", "key=x'00'",
    ],
)  # fmt: skip
def test_a_row_with_a_value_of_another_type_is_made_anew(
    many: Path, column_and_value: str, newest: int | None
) -> None:
    expected = index(newest=newest)
    _write_index(many, f"UPDATE runs SET {column_and_value} WHERE id != 'a'")
    assert index(newest=newest) == expected
    assert index(newest=newest) == expected


@pytest.mark.parametrize(
    "statements",
    [
        ("ALTER TABLE runs RENAME TO other", "CREATE VIEW runs AS SELECT * FROM other"),
        (
            "ALTER TABLE runs RENAME TO other",
            "CREATE VIEW runs AS WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i FROM n) SELECT other.* FROM other, n",
        ),
        ("CREATE TRIGGER t AFTER INSERT ON runs BEGIN DELETE FROM runs; END",),
        ("CREATE TABLE other (a)",),
        ("CREATE INDEX i ON runs (started)",),
        ("ALTER TABLE runs ADD COLUMN extra",),
        ("DROP TABLE runs",),
        ("PRAGMA user_version=3",),
    ],
)
def test_a_file_with_anything_but_our_table_is_made_anew(many: Path, statements: tuple[str, ...]) -> None:
    expected = index()
    _write_index(many, *statements)
    assert index() == expected
    database = sqlite3.connect(many / INDEX_FILE)
    assert database.execute("SELECT name FROM sqlite_master").fetchall() == [("runs",)]
    assert database.execute("SELECT count(*) FROM runs").fetchone() == (3,)
    database.close()
    assert index() == expected


@pytest.mark.parametrize("suffix", ["-journal", "-wal", "-shm"])
@pytest.mark.parametrize(
    "make",
    [
        os.mkfifo,
        lambda path: path.mkdir(),
        lambda path: path.symlink_to("/dev/zero"),
        lambda path: path.write_bytes(os.urandom(9000)),
    ],
)
def test_what_lies_beside_the_file_is_not_read(many: Path, suffix: str, make: Any) -> None:
    expected = index()
    make(many / f"{INDEX_FILE}{suffix}")
    assert index() == expected
    assert index() == expected


def test_a_file_whose_reading_takes_too_long_is_given_up(many: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = index()
    for newest in (None, 3):
        monkeypatch.setattr(index_cache, "_STEPS", 0)
        monkeypatch.setattr(index_cache, "_STEPS_A_RUN", 1)
        monkeypatch.setattr(index_cache, "_STEPS_AT_ONCE", 1)
        assert index(newest=newest) == expected
        monkeypatch.undo()
        monkeypatch.setattr(index_module, "_WORTH_KEEPING", 1)
        monkeypatch.chdir(many.parent)


def test_no_cache_is_kept_where_everybody_may_write(many: Path) -> None:
    expected = index()
    (many / INDEX_FILE).unlink()
    many.chmod(0o1777)
    assert index() == expected
    assert not (many / INDEX_FILE).exists()


def test_the_cache_leaves_no_journal_that_another_reader_would_believe(many: Path) -> None:
    import threading

    index()
    seen: set[str] = set()
    done = threading.Event()

    def watch() -> None:
        while not done.is_set():
            seen.update(os.listdir(many))

    watcher = threading.Thread(target=watch)
    watcher.start()
    for number in range(20):
        run(many / f"n{number}", later=number)
        index()
    done.set()
    watcher.join()
    assert f"{INDEX_FILE}-journal" not in seen


@pytest.mark.parametrize("newest", [None, 4])
def test_a_run_that_disappears_meanwhile_is_left_out(
    many: Path, monkeypatch: pytest.MonkeyPatch, newest: int | None
) -> None:
    import shutil

    real = index_module.row_of

    def vanishing(path: str) -> IndexedRun:
        if os.path.basename(path) == "a":
            shutil.rmtree(path)
        return real(path)

    monkeypatch.setattr(index_module, "row_of", vanishing)
    assert {row.id for row in index(newest=newest)} == {"b", "broken"}
