"""Several counters one after the other leave no descriptor and no child."""

import os

from otel_memwatch.compat.ipython.perf import PerfCounter


def count() -> None:
    counter = PerfCounter("page-faults")
    counter.start()
    counter.stop()


count()
before = len(os.listdir("/proc/self/fd"))
for _ in range(5):
    count()
assert len(os.listdir("/proc/self/fd")) == before
try:
    os.waitpid(-1, os.WNOHANG)
except ChildProcessError:
    pass
else:
    raise SystemExit("a child is left")
