"""What the monitor writes down in `run.json` of its parts, and what it looks up in a snapshot."""

from __future__ import annotations

import time

from otel_memwatch import catalog
from otel_memwatch.monitor.sources import GPU_SOURCES
from otel_memwatch.runtime.typed import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from otel_memwatch.model import Attributes, Snapshot
    from otel_memwatch.monitor.sampler import Sampler

    Series = tuple[str, Attributes]

OOM_KILLS: Series = (
    catalog.MEMWATCH_CGROUP_MEMORY_EVENTS,
    (("memwatch.cgroup.memory.event.type", "oom_kill"),),
)
LIMIT: Series = catalog.MEMWATCH_CGROUP_MEMORY_LIMIT, (("memwatch.cgroup.limit.type", "max"),)
PEAK: Series = catalog.MEMWATCH_CGROUP_MEMORY_PEAK, ()


def group_value(sampler: Sampler | None, series: Series, snapshot: Snapshot | None) -> int | None:
    """The value of a series of the control group; `None`: there is none, or it is not known."""
    if sampler is None or snapshot is None:
        return None
    for place, column in enumerate(sampler.columns):
        if column[:2] == series:
            value = snapshot.values[place]
            return None if value is None else int(value)
    return None


def health_fields(sampler: Sampler) -> dict[str, dict[str, Any]]:
    """How each source has fared."""
    return {
        name: {
            "state": "ok" if state.up else "failed",
            "hint": state.error,
            "reads": state.reads,
            "failures": state.failures,
            "stretched": state.stretched,
            "seconds": round(state.seconds, 6),
        }
        for name, state in sampler.health().items()
    }


def gpu_fields(sources: Sequence[Any]) -> list[dict[str, Any]]:
    """What the GPU sources know of their devices beside the samples."""
    return [device for source in sources if source.name in GPU_SOURCES for device in source.info()]


def moment(monotonic: float) -> dict[str, float]:
    """A moment as `run.json` tells it."""
    return {"wall": time.time() - (time.monotonic() - monotonic), "monotonic": monotonic}
