"""OpenTelemetry spans and events of a run and its operations, equal live and from the record."""

from __future__ import annotations

import os
from collections.abc import Mapping

from otel_memwatch.record.fields import mapping
from otel_memwatch.run.gpu import allocator_figures
from otel_memwatch.runtime.typed import TYPE_CHECKING, Any
from otel_memwatch.truth.partial_records import exported_fields

if TYPE_CHECKING:
    from otel_memwatch.model import Ending, Peak, RecordedOperation
    from otel_memwatch.run.results import Peaks

SCHEMA_URL = "https://opentelemetry.io/schemas/1.44.0"
"""Version of the semantic conventions that the catalogue and these names follow."""

SCOPE = "otel_memwatch"
"""Name of the instrumentation scope."""

RUN_ENDED = "memwatch.run.ended"
"""Name of the event that reports the end of a run and the memory that it needed."""

_TOTALS = {
    "cpu_seconds": "memwatch.cpu.time",
    "read_bytes": "memwatch.io.read",
    "write_bytes": "memwatch.io.write",
    "minor_faults": "memwatch.faults.minor",
    "major_faults": "memwatch.faults.major",
}

Attributes = dict[str, Any]


def run_name(info: Mapping[str, Any]) -> str:
    """Name of the run's span: the command's program, without its path and without arguments."""
    command = info.get("command")
    first = command[0] if isinstance(command, (list, tuple)) and command else ""
    return os.path.basename(str(first)) or "run"


def run_attributes(info: Mapping[str, Any], ending: Ending | None, peaks: Peaks | None) -> Attributes:
    """Return the attributes of the run's span: its identity, its ending, its needs, and the CI run that it belongs to."""
    attributes: Attributes = {
        name: value for name, value in mapping(info.get("ci")).items() if isinstance(value, (str, int, float))
    }
    attributes["memwatch.run.id"] = str(info.get("id") or "")
    target = info.get("target")
    if isinstance(target, Mapping) and isinstance(target.get("pid"), int):
        attributes["process.pid"] = target["pid"]
    if ending is not None:
        known = {
            "process.exit.code": ending.exit_code,
            "memwatch.exit.signal": ending.signal,
            "memwatch.oom_kills": ending.oom_kills,
            "memwatch.exit.reason": ending.reason,
        }
        attributes.update({name: value for name, value in known.items() if value is not None})
    if peaks is not None:
        attributes.update(_peak("memwatch.memory", peaks.tree))
        attributes.update(_peak("memwatch.main.memory", peaks.main))
        attributes.update(_peak("memwatch.process.memory", peaks.process))
        attributes.update(_peak("memwatch.cgroup.memory", peaks.cgroup))
    return attributes


def run_failed(ending: Ending | None) -> bool:
    """Return whether the run's span has the status of an error."""
    return ending is not None and ending.bad


def ended_sentence(info: Mapping[str, Any], ending: Ending | None) -> str:
    """Return the sentence of the event at a run's end."""
    return f"{run_name(info)} has ended{'' if ending is None else f': {ending.reason}'}."


def operation_attributes(operation: RecordedOperation) -> Attributes:
    """Attributes of an operation's span: the program's own, then the figures that are known."""
    attributes: Attributes = {name: _plain(value) for name, value in operation.attributes.items()}
    attributes["process.pid"] = operation.pid
    if operation.start_bytes is not None:
        attributes["memwatch.memory.start"] = operation.start_bytes
    if operation.end_bytes is not None:
        attributes["memwatch.memory.end"] = operation.end_bytes
    if operation.start_bytes is not None and operation.end_bytes is not None:
        attributes["memwatch.memory.delta"] = operation.end_bytes - operation.start_bytes
    attributes.update(_peak("memwatch.memory", operation.peak))
    attributes.update({_TOTALS[name]: value for name, value in operation.totals.items() if name in _TOTALS})
    attributes.update(_gpu(operation))
    if operation.status == "open":
        attributes["memwatch.operation.open"] = True
    return attributes


def _gpu(operation: RecordedOperation) -> Attributes:
    """Return the GPU memory of the device that it used most: a span has room for one."""
    devices = [(figures, operation.gpu[figures.device]) for figures in allocator_figures(operation)]
    if not devices:
        return {}
    figures, raw = max(devices, key=lambda pair: pair[0].peak.bytes)
    attributes: Attributes = {"hw.id": figures.device, **_peak("memwatch.gpu.memory", figures.peak)}
    if isinstance(raw, dict):
        for name in ("start", "end"):
            if isinstance(raw.get(name), int):
                attributes[f"memwatch.gpu.memory.{name}"] = raw[name]
    return attributes


def resource_of(info: Mapping[str, Any]) -> Attributes:
    """Return the run's recorded resource; for a run without one, a resource from its other fields."""
    recorded = info.get("resource")
    if isinstance(recorded, Mapping) and recorded:
        return dict(recorded)
    host = info.get("host")
    identifier = str(info.get("id") or "run")
    attributes = {
        "service.name": str(info.get("name") or "") or run_name(info),
        "service.instance.id": identifier,
        "memwatch.run.id": identifier,
    }
    if isinstance(host, Mapping) and host.get("name"):
        attributes["host.name"] = str(host["name"])
    return attributes


def _peak(prefix: str, peak: Peak | None) -> Attributes:
    if peak is None:
        return {}
    return {f"{prefix}.peak": peak.bytes, **exported_fields(peak, f"{prefix}.")}


def _plain(value: object) -> Any:
    """Return a value that OpenTelemetry accepts as an attribute: sequences are of one kind."""
    scalars = (str, bool, int, float)
    if isinstance(value, scalars):
        return value
    if isinstance(value, (list, tuple)) and value and isinstance(value[0], scalars):
        kind = type(value[0])
        if all(type(item) is kind for item in value):
            return list(value)
    return str(value)
