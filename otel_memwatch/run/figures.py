"""The figures of a run by which runs are judged: a name, a number, and what is certain of it.

========================  =======  =======================================================================
name                      unit     what
========================  =======  =======================================================================
memory                    bytes    what the whole tree needed: each page once, page cache left out
process                   bytes    the largest single process
operation:NAME            bytes    what the whole tree needed while NAME was open; the largest of its repeats
operation-process:NAME    bytes    the same of the process that NAME ran in
gpu                       bytes    the most of any GPU
written                   bytes    written to disks
cpu                       seconds  of processors, of the whole tree
seconds                   seconds  from start to end
========================  =======  =======================================================================

Others may be added under names of their own, as a plugin does for tests: they are bytes.
"""

from __future__ import annotations

from otel_memwatch.model import Certainty
from otel_memwatch.runtime.typed import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

    from otel_memwatch.model import Peak

MEMORY, PROCESS, GPU, WRITTEN, CPU, SECONDS = "memory", "process", "gpu", "written", "cpu", "seconds"
OPERATION, OPERATION_PROCESS = "operation:", "operation-process:"
"""What the names of the figures of operations begin with."""

NAMES = (MEMORY, PROCESS, GPU, WRITTEN, CPU, SECONDS)
"""The figures of every run, in the order of tables."""

TIMES = frozenset({CPU, SECONDS})
"""Figures in seconds: how fast a machine is, and who else used it, is in them too."""


class Figure(NamedTuple):
    """One number of one run."""

    value: float
    """Bytes or seconds."""
    certainty: Certainty
    low: float | None
    """What the truth is not below; `None`: not known."""
    high: float | None
    """What the truth is not above; `None`: unbounded."""
    alone: bool = False
    """Whether one process and one thread made it, as far as anybody looked: then it comes out the same each time."""
    basis: str = ""
    """What was measured, where the same figure can mean two things: compared are only figures of one basis."""

    @classmethod
    def measured(cls, value: float, *, alone: bool = False, basis: str = "") -> Figure:
        """A number that is what it is: a time, a count."""
        return cls(value, Certainty.EXACT, value, value, alone, basis)

    @classmethod
    def of_peak(cls, peak: Peak, *, alone: bool = False, basis: str = "") -> Figure:
        """A peak as a figure."""
        return cls(peak.bytes, peak.certainty, peak.low, peak.high, alone, basis)


class Conditions(NamedTuple):
    """On what a run was made. Memory is compared where all but `host` is alike, times where `host` is too."""

    system: str = ""
    """Kernel with the numbers of its version that decide how memory is counted, and the machine: "Linux 6.18 x86_64"."""
    cpus: int | None = None
    memory_bytes: int | None = None
    """Of the machine."""
    allocator: str = ""
    """What the environment says to the allocator of memory: "MALLOC_ARENA_MAX=2", "LD_PRELOAD=libjemalloc.so.2"."""
    host: str = ""
    """Something that is another one on another host; not its name, which a baseline would carry abroad."""

    def differ_from(self, other: Conditions) -> str | None:
        """Why memory of the two is not comparable; `None`: it is."""
        if self.system != other.system:
            return f"{other.system or 'an unknown kernel'} against {self.system or 'an unknown kernel'}"
        if self.cpus != other.cpus:
            return f"{other.cpus or 'unknown'} processors against {self.cpus or 'unknown'}"
        if self.allocator != other.allocator:
            return f"{other.allocator or 'no setting'} of the allocator against {self.allocator or 'none'}"
        if _apart(self.memory_bytes, other.memory_bytes):
            return f"a machine of {_gib(other.memory_bytes)} against one of {_gib(self.memory_bytes)}"
        return None


def _apart(one: int | None, other: int | None) -> bool:
    """Whether sizes of machines differ by more than what firmware and kernels keep for themselves."""
    if one is None or other is None:
        return one is not other
    return abs(one - other) > 0.1 * max(one, other)


def _gib(value: int | None) -> str:
    return "unknown size" if value is None else f"{value / (1 << 30):.1f} GiB"


class RunFigures(NamedTuple):
    """All figures of one run."""

    figures: Mapping[str, Figure]
    conditions: Conditions = Conditions()
    started: float = 0.0
    """Unix seconds."""
    name: str = ""
    """How the run is called where it is mentioned."""


def unit_of(name: str) -> str:
    """Unit of the figure of this name: "s" or "By"."""
    return "s" if name in TIMES else "By"


def order(name: str) -> tuple[int, str]:
    """Where the figure of this name stands in a table: a key to sort by."""
    if name in NAMES:
        return NAMES.index(name), ""
    return len(NAMES), name.partition(":")[2] + name


class LeftOut(NamedTuple):
    """A run that was not compared."""

    name: str
    why: str
