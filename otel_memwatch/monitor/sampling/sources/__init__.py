"""Sources: everything that can be read from the machine, one module or package each, listed in `SOURCES`.

A new source is its rows in the catalogue, a module here, and one line in `SOURCES`. A source with many columns has a
table with one `Row` per column. Sources do not import each other; they share the `Context`.
"""

from __future__ import annotations

import os
import sys
import time

from otel_memwatch.errors import Unavailable
from otel_memwatch.runtime.lazy import load_module
from otel_memwatch.runtime.threads import Flag, Thread
from otel_memwatch.runtime.typed import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
    from typing import Protocol, TypeVar

    from otel_memwatch.model import Attributes, ChildExit, Column, ProcessRecord, Source, Value
    from otel_memwatch.monitor.run_cgroup.own_cgroup import OwnCgroup
    from otel_memwatch.monitor.sampling.auto_interval import AutoInterval
    from otel_memwatch.runtime.polling import Pace
    from otel_memwatch.runtime.procfs.system import AllocationCounters

    Reading = TypeVar("Reading")
    Row = tuple[str, Attributes, Callable[[Reading], Value]]
    """One column: its metric, its attributes, and the getter of its value from a reading of the source."""

    class TreeSource(Source, Protocol):
        """The source process_tree, in any implementation."""

        blind: str | None
        """Reason in words why processes are reported at their end only; `None`: they are watched."""
        resting: bool
        """No figure of a process changed at the last reading."""
        sleeps: bool
        """No process runs, nor waits for a disk or for memory."""
        runs: int | None
        """Samples at which a process may have run since the sample before; `None`: unknown."""

        def pids(self) -> Sequence[int]:
            """Living processes with memory of their own as of the last reading, the target first."""

        def needed_range(self) -> tuple[int, int] | None:
            """Largest lower bound of memory needed so far, and upper bound since the sample before; `None`: unknown."""

        def needed_estimate(self) -> tuple[int, int, int] | None:
            """Return best estimates of the last sample: memory needed, and its parts in unmapped files and shared memory.

            Bytes; `None`: unknown.
            """

        def note_exit(self, end: ChildExit) -> None:
            """Add the kernel's report on a child that was waited for. May be called from another thread."""

        def ended_in(self) -> Mapping[int, bytes]:
            """Return the cgroups, from their zombies in /proc, of the children that the last reading reported as ended."""

        def totals(self) -> Mapping[str, float | int | None]:
            """Totals of the tree so far, reaped children included; `None`: not known."""

        def finish(self, now: float) -> None:
            """Record the last of every process, and close all files. Not while `read` is running."""


SLOW_PERIOD = 0.5
"""Shortest time in seconds between two values of a column that is not read at every sample."""

FAST_PERIOD = 0.1
"""Shortest time in seconds between two readings of figures that do not concern the tree alone."""

LATER_AT_REST = 1.0
"""Seconds by which figures of about once a second may be read later while the tree sleeps."""

PROCESS_TREE = "process_tree"
"""Name of the source from which the others get the tree's pids."""

THIS_SYSTEM = "linux" if sys.platform.startswith("linux") else "psutil"
"""Reader of processes on this system: "linux" reads /proc, "psutil" is portable."""


def columns_of(rows: Iterable[Row[Any]], period: float = 0.0) -> list[Column]:
    """Return the columns of these rows, in their order."""
    # Imported here because this package is imported before the target starts.
    from otel_memwatch.model import Column

    return [Column(metric, attributes, period) for metric, attributes, _ in rows]


def _discard(record: ProcessRecord) -> None:
    """Ignore a record: the default of `Context.on_process`."""


def _never(pid: int) -> bool:  # noqa: ARG001 - the signature is Context.marks_operations'
    return False


