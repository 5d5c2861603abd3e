"""Captured stacks as a file for speedscope.app."""

from __future__ import annotations

from otel_memwatch.run.spans import run_name
from otel_memwatch.run.stacks import weighted_stacks
from otel_memwatch.runtime import strict_json
from otel_memwatch.runtime.typed import TYPE_CHECKING, Any, BinaryIO

if TYPE_CHECKING:
    from otel_memwatch.record.stacks import StackFrame
    from otel_memwatch.reports import Options
    from otel_memwatch.run import RecordedRun


def render(run: RecordedRun, out: BinaryIO, options: Options) -> None:  # noqa: ARG001 - every report is called alike
    """Write the file: one profile for each process, in bytes."""
    numbers: dict[StackFrame, int] = {}
    profiles: dict[int, dict[str, Any]] = {}
    for stack in weighted_stacks(run.stacks):
        pid = stack.capture.pid
        profile = profiles.setdefault(
            pid,
            {
                "type": "sampled",
                "name": f"{run_name(run.info)}, pid {pid}",
                "unit": "bytes",
                "startValue": 0,
                "endValue": 0,
                "samples": [],
                "weights": [],
            },
        )
        calls = [numbers.setdefault(frame, len(numbers)) for frame in reversed(stack.frames)]
        profile["samples"].append(calls)
        profile["weights"].append(stack.bytes)
        profile["endValue"] += stack.bytes
    frames = [
        {"name": frame.function, "file": frame.file, **({"line": frame.line} if frame.line else {})}
        for frame in numbers
    ]
    document = {
        "$schema": "https://www.speedscope.app/file-format-schema.json",
        "name": run_name(run.info),
        "exporter": "otel-memwatch",
        "shared": {"frames": frames},
        "profiles": list(profiles.values()),
    }
    out.write(strict_json.dumps(document, ensure_ascii=True).encode())
