"""`fastai.utils.mem` of fastai 1.0.61, and the helpers of `fastai.utils.ipython`.

Change the import: `from otel_memwatch.compat.fastai import *` for `from fastai.utils.mem import *`. It hands out the names below
and no others: what fastai's star brought along (`gc`, `torch`, `np` ...) is imported by itself.

Works the same:
    GPUMemory, b2mb, gpu_mem_get, gpu_mem_get_all, gpu_mem_get_free, gpu_mem_get_free_no_cache, gpu_mem_get_used,
    gpu_mem_get_used_no_cache, gpu_mem_get_used_fast, gpu_with_max_free_mem, preload_pytorch; GPUMemTrace as object and
    context manager, gpu_mem_trace, reduce_mem_usage, gpu_mem_restore, gpu_mem_restore_ctx, get_ref_free_exc_info,
    is_in_ipython, is_in_colab, use_gpu, IS_IN_IPYTHON, IS_IN_COLAB. MB are 2**20 bytes. Without a GPU all figures are 0,
    and none of these functions fails for it. The older spelling `report(note=...)` of 1.0.46 is taken too.

Differs, and why:
    * GPUMemTrace reads PyTorch's allocator: this process and device only, exact to the byte, no blip is missed, and no
      thread runs. Before, the driver's figure for the whole device was polled, which missed peaks and counted other
      programs. The allocator has one resettable peak: tracers reset it at their boundaries (and share it rightly
      among themselves), so `torch.cuda.max_memory_allocated()` tells the time since the last boundary only. Without
      PyTorch, GPUMemTrace falls back to the whole device at its boundaries.
    * No reading empties PyTorch's cache, but for the `_no_cache` functions, whose purpose that is.
    * GPUMemTrace works without CUDA, with zeros, instead of an assertion; a peak is never negative; deleting the object
      ends it; `silent` is a value and can be called.
    * Numbers of devices are CUDA's in this program (`CUDA_VISIBLE_DEVICES` is respected), not the driver's.
    * A driver in trouble is told in a warning, once; before, it looked like no memory.
    * gpu_mem_restore and gpu_mem_restore_ctx let the very exception through, with all its arguments; interrupts
      (Ctrl-C) are covered too. gpu_mem_restore works again in IPython.
    * reduce_mem_usage keeps every integer, also of unsigned and nullable columns, leaves what it does not know alone,
      never makes a column larger, and leaves the frame unchanged when something fails. Sizes include what columns
      point to.

Not supported:
    GPUMemTrace.peak_monitor_func raises: there is no polling thread, `data()` has the peak. PeakMemMetric and
    CpuPeakMemMetric for fastai 1 do not exist: see `otel_memwatch.compat.callbacks` for fastai 2 and others.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from otel_memwatch.runtime import lazy

if TYPE_CHECKING:
    from otel_memwatch.compat.fastai.dataframe import reduce_mem_usage
    from otel_memwatch.compat.fastai.memory import (
        GPUMemory,
        b2mb,
        gpu_mem_get,
        gpu_mem_get_all,
        gpu_mem_get_free,
        gpu_mem_get_free_no_cache,
        gpu_mem_get_used,
        gpu_mem_get_used_fast,
        gpu_mem_get_used_no_cache,
        gpu_with_max_free_mem,
        preload_pytorch,
    )
    from otel_memwatch.compat.fastai.trace import GPUMemTrace, gpu_mem_trace
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
        "GPUMemory": "memory",
        "b2mb": "memory",
        "get_ref_free_exc_info": "tracebacks",
        "gpu_mem_get": "memory",
        "gpu_mem_get_all": "memory",
        "gpu_mem_get_free": "memory",
        "gpu_mem_get_free_no_cache": "memory",
        "gpu_mem_get_used": "memory",
        "gpu_mem_get_used_fast": "memory",
        "gpu_mem_get_used_no_cache": "memory",
        "gpu_mem_restore": "tracebacks",
        "gpu_mem_restore_ctx": "tracebacks",
        "gpu_mem_trace": "trace",
        "gpu_with_max_free_mem": "memory",
        "is_in_colab": "tracebacks",
        "is_in_ipython": "tracebacks",
        "preload_pytorch": "memory",
        "reduce_mem_usage": "dataframe",
    },
)


def __getattr__(name: str) -> object:
    """The names of this package when they are asked for, and three facts about this program, found out at that moment."""
    if name == "use_gpu":
        import os

        # Whether CUDA itself answers is not asked: that would load its libraries where a name is imported.
        hidden = os.environ.get("CUDA_VISIBLE_DEVICES", "0") in ("", "-1")
        return not hidden and any(map(os.path.exists, ("/dev/nvidiactl", "/dev/dxg")))
    if name in {"IS_IN_IPYTHON", "IS_IN_COLAB"}:
        from otel_memwatch.compat.fastai import tracebacks

        return getattr(tracebacks, name.lower())()
    return _named(name)
