"""Readings that walk a process's page tables. While one goes on, the kernel keeps the memory of the process, even if it ends."""

from __future__ import annotations

import threading

_walks: dict[int, int] = {}
"""PID that each thread of ours reads at the moment."""


def read_walking(proc: str, pid: int, name: str) -> bytes:
    """Return `/proc/PID/smaps`, `smaps_rollup` or `maps`. Raises `OSError`."""
    thread = threading.get_ident()
    _walks[thread] = pid
    try:
        with open(f"{proc}/{pid}/{name}", "rb") as file:
            return file.read()
    finally:
        del _walks[thread]


def walked() -> frozenset[int]:
    """Return the processes that threads of ours read at the moment."""
    return frozenset(_walks.copy().values())
