"""Run directories as the monitor leaves them, written out of thin air: for tests of what is made from them."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from otel_memwatch.catalog import METRICS

if TYPE_CHECKING:
    from pathlib import Path

    from otel_memwatch.model import Peak

MIB = 1024 * 1024
STARTED = 5000.0
"""Monotonic seconds at which every run here starts."""
WALL = 1_790_000_000.0

Series = tuple[str, Mapping[str, str]]

TREE: Series = ("memwatch.tree.memory.usage", {})
MAIN: Series = ("process.memory.usage", {})
PSS: Series = ("memwatch.tree.memory.pss", {})
CPU_USER = ("memwatch.tree.cpu.time", {"cpu.mode": "user"})
CPU_SYSTEM = ("memwatch.tree.cpu.time", {"cpu.mode": "system"})
DISK_READ = ("memwatch.tree.disk.io", {"disk.io.direction": "read"})
DISK_WRITE = ("memwatch.tree.disk.io", {"disk.io.direction": "write"})
CALL_READ = ("memwatch.tree.syscall.io", {"disk.io.direction": "read"})
CALL_WRITE = ("memwatch.tree.syscall.io", {"disk.io.direction": "write"})
GROUP: Series = ("memwatch.cgroup.memory.usage", {})
WORKING_SET: Series = ("memwatch.cgroup.memory.working_set", {})
LIMIT = ("memwatch.cgroup.memory.limit", {"memwatch.cgroup.limit.type": "max"})
KILLS = ("memwatch.cgroup.memory.events", {"memwatch.cgroup.memory.event.type": "oom_kill"})

PERIODS = {PSS[0]: 10.0}
"""Seconds between two values of those that are not read at every tick."""


def shape(peak: Peak | None) -> tuple[Any, ...] | None:
    """What a test of the bounds compares."""
    return None if peak is None else (peak.certainty, peak.low, peak.high)


def peak(value: float, certainty: str = "exact", **rest: Any) -> dict[str, Any]:
    """A peak of so many MiB as it stands in `run.json`; `low` and `high` in MiB too."""
    low, high = rest.pop("low", None), rest.pop("high", None)
    if certainty == "exact":
        low, high = value, value
    fields = {"at": None, "pid": None, "operation": None, "how": ""}
    return {
        "bytes": round(value * MIB),
        "certainty": certainty,
        "low": None if low is None else round(low * MIB),
        "high": None if high is None else round(high * MIB),
        **fields,
        **rest,
    }


def record(
    path: Path,
    *,
    seconds: float,
    command: Sequence[str] = ("python", "train.py"),
    series: Mapping[int, Series] | Sequence[Series] = (),
    ticks: Iterable[Sequence[float | None]] = (),
    peaks: Mapping[str, Any] | None = None,
    ended: Mapping[str, Any] | None = None,
    processes: Iterable[Mapping[str, Any]] = (),
    operations: Mapping[int, Sequence[Mapping[str, Any]]] | None = None,
    **info: Any,
) -> Path:
    """Writes a run directory; `ticks` are rows of seconds since the start and one value for each of `series`."""
    path.mkdir(parents=True)
    count = _samples(path, list(series.values() if isinstance(series, Mapping) else series), ticks)
    (path / "processes.jsonl").write_text("".join(json.dumps(_absolute(p)) + "\n" for p in processes))
    for pid, lines in (operations or {}).items():
        head = {"schema": 1, "pid": pid, "start": STARTED, "program": command[0], "exact": True, "floor": 0}
        text = "".join(json.dumps(line) + "\n" for line in (head, *map(_absolute, lines)))
        (path / f"operations-{pid}.jsonl").write_text(text)
    exit_ = {"exit_code": 0, "signal": None, "oom_kills": 0, "reason": "exit code 0", **(ended or {})}
    content = {
        "schema": 1,
        "id": path.name,
        "state": "finished",
        "command": list(command),
        "cwd": "/home/ada/jobs",
        "target": {"pid": 100, "start": STARTED},
        "host": {
            "name": "node7", "system": "Linux", "release": "6.12.1", "machine": "x86_64", "cpus": 8,
            "memory_bytes": 64 * 1024 * MIB,
        },
        "monitor": {"version": "0.1.0", "pid": 99, "python": "3.11.2", "mode": "wrap"},
        "started": {"wall": WALL, "monotonic": STARTED},
        "ended": {"wall": WALL + seconds, "monotonic": STARTED + seconds},
        "interval": 0.1,
        "limits": {},
        "quirks": [],
        "sources": {"process_tree": {"state": "ok", "reads": count, "failures": 0, "seconds": 0.002}},
        "settings": {},
        "trace": {"trace_id": "0af7651916cd43dd8448eb211c80319c", "span_id": "b7ad6b7169203331", "parent_span_id": None},
        "exit": exit_,
        "peaks": {"main": None, "process": None, "tree": None, "cgroup": None, "gpu": {}, **(peaks or {})},
        "totals": {
            "cpu_seconds": 1.5, "read_bytes": 3 * MIB, "write_bytes": 0, "read_chars": 40 * MIB,
            "write_chars": 2 * MIB, "major_faults": 0, "processes": 1,
        },
        "quality": {
            "interval": 0.1, "achieved_hz": 9.98, "ticks": count, "missed_ticks": 0, "longest_gap": 0.104,
        },
        "marks": [],
        **info,
    }  # fmt: skip
    (path / "run.json").write_text(json.dumps(content, indent=1))
    return path


def _samples(path: Path, series: Sequence[Series], ticks: Iterable[Sequence[float | None]]) -> int:
    columns = [
        {
            "metric": name,
            "unit": METRICS[name].unit,
            "attributes": dict(attributes),
            "period": PERIODS.get(name, 0),
        }
        for name, attributes in series
    ]
    count = 0
    with (path / "samples.jsonl").open("w") as file:
        file.write(json.dumps({"schema": 1, "columns": columns}) + "\n")
        for seconds, *values in ticks:
            tick = [round(STARTED + (seconds or 0.0), 4), *values]
            file.write(json.dumps(tick, separators=(",", ":")) + "\n")
            count += 1
    return count


def _absolute(line: Mapping[str, Any]) -> dict[str, Any]:
    return {k: STARTED + v if k in {"time", "start"} else v for k, v in line.items()}


def process(pid: int, start: float, end: float | None, peak_mib: float, **rest: Any) -> list[dict[str, Any]]:
    """The lines of a process: seen, and its exit or its last figures."""
    seen = {"event": "seen", "time": start, "pid": pid, "start": start, "ppid": rest.pop("ppid", 100)}
    seen |= {k: rest.pop(k) for k in ("command", "argv") if k in rest}
    last = {"event": "figures", "time": start + 0.1} if end is None else {"event": "exit", "time": end}
    size = round(peak_mib * MIB)
    return [seen, {"pid": pid, "start": start, "peak": size, "peak_bound": size, **last, **rest}]


def opened(number: int, time: float, name: str, parent: int | None = None, **rest: Any) -> dict[str, Any]:
    """The opening of an operation; its span id is made of its number."""
    return {
        "open": number, "time": time, "name": name, "trace": "0af7651916cd43dd8448eb211c80319c", "span": f"{number:016x}",
        "parent": None if parent is None else f"{parent:016x}", "thread": 1, "rss": 50 * MIB, "segment": 50 * MIB, **rest,
    }  # fmt: skip


def closed(number: int, time: float, peak_mib: float, **rest: Any) -> dict[str, Any]:
    """The closing of an operation with an exact peak."""
    size = round(peak_mib * MIB)
    return {
        "close": number, "time": time, "status": "ok", "rss": 60 * MIB, "segment": size, "peak": size, "low": size,
        "high": size, "certainty": "exact", "cpu_user": 0.5, "cpu_system": 0.1, "minor_faults": 10, "major_faults": 0,
        "read_bytes": MIB, "write_bytes": 0, "read_chars": MIB, "write_chars": 0, **rest,
    }  # fmt: skip


# -- runs


def short(path: Path) -> Path:
    """One process, 0.35 s, three ticks."""
    return record(
        path,
        seconds=0.35,
        command=("python", "-c", "x = bytearray(200 << 20)"),
        series=[TREE, MAIN, CPU_USER, CPU_SYSTEM],
        ticks=[(0.05, 9 * MIB, 9 * MIB, 0.02, 0.01), (0.15, 120 * MIB, 120 * MIB, 0.08, 0.04), (0.25, 205 * MIB, 205 * MIB, 0.15, 0.08)],
        peaks={
            name: peak(209.4, at=0.25, pid=100, how="VmHWM") for name in ("main", "process", "tree")
        },
        processes=process(100, 0.0, 0.35, 209.4, command="python", argv=["python", "-c", "x = bytearray(200 << 20)"],
                          ppid=99, exit_code=0, cpu_user=0.2, cpu_system=0.1),
    )  # fmt: skip


def _wave(t: float, workers: int) -> tuple[float, ...]:
    main = 150 + 40 * math.sin(t / 3)
    tree = main + workers * (60 + 50 * math.sin(t / 5) ** 2 + 8 * math.sin(t * 7))
    return main, tree


def workers(path: Path) -> Path:
    """A minute with 20 workers whose peak is known only as an interval; the machine's memory is the limit."""
    rows = []
    for i in range(600):
        t = 0.05 + i * 0.1
        if 300 <= i < 330:
            continue
        main, tree = _wave(t, 4)
        pss = (tree * 0.8) * MIB if i % 100 == 0 else None
        rows.append(
            (t, round(tree * MIB), round(main * MIB), t * 2.5 + math.sin(t / 4), t * 0.4, round(t * 5e6),
             round(max(0, t - 30) * 8e6), round(t * 2e7), round(t * 1e7), pss)
        )  # fmt: skip
    lines = process(
        100,
        0.0,
        60.0,
        190.0,
        command="make",
        argv=["make", "-j4"],
        ppid=99,
        exit_code=2,
        cpu_user=1.0,
        cpu_system=0.2,
    )
    for n in range(20):
        argv = ["cc1", "-quiet", f"src/{'very_long_directory_name/' * 5}file{n}.c", "-o", f"build/file{n}.o"]
        lines += process(
            200 + n, n * 2.0, n * 2.0 + 20, 210.0 + n, command="cc1", argv=argv, exit_code=0, cpu_user=4.0
        )
    return record(
        path,
        seconds=60.0,
        command=("make", "-j4"),
        series=[TREE, MAIN, CPU_USER, CPU_SYSTEM, DISK_READ, DISK_WRITE, CALL_READ, CALL_WRITE, PSS],
        ticks=rows,
        peaks={
            "main": peak(190.0, at=4.8, pid=100, how="VmHWM"),
            "process": peak(229.0, at=40.2, pid=219, how="VmHWM"),
            "tree": peak(560.2, "interval", low=560.2, high=655.9, at=54.9, how="sum of processes and of watermarks"),
        },
        ended={"exit_code": 2, "reason": "exit code 2"},
        processes=lines,
        totals={"cpu_seconds": 172.0, "read_bytes": 300_000_000, "write_bytes": 240_000_000, "read_chars": 1_200_000_000,
                "write_chars": 600_000_000, "major_faults": 12, "processes": 21},
        quirks=["This kernel counts resident pages in batches: sizes of processes are true to 252 KiB."],
        marks=[{"time": STARTED + 30.0, "text": "source process_tree failed: too many open files"}],
    )  # fmt: skip


