"""Snapshots of PyTorch's allocator (`--torch-snapshot`), from the lists that the program's processes write.

`torch-<pid>.json` lists the files `torch-peak-<pid>.pickle` and `torch-oom-<pid>.pickle` beside it. The lists are untrusted
input, and pickles are never opened here: reading one runs code.
"""

from __future__ import annotations

import os

from otel_memwatch.record.fields import moment, text, whole
from otel_memwatch.record.format import is_run_file
from otel_memwatch.record.jsonl import open_regular, parse
from otel_memwatch.runtime.typed import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_MOST_LISTS, _MAX_BYTES = 10_000, 1 << 16


class TorchSnapshot(NamedTuple):
    """One snapshot of one process, or its failure."""

    kind: str
    """"peak" or "oom"."""
    file: str
    """Name of the file in the run directory; empty if it could not be written."""
    pid: int
    rank: int | None
    time: float | None
    """Monotonic seconds."""
    reserved: int | None
    """Peak of bytes that the process had reserved from all its devices until then."""
    device: int | None
    """Number of the device without memory; `None` for a peak."""
    requested: int | None
    """Bytes of the allocation that failed."""
    problem: str = ""
    """Reason of a failure."""
    grown: int | None = None
    """Bytes by which the process grew while its snapshots were written."""


def read_torch_snapshots(directory: Path) -> list[TorchSnapshot]:
    """Return the snapshots of a run by rank and PID; empty without any, and without damaged lists."""
    try:
        names = sorted(
            name
            for name in os.listdir(directory)
            if name.startswith("torch-") and name.endswith(".json") and is_run_file(name)
        )[:_MOST_LISTS]
    except OSError:
        return []
    found = [snapshot for name in names for snapshot in _listed(directory, name)]
    return sorted(found, key=lambda one: (one.rank is None, one.rank or 0, one.pid, one.kind))


def _listed(directory: Path, name: str) -> Iterator[TorchSnapshot]:
    try:
        with os.fdopen(open_regular(directory / name), "rb") as file:
            document = parse(file.read(_MAX_BYTES))
    except (OSError, ValueError):
        return
    pid = whole(document.get("pid")) if isinstance(document, dict) else None
    if pid is None:
        return
    listed, rank, grown = document.get("snapshots"), whole(document.get("rank")), whole(document.get("grown"))
    for entry in listed[:2] if isinstance(listed, list) else []:
        if (snapshot := _snapshot(directory, entry, pid, rank)) is not None:
            yield snapshot._replace(grown=grown)
    kind, _, reason = (text(document.get("problem")) or "").partition(": ")
    if reason:
        yield TorchSnapshot(kind, "", pid, rank, None, None, None, None, reason[:200])


def _snapshot(directory: Path, entry: Any, pid: int, rank: int | None) -> TorchSnapshot | None:
    if not isinstance(entry, dict):
        return None
    kind = text(entry.get("kind"))
    file = f"torch-{kind}-{pid}.pickle"
    if kind not in ("peak", "oom") or not (directory / file).is_file():
        return None
    reserved, device, requested = (whole(entry.get(key)) for key in ("reserved", "device", "requested"))
    return TorchSnapshot(kind, file, pid, rank, moment(entry.get("time")), reserved, device, requested)
