"""What can be read from the machine: one module or package for each thing, listed in `SOURCES`.

A source is added by its catalogue rows, its module here, and one line in `SOURCES`. Sources do not know each other;
what they share stands in the `Context`.
"""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path

from otel_memwatch.errors import Unavailable
from otel_memwatch.runtime.typed import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from otel_memwatch.model import ProcessRecord, Source, TreeSource
    from otel_memwatch.monitor.run_cgroup.own_cgroup import OwnCgroup
    from otel_memwatch.runtime.polling import Pace
    from otel_memwatch.runtime.procfs.system import Allocated

SLOW_PERIOD = 0.5
"""Shortest time in seconds between two values of a column that is not needed at every tick."""

PROCESS_TREE = "process_tree"
"""Name of the source that the others ask for the tree's pids."""

THIS_SYSTEM = "linux" if sys.platform.startswith("linux") else "psutil"
"""How processes are read here: from /proc, which only Linux has, or by psutil, which is portable."""


def _discard(record: ProcessRecord) -> None:
    """Receive a record that nobody asked for."""


def _never(pid: int) -> bool:  # noqa: ARG001 - the signature is Context.marks_operations'
    return False


class Context(NamedTuple):
    """What sources know of the run."""

    root: int
    """Pid of the target."""
    interval: float
    """Seconds between ticks."""
    started: float | None = None
    """Start of the run in monotonic seconds, which is the target's where it is our child; `None`: not known."""
    adopt: bool = False
    """The target is our child (`wrap`): orphans of its tree that become our children belong to the tree."""
    proc: Path = Path("/proc")
    sys: Path = Path("/sys")
    """Where these file systems are mounted."""
    exclude: frozenset[int] = frozenset()
    """Pids that are never counted: the monitor's own processes."""
    on_process: Callable[[ProcessRecord], None] = _discard
    """Receives what is learnt of single processes, on the thread that reads the sources."""
    marks_operations: Callable[[int], bool] = _never
    """Return whether a process resets its own watermark."""
    own_cgroup: OwnCgroup | None = None
    """Control group made for the run."""
    environment: Mapping[str, str] = {}
    """Of the target."""
    allocated_before: Allocated | None = None
    """What the machine had allocated before the target was started; `None`: not known."""
    system: str = THIS_SYSTEM
    """How processes are read: "linux", or "psutil"."""
    tree: TreeSource | None = None
    """The source process_tree, once it has been opened: it knows the pids of the tree."""

    @property
    def portable(self) -> bool:
        """Whether figures are sampled by psutil: there are no watermarks."""
        return self.system == "psutil"

    def pids(self) -> Sequence[int]:
        """Living processes of the tree; the target alone while process_tree is not open."""
        return (self.root,) if self.tree is None else self.tree.pids()

    def needed_range(self) -> tuple[int, int] | None:
        """Return `TreeSource.needed_range`, or `None` while process_tree is not open."""
        return None if self.tree is None else self.tree.needed_range()

    def slow_period(self, seconds: float = SLOW_PERIOD) -> float:
        """Period of a column that is wanted about every `seconds`: never shorter than a tick."""
        return max(self.interval, seconds)

    def pace(self, seconds: float = SLOW_PERIOD) -> Pace:
        """When such a column is due: a tick that comes up to half an interval early is taken for its tick."""
        # not above: this package is imported before the target starts, which must not wait for `threading`
        from otel_memwatch.runtime.polling import Pace

        return Pace(self.slow_period(seconds), early=self.interval / 2)

    def knowing(self, opened: Iterable[Source]) -> Context:
        """The same context with its `tree`, where the source process_tree is among those that were opened."""
        for source in opened:
            if source.name == PROCESS_TREE:
                return self._replace(tree=source)  # type: ignore[arg-type] # who has this name is one
        return self


class Entry(NamedTuple):
    """One source that there is."""

    name: str
    load: Callable[[Context], Source]
    """Opens the source; raises `Unavailable` with a hint where the machine does not have the thing."""
    gpus: bool = False
    """It asks the driver of GPUs, which may take seconds to answer, and can describe them (`info`)."""


def _linux(name: str) -> Callable[[Context], Source]:
    def load(context: Context) -> Source:
        if context.system != "linux":
            raise Unavailable(
                f"{name} is read from /proc and /sys, which this system does not have.", "Linux has them"
            )
        source: Source = import_module(f"{__name__}.{name}").open_source(context)
        return source

    return load


def _process_tree(context: Context) -> Source:
    module = "process_tree" if context.system == "linux" else "portable"
    source: Source = import_module(f"{__name__}.{module}").open_source(context)
    return source


def _host(context: Context) -> Source:
    module = "host" if context.system == "linux" else "portable_host"
    source: Source = import_module(f"{__name__}.{module}").open_source(context)
    return source


SOURCES: tuple[Entry, ...] = (
    Entry(PROCESS_TREE, _process_tree),
    Entry("host", _host),
    Entry("cgroup", _linux("cgroup")),
    Entry("pressure", _linux("pressure")),
    Entry("memory_detail", _linux("memory_detail")),
    Entry("gpu_nvidia", _linux("gpu_nvidia"), gpus=True),
    Entry("gpu_drm", _linux("gpu_drm"), gpus=True),
)
"""All sources in the order in which they are read. process_tree is first: others ask it for the tree's pids."""

GPU_SOURCES = frozenset(entry.name for entry in SOURCES if entry.gpus)
"""Names of the sources that ask the drivers of GPUs."""


def open_sources(
    context: Context, names: Collection[str] | None = None
) -> tuple[list[Source], dict[str, Unavailable]]:
    """Open the sources of these names (`None`: all).

    Those that are opened after process_tree can ask it for the tree's pids. Returns those that work here, and for each other the reason why it does not. A source
    that fails in an unforeseen way while it is opened counts as unavailable: no source ends a run.
    """
    opened: list[Source] = []
    missing: dict[str, Unavailable] = {}
    for entry in SOURCES:
        if names is not None and entry.name not in names:
            continue
        try:
            source = entry.load(context.knowing(opened))
        except Unavailable as reason:
            missing[entry.name] = reason
            continue
        except Exception as error:  # noqa: BLE001 - the run goes on without it, whatever it was
            missing[entry.name] = Unavailable(
                f"{entry.name} could not be opened: {str(error) or type(error).__name__}."
            )
            continue
        opened.append(source)
    return opened, missing