def nested(path: Path) -> Path:
    """Nested, repeated, failed and never closed operations; killed by the OOM killer in a group of 512 MiB."""
    lines: list[dict[str, Any]] = [
        opened(1, 0.4, "Load"), opened(2, 0.6, "Read weights", 1), closed(2, 2.4, 180), opened(3, 2.5, "Check", 1),
        closed(3, 2.9, 190, status="error", error="ValueError"), closed(1, 3.0, 190, rss=185 * MIB),
    ]  # fmt: skip
    number, t = 4, 3.2
    lines.append(opened(number, t, "Train"))
    train = number
    for step in range(5):
        number += 1
        lines.append(opened(number, t + 0.1, "step", train))
        lines.append(opened(number + 100, t + 0.3, "forward", number))
        lines.append(closed(number + 100, t + 0.7, 230 + 40 * step))
        lines.append(opened(number + 200, t + 0.7, "backward", number))
        lines.append(closed(number + 200, t + 1.0, 240 + 50 * step))
        lines.append(closed(number, t + 1.05, 240 + 50 * step))
        t += 1.1
    lines.append(opened(900, t + 0.2, "Export $model_$ to \u00d6NNX \U0001f600"))
    rows = []
    end = 11.0
    for i in range(110):
        now = 0.02 + i * 0.1
        mib = 50 + 45 * now if now < 3 else 190 + 20 * (now - 3) + 25 * math.sin(now * 6)
        if now > t:
            mib = 420 + (now - t) * 32
        rows.append((now, round(mib * MIB), round(mib * MIB), now * 0.9, now * 0.05, round(now * 2e7), round(now * 1e6),
                     round(now * 2.2e7), round(now * 1.1e6), round((mib + 12 + now / 2) * MIB), round((mib + 9) * MIB),
                     512 * MIB, 0 if i < 109 else 1))  # fmt: skip
    return record(
        path,
        seconds=end,
        command=("python", "train.py", "--epochs", "3", "--data", "/data/a very long path/with spaces/and $dollars$"),
        series=[TREE, MAIN, CPU_USER, CPU_SYSTEM, DISK_READ, DISK_WRITE, CALL_READ, CALL_WRITE, GROUP, WORKING_SET, LIMIT, KILLS],
        ticks=rows,
        peaks={
            "main": peak(489.1, at=10.92, pid=100, how="VmHWM", operation="Export"),
            "process": peak(489.1, at=10.92, pid=100, how="VmHWM", operation="Export"),
            "tree": peak(498.2, at=10.92, how="cgroup watermark", operation="Export $model_$ to \u00d6NNX \U0001f600"),
            "cgroup": peak(512.0, at=10.92, how="cgroup watermark"),
        },
        ended={"exit_code": None, "signal": 9, "oom_kills": 1,
               "reason": "killed by SIGKILL: the kernel's OOM killer, at 512.0 MiB of 512.0 MiB"},
        processes=process(100, 0.0, end, 489.1, command="python", argv=["python", "train.py"], ppid=99, signal=9, cpu_user=9.9, cpu_system=0.5),
        operations={100: lines},
        limits={"cgroup_bytes": 512 * MIB},
        own_cgroup="/sys/fs/cgroup/memory/otel-memwatch-99",
    )  # fmt: skip


