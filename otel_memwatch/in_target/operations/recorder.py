"""The recorder of this process: whether operations are recorded, by whom, and what is the same whoever does it.

Nothing is recorded at import. The boundaries themselves are taken by compiled code (`native`), or by Python code
(`plain`) where there is none: the system has no compiler, is not Linux, or `OTEL_MEMWATCH_PLAIN_OPERATIONS=1` says so.
"""

from __future__ import annotations

import os
import sys
from _thread import get_ident
from sys import modules
from time import monotonic

from otel_memwatch.in_target.operations import lines
from otel_memwatch.in_target.operations.journal import Journal, header_line, warn_once
from otel_memwatch.in_target.operations.native import (
    COMPILED,
    Lock,
    NativeBoundaries,
    in_main_interpreter,
)
from otel_memwatch.in_target.operations.process import JustOpened, close_quietly, open_watermark
from otel_memwatch.in_target.operations.tracing import IdGenerator, root_parent
from otel_memwatch.in_target.operations.values import Figures, LiveOperation
from otel_memwatch.record.format import RUN_DIRECTORY_VARIABLE

if sys.version_info < (3, 12):
    import gc  # here, as all that is loaded later may be loading in another thread when the program forks

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from otel_memwatch.in_target.operations.values import Boundaries, Ids

_implementation: Callable[..., Boundaries] = NativeBoundaries
if not COMPILED:
    from otel_memwatch.in_target.operations.plain import PlainBoundaries

    _implementation = PlainBoundaries

__all__ = [
    "COMPILED",
    "EXACT_VARIABLE",
    "RUN_DIRECTORY_VARIABLE",
    "Recorder",
    "State",
    "activate",
    "deactivate",
    "get_recorder",
    "may_set_context",
]

EXACT_VARIABLE = "OTEL_MEMWATCH_EXACT"
"""Set to 0, the watermark of a process that marks operations is never started anew."""


class Recorder:
    """All that one process keeps to record its operations; another process (after a fork) makes its own.

    Raises `OSError` when the run directory cannot be written. Its methods never raise for trouble with the record.
    """

    __slots__ = (
        "_allocators",
        "_here",
        "_modules",
        "boundaries",
        "directory",
        "journal",
        "new_span",
        "pid",
        "retired",
        "root_span",
        "trace",
    )

    def __init__(
        self,
        directory: str,
        exact: bool,
        root: tuple[str, str | None],
        here: Callable[[], Recorder | None],
    ) -> None:
        self.retired = False
        self.directory = directory
        self.pid = os.getpid()
        self.new_span = IdGenerator().span_id
        self.trace, self.root_span = root
        self._here = here
        self.journal = journal = Journal(directory, str(self.pid))
        watermark = open_watermark(exact)
        alone = watermark.claim is None or watermark.claim.alone
        if alone or journal.is_new:
            journal.write(header_line(watermark.exact, watermark.floor))
        # Two interpreters of one process write to the same file: theirs are apart by chance, and behind all others.
        first_id = journal.first_id if alone else 1 << 48 | int(self.new_span(), 16) >> 16
        self.boundaries = _implementation(journal, watermark, first_id)
        self._modules = 0
        """How many modules the program had imported when it was last asked whether a GPU library is among them."""
        self._allocators: _GpuAllocators | None = None
        """`None`: the program has imported no GPU library."""

    def open(
        self,
        name: str,
        attributes: Mapping[str, object] | None = None,
        parent: LiveOperation | None = None,
        ids: Ids | None = None,
    ) -> LiveOperation:
        """Open an operation below `parent`, or with the ids that a tracer has given it."""
        exported = False
        if ids is not None:
            trace, span, parent_span, exported = ids
        elif parent is None:
            span, trace, parent_span = self.new_span(), self.trace, self.root_span
        else:
            span, trace, parent_span = self.new_span(), parent.trace, parent.span
        more = lines.opening_more(attributes, exported) if attributes or exported else lines.END
        opening = self.boundaries.open(name, trace, span, parent_span, more)
        if opening is None:  # in a child that was forked without any of Python's hooks
            here = self._here()
            if here is not None and here is not self:
                return here.open(name, attributes, parent, ids)
        live = LiveOperation(self, parent, trace, span, opening)
        if len(modules) != self._modules:
            self._look_for_gpu_library()
        if self._allocators is not None and opening is not None:
            self._allocators.opened(opening.id)
        return live

    def close(
        self, live: LiveOperation, error: str | None = None, attributes: Mapping[str, object] | None = None
    ) -> bool:
        """Close an operation; `error` is the type of the exception that ended it.

        Its figures are there afterwards, or a moment later when this has interrupted another boundary.
        Nothing happens (false) when it is closed already, or this recorder has been closed: it may be the one of the
        process from which this one was forked.
        """
        if live.closed or self.retired:
            return False
        more = lines.END
        if self._allocators is not None:
            live.gpu = self._allocators.closed(live.id)
        if attributes or live.gpu:
            more = lines.closing_more(live.gpu, attributes)
        closed = self.boundaries.close(live.opening, error, more)
        if closed is None:  # as above
            self._here()
            return False
        live.closed = True
        return closed

    def figures(self, live: LiveOperation) -> Figures | None:
        """What is known of an operation; `None` while it is open."""
        found = None if live.opening is None else self.boundaries.figures(live.opening)
        return None if found is None else Figures(*found, live.gpu)

    def _look_for_gpu_library(self) -> None:
        self._modules = len(modules)
        if self._allocators is None and any(
            name in modules for name in ("torch", "cupy", "jax", "tensorflow")
        ):
            self._allocators = _GpuAllocators()

    def shutdown(self, *, forked: bool = False) -> None:
        """Give all descriptors back. Operations that are open stay open in the record.

        `forked`: this is the child of a fork, in which whoever has a lock may not be there to give it back.
        """
        self.retired = True
        self.boundaries.shutdown(forked=forked)


