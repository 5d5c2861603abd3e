"""Tests whose need is known: each touches as much memory as its name says, in itself or in a child, and gives it back."""

import mmap
import os
import random
import subprocess
import sys

import pytest

MIB = 1 << 20
COUNT = int(os.environ.get("PLANTED_TESTS", "40"))
LARGEST = int(os.environ.get("PLANTED_LARGEST", "128"))
SIZES = [round(LARGEST ** (i / max(1, COUNT - 1))) for i in range(COUNT)]
random.Random(1).shuffle(SIZES)
CHILD = "import mmap,sys; m = mmap.mmap(-1, int(sys.argv[1])); [m.__setitem__(i, 1) for i in range(0, len(m), 4096)]"


PATTERN = b"\1" * MIB


def touched(mebibytes):
    memory = mmap.mmap(-1, mebibytes * MIB, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    for _ in range(mebibytes):
        memory.write(PATTERN)
    return memory


@pytest.fixture
def held(request):
    with touched(request.param) as memory:
        yield memory


@pytest.mark.parametrize("size", SIZES)
def test_own(size):
    touched(size).close()


@pytest.mark.parametrize("held", SIZES[::4], indirect=True)
def test_set_up(held):
    pass


@pytest.mark.parametrize("size", SIZES[::4])
def test_child(size):
    subprocess.run([sys.executable, "-S", "-c", CHILD, str(size * MIB)], check=True)


@pytest.mark.parametrize("size", SIZES[::8])
def test_forked(size):
    pid = os.fork()
    if pid == 0:
        touched(size)
        os._exit(0)
    os.waitpid(pid, 0)