def gpus(path: Path) -> Path:
    """Ten minutes on two GPUs."""
    ids = [
        {"hw.id": f"GPU-{i}b3c1d52-9f66-4b54-8d3e-2f6a0f0c7a1{i}", "hw.name": "NVIDIA H200"} for i in range(2)
    ]
    series: list[Series] = [TREE, MAIN, CPU_USER, CPU_SYSTEM]
    for gpu in ids:
        series += [("hw.gpu.memory.usage", gpu), ("hw.gpu.memory.limit", gpu), ("hw.gpu.utilization", gpu)]
    rows = []
    for i in range(1200):
        t = i * 0.5
        main = 2000 + 1500 * (1 - math.exp(-t / 60))
        row: list[float | None] = [t, main * MIB, main * MIB, t * 3.0, t * 0.3]
        for g in range(2):
            used = (2000 + 60000 * (1 - math.exp(-t / (80 + 40 * g)))) * MIB if i % 10 == 0 else None
            row += [
                used,
                143_000 * MIB if i % 10 == 0 else None,
                0.5 + 0.45 * math.sin(t / 20 + g) if i % 2 == 0 else None,
            ]
        rows.append(row)
    return record(
        path,
        seconds=600.0,
        command=("torchrun", "--nproc-per-node", "2", "train.py"),
        series=series,
        ticks=rows,
        interval=0.5,
        peaks={
            "tree": peak(3620.5, "sampled", low=3499, at=599.5),
            "process": peak(3499.0, at=599.0, pid=100, how="VmHWM"),
            "main": peak(3499.0, at=599.0, pid=100, how="VmHWM"),
            "gpu": {ids[0]["hw.id"]: peak(61967.0, "sampled", low=61967, at=595.0), ids[1]["hw.id"]: peak(61500.0, at=598.0, how="driver's accounting")},
        },
        processes=process(100, 0.0, 600.0, 3499.0, command="torchrun", argv=["torchrun"], ppid=99, exit_code=0),
    )  # fmt: skip


