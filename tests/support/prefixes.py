"""The same command bare, under `otel_memwatch.monitor.run.supervise` alone, and under the whole product.

The bare command is the witness: what it does, the wrapped one must do.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.support.wrapped import PROGRAM, environment

HERE = Path(__file__).parent
BARE: list[str] = []
SUPERVISED = [sys.executable, str(HERE / "supervised.py"), "--plain"]
"""With the witness in Python; `WRAP` has the compiled one."""
WRAP = [*PROGRAM, "wrap", "--quiet", "--no-plot", "--no-report", "--"]
INSTALLED = Path(sys.executable).with_name("otel-memwatch")
"""The program as it is installed. If a compiler was available, it starts the command before Python (`launch.c`)."""
WRAPPERS = {"supervise": SUPERVISED, "wrap": WRAP, "installed": [str(INSTALLED), *WRAP[len(PROGRAM) :]]}
ALL = {"bare": BARE, **WRAPPERS}
COUNTER = [sys.executable, str(HERE / "counter.py")]
"""Counts the signals that it gets; see there."""

GUARD = 60
"""Seconds after which something hangs: no test depends on how long anything takes."""


def run(argv: list[Any], cwd: Path, **how: Any) -> subprocess.CompletedProcess[bytes]:
    """Run it to its end, in `cwd`, its output captured unless `how` says otherwise."""
    how.setdefault("env", environment())
    if not {"stdout", "stderr"} & set(how):
        how["capture_output"] = True
    return subprocess.run(argv, cwd=cwd, timeout=GUARD, check=False, **how)


def start(argv: list[Any], cwd: Path, **how: Any) -> subprocess.Popen[bytes]:
    """Start it as the leader of a separate session, with pipes."""
    how = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "env": environment(), **how}
    return subprocess.Popen(argv, cwd=cwd, start_new_session=True, **how)


def finish(process: subprocess.Popen[bytes]) -> None:
    """End whatever is left of what `start` began, and close its pipes."""
    kill_session(process.pid)
    for pipe in (process.stdin, process.stdout, process.stderr):
        if pipe is not None:
            with contextlib.suppress(BrokenPipeError):
                pipe.close()
    process.wait(GUARD)


def kill_session(leader: int) -> None:
    """Kill every process of the session that has this leader."""
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                if os.getsid(int(name)) == leader:
                    os.kill(int(name), 9)
            except (ProcessLookupError, PermissionError):
                continue
