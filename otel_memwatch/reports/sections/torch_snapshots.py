"""Snapshots of PyTorch's allocator: which exist, of which rank, and their paths."""

from __future__ import annotations

from otel_memwatch.reports.pages import Columns
from otel_memwatch.runtime.typed import TYPE_CHECKING
from otel_memwatch.text import clean, count, duration, size

if TYPE_CHECKING:
    from otel_memwatch.record.torch_snapshots import TorchSnapshot
    from otel_memwatch.reports.pages import Page
    from otel_memwatch.run import RecordedRun

_SHOWN = 100
_COLUMNS = Columns(("rank", "pid", "reason", "at", "reserved", "file"), "rrlrrl")


def torch_snapshots(run: RecordedRun, page: Page) -> None:
    """Write the table; nothing for a run without --torch-snapshot."""
    if not (run.torch_snapshots or run.settings.get("torch_snapshot")):
        return
    page.section("Snapshots of PyTorch's allocator")
    if not run.torch_snapshots:
        page.paragraph("None: no process of the run has initialised CUDA in PyTorch.")
        return
    page.table(
        [
            (
                "-" if one.rank is None else str(one.rank),
                str(one.pid),
                _failure(one) if one.kind == "oom" else "peak",
                "-" if one.time is None else duration(max(0.0, one.time - run.started)),
                "-" if one.reserved is None else size(one.reserved),
                one.file or f"not written: {clean(one.problem)}",
            )
            for one in run.torch_snapshots[:_SHOWN]
        ],
        _COLUMNS,
    )
    page.gap()
    if len(run.torch_snapshots) > _SHOWN:
        page.paragraph(f"{count(len(run.torch_snapshots) - _SHOWN, 'more snapshot')} (all: --json).")
    grown = sum({one.pid: one.grown or 0 for one in run.torch_snapshots}.values())
    during = f" It grew by {size(grown)} while they were written." if grown else ""
    page.paragraph(
        f"The record of the latest allocations and each snapshot of it take host memory of the program.{during}"
    )
    page.paragraph(
        f"The files are in {clean(str(run.path))}. PyTorch's memory visualizer shows them. Load them with Python's pickle "
        "only if you trust the program."
    )


def out_of_gpu_memory(run: RecordedRun, page: Page) -> None:
    """Name the snapshots of failed allocations in the summary."""
    failed = [one for one in run.torch_snapshots if one.kind == "oom" and one.file]
    for one in failed[:1]:
        more = f", {len(failed) - 1} more" if len(failed) > 1 else ""
        rank = "" if one.rank is None else f" (rank {one.rank})"
        page.fact("snapshot", f"{_failure(one)}{rank}: {clean(str(run.path / one.file))}{more}", "bad")


def _failure(one: TorchSnapshot) -> str:
    requested = "" if one.requested is None else f" of {size(one.requested)}"
    device = "" if one.device is None else f" on GPU {one.device}"
    return f"allocation{requested} failed{device}"