def day(path: Path, ticks: int = 864_000) -> Path:
    """A day at 10 Hz with one tick that stands out by far."""

    def rows() -> Iterable[Sequence[float | None]]:
        for i in range(ticks):
            t = i * 0.1
            base = (800 + 300 * math.sin(t / 9000) + (i * 7919 % 101)) * MIB
            yield (t, 3333 * MIB if i == ticks // 3 else round(base), round(base * 0.7), t * 1.2, t * 0.1)

    lines: list[dict[str, Any]] = []
    for n in range(2000):
        lines += [
            opened(n, n * ticks / 20_000, "epoch" if n % 50 else "evaluate"),
            closed(n, (n + 0.9) * ticks / 20_000, 700 + n % 100),
        ]
    return record(
        path,
        seconds=ticks / 10,
        command=("./serve", "--port", "8080"),
        series=[TREE, MAIN, CPU_USER, CPU_SYSTEM],
        ticks=rows(),
        peaks={
            "tree": peak(3333.0, "interval", low=3333, high=None, at=ticks / 30),
            "main": peak(812.0, at=5.0, pid=100, how="VmHWM"),
            "process": peak(812.0, at=5.0, pid=100, how="VmHWM"),
        },
        processes=process(100, 0.0, ticks / 10, 812.0, command="serve", argv=["./serve"], ppid=99, exit_code=0),
        operations={100: lines},
    )  # fmt: skip
