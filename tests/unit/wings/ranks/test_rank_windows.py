"""Ticks read by their wanted columns alone, against the reader of everything."""

from __future__ import annotations

import json
import random

import numpy as np

from otel_memwatch import catalog
from otel_memwatch.record.jsonl import Damage
from otel_memwatch.record.samples import read_samples
from otel_memwatch.wings.ranks.rank_windows import read_table
from tests.support.run_directory import RunDirectory, column

WANTED = {
    "usage": catalog.MEMWATCH_CGROUP_MEMORY_USAGE,
    "io": catalog.MEMWATCH_TREE_DISK_IO,
    "none": catalog.MEMWATCH_TREE_MEMORY_PSS,
}


def _columns(lot):
    listed = [
        column(catalog.MEMWATCH_CGROUP_MEMORY_USAGE),
        column(catalog.MEMWATCH_TREE_DISK_IO, disk__io__direction="read"),
        column(catalog.MEMWATCH_TREE_DISK_IO, disk__io__direction="write"),
        *(column(catalog.SYSTEM_MEMORY_USAGE, system__memory__state=str(n)) for n in range(9)),
    ]
    lot.shuffle(listed)
    return listed


def test_what_is_read_is_what_the_other_reader_reads(tmp_path, monkeypatch):
    monkeypatch.setattr(
        "otel_memwatch.wings.ranks.rank_windows._BLOCK", 700
    )  # many blocks, torn in the middle of lines
    lot = random.Random(5)
    for trial in range(60):
        made = RunDirectory(tmp_path / str(trial))
        seconds = 0.0
        for _ in range(lot.randint(1, 3)):
            columns = _columns(lot)
            made.columns(columns)
            for _ in range(lot.randint(0, 40)):
                seconds += lot.uniform(0.01, 1)
                values = [lot.choice((None, lot.randint(0, 10**12), lot.uniform(0, 9))) for _ in columns]
                made.tick(seconds, *values[: lot.randint(1, len(values))], 1.0 if lot.random() < 0 else None)
                if lot.random() < 0.05:
                    made.append(
                        "samples.jsonl", lot.choice((b"[torn\n", b"\n", b'"text"\n', b"[1,2", b"[]\n"))
                    )
        path = made.path / "samples.jsonl"
        time, table = read_table(path, WANTED)
        samples = read_samples(path, Damage("samples.jsonl"), 0.0, WANTED.values())
        there = {round(float(t), 4): i for i, t in enumerate(samples.time)}
        usage = samples.column(catalog.MEMWATCH_CGROUP_MEMORY_USAGE)
        io = sum(samples.values(one) for one in samples.find(catalog.MEMWATCH_TREE_DISK_IO))
        shared = [i for i, t in enumerate(time) if round(float(t), 4) in there]
        assert len(shared) >= 0.9 * len(samples.time)
        for index in shared:
            other = there[round(float(time[index]), 4)]
            assert np.array_equal(table["usage"][index], usage[other], equal_nan=True)
            assert np.allclose(table["io"][index], io[other], equal_nan=True)
        assert np.isnan(table["none"]).all()


def test_a_second_header_changes_the_columns(tmp_path):
    made = RunDirectory(tmp_path / "run")
    usage, other = column(catalog.MEMWATCH_CGROUP_MEMORY_USAGE), column(catalog.MEMWATCH_TREE_MEMORY_PSS)
    made.columns([usage])
    made.tick(1, 5)
    made.columns([other, usage])
    made.tick(2, 6, 7)
    assert read_table(made.path / "samples.jsonl", WANTED)[1]["usage"].tolist() == [5, 7]


def test_numbers_that_are_none_are_not_known(tmp_path):
    made = RunDirectory(tmp_path / "run")
    made.columns([column(catalog.MEMWATCH_CGROUP_MEMORY_USAGE), column(catalog.MEMWATCH_TREE_MEMORY_PSS)])
    made.append("samples.jsonl", b'[1001,"five",1]\n[1002,1e999,1]\n[1003,NaN,1]\n[1004,3,1]\n[0,3,1]\n')
    time, table = read_table(made.path / "samples.jsonl", WANTED)
    assert time.tolist() == [1001, 1002, 1003, 1004]
    assert np.isnan(table["usage"][:3]).all()
    assert table["usage"][3] == 3
    assert json.dumps(table["none"].tolist()) == "[1.0, 1.0, 1.0, 1.0]"
