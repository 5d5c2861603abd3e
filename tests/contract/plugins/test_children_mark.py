"""What a process knows of its children, by compiled code and in Python: the same, whatever the children are at."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from otel_memwatch.in_target.operations.native import COMPILED

PROGRAM = """
import json, os, signal, sys, time
from otel_memwatch.in_target.operations.native import children_mark
from otel_memwatch.plugins.pytest.children import plain_mark

def look(name):
    before, found, after = plain_mark(), children_mark(), plain_mark()
    same = before == found if before is None else before[:2] == found[:2] and before[2] <= found[2] <= after[2]
    seen[name] = [same, found]

seen = {}
look("none")
read, write = os.pipe()
pid = os.fork()
if pid == 0:
    os.read(read, 1)
    taken = b"x" * (30 << 20)
    os._exit(0)
look("living")
os.write(write, b".")
os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
look("ended")
os.waitpid(pid, 0)
look("waited for")
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
look("ignored")
json.dump(seen, sys.stdout)
"""


@pytest.mark.skipif(not COMPILED, reason="there is no compiled code here")
def test_compiled_code_and_python_say_the_same_of_children() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], stdout=subprocess.PIPE, check=True, timeout=60)
    seen = json.loads(done.stdout)
    assert all(same for same, _ in seen.values()), seen
    assert seen["living"][1] is seen["ended"][1] is seen["ignored"][1] is None
    assert seen["waited for"][1][0] > seen["none"][1][0] + 7000
    assert seen["waited for"][1][1] >= 30 << 20
