"""GPU memory by process: current size, and the peak if the driver's accounting is on."""

from __future__ import annotations

import os

from otel_memwatch.runtime.typed import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from otel_memwatch.monitor.sampling.sources.gpu_nvidia.driver import Device, Driver

_INITIAL_PID_NAMESPACE = "pid:[4026531836]"
"""The machine's initial PID namespace has this inode (PROC_PID_INIT_INO, include/linux/proc_ns.h)."""

_LISTS = (
    "nvmlDeviceGetComputeRunningProcesses",
    "nvmlDeviceGetGraphicsRunningProcesses",
    "nvmlDeviceGetMPSComputeRunningProcesses",
)
"""Lists of processes: a client of the multi-process service (MPS) is only in the last one."""

_OLDER = "_v2"
"""Version of the lists for drivers without the third one, which nvidia-ml-py calls by default."""

FOREIGN_PIDS = "device-wide: this container has a separate PID namespace, and the driver reports PIDs of the host (run with --pid=host)"
NO_LISTS = "device-wide: the driver lists no processes of this device"


class Share(NamedTuple):
    """The tree's part of one device."""

    total: int | None
    """Bytes of all processes of the tree; `None`: the driver does not report them."""
    largest: int | None
    """Bytes of the largest holder."""


def pids_match(proc: str | os.PathLike[str]) -> bool:
    """Return whether our pids are the machine's. In every container the driver reports the machine's pids."""
    try:
        return os.readlink(f"{proc}/self/ns/pid") == _INITIAL_PID_NAMESPACE
    except OSError:
        return False


def held(driver: Driver, device: Device) -> dict[int, int | None] | None:
    """Return the bytes that each process holds of a device; value `None`: unknown; `None`: the driver has no list.

    A process that draws and computes is in two lists with the same figure.
    """
    answers = [driver.ask(function, device.handle) for function in _LISTS]
    if not any(answer is not None for answer in answers[:2]):
        answers = [driver.ask(function + _OLDER, device.handle) for function in _LISTS]
    if all(answer is None for answer in answers):
        return None
    result: dict[int, int | None] = {}
    for process in (process for answer in answers if answer for process in answer):
        known = result.get(process.pid)
        used = process.usedGpuMemory
        result[process.pid] = used if known is None else max(known, used or 0)
    return result


def share(holders: Mapping[int, int | None], tree: Collection[int]) -> Share:
    """Return the tree's part. A tree on no list holds nothing."""
    ours = [used for pid, used in holders.items() if pid in tree]
    known = [used for used in ours if used is not None]
    if len(known) < len(ours):
        return Share(None, None)
    return Share(sum(known), max(known, default=0))


def accounting_is_on(driver: Driver, device: Device) -> bool | None:
    """Return whether the driver keeps each process's peak; `None`: this device cannot."""
    try:
        mode = driver.ask("nvmlDeviceGetAccountingMode", device.handle)
    except Exception:  # noqa: BLE001 - also those of the library's own code
        return None
    return None if mode is None else bool(mode)


def accounted_peaks(driver: Driver, device: Device, tree: Iterable[int], since: float) -> dict[int, int]:
    """Return the peak in bytes of each process of the tree on a device, from the driver's accounting.

    The peaks are exact, and kept after the process has ended. The driver keeps only the latest process of each pid.
    A process that started before `since` therefore counts only while it lives in the tree.

    Args:
        driver: the opened library.
        device: a card with accounting on.
        tree: pids of current and former processes of the tree.
        since: Unix seconds; earlier processes with a pid in `tree` did not belong to it.

    """
    nvml = driver.nvml
    ours = set(tree)
    peaks: dict[int, int] = {}
    for pid in ours.intersection(driver.ask("nvmlDeviceGetAccountingPids", device.handle) or ()):
        try:
            stats = nvml.nvmlDeviceGetAccountingStats(device.handle, pid)
        except (nvml.NVMLError, TypeError):
            # The driver's ring buffer has dropped it meanwhile, or nvidia-ml-py fails because the value is not available.
            continue
        if stats.maxMemoryUsage is not None and (stats.isRunning or stats.startTime / 1e6 >= since):
            peaks[pid] = stats.maxMemoryUsage
    return peaks
