"""Whether operations are recorded in this process, and by which recorder. Nothing is recorded at import."""

from __future__ import annotations

import os
import sys
from _thread import get_ident

from otel_memwatch.in_target.operations import files
from otel_memwatch.in_target.operations.boundary import Lock, in_main_interpreter
from otel_memwatch.in_target.operations.identity import IdGenerator, root_parent
from otel_memwatch.in_target.operations.journal import warn_once
from otel_memwatch.in_target.operations.recorder import Recorder

if sys.version_info < (3, 12):
    import gc  # here, as all that is loaded later may be loading in another thread when the program forks

RUN_DIRECTORY_VARIABLE = "OTEL_MEMWATCH_RUN_DIR"
"""Environment variable that names the run directory to the target and all its descendants."""
EXACT_VARIABLE = "OTEL_MEMWATCH_EXACT"
"""Set to 0, the watermark of a process that marks operations is never started anew."""


class State:
    """The one state of the process. `recorder` is looked at only through `recorder()` while `settled` is false."""

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


def recorder() -> Recorder | None:
    """The recorder of this process; `None` outside a run. The environment is looked at once."""
    if State.settled:
        return State.recorder
    with State.lock:
        while not State.settled and not State.starting:
            process = os.getpid()
            directory = State.directory or os.environ.get(RUN_DIRECTORY_VARIABLE)
            if directory:
                _start(directory)
            if (
                os.getpid() == process
            ):  # else a signal handler has forked just now: nothing is settled in the child
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
            old.close()


def _start(directory: str) -> None:
    State.starting, files.opened = True, []
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
        State.starting, files.opened = False, None
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
    return recorder()


def _after_fork() -> None:
    """The child makes a recorder of its own when it marks its first operation; its parent's is not its to use.

    The parent's descriptors have to go at once: `/proc/self` was resolved when they were opened, so that a write to
    the reset file would start the parent's watermark anew.
    """
    State.lock = (
        Lock()
    )  # another thread of the parent may hold it; this one may be in it, and will leave the old one
    for descriptor in files.opened or ():  # by a thread that is not here
        files.close_quietly(descriptor)
    State.starting, files.opened = False, None
    if State.collecting != get_ident():
        State.collecting = None
    old, State.recorder = State.recorder, None
    State.settled = False
    if old is not None:
        old.leave()


# At import: when the recorder is being made it is too late, for another thread may fork meanwhile.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
if not in_main_interpreter():
    import atexit

    atexit.register(deactivate)  # the process goes on: its descriptors have to be given back
