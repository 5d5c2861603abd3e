"""Resources that a run asked for, beside those that it used.

| resource | asked | used |
| --- | --- | --- |
| memory | the scheduler's request, `--limit`, or the limit of the run's cgroup | peak of the tree |
| cores | the scheduler's request, or the CPU limit of the run's cgroup | CPU seconds for each second |
| GPUs | the scheduler's request | devices on which the run held memory |
| time | the scheduler's time limit | duration |
"""

from __future__ import annotations

from otel_memwatch.runtime.typed import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from otel_memwatch.run.recorded_run import RecordedRun


class Allowance(NamedTuple):
    """Resources that a run may use; `None`: unknown."""

    memory: int | None
    """Bytes."""
    cores: float | None
    gpus: int | None
    seconds: float | None
    by: str | None
    """Name of the scheduler; `None`: limits of cgroups only."""


def asked(run: RecordedRun) -> Allowance:
    """Return the request of a run, or its limits."""
    request = run.fields.asked
    return Allowance(
        request.memory_bytes or run.fields.limit.bytes or run.limits.get("cgroup_bytes"),
        request.cores or run.stalls.cores_allowed,
        request.gpus,
        request.seconds,
        request.by,
    )


def gpus_used(run: RecordedRun) -> int | None:
    """Return the devices on which the run held memory; `None`: the driver does not report the run's part."""
    held = run.peaks.gpu_tree
    return sum(peak.bytes > 0 for peak in held.values()) if held else None
