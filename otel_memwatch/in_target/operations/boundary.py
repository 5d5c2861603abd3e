"""The system calls of a boundary, in compiled code where that is installed.

`_boundary.c` keeps the interpreter's lock meanwhile: beside threads that compute in Python, whoever gives the lock up
for a call of a microsecond gets it back after 5 ms. The functions here stand for it where it could not be built; both
do the same.
"""

from __future__ import annotations

import _thread
import os

try:
    import resource
except ImportError:  # not a Unix
    resource = None  # type: ignore[assignment]
else:
    _getrusage, _pwrite = resource.getrusage, os.pwrite  # looked up once: every boundary calls them

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from otel_memwatch.in_target.operations.counters import Reading

    Used = tuple[float, float, int, int]
    """CPU time in user and kernel mode in seconds, minor and major page faults: since the start of the process."""
    Moved = tuple[int, int, int, int]
    """Bytes read from and written to storage, bytes passed to read and to write calls."""
    Totals = tuple[int, Used | None, Moved | None]
    """Bytes that had to be read, what children have used, I/O of the process and its children; `None`: not told."""
    Turn = tuple[int, Used, int, int]
    """Watermark, what the process has used, watermark after the reset (bytes), page faults between the readings."""

OPENING, CLOSING, OPENING_BESIDE, CLOSING_BESIDE = range(4)
"""Kinds of boundaries; `_BESIDE`: other operations are open."""

_SELF = resource.RUSAGE_SELF if resource else 0
_THREAD = getattr(resource, "RUSAGE_THREAD", _SELF)


def used(usage: resource.struct_rusage) -> Used:
    """The part of `getrusage` that is told of an operation."""
    return usage[0], usage[1], usage[6], usage[7]


def _turn(reset: int, kind: int, least: int, ignored: int) -> Turn | None:
    """Read the watermark, start it anew through the descriptor `reset`, and read what it is then.

    Nothing is done (`None`) where it is below `least`. What the process has used is read last at an opening, first at
    a closing: what a boundary uses is not in the operation. The watermark is the process's also where only the
    thread's usage is asked for, which costs 0.3 us less. The page faults between the readings are told where other
    operations are open, which may miss a peak there, and where they are more than `ignored`; 0 else. Raises `OSError`.
    """
    before = _getrusage(_THREAD if kind == OPENING else _SELF)
    top = before[2] * 1024
    if top < least:
        return None
    _pwrite(reset, b"5", 0)
    after = _getrusage(_THREAD if kind == CLOSING else _SELF)
    usage = after if kind in {OPENING, OPENING_BESIDE} else before
    faults = after[6] - before[6] if kind >= OPENING_BESIDE else 0
    return top, used(usage), after[2] * 1024, faults if faults > ignored else 0


def _totals(io: int, own_read: int, own_written: int) -> Totals:
    """What is told of an operation for the whole process, children included that it has waited for.

    Args:
        io: descriptor of `/proc/self/io`; below zero: there is none.
        own_read: bytes that this library has read itself, which are taken off.
        own_written: bytes that it has written.

    Raises `OSError`.
    """
    text = os.pread(io, 1024, 0) if io >= 0 else b""
    children = used(_getrusage(resource.RUSAGE_CHILDREN)) if resource else None
    fields = text.split(None, 12)
    if len(fields) < 12:
        return len(text), children, None
    read, written = int(fields[1]) - own_read, int(fields[3]) - own_written
    return len(text), children, (int(fields[9]), int(fields[11]), read, written)


def _read_start(descriptor: int) -> bytes:
    """The first 4096 bytes of a file of /proc. Raises `OSError`."""
    return os.pread(descriptor, 4096, 0)


def _place(descriptor: int) -> int:
    """Where the next read or write through a descriptor begins. Raises `OSError`."""
    return os.lseek(descriptor, 0, 1)


def _in_main_interpreter() -> bool:
    """Whether this is not a subinterpreter, which ends before its process does."""
    tells: Callable[[], bool] | None = getattr(_thread, "_is_main_interpreter", None)
    if tells is not None:
        return tells()
    try:  # before Python 3.12
        import _xxsubinterpreters as interpreters  # type: ignore[import-not-found,unused-ignore]
    except ImportError:
        return True
    return bool(interpreters.get_current() == interpreters.get_main())


try:
    from otel_memwatch.in_target.operations import _boundary
except ImportError:
    COMPILED = False
else:
    COMPILED = True

turn = _boundary.turn if COMPILED else _turn
totals = _boundary.totals if COMPILED else _totals
read_start = _boundary.read_start if COMPILED else _read_start
place = _boundary.place if COMPILED else _place
in_main_interpreter = _boundary.in_main_interpreter if COMPILED else _in_main_interpreter
# A lock of Python's runs signal handlers while it waits: one that forks, while another thread has the lock, leaves the
# child waiting for a thread that it does not have. Only compiled code can wait without running them.
Lock = _thread.RLock if TYPE_CHECKING or not COMPILED else _boundary.Lock
reading: Callable[[Used | None, Moved | None], Reading] | None = _boundary.reading if COMPILED else None
"""Makes what compiled code knows as `counters.Reading`."""


def writer(descriptor: int) -> Callable[[int, bytes], int]:
    """How lines are to be written to a file: a disk of this machine is quick, one behind a network may never answer."""
    try:
        return _boundary.write_line if COMPILED and _boundary.is_local(descriptor) else os.write
    except OSError:
        return os.write
