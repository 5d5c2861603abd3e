"""Command that runs a module of this package in a separate Python process, isolated from the caller."""

from __future__ import annotations

import sys
from pathlib import Path

PACKAGE_PARENT = str(Path(__file__).resolve().parents[2])
"""Directory that contains this package: the first argument of a program that begins with `FIND_PACKAGE`."""

FIND_PACKAGE = """
import sys
package_parent = sys.argv.pop(1)
sys.path[:] = [package_parent, *(entry for entry in sys.path if entry)]
import otel_memwatch
del sys.path[0]
if package_parent not in sys.path:
    sys.path.append(package_parent)
"""
"""First lines of a program for `python -c` that imports this copy of the package, even if another version is installed.

The package is imported from `PACKAGE_PARENT`, which then moves to the end of the path, after the caller's libraries. The
working directory is removed from the path, so no file in it can replace a module.
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
"""Program that calls `main` of a module. It first makes itself the process that the kernel kills if memory runs out.

Otherwise the kernel would kill the largest process, which may be a service under the same limit. Any process may raise
its score.
"""


_COMMAND_LINE = f"{FIND_PACKAGE}\nfrom otel_memwatch.cli import main\nmain()"


def interpreter() -> list[str]:
    """Return the start of a command that runs this Python. It ignores PYTHONHOME and PYTHONPATH if this process does."""
    flags = ["-I"] if sys.flags.isolated else ["-E"] if sys.flags.ignore_environment else []
    return [sys.executable or "python3", *flags]


def command_line(*arguments: str) -> list[str]:
    """Return the command that runs `otel-memwatch` with these arguments in a separate Python process."""
    return [*interpreter(), "-c", _COMMAND_LINE, PACKAGE_PARENT, *arguments]


def python_command(module: str, *arguments: str) -> list[str]:
    """Return the command that calls `main(arguments)` of `module` in a separate Python process."""
    return [*interpreter(), "-W", "ignore", "-c", _CALL_MAIN, PACKAGE_PARENT, module, *arguments]
