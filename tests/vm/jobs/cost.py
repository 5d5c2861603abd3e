"""What it takes until a process of ours is in a scope that the user's manager gives: printed in milliseconds, ten times.

`true` under `busctl` alone says how much of it is the time that this machine needs to start a program.
"""

from __future__ import annotations

import os
import subprocess
import time

from otel_memwatch.monitor.run_cgroup import service_manager

for _ in range(10):
    begun = time.monotonic()
    asked = service_manager.find()
    assert asked is not None
    scope = service_manager.Scope(asked, 20.0)
    found = time.monotonic()
    pid = os.fork()
    if pid == 0:
        scope.entered()
        os._exit(0)
    scope.ask([pid])
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    entered = time.monotonic()
    scope.close()
    program = time.monotonic()
    subprocess.run(["busctl", "--version"], stdout=subprocess.DEVNULL, check=True)
    print(
        f"decided {1e3 * (found - begun):.1f} entered {1e3 * (entered - found):.1f} exit {code}"
        f" busctl alone {1e3 * (time.monotonic() - program):.1f}"
    )
