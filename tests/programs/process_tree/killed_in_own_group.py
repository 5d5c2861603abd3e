"""Makes a separate group and starts a program of 200 MiB in it; prints limit, exit code, kills, peak and who is left."""

import os
import sys

from otel_memwatch.monitor.run_cgroup.own_cgroup import OwnCgroup

own = OwnCgroup.create()
assert own is not None
limit = own.limit()
pid = os.fork()
if not pid:
    own.add_self()
    os.execv(sys.executable, [sys.executable, "-S", "-c", "b = bytearray(200 << 20)"])
status = os.waitpid(pid, 0)[1]
print(limit, os.waitstatus_to_exitcode(status), own.oom_kills(), own.peak(), own.remove())
