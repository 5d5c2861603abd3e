"""Tools that read the stacks of another process, in the order in which they are tried.

| tool | programs | the process is stopped |
| --- | --- | --- |
| none (`python_memory`) | Python 3.11 to 3.15 | no |
| py-spy | other Pythons, and if that fails | no; for 1 to 2 ms if that reading failed |
| jcmd, then its socket | JVM | at its next safepoint |
| eu-stack (elfutils) | all others, with symbols | for a few milliseconds |

None loads anything into the process. All but jcmd need the right to trace it, which `permission` checks.

Two means of the interpreter itself are not used. `sys.remote_exec` of Python 3.14 needs the same right, and runs code in the
process. `_remote_debugging` needs another process of the same interpreter, which starts late on a busy machine; that of
Python 3.14 omits the callers of a generator.
"""

from __future__ import annotations

import os
import shutil
import sys
from functools import partial

from otel_memwatch.monitor.sampling.stacks import python_memory
from otel_memwatch.monitor.sampling.stacks.tools import (
    NoStackError,
    NotPermittedError,
    json_output,
    output_of,
    read_functions,
    read_jvm,
)
from otel_memwatch.record.stacks import CapturedThread, StackFrame, bounded
from otel_memwatch.runtime.procfs.mounted import may_trace_all
from otel_memwatch.runtime.typed import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_YAMA = "/proc/sys/kernel/yama/ptrace_scope"
_MOST_MAPS = 1 << 20


class Means(NamedTuple):
    """One tool."""

    name: str
    programs: str
    """Kind of process that it reads: "python", "jvm" or "native"."""
    executable: Callable[[], str | None]
    """Return its path; `None` if it is not installed."""
    read: Callable[[str, int], list[CapturedThread]]
    """Read the threads of a process. Raises `NoStackError`."""
    install: str
    """Words for installing it."""


def kind_of(pid: int, proc: str = "/proc") -> str:
    """Return the kind of program that a process runs: "python", "jvm" or "native"."""
    try:
        name = os.path.basename(os.readlink(f"{proc}/{pid}/exe"))
        with open(f"{proc}/{pid}/maps", "rb") as file:
            maps = file.read(_MOST_MAPS)
    except OSError:
        return "native"
    if name.startswith(("python", "pypy")) or b"/libpython" in maps:
        return "python"
    return "jvm" if b"/libjvm.so" in maps else "native"


def capture(pid: int) -> tuple[str, list[CapturedThread]]:
    """Return the name of the tool that succeeded, and the threads.

    Raises `NotPermittedError`, or `NoStackError` if no installed tool can read this process now.
    """
    kind = kind_of(pid)
    reason = NoStackError(f"no tool for {kind} programs is installed ({hint(kind)})")
    for name, read in _tries(pid, kind):
        try:
            return name, read(pid)
        except NotPermittedError as refused:
            if _is_refused(pid):
                raise
            reason = NoStackError(f"{refused} (in a container: add the capability SYS_PTRACE)")
        except NoStackError as failed:
            reason = failed
        except (ValueError, TypeError, KeyError, IndexError, AttributeError) as error:
            reason = NoStackError(f"unexpected output of {name}: {error}")
    raise reason


def _tries(pid: int, kind: str) -> Iterator[tuple[str, Callable[[int], list[CapturedThread]]]]:
    if kind == "python" and (interpreter := python_memory.find(pid)) is not None:
        yield python_memory.NAME, partial(python_memory.read, interpreter)
    for one in MEANS:
        if one.programs == kind and (path := one.executable()) is not None:
            yield one.name, partial(one.read, path)


def _is_refused(pid: int) -> bool:
    """Return whether the kernel refuses to read this process. Tools are also refused processes and threads that have ended."""
    try:
        os.close(os.open(f"/proc/{pid}/mem", os.O_RDONLY | os.O_CLOEXEC))
    except OSError as error:
        return isinstance(error, PermissionError)
    return False


def hint(kind: str) -> str:
    """Return how to install the tool for a kind of program."""
    return next(means.install for means in MEANS if means.programs == kind)


def permission() -> tuple[bool, str]:
    """Return whether this user may read processes that it starts, and a restriction or a remedy in words."""
    try:
        with open(_YAMA, encoding="ascii") as file:
            scope = int(file.read())
    except (OSError, ValueError):
        scope = 0
    if scope == 3:
        return False, "kernel.yama.ptrace_scope is 3: no process may be traced until the next boot"
    if may_trace_all():
        return True, ""
    if scope == 0:
        return (
            True,
            "only processes of this user; add the capability SYS_PTRACE for others"
            if os.geteuid() == 0
            else "",
        )
    remedy = "sudo sysctl kernel.yama.ptrace_scope=0, or run as root"
    if scope == 1:  # `wrap` declares itself the tracer of the command: wrap._traceable.
        words = "wrap may read the process that it starts, but not its children"
        return True, f"kernel.yama.ptrace_scope is 1: {words}; {remedy}"
    return False, f"kernel.yama.ptrace_scope is {scope}; {remedy}"


# -- Python


def find_py_spy() -> str | None:
    """Return py-spy from the path, else from this environment, which may not be activated."""
    return shutil.which("py-spy") or shutil.which("py-spy", path=os.path.dirname(sys.executable or ""))


def _by_py_spy(path: str, pid: int) -> list[CapturedThread]:
    command = [path, "dump", "--json", "--full-filenames", "--pid", str(pid)]
    try:
        return _py_spy_threads(json_output(output_of([*command, "--nonblocking"])))
    except NotPermittedError:
        raise
    except NoStackError:
        # A running program may change its stack during a reading that does not stop it.
        return _py_spy_threads(json_output(output_of(command)))


def _py_spy_threads(found: Any) -> list[CapturedThread]:
    threads = []
    for one in found:
        frames = [
            StackFrame(str(frame["name"]), str(frame["filename"]), int(frame["line"] or 0))
            for frame in one["frames"]
        ]
        if not frames:
            continue
        active = bool(one.get("owns_gil")) or bool(one.get("active"))
        name = str(one.get("thread_name") or "")
        threads.append(CapturedThread(int(one.get("os_thread_id") or 0), name, active, None, bounded(frames)))
    if not threads:
        raise NoStackError("py-spy found no thread")
    return threads


MEANS = (
    Means("py-spy", "python", find_py_spy, _by_py_spy, 'pip install "otel-memwatch[stacks]"'),
    Means("jcmd", "jvm", lambda: shutil.which("jcmd"), read_jvm, "install a JDK"),
    Means("eu-stack", "native", lambda: shutil.which("eu-stack"), read_functions, "install elfutils"),
)