class _GpuAllocators:
    """The GPU allocators of a program that has imported a GPU library; what goes wrong there is theirs.

    Each call is made under a lock that, where there is compiled code, is waited for without running signal handlers:
    one that forks would leave the child waiting for a thread that it does not have.
    """

    _module: Any = None
    _loading = False

    def __init__(self) -> None:
        self._lock = Lock()
        self._in_use = False
        """The program has used its library: while it has not, there is nothing to be told of."""
        self._asked = 0.0

    def opened(self, number: int) -> None:
        """An operation begins."""
        if self._are_in_use():
            self._ask("opened", number)

    def closed(self, number: int) -> dict[str, Any] | None:
        """An operation ends: its figures by device, if there are any."""
        figures: dict[str, Any] | None = self._ask("closed", number) if self._are_in_use() else None
        return figures

    def _are_in_use(self) -> bool:
        """Whether anything has been held on a device; asked every 100 us at most."""
        if not self._in_use:
            now = monotonic()
            if now >= self._asked + 100e-6:
                self._asked = now
                self._in_use = bool(self._ask("in_use"))
        return self._in_use

    def _ask(self, call: str, *arguments: int) -> Any:
        """What the module `allocators` says; `None` for an error, and while another thread loads it.

        That is never waited for: in a child that was forked meanwhile it would be for ever.
        """
        try:
            if _GpuAllocators._module is None:
                if _GpuAllocators._loading:
                    return None
                _GpuAllocators._loading = True
                from otel_memwatch.in_target import allocators

                _GpuAllocators._module, _GpuAllocators._loading = allocators, False
            with self._lock:
                return getattr(_GpuAllocators._module, call)(*arguments)
        except Exception:  # noqa: BLE001 - whatever a GPU library raises must not reach the program
            return None


