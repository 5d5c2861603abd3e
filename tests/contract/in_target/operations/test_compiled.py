"""A system call that takes long does not hold up the program's other threads."""

from __future__ import annotations

import os
import threading
import time

import pytest

from otel_memwatch.in_target.operations import boundary

compiled = pytest.mark.skipif(not boundary.COMPILED, reason="installed without a compiler")


@compiled
@pytest.mark.quiet
def test_a_call_that_takes_long_is_made_without_the_lock_from_then_on() -> None:
    """In a process of its own: that lasts for a while. The long call is a write to a pipe that is full for 0.2 s.

    Another process that takes the processor can only keep the other thread from its steps: one time of three is enough.
    """
    assert any(another_thread_went_on() for _ in range(3))


def another_thread_went_on() -> bool:
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reader)
        os._exit(_writes_to_a_full_pipe(writer))
    os.close(writer)
    for _ in range(2):
        time.sleep(0.2)
        left = SIZE
        while left:
            left -= len(os.read(reader, left))
    os.close(reader)
    _, status = os.waitpid(pid, 0)
    return os.waitstatus_to_exitcode(status) == 0


SIZE = 1 << 20


def _writes_to_a_full_pipe(writer: int) -> int:
    """0: another thread stood still during the first long write and went on during the second."""
    from otel_memwatch.in_target.operations import _boundary

    steps = [0]

    def step() -> None:
        while True:
            steps[0] += 1
            time.sleep(0.001)

    threading.Thread(target=step, daemon=True).start()

    def steps_meanwhile() -> int:
        before = steps[0]
        assert _boundary.write_line(writer, bytes(SIZE)) == SIZE
        return steps[0] - before

    held, free = steps_meanwhile(), steps_meanwhile()
    return 0 if held <= 2 and free >= 10 else 1
