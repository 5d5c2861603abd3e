"""A Python of its own for a module of this package: what it loads, and how it dies, stays out of the caller's process."""

from __future__ import annotations

import sys
from pathlib import Path

PACKAGE_PARENT = str(Path(__file__).resolve().parents[2])
"""Directory that this package lies in: the first argument of a program that begins with `FIND_PACKAGE`."""

FIND_PACKAGE = """
import sys
package_parent = sys.argv.pop(1)
sys.path[:] = [package_parent, *(entry for entry in sys.path if entry)]
import otel_memwatch
del sys.path[0]
if package_parent not in sys.path:
    sys.path.append(package_parent)
"""
"""First lines of a program for `python -c` that imports this very package, whatever other version is installed.

The package is imported from `PACKAGE_PARENT`, which then gives way to the directories where the caller's libraries are
looked for. The working directory is taken off the path: no file in it may stand in for a module.
"""

_CALL_MAIN = f"""
try:
    with open("/proc/self/oom_score_adj", "w") as score:
        score.write("1000")
except OSError:
    pass
{FIND_PACKAGE}
from importlib import import_module
import_module(sys.argv.pop(1)).main(sys.argv[1:])
"""
"""The program that calls `main` of a module. Before it takes any memory it becomes the first that the kernel kills where
memory runs out.

Otherwise the kernel would kill the largest process, which may be a service that shares a limit with us. Raising one's own
score is allowed to everybody.
"""


def python_command(module: str, *arguments: str) -> list[str]:
    """The command that calls `main(arguments)` of `module` in a Python of its own."""
    return [sys.executable or "python3", "-W", "ignore", "-c", _CALL_MAIN, PACKAGE_PARENT, module, *arguments]
