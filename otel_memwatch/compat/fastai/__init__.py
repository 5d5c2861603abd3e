"""`fastai.utils.mem` of fastai 1.0.61, and the helpers of `fastai.utils.ipython`.

Change the import: `from otel_memwatch.compat.fastai import *` for `from fastai.utils.mem import *`. The star import
provides only the names below. Import the others that fastai's star provided (`gc`, `torch`, `np` ...) separately.

Works the same:
    * Memory: GPUMemory, b2mb, gpu_mem_get, gpu_mem_get_all, gpu_mem_get_free, gpu_mem_get_free_no_cache,
      gpu_mem_get_used, gpu_mem_get_used_no_cache, gpu_mem_get_used_fast, gpu_with_max_free_mem, preload_pytorch.
    * Tracing: GPUMemTrace as object and context manager, gpu_mem_trace.
    * Errors: gpu_mem_restore, gpu_mem_restore_ctx, get_ref_free_exc_info.
    * Others: reduce_mem_usage, is_in_ipython, is_in_colab, use_gpu, IS_IN_IPYTHON, IS_IN_COLAB.
    * MB are 2**20 bytes. Without a GPU, all figures are 0, and none of these functions fails.
    * The older spelling `report(note=...)` of 1.0.46 is accepted.

Differs, and why:
    * GPUMemTrace reads PyTorch's allocator: this process and device only, exact to the byte, no peak is missed, and no
      thread runs. The older tool polled the driver's figure for the whole device, which missed peaks and counted other
      programs.
    * The allocator has one resettable peak. Tracers reset it at their boundaries and share it correctly. Therefore,
      `torch.cuda.max_memory_allocated()` only covers the time since the last boundary.
    * Without PyTorch, GPUMemTrace reads the whole device at its boundaries.
    * Only the `_no_cache` functions empty PyTorch's cache, as their names say.
    * Without CUDA, GPUMemTrace returns zeros instead of raising an assertion. A peak is never negative. Deleting the object
      ends it. `silent` is a value and can be called.
    * Device numbers are CUDA's in this program (with respect to `CUDA_VISIBLE_DEVICES`), not the driver's.
    * A driver failure gives one warning. In the older tool, it looked like no memory.
    * gpu_mem_restore and gpu_mem_restore_ctx pass the original exception on, with all its arguments. They also cover
      interrupts (Ctrl-C). gpu_mem_restore works again in IPython.
    * reduce_mem_usage keeps every integer, also in unsigned and nullable columns, and never enlarges a column. It skips
      unknown types, and leaves the frame unchanged if a step fails. Sizes include the objects that columns refer to.

Not supported:
    * GPUMemTrace.peak_monitor_func raises: there is no polling thread, `data()` has the peak.
    * PeakMemMetric and CpuPeakMemMetric for fastai 1 do not exist. See `otel_memwatch.compat.callbacks` for fastai 2 and
      others.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from otel_memwatch.runtime import lazy

if TYPE_CHECKING:
    from otel_memwatch.compat.fastai.dataframe import reduce_mem_usage
    from otel_memwatch.compat.fastai.trace import (
        GPUMemory,
        GPUMemTrace,
        b2mb,
        gpu_mem_get,
        gpu_mem_get_all,
        gpu_mem_get_free,
        gpu_mem_get_free_no_cache,
        gpu_mem_get_used,
        gpu_mem_get_used_fast,
        gpu_mem_get_used_no_cache,
        gpu_mem_trace,
        gpu_with_max_free_mem,
        preload_pytorch,
    )
    from otel_memwatch.compat.fastai.tracebacks import (
        get_ref_free_exc_info,
        gpu_mem_restore,
        gpu_mem_restore_ctx,
        is_in_colab,
        is_in_ipython,
    )

__all__ = [
    "IS_IN_COLAB",
    "IS_IN_IPYTHON",
    "GPUMemTrace",
    "GPUMemory",
    "b2mb",
    "get_ref_free_exc_info",
    "gpu_mem_get",
    "gpu_mem_get_all",
    "gpu_mem_get_free",
    "gpu_mem_get_free_no_cache",
    "gpu_mem_get_used",
    "gpu_mem_get_used_fast",
    "gpu_mem_get_used_no_cache",
    "gpu_mem_restore",
    "gpu_mem_restore_ctx",
    "gpu_mem_trace",
    "gpu_with_max_free_mem",
    "is_in_colab",
    "is_in_ipython",
    "preload_pytorch",
    "reduce_mem_usage",
    "use_gpu",
]

_named = lazy.names(
    __name__,
    {
        "GPUMemTrace": "trace",
        "GPUMemory": "trace",
        "b2mb": "trace",
        "get_ref_free_exc_info": "tracebacks",
        "gpu_mem_get": "trace",
        "gpu_mem_get_all": "trace",
        "gpu_mem_get_free": "trace",
        "gpu_mem_get_free_no_cache": "trace",
        "gpu_mem_get_used": "trace",
        "gpu_mem_get_used_fast": "trace",
        "gpu_mem_get_used_no_cache": "trace",
        "gpu_mem_restore": "tracebacks",
        "gpu_mem_restore_ctx": "tracebacks",
        "gpu_mem_trace": "trace",
        "gpu_with_max_free_mem": "trace",
        "is_in_colab": "tracebacks",
        "is_in_ipython": "tracebacks",
        "preload_pytorch": "trace",
        "reduce_mem_usage": "dataframe",
    },
)


def __getattr__(name: str) -> object:
    """Import a name of this package on first access, or determine one of three facts about this program."""
    if name == "use_gpu":
        import os

        # Do not query CUDA: importing a name would load its libraries.
        hidden = os.environ.get("CUDA_VISIBLE_DEVICES", "0") in ("", "-1")
        return not hidden and any(map(os.path.exists, ("/dev/nvidiactl", "/dev/dxg")))
    if name in {"IS_IN_IPYTHON", "IS_IN_COLAB"}:
        from otel_memwatch.compat.fastai import tracebacks

        return getattr(tracebacks, name.lower())()
    return _named(name)
