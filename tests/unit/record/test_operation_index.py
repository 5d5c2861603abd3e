"""Operations are read one by one, whatever their number: from where their lines stand in the files."""

from __future__ import annotations

import json
import random
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from otel_memwatch.record import operation_index
from otel_memwatch.record.open import read_run
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


@pytest.mark.parametrize("seed", range(5))
def test_all_are_those_of_the_lines_in_the_order_of_their_start(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Blocks that end anywhere in a line, fewer of them kept than there are files."""
    monkeypatch.setattr(operation_index, "_BLOCK", 997)
    monkeypatch.setattr(operation_index, "_BLOCKS", 2)
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
    for position, one in enumerate(found):
        around = positions.get(one.parent_span_id or "", -1)
        assert table.parents[position] == (around if around < position else -1)
        assert (table.lows[position], table.pids[position]) == (one.peak.low if one.peak else -1, one.pid)


def test_one_whose_file_has_gone_is_told_as_far_as_it_is_known(tmp_path: Path) -> None:
    built = RunDirectory(tmp_path)
    built.append("operations-10.jsonl", "".join(json.dumps(line) + "\n" for line in lines_of(10, 1, 50)))
    table = read_run(tmp_path).operation_table
    starts = [one.start for one in table]
    (tmp_path / "operations-10.jsonl").unlink()
    operation_index_blocks = getattr(table, "_blocks")  # noqa: B009 - what was read is forgotten
    operation_index_blocks.clear()
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
