"""NVIDIA GPUs through the driver's management library (NVML): memory, use, power, energy, errors, processes.

Memory of a device is that of everybody who uses it; what the watched tree holds of it is known where the driver's
pids are ours, which they are not in a container with pids of its own.
"""

from __future__ import annotations

from otel_memwatch.monitor.sampling.sources.gpu_nvidia.source import GpuNvidia
from otel_memwatch.runtime.typed import TYPE_CHECKING

if TYPE_CHECKING:
    from otel_memwatch.monitor.sampling.sources import Context

__all__ = ["GpuNvidia", "open_source"]


def open_source(context: Context) -> GpuNvidia:
    """The source; raises `Unavailable` where there is no driver or no device that the target may see."""
    return GpuNvidia(context)
