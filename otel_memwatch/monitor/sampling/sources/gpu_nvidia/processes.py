"""GPU memory by process: who of the watched tree holds how much of a device, and its peak where the driver keeps it."""

from __future__ import annotations

import os

from otel_memwatch.runtime.typed import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping
    from pathlib import Path

    from otel_memwatch.monitor.sampling.sources.gpu_nvidia.driver import Device, Driver

_INITIAL_PID_NAMESPACE = "pid:[4026531836]"
"""The kernel gives the machine's own pid namespace this inode (PROC_PID_INIT_INO, include/linux/proc_ns.h)."""

_LISTS = ("nvmlDeviceGetComputeRunningProcesses", "nvmlDeviceGetGraphicsRunningProcesses")

FOREIGN_PIDS = "device-wide: this container has pids of its own and the driver tells those of the host (run with --pid=host)"
NO_LISTS = "device-wide: the driver does not tell processes apart here"


class Share(NamedTuple):
    """What the tree holds of one device."""

    total: int | None
    """Bytes of all processes of the tree; `None`: the driver does not say."""
    largest: int | None
    """Bytes of the one that holds most."""


def pids_match(proc: Path) -> bool:
    """Whether our pids are those of the machine. The driver knows the machine's own pids, whatever the container."""
    try:
        return os.readlink(proc / "self/ns/pid") == _INITIAL_PID_NAMESPACE
    except OSError:
        return False


def held(driver: Driver, device: Device) -> dict[int, int | None] | None:
    """Bytes that each process holds of a device; a value of `None`: not known; `None`: there is no list at all.

    A process that draws and computes stands in both lists with the same figure.
    """
    answers = [driver.ask(function, device.handle) for function in _LISTS]
    if answers == [None, None]:
        return None
    result: dict[int, int | None] = {}
    for process in (process for answer in answers if answer for process in answer):
        known = result.get(process.pid)
        used = process.usedGpuMemory
        result[process.pid] = used if known is None else max(known, used or 0)
    return result


def share(holders: Mapping[int, int | None] | None, tree: Collection[int]) -> Share:
    """The tree's part. A tree that is on no list holds nothing."""
    if holders is None:
        return Share(None, None)
    ours = [used for pid, used in holders.items() if pid in tree]
    known = [used for used in ours if used is not None]
    if len(known) < len(ours):
        return Share(None, None)
    return Share(sum(known), max(known, default=0))


def accounting_is_on(driver: Driver, device: Device) -> bool | None:
    """Whether the driver keeps each process's peak; `None`: this device cannot."""
    try:
        mode = driver.ask("nvmlDeviceGetAccountingMode", device.handle)
    except driver.nvml.NVMLError:
        return None
    return None if mode is None else bool(mode)


def accounted_peaks(driver: Driver, device: Device, tree: Iterable[int], since: float) -> dict[int, int]:
    """Most bytes that each process of the tree ever held of a device, from the driver's accounting.

    Exact, and kept after the process has ended. The driver keeps the latest process of a number, so a process
    that began before `since` (Unix seconds) counts only while it lives in the tree.

    Args:
        driver: the opened library.
        device: a card whose accounting is on.
        tree: pids that are, or were, of the tree.
        since: Unix seconds before which no process of a number in `tree` was ours.

    """
    nvml = driver.nvml
    ours = set(tree)
    peaks: dict[int, int] = {}
    for pid in ours.intersection(driver.ask("nvmlDeviceGetAccountingPids", device.handle) or ()):
        try:
            stats = nvml.nvmlDeviceGetAccountingStats(device.handle, pid)
        except nvml.NVMLError:
            continue  # dropped from the driver's ring buffer in between
        if stats.maxMemoryUsage is not None and (stats.isRunning or stats.startTime / 1e6 >= since):
            peaks[pid] = stats.maxMemoryUsage
    return peaks
