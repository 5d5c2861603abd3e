"""GPU memory of a run in words: of the run, of all programs, and the part that GPU libraries handed out."""

from __future__ import annotations

from otel_memwatch.model import Certainty, Evidence
from otel_memwatch.runtime.typed import TYPE_CHECKING
from otel_memwatch.text import clean, size

if TYPE_CHECKING:
    from otel_memwatch.model import Peak
    from otel_memwatch.run.results import Peaks

_LIBRARIES = {
    "torch.cuda": "PyTorch",
    "torch.xpu": "PyTorch",
    "torch.mps": "PyTorch",
    "jax": "JAX",
    "tensorflow": "TensorFlow",
    "cupy": "CuPy",
}
_IN_ADVANCE = {
    "jax": "JAX reserves 75 % of a device in advance unless XLA_PYTHON_CLIENT_PREALLOCATE=false",
    "tensorflow": "TensorFlow reserves all of a device in advance unless TF_FORCE_GPU_ALLOW_GROWTH=true",
}
"""Libraries that reserve memory which the program may never need."""
_MOSTLY_RESERVED = 0.5


def all_programs(peaks: Peaks, device: str) -> str:
    """Return the memory of a device that all programs used, beside the run's; empty if it is only the run's.

    | the driver reports       | text                            |
    | ------------------------ | ------------------------------- |
    | memory by process        | "3.00 GiB used by all programs" |
    | memory of the whole card | "used by all programs"          |
    """
    whole, own = peaks.gpu.get(device), peaks.gpu_tree.get(device)
    if whole is None or (own is not None and own.bytes >= whole.bytes):
        return ""
    if own is not None:
        return f"{size(whole.bytes)} used by all programs"
    return "used by all programs" if Evidence.DEVICE_SAMPLES in whole.evidence else ""


def used_by_libraries(peaks: Peaks, device: str) -> str:
    """Return the part of a device's memory that GPU libraries handed out; empty if it is unknown.

    Example: "of which JAX used at most 512.0 MiB in operations".
    """
    used = peaks.gpu_used.get(device)
    if used is None or not (used.high or used.low):
        return ""
    who = " and ".join(dict.fromkeys(_LIBRARIES.get(name, clean(name)) for name in _names(used)))
    if used.certainty is Certainty.EXACT:
        amount = size(used.bytes)
    else:
        amount = f"at least {size(used.low)}" if used.high is None else f"at most {size(used.high)}"
    return f"of which {who} used {amount} in operations"


def reserved_in_advance(peaks: Peaks, device: str) -> str:
    """Return how to see what the program needs, if a library has reserved most of the memory in advance; else nothing."""
    used, whole = peaks.gpu_used.get(device), peaks.gpu_of_run.get(device)
    if used is None or whole is None or used.high is None or used.high >= _MOSTLY_RESERVED * whole.bytes:
        return ""
    return next((_IN_ADVANCE[name] for name in _names(used) if name in _IN_ADVANCE), "")


def _names(used: Peak) -> list[str]:
    return used.source.removesuffix(" watermark").split("+")
