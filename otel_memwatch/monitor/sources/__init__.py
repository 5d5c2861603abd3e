"""What can be read from the machine: one module or package for each thing, listed in `SOURCES`.

A source is added by its catalogue rows, its module here, and one line in `SOURCES`. Sources do not know each other;
what they share stands in the `Context`.
"""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path

from otel_memwatch.errors import Unavailable
from otel_memwatch.runtime.typed import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from otel_memwatch.model import Column, ProcessRecord, Source, Value
    from otel_memwatch.monitor.sources.own_cgroup import OwnCgroup

SLOW_PERIOD = 0.5
"""Shortest time in seconds between two values of a column that is not needed at every tick."""


class ChildEnd(Protocol):
    """What the supervisor is told of a process that it waited for; times in seconds, sizes in bytes."""

    @property
    def pid(self) -> int:
        """Its pid, free again by now."""

    @property
    def time(self) -> float:
        """Monotonic time at which it was waited for."""

    @property
    def start(self) -> float | None:
        """Its start on the monotonic clock."""

    @property
    def exit_code(self) -> int | None:
        """`None` when a signal ended it."""

    @property
    def signal(self) -> int | None:
        """`None` when it exited."""

    @property
    def max_rss(self) -> int:
        """Largest resident memory of it and of each process that it had waited for."""

    @property
    def cpu_user(self) -> float:
        """Its CPU time and that of what it had waited for."""

    @property
    def cpu_system(self) -> float:
        """Its CPU time and that of what it had waited for."""

    @property
    def minor_faults(self) -> int:
        """Its page faults and those of what it had waited for."""

    @property
    def major_faults(self) -> int:
        """Its page faults and those of what it had waited for."""

    @property
    def stat(self) -> bytes | None:
        """/proc/PID/stat of the zombie; `None`: it could not be read."""

    @property
    def io(self) -> bytes | None:
        """/proc/PID/io of the zombie; `None`: it could not be read."""

    @property
    def status(self) -> bytes | None:
        """/proc/PID/status of the zombie; `None`: it could not be read."""


class ProcessTree(Protocol):
    """The source process_tree, whichever way it reads."""

    name: str
    columns: Sequence[Column]
    blind: str | None
    """Why processes are told at their end only, in words; `None`: they are watched."""

    def read(self, now: float) -> Sequence[Value]:
        """One value for each column."""

    def pids(self) -> Sequence[int]:
        """Living processes with memory of their own as of the last reading, the target first."""

    def note_exit(self, end: ChildEnd) -> None:
        """Take in what the kernel said of a child that was waited for. May be called from another thread."""

    def totals(self) -> Mapping[str, float | int | None]:
        """Totals of the tree so far, reaped children included; `None`: not known."""

    def finish(self, now: float) -> None:
        """Tell the last of every process, and close all files. Not while `read` is running."""


def _discard(record: ProcessRecord) -> None:
    """Receive a record that nobody asked for."""


def _never(pid: int) -> bool:  # noqa: ARG001 - the signature is Context.marks_operations'
    return False


class Context:
    """What sources know of the run.

    Everything here may be read by sources at any time; `root` to `system` are set before `open_sources` is called.

    Args:
        root: pid of the target.
        interval: seconds between ticks.
        started: start of the run in monotonic seconds, which is the target's where it is our child; `None`: not known.
        adopt: the target is our child (`wrap`): orphans of its tree that become our children belong to the tree.
        exact: reset the watermark of each process at every tick.
        proc, sys: where these file systems are mounted.
        exclude: pids that are never counted: the monitor's own processes.
        on_process: receives what is learnt of single processes, on the thread that reads the sources.
        marks_operations: whether a process resets its own watermark; such a process is never reset by us.
        own_cgroup: control group made for the run.
        environment: of the target.
        system: "linux" or "psutil": how processes are read.
    """

    def __init__(
        self,
        root: int,
        interval: float,
        *,
        started: float | None = None,
        adopt: bool = False,
        exact: bool = False,
        proc: Path = Path("/proc"),
        sys: Path = Path("/sys"),
        exclude: frozenset[int] = frozenset(),
        on_process: Callable[[ProcessRecord], None] = _discard,
        marks_operations: Callable[[int], bool] = _never,
        own_cgroup: OwnCgroup | None = None,
        environment: Mapping[str, str] | None = None,
        system: str | None = None,
    ) -> None:
        self.root = root
        self.interval = interval
        self.started = started
        self.adopt = adopt
        self.exact = exact
        self.proc = proc
        self.sys = sys
        self.exclude = exclude
        self.on_process = on_process
        self.marks_operations = marks_operations
        self.own_cgroup = own_cgroup
        self.environment: Mapping[str, str] = {} if environment is None else environment
        self.system = system or default_system()
        self.tree: ProcessTree | None = None
        """The source process_tree, once it has been opened."""

    @property
    def portable(self) -> bool:
        """Figures are sampled by psutil: there are no watermarks."""
        return self.system == "psutil"

    def pids(self) -> Sequence[int]:
        """Living processes of the tree; the target alone while process_tree is not open."""
        return (self.root,) if self.tree is None else self.tree.pids()

    def slow_period(self, seconds: float = SLOW_PERIOD) -> float:
        """Period of a column that is wanted about every `seconds`: never shorter than a tick."""
        return max(self.interval, seconds)


def default_system() -> str:
    """Where /proc is read directly "linux", else "psutil", which is portable."""
    return "linux" if sys.platform.startswith("linux") else "psutil"


class Pace:
    """Tells when something that is not done at every tick is due."""

    def __init__(self, period: float, interval: float) -> None:
        self._period = period - interval / 2
        self._last: float | None = None

    def due(self, now: float) -> bool:
        """True at the first call, and whenever the period is over, to half a tick."""
        if self._last is not None and now - self._last < self._period:
            return False
        self._last = now
        return True


class Entry(NamedTuple):
    """One source that there is."""

    name: str
    load: Callable[[Context], Source]
    """Opens the source; raises `Unavailable` with a hint where the machine does not have the thing."""


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
    Entry("process_tree", _process_tree),
    Entry("host", _host),
    Entry("cgroup", _linux("cgroup")),
    Entry("pressure", _linux("pressure")),
    Entry("memory_detail", _linux("memory_detail")),
    Entry("gpu_nvidia", _linux("gpu_nvidia")),
    Entry("gpu_drm", _linux("gpu_drm")),
)
"""All sources in the order in which they are read. process_tree is first: others ask it for the tree's pids."""


def open_sources(
    context: Context, names: Collection[str] | None = None
) -> tuple[list[Source], dict[str, Unavailable]]:
    """Open the sources of these names (`None`: all).

    Sets `context.tree`. Returns those that work here, and for each other the reason why it does not. A source
    that fails in an unforeseen way while it is opened counts as unavailable: no source ends a run.
    """
    opened: list[Source] = []
    missing: dict[str, Unavailable] = {}
    for entry in SOURCES:
        if names is not None and entry.name not in names:
            continue
        try:
            source = entry.load(context)
        except Unavailable as reason:
            missing[entry.name] = reason
            continue
        except Exception as error:  # noqa: BLE001 - the run goes on without it, whatever it was
            missing[entry.name] = Unavailable(
                f"{entry.name} could not be opened: {str(error) or type(error).__name__}."
            )
            continue
        if entry.name == "process_tree":
            context.tree = source  # type: ignore[assignment]
        opened.append(source)
    return opened, missing