class State:
    """The one state of the process. `recorder` is looked at only through `get_recorder()` while `settled` is false."""

    recorder: Recorder | None = None
    settled = False
    directory: str | None = None
    """The run directory in use, kept over a fork."""
    root: tuple[str, str | None] | None = None
    """Trace and span that operations without a parent belong to, kept over a fork."""
    collecting: int | None = None
    """The thread that is collecting garbage, before Python 3.12."""
    starting = False
    """The recorder is being made, by the thread that has the lock: a signal handler or finalizer has to do without."""
    follows_collections = False
    lock = Lock()


def may_set_context() -> bool:
    """Whether context variables may be set and reset.

    Before Python 3.12 garbage may be collected in the middle of `ContextVar.set`: a finalizer that sets one too makes
    the interpreter use memory that it has freed.
    """
    return State.collecting is None or State.collecting != get_ident()


def _collection(phase: str, _info: object) -> None:
    State.collecting = get_ident() if phase == "start" else None


def get_recorder() -> Recorder | None:
    """The recorder of this process; `None` outside a run. The environment is looked at once."""
    if State.settled:
        return State.recorder
    with State.lock:
        while not State.settled and not State.starting:
            process = os.getpid()
            directory = State.directory or os.environ.get(RUN_DIRECTORY_VARIABLE)
            if directory:
                _start(directory)
            if os.getpid() == process:  # else a signal handler has forked: nothing is settled in the child
                State.settled = True
    return State.recorder


def activate(directory: str) -> Recorder | None:
    """Record the operations of this process into a run directory from now on; `None` when that cannot be written."""
    with State.lock:
        deactivate()
        _start(directory)
        return State.recorder


def deactivate() -> None:
    """Record no more. Operations that are open stay open in the record; closing them does nothing."""
    with State.lock:
        old, State.recorder = State.recorder, None
        State.settled, State.directory, State.root = True, None, None
        if old is not None:
            old.shutdown()


def _start(directory: str) -> None:
    State.starting, JustOpened.descriptors = True, []
    process = os.getpid()
    try:
        directory = os.path.abspath(directory)
        exact = os.environ.get(EXACT_VARIABLE, "1").strip().lower() not in {"0", "false", "no", "off"}
        # Known before there is a recorder: a child that is forked meanwhile goes on with the same trace.
        root = State.root = State.root or root_parent(directory) or (IdGenerator().trace_id(), None)
        made = Recorder(directory, exact, root, _here)
    except Exception as error:  # noqa: BLE001 - a program must not fail because it is watched
        reason = getattr(error, "strerror", None) or type(error).__name__
        if os.getpid() == process:
            warn_once("start", f"operations are not recorded: {directory}: {reason}.")
        return
    finally:
        State.starting, JustOpened.descriptors = False, None
    if os.getpid() != process:  # forked by a signal handler: the child makes its own
        return
    State.recorder, State.directory = made, directory
    if sys.version_info < (3, 12) and not State.follows_collections:
        State.follows_collections = True
        gc.callbacks.append(_collection)


def _here() -> Recorder | None:
    """The recorder of this process, for one that finds itself in another: the C library's `fork` calls no hook."""
    if State.recorder is not None and State.recorder.pid != os.getpid():
        _after_fork()
    return get_recorder()


def _after_fork() -> None:
    """The child makes a recorder of its own when it marks its first operation; its parent's is not its to use.

    The parent's descriptors have to go at once: `/proc/self` was resolved when they were opened, so that a write to
    the reset file would start the parent's watermark anew.
    """
    # Another thread of the parent may hold the lock; this one may be in it, and will leave the old one.
    State.lock = Lock()
    for descriptor in JustOpened.descriptors or ():  # by a thread that is not here
        close_quietly(descriptor)
    State.starting, JustOpened.descriptors = False, None
    if State.collecting != get_ident():
        State.collecting = None
    old, State.recorder = State.recorder, None
    State.settled = False
    if old is not None:
        old.shutdown(forked=True)


# At import: when the recorder is being made it is too late, for another thread may fork meanwhile.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
if not in_main_interpreter():
    import atexit

    atexit.register(deactivate)  # the process goes on: its descriptors have to be given back