class Context(NamedTuple):
    """Facts of the run that sources need."""

    root: int
    """Pid of the target."""
    interval: float
    """Seconds between samples; the shortest, if they vary."""
    auto: AutoInterval | None = None
    """The interval that follows the run; `None`: it is constant."""
    started: float | None = None
    """Start of the run in monotonic seconds: the target's start if it is our child; `None`: unknown."""
    adopt: bool = False
    """The target is our child (`wrap`): orphans of its tree that become our children belong to the tree."""
    proc: str | os.PathLike[str] = "/proc"
    sys: str | os.PathLike[str] = "/sys"
    """Mount points of these file systems."""
    exclude: frozenset[int] = frozenset()
    """Pids that are never counted: the monitor's processes."""
    on_process: Callable[[ProcessRecord], None] = _discard
    """Receives records of single processes, on the thread that reads the sources."""
    marks_operations: Callable[[int], bool] = _never
    """Return whether a process resets its watermark itself. It may not have announced this yet."""
    resets_itself: Callable[[int], bool] = _never
    """Return whether a process has announced that it resets its watermark."""
    own_cgroup: OwnCgroup | None = None
    """Cgroup made for the run."""
    target_group: str | None = None
    """Directory of the cgroup that is the target: its processes are the tree. Its watermark is not reset."""
    environment: Mapping[str, str] = {}
    """Environment of the target."""
    allocated_before: AllocationCounters | None = None
    """Memory that the machine had allocated before the target started; `None`: unknown."""
    system: str = THIS_SYSTEM
    """Reader of processes: "linux" or "psutil"."""
    opening_limit: float | None = 3.0
    """Time limit in seconds for opening a driver; `None`: no limit, in a thread that nothing waits for."""
    tree: TreeSource | None = None
    """The source process_tree, once it is open: it knows the pids of the tree."""

    def pids(self) -> Sequence[int]:
        """Return the living processes of the tree, or only the target while process_tree is not open."""
        return (self.root,) if self.tree is None else self.tree.pids()

    @property
    def in_group(self) -> bool:
        """Return whether a cgroup holds the tree and nothing else, so its counts bound the memory needed."""
        return self.own_cgroup is not None or self.target_group is not None

    def rests(self) -> bool:
        """Return whether no figure of the tree's processes changed at its last reading."""
        return self.tree is not None and self.tree.resting

    def at_rest(self, due: float) -> float:
        """Return the monotonic seconds of a reading that is due then, later while the tree sleeps: a sample of all sources is dear."""
        return due + LATER_AT_REST if self.tree is not None and self.tree.sleeps else due

    def needed_range(self) -> tuple[int, int] | None:
        """Return `TreeSource.needed_range`, or `None` while process_tree is not open."""
        return None if self.tree is None else self.tree.needed_range()

    def needed_estimate(self) -> tuple[int, int, int] | None:
        """Return `TreeSource.needed_estimate`, or `None` while process_tree is not open."""
        return None if self.tree is None else self.tree.needed_estimate()

    def slow_period(self, seconds: float = SLOW_PERIOD) -> float:
        """Return the period of a column that needs a value about every `seconds`: at least one interval."""
        return max(self.interval, seconds)

    def pace(self, seconds: float = SLOW_PERIOD) -> Pace:
        """Return the schedule of such a column. A sample up to half an interval early counts as due."""
        # Imported here because this package is imported before the target starts, which must not wait for `threading`.
        from otel_memwatch.runtime.polling import Pace

        return Pace(self.slow_period(seconds), early=self.interval / 2)

    def knowing(self, opened: Iterable[Source]) -> Context:
        """Return this context with its `tree`, if the source process_tree is among the opened ones."""
        for source in opened:
            if source.name == PROCESS_TREE:
                return self._replace(tree=source)  # type: ignore[arg-type] # the source of this name is one
        return self


class Entry(NamedTuple):
    """One source of `SOURCES`."""

    name: str
    """Name of the source, and of its module on Linux."""
    portable: str | None = None
    """Module that reads the same by psutil; `None`: only Linux has the source."""
    gpus: bool = False
    """It calls a GPU driver, which may take seconds to answer, and describes the GPUs (`info`)."""
    lasts: bool = False
    """It still shows something of a command that has ended."""

    def load(self, context: Context) -> Source:
        """Open the source; raises `Unavailable` with a hint if the machine lacks it."""
        module = self.name if context.system == "linux" else self.portable
        if module is None:
            raise Unavailable(
                f"{self.name} needs /proc and /sys, which this system lacks.", "only Linux has them"
            )
        if self.gpus:
            from otel_memwatch.runtime import gpu_presence

            gpu_presence.require(module, context.sys)
        source: Source = load_module(f"{__name__}.{module}").open_source(context)
        return source


SOURCES: tuple[Entry, ...] = (
    Entry(PROCESS_TREE, "portable", lasts=True),
    Entry("host", "portable_host", lasts=True),
    Entry("cgroup", lasts=True),
    Entry("pressure"),
    Entry("run_queue"),
    Entry("memory_detail"),
    Entry("gpu_nvidia", gpus=True),
    Entry("gpu_drm", gpus=True),
)
"""All sources in the order in which they are read. process_tree is first: the others need the tree's pids."""

