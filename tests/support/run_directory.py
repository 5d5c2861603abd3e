"""Builds run directories as the recorder would have left them, with whatever is to be wrong in them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from otel_memwatch.catalog import METRICS
from otel_memwatch.model import Column, ProcessRecord
from otel_memwatch.record.format import (
    OPERATIONS_PREFIX,
    OPERATIONS_SUFFIX,
    PROCESSES_FILE,
    RUN_FILE,
    SAMPLES_FILE,
    SCHEMA,
)

MIB = 1024**2
STARTED = 1000.0
"""Monotonic seconds at which every run of the builder starts."""
PID = 4242
"""Pid of its target."""


def column(metric: str, period: float = 0.0, **attributes: str) -> Column:
    """A column; `__` in an attribute's name stands for a dot."""
    named = tuple(sorted((name.replace("__", "."), value) for name, value in attributes.items()))
    return Column(metric, named, period)


def description(**fields: Any) -> dict[str, Any]:
    """The content of `run.json` of a finished run of one second; `fields` replace or add."""
    return {
        "schema": SCHEMA,
        "id": "20260101T000000Z-program-4242",
        "state": "finished",
        "command": ["python", "train.py", "--epochs", "3"],
        "cwd": "/home/someone/project",
        "target": {"pid": PID, "start": STARTED, "floor": 10 * MIB},
        "own_cgroup": None,
        "rss_error_bytes": 256 * 1024,
        "portable": False,
        "host": {
            "name": "box", "system": "Linux", "release": "6.18.0", "machine": "x86_64", "cpus": 4,
            "memory_bytes": 16 * 1024 * MIB,
        },
        "monitor": {"version": "0.1.0", "pid": 4000, "python": "3.11.7", "mode": "wrap"},
        "started": {"wall": 1_767_225_600.0, "monotonic": STARTED},
        "ended": {"wall": 1_767_225_601.0, "monotonic": STARTED + 1.0},
        "interval": 0.1,
        "limits": {"cgroup_bytes": None, "host_bytes": 16 * 1024 * MIB, "rlimit_as_bytes": None},
        "quirks": [],
        "sources": {"process_tree": {"state": "ok", "hint": None, "reads": 10, "failures": 0, "seconds": 0.01}},
        "settings": {"interval": 0.1, "exact": False},
        "trace": {"trace_id": "0" * 31 + "1", "span_id": "0" * 15 + "1", "parent_span_id": None},
        "exit": {"exit_code": 0, "signal": None, "oom_kills": None, "reason": "exit code 0"},
        "peaks": None,
        "totals": None,
        "quality": None,
        "marks": [],
        **fields,
    }  # fmt: skip


class RunDirectory:
    """A run directory in the making.

    Args:
        path: where; made if it is not there.
        fields: of `run.json`, see `description`.
    """

    def __init__(self, path: Path, **fields: Any) -> None:
        self.path = path
        path.mkdir(parents=True, exist_ok=True)
        self.info = description(**fields)
        self.write_info()

    def write_info(self, **fields: Any) -> None:
        """Writes `run.json` again, with some fields replaced."""
        self.info.update(fields)
        (self.path / RUN_FILE).write_text(json.dumps(self.info))

    def append(self, name: str, data: bytes | str | Mapping[str, Any] | Sequence[Any]) -> None:
        """Appends raw bytes or text as they are, anything else as a line of JSON."""
        if isinstance(data, str):
            data = data.encode()
        elif not isinstance(data, bytes):
            data = json.dumps(data, separators=(",", ":")).encode() + b"\n"
        with (self.path / name).open("ab") as file:
            file.write(data)

    def columns(self, columns: Iterable[Column]) -> None:
        """Declares columns."""
        declared = [
            {
                "metric": c.metric,
                "unit": METRICS[c.metric].unit if c.metric in METRICS else "1",
                "attributes": dict(c.attributes),
                "period": c.period,
            }
            for c in columns
        ]
        self.append(SAMPLES_FILE, {"schema": SCHEMA, "columns": declared})

    def tick(self, seconds: float, *values: float | None) -> None:
        """A tick, `seconds` after the start of the run."""
        row: list[float | None] = [round(STARTED + seconds, 4), *values]
        while row[-1] is None:
            row.pop()
        self.append(SAMPLES_FILE, row)

    def process(self, record: ProcessRecord) -> None:
        """A line of `processes.jsonl`."""
        known = {name: value for name, value in record._asdict().items() if value is not None}
        self.append(PROCESSES_FILE, {**known, "event": record.event.value})

    def operations(self, lines: Iterable[Mapping[str, Any]], pid: int = PID, exact: bool = True) -> None:
        """A file of operations: its header, then boundaries; their `time` is in seconds after the start of the run."""
        name = f"{OPERATIONS_PREFIX}{pid}{OPERATIONS_SUFFIX}"
        self.append(
            name,
            {"schema": SCHEMA, "pid": pid, "start": STARTED, "program": "python", "exact": exact, "floor": 0},
        )
        for line in lines:
            self.append(name, {**line, "time": STARTED + line["time"]})
