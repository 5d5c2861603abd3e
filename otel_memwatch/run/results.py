"""Figures of a run, of its operations and of its processes: the input of every report.

Sizes are bytes, durations seconds; times are seconds since the start of the run. `None` means unknown.
"""

from __future__ import annotations

from otel_memwatch.model import Peak, RecordedOperation
from otel_memwatch.runtime.typed import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping


class Peaks(NamedTuple):
    """Peaks of a run, each with its certainty."""

    main: Peak | None = None
    """Main process of the target."""
    process: Peak | None = None
    """The largest single process of the tree."""
    tree: Peak | None = None
    """Memory that the whole tree needed: each page once, without reclaimable page cache."""
    cgroup: Peak | None = None
    """High-water mark of the cgroup, with cache and kernel memory; `None` without a cgroup."""
    gpu: Mapping[str, Peak] = {}
    """Device memory by UUID, of all programs; empty without a GPU."""
    hugetlb: Peak | None = None
    """Huge pages of hugetlbfs, which no other figure includes; `None`: no sample found any."""
    swap: Peak | None = None
    """Memory of the run in swap, which no other figure includes; `None`: none was seen, or without a cgroup of the run."""
    gpu_tree: Mapping[str, Peak] = {}
    """Device memory that the run's processes held, by UUID; lacks devices whose driver does not report it."""
    gpu_used: Mapping[str, Peak] = {}
    """Memory that GPU libraries handed out during operations, by device: without caches and memory reserved in advance."""

    def to_json(self) -> dict[str, Any]:
        """Return the form of the JSON report (schema 1)."""
        single = {name: getattr(self, name) for name in ("main", "process", "tree", "cgroup")}
        return {
            **{name: None if peak is None else peak.to_json() for name, peak in single.items()},
            **{
                name: {uuid: peak.to_json() for uuid, peak in getattr(self, name).items()}
                for name in _BY_DEVICE
            },
            "hugetlb": None if self.hugetlb is None else self.hugetlb.to_json(),
            "swap": None if self.swap is None else self.swap.to_json(),
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Peaks:
        """Invert `to_json`. Raises `ValueError`, `KeyError`, `TypeError` or `AttributeError` for anything else."""
        single = {name: Peak.from_json(value.get(name)) for name in _SINGLE}
        devices: dict[str, dict[str, Peak]] = {}
        for name in _BY_DEVICE:
            peaks = {str(k): Peak.from_json(v) for k, v in (value.get(name) or {}).items()}
            devices[name] = {uuid: peak for uuid, peak in peaks.items() if peak is not None}
        return cls(**single, gpu=devices["gpu"], gpu_tree=devices["gpu_tree"], gpu_used=devices["gpu_used"])

    @property
    def gpu_of_run(self) -> Mapping[str, Peak]:
        """Return the peak of each device that counts as the run's: `gpu_tree`, or `gpu` if the run's part is unknown."""
        return {**self.gpu, **self.gpu_tree}


_BY_DEVICE = ("gpu", "gpu_tree", "gpu_used")
"""Fields of `Peaks` with one peak for each device."""

_SINGLE = ("main", "process", "tree", "cgroup", "hugetlb", "swap")
"""Fields of `Peaks` that are one peak."""


class OperationFigures(NamedTuple):
    """Figures of an operation from the record of the whole tree."""

    operation: RecordedOperation
    """The operation as its process recorded it: name, ids, status, exact peak of that process."""
    start: float
    """Seconds since the start of the run."""
    end: float
    """Seconds since the start of the run; for an unclosed operation, the last moment of the record."""
    tree_peak: Peak | None
    """Memory that the whole tree needed during the operation."""
    delta_bytes: int | None
    """Growth of the process's resident size from start to end."""
    totals: Mapping[str, float]
    """Exact totals of the process (cpu_seconds, read_bytes ...), and estimates for the whole tree, named tree_..., from
    the samples around both boundaries."""
    depth: int
    """Number of enclosing operations, 0 for an outermost one."""
    parent: int | None
    """Index in `Run.operations` of the enclosing operation; `None`: none."""
    sets_run_peak: bool
    """True for the innermost operation of the run's peak; at most one has it."""
    stalled: Mapping[str, float | None] = {}
    """Shares of its time, 0 to 1, in which the whole tree waited for "memory", "disk", "cpu" (limit) and "contention"; `None`: unknown."""

    @property
    def seconds(self) -> float:
        """Duration of the operation."""
        return self.end - self.start


class ProcessFigures(NamedTuple):
    """Final figures of one process of the tree.

    CPU time, bytes and faults cover the recorded time. For a process older than the run they exclude its earlier use.
    """

    pid: int
    command: str | None
    """Short name."""
    argv: tuple[str, ...] | None
    ppid: int | None
    start: float
    """Seconds since the start of the run; negative for a process that is older than the run."""
    end: float | None
    """Seconds since the start of the run, accurate to one sample; `None`: alive when the record ended."""
    peak: Peak | None
    cpu_seconds: float | None = None
    read_bytes: int | None = None
    write_bytes: int | None = None
    read_chars: int | None = None
    write_chars: int | None = None
    minor_faults: int | None = None
    major_faults: int | None = None
    threads: int | None = None
    exit_code: int | None = None
    """`None`: alive, ended by a signal, or waited for by another process."""
    signal: int | None = None
    note: str | None = None


TOTALS = (
    "cpu_seconds",
    "read_bytes",
    "write_bytes",
    "read_chars",
    "write_chars",
    "major_faults",
    "processes",
    "unseen_processes",
)
"""Keys of `Run.totals`, of the whole tree in the recorded time.

`processes` counts processes that were sampled or reported at their end. `unseen_processes` is an upper bound of the others,
which started and ended between two samples. It may be far too high, because it includes processes of other programs.
"""

QUALITY = ("interval", "achieved_hz", "ticks", "missed_ticks", "longest_gap")
"""Keys of `Run.quality`; `achieved_hz` and `longest_gap` are `None` with fewer than two samples."""
