"""A Python of its own for a module of this package: what it loads, and how it dies, stays out of the caller's process."""

from __future__ import annotations

import sys
from pathlib import Path

PATH = """
import sys
place = sys.argv.pop(1)
sys.path[:] = [place, *(entry for entry in sys.path if entry)]
import otel_memwatch
del sys.path[0]
if place not in sys.path:
    sys.path.append(place)
"""
"""Finds the package in the place that the first argument names, and there what it needs, whatever else is installed.

The working directory is taken off the path: no file in it may stand in for a module.
"""

PLACE = str(Path(__file__).resolve().parents[1])
"""Directory that this package lies in."""

_BOOT = f"""
try:
    with open("/proc/self/oom_score_adj", "w") as score:
        score.write("1000")
except OSError:
    pass
{PATH}
from importlib import import_module
import_module(sys.argv.pop(1)).main(sys.argv[1:])
"""
"""Before it takes any memory it becomes the first that the kernel kills where memory runs out.

Else the largest process would be killed, which may be a service that shares a limit with us. Raising one's own score is
allowed to everybody.
"""


def command_line(module: str, *arguments: str) -> list[str]:
    """The command that calls `main(arguments)` of `module`, and finds this package where it is now."""
    return [sys.executable or "python3", "-W", "ignore", "-c", _BOOT, PLACE, module, *arguments]
