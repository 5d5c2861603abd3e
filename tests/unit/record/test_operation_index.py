"""Operations are read one by one, whatever their number: from where their lines stand in the files."""

from __future__ import annotations

import json
import random
import sqlite3
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from otel_memwatch.record import operation_index
from otel_memwatch.record.open import read_run
from otel_memwatch.record.operation_index import ListedOperations
from otel_memwatch.record.operation_line import line_of
from otel_memwatch.record.operation_lines import OperationLines
from otel_memwatch.reports import render
from otel_memwatch.run import load
from tests.support.run_directory import MIB, STARTED, RunDirectory


def lines_of(pid: int, seed: int, number: int) -> list[dict[str, Any]]:
    """A random program: operations that are nested, overlap, stay open, with names of any length."""
    choose = random.Random(seed)
    lines: list[dict[str, Any]] = [{"schema": 1, "pid": pid, "start": STARTED, "exact": True}]
    open_now: list[int] = []
    time = STARTED
    for identity in range(1, number):
        time += choose.choice([0.0, 0.001])
        parent = f"{pid}-{choose.choice(open_now)}" if open_now and choose.random() < 0.8 else None
        lines.append({"open": identity, "time": time, "name": f"n{identity}" * choose.choice([1, 30, 3000]),
                      "span": f"{pid}-{identity}", "parent": parent, "rss": MIB, "segment": MIB})  # fmt: skip
        open_now.append(identity)
        while open_now and choose.random() < 0.5:
            time += 0.001
            closing = open_now.pop(choose.randrange(len(open_now)))
            peak = choose.randrange(1, 1000) * MIB
            lines.append(
                {"close": closing, "time": time, "peak": peak, "certainty": "exact", "segment": peak}
            )
    return lines


@pytest.fixture(params=["in memory", "on disk"])
def place(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Few and many operations are one table, kept in two ways."""
    monkeypatch.setattr(operation_index, "_FEW", 1_000_000 if request.param == "in memory" else 3)


@pytest.mark.usefixtures("place")
@pytest.mark.parametrize("seed", range(5))
def test_all_are_those_of_the_lines_in_the_order_of_their_start(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Blocks that end anywhere in a line, fewer of them kept than there are files."""
    monkeypatch.setattr(operation_index, "_BLOCK", 997)
    monkeypatch.setattr(operation_index, "_BLOCKS", 2)
    monkeypatch.setattr(operation_index, "_TOGETHER", 7)
    monkeypatch.setattr(operation_index, "_DEPTHS", 5)
    built = RunDirectory(tmp_path)
    expected = []
    for pid in (10, 11, 12):
        lines = lines_of(pid, seed * 3 + pid, 200)
        followed = OperationLines(pid)
        text = "".join(json.dumps(line) + "\n" for line in lines)
        built.append(f"operations-{pid}.jsonl", "\0\n{broken\n" + text)
        expected += [row.operation() for row in followed.add(map(line_of, lines))]
        expected += followed.still_open()
    record = read_run(tmp_path)
    streamed = [row.operation() for row in record.operation_rows()]
    assert sorted(streamed, key=repr) == sorted(expected, key=repr)
    table = record.operation_table
    found = list(table)
    assert sorted(found, key=repr) == sorted(expected, key=repr)
    assert [one.start for one in found] == sorted(one.start for one in found)
    assert list(map(table.operation, range(len(table)))) == found
    positions = {one.span_id: position for position, one in enumerate(found)}
    depths: list[int] = []
    for position, nested in enumerate(table.nested()):
        around = positions.get(nested.operation.parent_span_id or "", position)
        assert nested.parent == (around if around < position else None)
        depths.append(0 if nested.parent is None else depths[nested.parent] + 1)
        assert nested.depth == depths[-1]
    assert max(depths) > 1
    assert table.never_closed() == [n for n, one in enumerate(found) if one.end is None]
    listed = ListedOperations(found)
    for size in (0, 1, 500 * MIB, 2000 * MIB):
        assert list(table.reaching(size)) == list(listed.reaching(size))
    times = sorted(one.start for one in found)
    for begin, end in ((times[0], times[-1]), (times[30], times[30]), (times[50], times[60]), (0.0, 1.0)):
        assert list(table.open_between(begin, end)) == list(listed.open_between(begin, end))


def test_without_room_for_temporary_files_operations_are_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    built = RunDirectory(tmp_path)
    built.append("operations-10.jsonl", "".join(json.dumps(line) + "\n" for line in lines_of(10, 1, 300)))
    expected = list(read_run(tmp_path).operation_table)
    monkeypatch.setattr(operation_index, "_FEW", 3)
    places: list[str] = []

    def connect(place: str, **options: Any) -> sqlite3.Connection:
        places.append(place)
        database = sqlite3.Connection(":memory:", **options)
        if not place:
            database.execute("PRAGMA max_page_count = 3")
        return database

    monkeypatch.setattr(sqlite3, "connect", connect)
    record = read_run(tmp_path)
    assert list(record.operation_table) == expected
    assert places == ["", ":memory:"]
    assert len(record.operation_lines) == 1


@pytest.mark.usefixtures("place")
def test_one_whose_file_has_gone_is_reported_as_far_as_it_is_known(tmp_path: Path) -> None:
    built = RunDirectory(tmp_path)
    built.append("operations-10.jsonl", "".join(json.dumps(line) + "\n" for line in lines_of(10, 1, 50)))
    table = read_run(tmp_path).operation_table
    starts = [one.start for one in table]
    (tmp_path / "operations-10.jsonl").unlink()
    getattr(table, "_blocks", {}).clear()  # of operations in memory nothing is read again
    assert [one.start for one in table] == starts


def test_the_document_of_many_takes_little_memory(tmp_path: Path) -> None:
    built = RunDirectory(tmp_path)
    built.columns([])
    lines = []
    for number in range(1, 5001):
        start = STARTED + number / 10_000
        lines += [
            {"open": number, "time": start, "name": "step", "span": f"{number:016x}"},
            {"close": number, "time": start + 5e-5, "peak": MIB, "certainty": "exact"},
        ]
    built.append("operations-10.jsonl", "".join(json.dumps(line) + "\n" for line in lines))
    run = load(tmp_path)
    run.peaks  # noqa: B018 - numpy is loaded for it
    tracemalloc.start()
    with (tmp_path / "out.json").open("wb") as out:
        render("json", run, out)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    told = json.loads((tmp_path / "out.json").read_text())
    assert len(told["operations"]) == 5000
    # As objects they take 2 KiB each.
    assert most < 5 * MIB


@pytest.mark.parametrize("report", ["json", "text"])
def test_a_report_states_the_damage_of_operations_once_all_are_read(report: str, tmp_path: Path) -> None:
    """Looking whether any were marked reads the beginning of a file, and must not forget the damage of the rest."""
    built = RunDirectory(tmp_path)
    built.columns([])
    text = "".join(json.dumps(line) + "\n" for line in lines_of(10, 1, 50))
    built.append(
        "operations-10.jsonl", text + "{broken\n" + json.dumps({"open": 99, "time": STARTED + 9}) + "\n"
    )
    with (tmp_path / "out").open("wb") as out:
        render(report, load(tmp_path), out)
    assert "operations-10.jsonl: 1 line could not be read" in (tmp_path / "out").read_text()
