"""A thread is started where there is room for it; what no code gets to see is kept, not printed."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path
from threading import get_native_id

import pytest

from otel_memwatch.runtime.threads import Thread, recent_pids
from tests.support.programs import PROGRAMS


def printed(program: str | Path) -> str:
    """What a program, its text or its file, prints; it must end well and print nothing on stderr."""
    argv = [str(program)] if isinstance(program, Path) else ["-c", textwrap.dedent(program)]
    done = subprocess.run([sys.executable, *argv], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def test_no_room_for_a_thread() -> None:
    """Half a stack is not enough, nor is a stack alone; with what it asks for it runs."""
    program = """
    import mmap, resource
    from otel_memwatch.errors import Unavailable
    from otel_memwatch.runtime.threads import Thread

    stack = 4 << 20
    resource.setrlimit(resource.RLIMIT_STACK, (stack, -1))
    size = lambda: int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
    for room in (stack // 2, stack, stack + (4 << 20), -1):
        resource.setrlimit(resource.RLIMIT_AS, (-1 if room < 0 else size() + room, -1))
        thread = Thread(print, "one", ("did it",), room=8 << 20)
        try:
            thread.start()
            thread.join()
        except Unavailable as error:
            print(error)
    """
    why = "ulimit -v leaves less than 12 MiB of address space."
    assert printed(program).splitlines() == [why, why, why, "did it"]


def test_a_program_keeps_the_stack_size_of_its_threads() -> None:
    program = """
    import resource, threading
    from otel_memwatch.runtime.threads import Thread

    resource.setrlimit(resource.RLIMIT_AS, (8 << 30, -1))
    threading.stack_size(1 << 20)
    thread = Thread(print, "one", ("did it",))
    thread.start()
    thread.join()
    print(threading.stack_size())
    """
    assert printed(program).splitlines() == ["did it", str(1 << 20)]


@pytest.mark.skipif(sys.platform != "linux", reason="glibc's heaps")
def test_threads_share_a_heap_where_the_address_space_is_limited() -> None:
    """Otherwise each takes 64 MiB of it for its first object."""
    assert int(printed(PROGRAMS / "shared_heap.py")) < 4 * 8 + 32


def test_what_no_code_gets_to_see_is_kept() -> None:
    """An error that leaves a thread is a sentence of ours; one of a finalizer is nothing at all."""
    assert printed(PROGRAMS / "thread_errors.py").strip() == str(
        ["a thread of the monitor ended early: MemoryError"]
    )


def test_a_thread_that_fails_before_it_has_begun() -> None:
    """The interpreter's own hook receives it."""
    program = """
    import threading
    from otel_memwatch.runtime.threads import ThreadErrors

    class Broken(threading.Thread):
        def _bootstrap_inner(self):
            self._started.set()
            raise SystemError("returned NULL without setting an exception")

    errors = ThreadErrors()
    errors.keep()
    Broken().start()
    while not errors.sentences():
        pass
    print(errors.sentences())
    """
    assert printed(program).strip() == str(["a thread of the monitor ended early: SystemError"])


def test_the_number_of_a_thread_is_known_after_its_end() -> None:
    numbers: list[int] = []
    thread = Thread(lambda: numbers.append(get_native_id()), "one")
    thread.start()
    thread.join()
    assert set(numbers) & set(recent_pids)
