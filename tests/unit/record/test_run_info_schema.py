"""The types of `run.json`: every field is read, and a damaged one loses none of the others."""

from __future__ import annotations

from typing import Any

import pytest

from otel_memwatch.record.run_info_schema import (
    AskedFields,
    ClockReading,
    ExitFields,
    FileFields,
    FilesFields,
    GpuFields,
    HolderFields,
    HostFields,
    LimitFields,
    Mark,
    RunInfo,
    TargetFields,
    VerdictFields,
)

TRACE = {"trace_id": "1" * 32, "span_id": "2" * 16, "parent_span_id": None}
WHOLE: dict[str, Any] = {
    "schema": 1,
    "id": "20260101T000000Z-train-7",
    "name": "train",
    "tags": {"rule": "align"},
    "state": "finished",
    "command": ["python", "train.py"],
    "cwd": "/data",
    "input_bytes": 5,
    "target": {"pid": 7, "start": 10.5, "floor": 4096, "faults_before": 80},
    "host": {"name": "node1", "system": "Linux", "release": "6.12", "machine": "x86_64", "cpus": 2, "memory_bytes": 8, "swap_bytes": 0, "disk_rate": 7},
    "monitor": {"version": "1.0", "pid": 6, "pid_namespace": 4026531836, "python": "3.11", "mode": "wrap"},
    "started": {"wall": 1e9, "monotonic": 10.5},
    "ended": {"wall": 1e9 + 2, "monotonic": 12.5},
    "interval": 0.1,
    "own_cgroup": "/sys/fs/cgroup/run",
    "target_group": {"kind": "unit", "name": "nginx.service", "born": True},
    "cgroup_version": 2,
    "cgroup_hint": "wrap as root",
    "processors": 4,
    "rss_error_bytes": 1,
    "exact_sums": True,
    "fault_bytes": 2,
    "page_bytes": 4096,
    "reading_seconds": 0.002,
    "faults_carried": True,
    "portable": True,
    "blind": True,
    "allocator": {"MALLOC_ARENA_MAX": "1"},
    "limits": {"cgroup_bytes": None, "host_bytes": 8},
    "quirks": ["a kernel"],
    "sources": {"host": {"state": "ok"}},
    "settings": {"exact": False},
    "trace": TRACE,
    "exit": {"exit_code": 0, "signal": None, "oom_kills": 0, "reason": "ended"},
    "file_bytes": 3,
    "files_beside_peak": 2,
    "processes_high": 1,
    "recorded_until": 12.0,
    "marks": [{"time": 11.0, "text": "a source failed"}],
    "group": {"group": "job", "launcher": "torchrun", "rank": 1, "local_rank": 0, "size": 2, "first": 0, "step": 1, "attempt": 0},
    "limit": {"bytes": 9, "by": "control group", "breached": True, "operation": "Spike", "largest": [{"pid": 7, "command": "python", "bytes": 8}]},
    "asked": {"by": "Slurm", "memory_bytes": 9, "cores": 2, "gpus": 1, "seconds": 60},
    "verdict": {"kind": "timeout", "at": 1.5, "largest": [{"pid": 7, "command": "python", "bytes": 8}]},
    "files": {"number": 2, "bytes": 12, "mapped": 8, "largest": [{"path": "/m", "bytes": 9, "mapped": 8, "resident": None}]},
    "gpus": [
        {"id": "GPU-1", "name": "H200", "pci": "0000:17:00.0", "recorded": True, "processes": "by process", "trouble": None, "unknown": {"memory": {"seconds": 5.0, "error": "Unknown Error"}}, "held": {"7": 5},
         "accounted": {"7": 6}, "xid": [{"time": 1.0, "uuid": "GPU-1", "code": 79}]},
    ],
    "clock": {"boot_id": "b", "monotonic_offset": 1.5},
    "resource": {"service.name": "train"},
    "measured_by": "sacct",
}  # fmt: skip


def test_every_field_is_read() -> None:
    found = RunInfo.of(WHOLE)
    assert set(WHOLE) == set(RunInfo._fields)
    assert found.target == TargetFields(7, 10.5, 4096, 80)
    assert found.host == HostFields("node1", "Linux", "6.12", "x86_64", 2, 8, 0, 7)
    assert (found.started, found.ended) == (ClockReading(1e9, 10.5), ClockReading(1e9 + 2, 12.5))
    assert found.files == FilesFields(2, 12, 8, (FileFields("/m", 9, 8, None),))
    assert found.asked == AskedFields("Slurm", 9, 2, 1, 60)
    assert found.exit == ExitFields(0, None, 0, "ended")
    assert found.marks == (Mark(11.0, "a source failed"),)
    assert found.command == ("python", "train.py")
    assert found.monitor._asdict() == WHOLE["monitor"]
    assert found.group._asdict() == WHOLE["group"]
    assert found.target_group._asdict() == WHOLE["target_group"]
    assert found.verdict == VerdictFields("timeout", 1.5, (HolderFields(7, "python", 8),))
    assert found.clock._asdict() == WHOLE["clock"]
    assert found.limit == LimitFields(9, "control group", True, "Spike", (HolderFields(7, "python", 8),))
    name, pci = "H200", "0000:17:00.0"
    assert found.gpus == (
        GpuFields(
            "GPU-1",
            name,
            pci,
            True,
            "by process",
            None,
            {"memory": (5.0, "Unknown Error")},
            {"7": 5},
            {"7": 6},
            ("79",),
        ),
    )
    structured = {
        "target", "target_group", "host", "monitor", "started", "ended", "exit", "marks", "command", "quirks", "group", "clock", "limit", "asked", "verdict", "files", "gpus",
    }  # fmt: skip
    for name in set(WHOLE) - structured:
        assert getattr(found, name) == WHOLE[name], name


@pytest.mark.parametrize("name", RunInfo._fields)
@pytest.mark.parametrize("damage", [None, 10**400, float("nan"), "text", [], [None], {"a": []}, True])
def test_a_damaged_field_loses_none_of_the_others(name: str, damage: Any) -> None:
    whole, found = RunInfo.of(WHOLE), RunInfo.of({**WHOLE, name: damage})
    assert found._replace(**{name: getattr(whole, name)}) == whole


@pytest.mark.parametrize("section", ["target", "host", "monitor", "started", "exit", "group", "clock"])
def test_a_damaged_field_of_a_section_loses_none_of_the_others(section: str) -> None:
    whole = getattr(RunInfo.of(WHOLE), section)
    assert whole._fields
    for name in whole._fields:
        found = getattr(RunInfo.of({**WHOLE, section: {**WHOLE[section], name: [1]}}), section)
        assert getattr(found, name) is None
        assert found._replace(**{name: getattr(whole, name)}) == whole


def test_an_empty_file_has_no_facts() -> None:
    found = RunInfo.of({})
    assert (found.id, found.command, found.host.cpus, found.started.wall, found.marks) == (
        None,
        (),
        None,
        None,
        (),
    )


@pytest.mark.parametrize("kind", ["exploded", "finished", 7, None, ["limit"]])
def test_an_unknown_verdict_is_none(kind: object) -> None:
    assert RunInfo.of({"verdict": {"kind": kind}}).verdict.kind is None
