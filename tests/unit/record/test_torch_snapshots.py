"""Lists of PyTorch's snapshots: untrusted files beside pickles that are never opened."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from otel_memwatch.record.format import is_run_file
from otel_memwatch.record.torch_snapshots import read_torch_snapshots


def _write(directory: Path, pid: int, rank: object = None, problem: object = "", **entry: Any) -> None:
    one = {"kind": "peak", "file": "ignored", "time": 5001.5, "reserved": 7, **entry}
    document = {"schema": 1, "pid": pid, "rank": rank, "snapshots": [one], "problem": problem}
    (directory / f"torch-{pid}.json").write_text(json.dumps(document))
    (directory / f"torch-{one['kind']}-{pid}.pickle").write_bytes(b"")


def test_snapshots_are_listed_by_rank(tmp_path: Path) -> None:
    _write(tmp_path, 12, 1)
    _write(tmp_path, 13, 0, kind="oom", device=2, requested=99)
    _write(tmp_path, 11, None)
    found = read_torch_snapshots(tmp_path)
    assert [(one.rank, one.pid, one.kind) for one in found] == [
        (0, 13, "oom"),
        (1, 12, "peak"),
        (None, 11, "peak"),
    ]
    assert (found[0].device, found[0].requested, found[0].file) == (2, 99, "torch-oom-13.pickle")


def test_a_failure_has_its_reason(tmp_path: Path) -> None:
    _write(tmp_path, 12, problem="oom: No space left on device")
    peak, failed = sorted(read_torch_snapshots(tmp_path), key=lambda one: not one.file)
    assert (peak.kind, failed.kind, failed.file, failed.problem) == (
        "peak",
        "oom",
        "",
        "No space left on device",
    )


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"[]",
        b"{}",
        b'{"pid": "x"}',
        b'{"pid": 5, "snapshots": 7}',
        b'{"pid": 5, "snapshots": [7, {"kind": "../../etc/passwd"}, {"kind": 5}]}',
        b'{"pid": 5, "snapshots": [{"kind": "peak"}], "problem": 5}',
        b"[" * 100_000,
    ],
)
def test_damage_is_no_snapshot(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "torch-5.json").write_bytes(content)
    assert read_torch_snapshots(tmp_path) == []


def test_a_pipe_or_a_missing_directory_is_no_list(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "torch-5.json")
    assert read_torch_snapshots(tmp_path) == []
    assert read_torch_snapshots(tmp_path / "none") == []


def test_prune_knows_the_files() -> None:
    for name in (
        "torch-5.json",
        "torch-peak-5.pickle",
        "torch-oom-5.pickle",
        ".torch-5.json",
        ".torch-oom-5.pickle",
    ):
        assert is_run_file(name)
    for name in (
        "torch-5.pickle",
        "torch-peak-x.pickle",
        "torch-peak-5.json",
        "torch-.json",
        "torch-weights-5.pickle",
    ):
        assert not is_run_file(name)
