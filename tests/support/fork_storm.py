"""Forks at random moments while threads mark operations: `fork_storm.py KIND FORKS SEED`. Prints what came of it.

`first`: each fork of a separate process, whose threads are just opening its first operation.
`busy`: all of one process, whose threads mark without a pause.
`handler`: as `busy`, but a signal handler forks, in the middle of whatever the main thread is marking, and marks too;
without other threads where nothing is compiled, as a lock of Python's runs handlers while it waits for a thread.
`unseen`: as `busy`, by the C library's fork, without a call of Python's hooks; no thread, as Python would not survive it.

A child marks "Child" and ends; one that has not after a minute hangs, is killed and counted.
"""

import contextlib
import ctypes
import faulthandler
import os
import random
import signal
import sys
import threading
import time

from otel_memwatch import mark, operation
from otel_memwatch.in_target.operations.native import COMPILED

LIMIT = 60
WAITING = 0.0005
draw = random.Random(int(sys.argv[3]))
counts = {"hung": 0, "failed": 0}
children = []


def marks() -> None:
    with operation("Outer", some="attribute"), operation("Inner"):
        pass
    with contextlib.suppress(ValueError), operation("Failing"):
        raise ValueError


def mark_for_ever(stop: threading.Event) -> None:
    while not stop.is_set():
        marks()
        mark("Phase")


def in_child() -> None:
    """Ends the process: with 0 when it could mark operations."""
    faulthandler.dump_traceback_later(LIMIT - 10)
    with operation("Child") as child, operation("Below"):
        pass
    os._exit(0 if child.figures is not None else 3)


def wait_for(child: int) -> int:
    """How a child ended."""
    until = time.monotonic() + LIMIT
    while time.monotonic() < until:
        found, status = os.waitpid(child, os.WNOHANG)
        if found:
            return os.waitstatus_to_exitcode(status)
        time.sleep(WAITING)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return -signal.SIGKILL


def note(child: int) -> None:
    code = wait_for(child)
    children.append(child)
    counts["hung"] += code == -signal.SIGKILL
    counts["failed"] += code not in {0, -signal.SIGKILL}


def pause(most: float) -> None:
    """A random time, without giving the processor away."""
    until = time.perf_counter() + draw.random() * most
    while time.perf_counter() < until:
        pass


def start_threads(count: int) -> threading.Event:
    stop = threading.Event()
    for _ in range(count):
        threading.Thread(target=mark_for_ever, args=(stop,), daemon=True).start()
    return stop


def first() -> None:
    """One process whose first operation is opened by threads while it forks."""
    before = os.fork()
    if before == 0:
        start_threads(2)
        pause(0.004)
        child = os.fork()
        if child == 0:
            in_child()
        code = wait_for(child)
        os._exit(0 if code == 0 else 9 if code == -signal.SIGKILL else 4)
    code = wait_for(before)
    children.append(before)
    counts["hung"] += code in {9, -signal.SIGKILL}
    counts["failed"] += code not in {0, 9, -signal.SIGKILL}


def busy() -> None:
    pause(0.0005)
    child = os.fork()
    if child == 0:
        in_child()
    note(child)


def unseen() -> None:
    marks()
    child = ctypes.PyDLL(None).fork()
    if child == 0:
        in_child()
    note(child)


forked = []


def fork_in_handler(*_: object) -> None:
    child = os.fork()
    if child == 0:
        faulthandler.dump_traceback_later(LIMIT - 10)
        with operation("In handler"):
            pass
        forked.clear()
    forked.append(child)


def handler() -> None:
    """The child goes on where the signal interrupted the main thread."""
    forked.clear()
    signal.setitimer(signal.ITIMER_REAL, 1e-6 + draw.random() * 0.0002)
    while not forked:
        marks()
    if forked[0] == 0:
        in_child()
    note(forked[0])


kind, forks = sys.argv[1], int(sys.argv[2])
signal.signal(signal.SIGALRM, fork_in_handler)
stop = None
if kind == "busy" or (kind == "handler" and COMPILED):
    stop = start_threads(2)
    sys.setswitchinterval(0.0005)
for _ in range(forks):
    {"first": first, "busy": busy, "handler": handler, "unseen": unseen}[kind]()
if stop is not None:
    stop.set()
print(counts["hung"], counts["failed"], *children)
