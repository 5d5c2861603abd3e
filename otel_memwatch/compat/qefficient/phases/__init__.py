"""Sequence of phases of a run, the source of the text report and the four-panel figure.

"MB" and "GB" in both outputs are 2**20 and 2**30 bytes, as their readers expect.
"""

from __future__ import annotations

from bisect import bisect_right

from otel_memwatch.runtime.typed import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

MB = 2**20

COLOURS = {
    "Initialization": "#E8E8E8",
    "Model Loading": "#FF6B6B",
    "Export": "#FFEAA7",
    "Model Export": "#FFEAA7",
    "Compilation": "#98D8C8",
    "Model Compilation": "#98D8C8",
    "Generation": "#F7DC6F",
    "Text Generation": "#F7DC6F",
    "Cleanup": "#AED6F1",
    "Completion": "#D5DBDB",
}
"""Colour of a phase by its name."""

INITIALIZATION, COMPLETION = "Initialization", "Completion"

OWNER = "memwatch.profiler"
"""Attribute of operations that belong to one profiler of a program."""

UNMARKED = "memwatch.profiler.unmarked"
"""Attribute of the operation of a profiler before the first mark, which is not a phase."""

CPU_SECONDS = 0.2
"""Window for CPU use. CPU time advances in steps of 10 ms; the rate over a shorter window would be noise."""


class Phase(NamedTuple):
    """Period between two marks. Phases with equal names stay separate."""

    name: str
    start: float
    """Seconds since the first sample; negative if marked before it."""
    seconds: float | None = None
    """`None`: open, or a mark that ends the last phase."""
    delta: float | None = None
    """Growth of resident memory between its two marks, in bytes."""
    read: float | None = None
    """Bytes that the tree read in it."""
    written: float | None = None
    end_mark: bool = False
    """True if the phase only marks the end of the previous one."""


class Timeline(NamedTuple):
    """Samples and phases of one recording. All sequences have one value for each sample."""

    started: float
    """Unix seconds of the first sample."""
    times: Sequence[float]
    """Seconds since the first sample."""
    rss: Sequence[float]
    """Bytes, of the tree."""
    vms: Sequence[float]
    cpu: Sequence[float]
    """Percent of all processors that the program may use; empty: not recorded."""
    read: Sequence[float]
    """Bytes read so far; empty: not recorded."""
    written: Sequence[float]
    read_rate: Sequence[float]
    """Bytes per second."""
    write_rate: Sequence[float]
    phases: Sequence[Phase]
    interval: float
    """Configured seconds between samples."""
    peak_rss: float
    """Bytes; at least the largest sample."""
    peak_rss_time: float | None
    """Seconds since the first sample."""
    peak_vms: float
    peak_vms_time: float | None


def phase_at(phases: Sequence[Phase], time: float) -> str:
    """Return the name of the phase that was open at a time."""
    index = bisect_right([phase.start for phase in phases], time) - 1
    return phases[index].name if index >= 0 else INITIALIZATION


def scale(largest: float) -> tuple[float, str]:
    """Return the unit for memory up to `largest` bytes: its size in bytes and its name."""
    return (1024 * MB, "GB") if largest > 2048 * MB else (MB, "MB")