GPU_SOURCES = frozenset(entry.name for entry in SOURCES if entry.gpus)
"""Names of the sources that call GPU drivers."""


def open_sources(
    context: Context, names: Collection[str] | None = None
) -> tuple[list[Source], dict[str, Unavailable]]:
    """Open the sources of these names (`None`: all).

    Sources opened after process_tree get the tree's pids from it. A source that fails unexpectedly counts as
    unavailable: no source ends a run.

    Returns:
        The sources that work here, and for each other one the reason.

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
        except Exception as error:  # noqa: BLE001 - the run continues without this source
            missing[entry.name] = Unavailable(
                f"{entry.name} could not be opened: {str(error) or type(error).__name__}."
            )
            continue
        opened.append(source)
    return opened, missing


if TYPE_CHECKING:
    from otel_memwatch.model import Source

    Opened = tuple[Sequence[Source], Mapping[str, Unavailable]]

PATIENCE = 3.0
"""Seconds for which the rest of a recording waits for drivers. Slower drivers join it when they answer."""

_ROOM = 16 << 20
"""Bytes of address space for a driver's library."""


_DRIVERS = {
    "gpu_nvidia": (
        "The NVIDIA driver",
        "nvidia-persistenced keeps idle cards awake; if nvidia-smi hangs too, see dmesg",
    ),
    "gpu_drm": ("The GPU's kernel driver", "see dmesg"),
}
"""Driver of each source, and advice if it is silent."""


class SilentDriver(Unavailable):
    """A driver has not answered, after at least `PATIENCE`."""


class Opening:
    """All sources of a run, opened in two steps.

    `done` is set when all drivers have answered, or after `PATIENCE`. The NVIDIA driver takes up to three seconds for
    each GPU if no daemon keeps the cards awake.
    """

    def __init__(self, context: Context, done: Flag) -> None:
        self._context = context
        self._silence = "was not asked because the command had already ended"
        self._overdue = False
        self._done = done
        self._answers: dict[str, Opened] = {}
        """Answers of drivers that `late` has not returned yet, by name of the source."""
        self._silent = [entry.name for entry in SOURCES if entry.gpus]
        """Sources of which `late` has returned no answer."""

    def first(self, *, ended: bool = False) -> Opened:
        """Open the sources of the kernel; of a command that has `ended`, those that last."""
        kernel = [entry for entry in SOURCES if not entry.gpus]
        opened, absent = open_sources(self._context, [one.name for one in kernel if one.lasts or not ended])
        for one in kernel:
            if ended and not one.lasts:
                absent[one.name] = Unavailable(
                    f"{one.name} was not read because the command had already ended."
                )
        self._context = self._context.knowing(opened)
        return opened, absent

    def start(self) -> None:
        """Start to open the others. Not called if the command has already ended."""
        self._silence = "did not answer within the run"
        try:
            Thread(self._open_all, "otel-memwatch-opening").start()
        except Unavailable as error:
            self._silence = f"was not asked: {str(error).rstrip('.')}"
            self._done.set()

    @property
    def answered(self) -> bool:
        """Return whether `late` has an answer to return."""
        return bool(self._answers)

    def late(self) -> Opened:
        """Return the sources that drivers have opened since the last call, and each absent one with the reason."""
        sources: list[Source] = []
        absent: dict[str, Unavailable] = {}
        for name in tuple(self._silent):
            if name in self._answers:
                opened, missing = self._answers.pop(name)
                self._silent.remove(name)
                sources.extend(opened)
                absent.update(missing)
            else:
                driver, hint = _DRIVERS[name]
                sentence = f"{driver} {self._silence}"
                absent[name] = SilentDriver(sentence, hint) if self._overdue else Unavailable(f"{sentence}.")
        return sources, absent

    def _open_all(self) -> None:
        """Ask each driver in a separate thread: a hanging driver must not keep another one waiting."""
        until = time.monotonic() + PATIENCE
        threads = []
        for name in tuple(self._silent):
            thread = Thread(self._open, f"otel-memwatch-opening {name}", (name,), room=_ROOM)
            try:
                thread.start()
            except Unavailable as error:
                self._answers[name] = (), {name: error}
            else:
                threads.append(thread)
        for thread in threads:
            thread.join(max(0.0, until - time.monotonic()))
        self._overdue = time.monotonic() >= until
        self._done.set()

    def _open(self, name: str) -> None:
        self._answers[name] = open_sources(self._context._replace(opening_limit=None), [name])
