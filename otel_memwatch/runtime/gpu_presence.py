"""Quick checks for GPUs. Most machines have none, and the modules of the two sources take 5 ms of CPU time to load."""

from __future__ import annotations

import os

from otel_memwatch.errors import Unavailable

LIBRARY = "libnvidia-ml.so.1"

NO_DRIVER = "No NVIDIA driver is installed"
NO_DRIVER_HINT = (
    f"{LIBRARY} comes with the driver; in a container it is mounted by the NVIDIA container toolkit"
)


def require(name: str, sys: str | os.PathLike[str]) -> None:
    """Raise `Unavailable` if the machine certainly has nothing for the source `name`."""
    if name == "gpu_nvidia":
        require_library()
    elif not has_render_node(sys):
        raise no_open_driver()


def require_library() -> None:
    """Raise `Unavailable` without the library of the NVIDIA driver."""
    try:
        # Most machines have no driver; for them the rest of ctypes need not be loaded.
        from _ctypes import dlopen

        dlopen(LIBRARY, 0)
    except (ImportError, OSError):
        raise Unavailable(NO_DRIVER, NO_DRIVER_HINT) from None


def has_render_node(sys: str | os.PathLike[str]) -> bool:
    """Return whether a GPU can compute or draw for programs."""
    folder = f"{os.fspath(sys)}/class/drm"
    return any(
        node.startswith("renderD")
        for name in _names(folder)
        if name.startswith("card")
        for node in _names(f"{folder}/{name}/device/drm")
    )


def no_open_driver() -> Unavailable:
    """Return the error for a machine without a GPU that has an open driver."""
    hint = "AMD and Intel GPUs have one; gpu_nvidia reads NVIDIA GPUs"
    return Unavailable("No GPU with an open driver was found", hint)


def _names(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []
