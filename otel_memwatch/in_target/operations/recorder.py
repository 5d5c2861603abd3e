"""Recorder of this process's operations, with the parts common to both implementations of boundaries.

Nothing is recorded at import. Compiled code (`native`) handles the boundaries. Python code (`plain`) replaces it if the
system had no compiler, if it is not Linux, or with `OTEL_MEMWATCH_PLAIN_OPERATIONS=1`.
"""

from __future__ import annotations

import os
import sys
from _thread import get_ident
from math import inf
from sys import modules
from time import monotonic

from otel_memwatch.in_target.operations.heap import HeapReader
from otel_memwatch.in_target.operations.journal import Journal, header_line, warn_once
from otel_memwatch.in_target.operations.native import (
    COMPILED,
    Lock,
    NativeBoundaries,
    heap_books,
    in_main_interpreter,
)
from otel_memwatch.in_target.operations.operation_values import Figures, LiveOperation
from otel_memwatch.in_target.operations.process_state import (
    OpeningDescriptors,
    close_quietly,
    open_watermark,
    read_quietly,
)
from otel_memwatch.in_target.operations.tracing import IdGenerator, root_parent
from otel_memwatch.record import operation_writer as lines
from otel_memwatch.record.format import RUN_DIRECTORY_VARIABLE

if sys.version_info < (3, 12):
    import gc  # at import time, because a later import may be in progress in another thread when the program forks

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from otel_memwatch.in_target.allocators import Allocators
    from otel_memwatch.in_target.operations.operation_values import Boundaries, Ids

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
"""Environment variable that disables resets of the process's high-water mark if set to 0."""
_LEAST_HEAP = 32 << 20
"""Resident bytes from which allocators are read."""
_HEAP_PAUSE = 0.1
"""Seconds until the size of a smaller process is compared again."""


