"""GPUs of AMD, Intel and others through the kernel's open drivers: no library, no privilege, also in containers.

The kernel says what each client holds at present (/proc/PID/fdinfo), and keeps no peak: so peaks are sampled ones.
"""

from __future__ import annotations

from otel_memwatch.monitor.sampling.sources.gpu_drm.source import GpuDrm
from otel_memwatch.runtime.typed import TYPE_CHECKING

if TYPE_CHECKING:
    from otel_memwatch.monitor.sampling.sources import Context

__all__ = ["GpuDrm", "open_source"]


def open_source(context: Context) -> GpuDrm:
    """The source; raises `Unavailable` where no GPU has an open driver."""
    return GpuDrm(context)
