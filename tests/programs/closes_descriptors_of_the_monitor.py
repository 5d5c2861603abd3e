"""Closes descriptors that it does not know and opens files under their numbers: `... HIGHEST LIMIT`, of open files."""

import os
import resource
import sys

from otel_memwatch import operation, watch

highest, limit = map(int, sys.argv[1:])
resource.setrlimit(resource.RLIMIT_NOFILE, (limit, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
TEXT = b"precious data\n"


def take_all():
    """Close all, then open a file of our own under each number that was in use."""
    used = [int(name) for name in os.listdir("/proc/self/fd") if 3 <= int(name) < highest]
    os.closerange(3, highest)
    for number in used:
        opened = os.open(f"mine{number}", os.O_RDWR | os.O_CREAT | os.O_TRUNC)
        os.write(opened, TEXT)
        if opened != number:
            os.dup2(opened, number)
            os.close(opened)
    return used


def check(used):
    for number in used:
        assert os.fstat(number).st_size == os.lseek(number, 0, os.SEEK_CUR) == len(TEXT), number
        with open(f"mine{number}", "rb") as file:
            assert file.read() == TEXT, number


with watch("run", quiet=True, plot=False, interval=0.02) as run:
    with operation("before"):
        pass
    used = take_all()
    if os.fork() == 0:
        check(used)
        os._exit(0)
    assert os.wait()[1] == 0
    with operation("after"):
        x = bytearray(b"x") * (30 << 20)
check(used)
assert run.stop()
print(len(used), [one.operation.name for one in run.operations], run.state)