class Recorder:
    """State of one process for recording its operations; a forked process creates another one.

    Raises `OSError` if the run directory cannot be written. Its methods never raise for failures of the record.
    """

    __slots__ = (
        "_allocators",
        "_header",
        "_heap",
        "_heap_due",
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
        self._header = header_line(watermark.exact, watermark.floor)
        if alone or journal.is_new:
            journal.write(self._header)
        self._heap: HeapReader | None = None
        self._heap_due = 0.0
        """Monotonic time of the next reading of the allocators; infinity: none."""
        # Several interpreters of one process write to the same file. All but the first begin at a random, high number.
        first_id = journal.first_id if alone else 1 << 48 | int(self.new_span(), 16) >> 16
        self.boundaries = _implementation(journal, watermark, first_id)
        self._modules = 0
        """Number of imported modules at the last search for a GPU library."""
        self._allocators: _GpuAllocators | None = None
        """`None` if the program has imported no GPU library."""

    def open(
        self,
        name: str,
        attributes: Mapping[str, object] | None = None,
        parent: LiveOperation | None = None,
        ids: Ids | None = None,
    ) -> LiveOperation:
        """Open an operation below `parent`, or with ids from a tracer."""
        exported = False
        if ids is not None:
            trace, span, parent_span, exported = ids
        elif parent is None:
            span, trace, parent_span = self.new_span(), self.trace, self.root_span
        else:
            span, trace, parent_span = self.new_span(), parent.trace, parent.span
        more = lines.opening_more(attributes, exported) if attributes or exported else lines.END
        opening = self.boundaries.open(name, trace, span, parent_span, more)
        if opening is None:  # in a child that was forked without Python's hooks
            here = self._here()
            if here is not None and here is not self:
                return here.open(name, attributes, parent, ids)
        live = LiveOperation(self, parent, trace, span, opening)
        if len(modules) != self._modules:
            self._modules = len(modules)
            if self._allocators is None and any(
                name in modules for name in ("torch", "cupy", "jax", "tensorflow")
            ):
                self._allocators = _GpuAllocators()
        if self._allocators is not None and opening is not None:
            self._allocators.opened(opening.id)
        return live

    def close(
        self, live: LiveOperation, error: str | None = None, attributes: Mapping[str, object] | None = None
    ) -> bool:
        """Close an operation; `error` is the type of the exception that ended it.

        Its figures are available afterwards, or slightly later if the call interrupted another boundary. Returns false
        without effect if the operation is closed or this recorder is shut down, as the parent's is after a fork.
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
        if monotonic() >= self._heap_due:
            figures = self.boundaries.figures(live.opening)
            self.read_heap(0 if figures is None else figures[2] or 0)
        return closed

    def read_heap(self, resident: int) -> None:
        """Record what the allocators keep, if the process is large enough and the budget allows it. Never raises."""
        try:
            if resident < _LEAST_HEAP:
                self._heap_due = monotonic() + _HEAP_PAUSE
                return
            if self._heap is None:
                self._heap = HeapReader(heap_books, read_quietly)
            found = self._heap.read()
            self._heap_due = self._heap.due() if self._heap.may_read else inf
            if found is not None:
                text, read = found
                self.boundaries.write(_with_heap(self._header, text), read)
        except Exception:  # noqa: BLE001 - a program must not fail because it is watched
            self._heap_due = inf

    def figures(self, live: LiveOperation) -> Figures | None:
        """Return the figures of an operation; `None` while it is open."""
        found = None if live.opening is None else self.boundaries.figures(live.opening)
        return None if found is None else Figures(*found, live.gpu)

    def shutdown(self, *, forked: bool = False) -> None:
        """Close all descriptors. Open operations stay open in the record.

        `forked`: this is a forked child, so a lock may be held by a thread that does not exist here.
        """
        self.retired = True
        self.boundaries.shutdown(forked=forked)


class _GpuAllocators:
    """GPU allocators of a program that has imported a GPU library. Errors of the library never reach the program.

    Each call holds a lock. With compiled code, waiting for it runs no signal handlers. If a handler forked, the child
    would wait for ever for a thread that it does not have.
    """

    _loading = False

    def __init__(self) -> None:
        self._lock = Lock()
        self._loaded: Allocators | None = None
        self._used: Allocators | None = None
        """`None` until the program has used its library; before that there are no figures."""
        self._asked = 0.0

    def opened(self, number: int) -> None:
        """Note that an operation begins."""
        used = self._used or self._find()
        if used is not None:
            try:
                with self._lock:
                    used.opened(number)
            except Exception:  # noqa: BLE001, S110 - no error of a GPU library may reach the program
                pass

    def closed(self, number: int) -> dict[str, Any] | None:
        """Return the figures by device of an operation that ends, if any."""
        used = self._used or self._find()
        if used is not None:
            try:
                with self._lock:
                    return used.closed(number)
            except Exception:  # noqa: BLE001, S110 - as above
                pass
        return None

    def _find(self) -> Allocators | None:
        """Return the allocators once the program has held memory on a device. Checks at most every 100 us.

        Returns `None` while another thread loads the module. Never waits for that thread, because it does not exist in a
        child forked meanwhile.
        """
        now = monotonic()
        if now < self._asked + 100e-6:
            return None
        self._asked = now
        try:
            if self._loaded is None:
                if _GpuAllocators._loading:
                    return None
                _GpuAllocators._loading = True
                from otel_memwatch.in_target.allocators import here

                self._loaded, _GpuAllocators._loading = here(), False
            with self._lock:
                if self._loaded.in_use():
                    self._used = self._loaded
        except Exception:  # noqa: BLE001, S110 - as above
            pass
        return self._used


class State:
    """Global state of the process. While `settled` is false, use `get_recorder()` instead of `recorder`."""

    recorder: Recorder | None = None
    settled = False
    directory: str | None = None
    """Run directory in use, preserved across a fork."""
    root: tuple[str, str | None] | None = None
    """Trace and span above the outermost operations, preserved across a fork."""
    collecting: int | None = None
    """Thread that is collecting garbage, before Python 3.12."""
    starting = False
    """True while the thread with the lock creates the recorder. Signal handlers and finalizers then have none."""
    follows_collections = False
    lock = Lock()


def may_set_context() -> bool:
    """Return whether context variables may be set and reset.

    Before Python 3.12, `ContextVar.set` may trigger a garbage collection. If a finalizer then sets a variable too, the
    interpreter uses freed memory.
    """
    return State.collecting is None or State.collecting != get_ident()


def _collection(phase: str, _info: object) -> None:
    State.collecting = get_ident() if phase == "start" else None


def get_recorder() -> Recorder | None:
    """Return the recorder of this process; `None` outside a run. The environment is read once."""
    if State.settled:
        return State.recorder
    with State.lock:
        while not State.settled and not State.starting:
            process = os.getpid()
            directory = State.directory or os.environ.get(RUN_DIRECTORY_VARIABLE)
            if directory:
                _start(directory)
            if os.getpid() == process:  # otherwise a signal handler has forked, and the child is not settled
                State.settled = True
    return State.recorder


def activate(directory: str) -> Recorder | None:
    """Record the operations of this process into a run directory from now on; `None` if it cannot be written."""
    with State.lock:
        deactivate()
        _start(directory)
        return State.recorder


def deactivate() -> None:
    """Stop recording. Open operations stay open in the record, and closing them has no effect."""
    with State.lock:
        old, State.recorder = State.recorder, None
        State.settled, State.directory, State.root = True, None, None
        if old is not None:
            old.shutdown()


def record_heap() -> None:
    """Record what this process's allocators keep, at the end of `watch()`. Never raises.

    Without operations, only the line is written: a recorder would reset the process's high-water mark.
    """
    recorder, directory = State.recorder, os.environ.get(RUN_DIRECTORY_VARIABLE)
    if recorder is not None:
        recorder.read_heap(_LEAST_HEAP)
    elif directory:
        try:
            found = HeapReader(heap_books, read_quietly).read()
            if found is not None:
                journal = Journal(directory, str(os.getpid()))
                journal.write(_with_heap(header_line(False, None), found[0]))
                journal.close()
        except Exception:  # noqa: BLE001, S110 - a program must not fail because it is watched
            pass


def _with_heap(header: bytes, heap: bytes) -> bytes:
    return header[: -len(lines.END)] + b',"heap":' + heap + lines.END


def _start(directory: str) -> None:
    State.starting, OpeningDescriptors.descriptors = True, []
    process = os.getpid()
    try:
        directory = os.path.abspath(directory)
        exact = os.environ.get(EXACT_VARIABLE, "1").strip().lower() not in {"0", "false", "no", "off"}
        # Set before the recorder exists, so a child forked meanwhile continues the same trace.
        root = State.root = State.root or root_parent(directory) or (IdGenerator().trace_id(), None)
        made = Recorder(directory, exact, root, _here)
    except Exception as error:  # noqa: BLE001 - a program must not fail because it is watched
        reason = getattr(error, "strerror", None) or type(error).__name__
        if os.getpid() == process:
            warn_once("start", f"operations are not recorded: {directory}: {reason}.")
        return
    finally:
        State.starting, OpeningDescriptors.descriptors = False, None
    if os.getpid() != process:  # a signal handler has forked; the child creates another recorder
        return
    State.recorder, State.directory = made, directory
    if sys.version_info < (3, 12) and not State.follows_collections:
        State.follows_collections = True
        gc.callbacks.append(_collection)


def _here() -> Recorder | None:
    """Return the recorder of the current process for a recorder of its parent. The C library's `fork` calls no hook."""
    if State.recorder is not None and State.recorder.pid != os.getpid():
        _after_fork()
    return get_recorder()


def _after_fork() -> None:
    """Discard the parent's recorder. The child creates another one at its first operation.

    The parent's descriptors must be closed at once. `/proc/self` was resolved when they were opened, so a write to the
    reset file would reset the parent's high-water mark.
    """
    # Another thread of the parent may hold the lock. If this thread holds it, it will release the old one.
    State.lock = Lock()
    for descriptor in OpeningDescriptors.descriptors or ():  # opened by a thread that does not exist here
        close_quietly(descriptor)
    State.starting, OpeningDescriptors.descriptors = False, None
    if State.collecting != get_ident():
        State.collecting = None
    old, State.recorder = State.recorder, None
    State.settled = False
    if old is not None:
        old.shutdown(forked=True)


# Register at import: another thread may fork while the recorder is created.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
if not in_main_interpreter():
    import atexit

    atexit.register(deactivate)  # the process outlives the subinterpreter, so its descriptors must be closed
