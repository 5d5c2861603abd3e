"""Tools that read the stacks of native programs and of a JVM, and their failures.

- `eu-stack` (elfutils) stops the process and reads the functions, in 4 ms of CPU time. Source lines need debug information,
  whose reading takes ten times as long. `eu-addr2line` looks them up later, from the addresses, while the process runs.
- `jcmd` is a Java program and takes 200 ms of CPU time. It makes the JVM open a socket for tools, `/tmp/.java_pid<pid>`.
  Later captures write the same request to that socket, which takes 1 ms. Only the owner of the process may connect.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import stat
import subprocess

from otel_memwatch.record.stacks import CapturedThread, StackFrame, bounded
from otel_memwatch.runtime.kernel import read_once
from otel_memwatch.runtime.typed import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from otel_memwatch.runtime.typed import Any


PATIENCE = 5.0
"""Seconds after which a tool is given up."""


class NoStackError(Exception):
    """The stacks could not be read this time; the message is the tool's."""


class NotPermittedError(NoStackError):
    """The kernel refuses to read the process."""


def is_running(pid: int, thread: int) -> bool:
    """Return whether a thread runs, waits for a processor or for a page, rather than sleeps."""
    try:
        stat = read_once(f"/proc/{pid}/task/{thread}/stat")
    except OSError:
        return False
    return stat[stat.rfind(b")") + 2 :][:1] in (b"R", b"D")


def output_of(command: Sequence[str], patience: float = PATIENCE, given: bytes = b"") -> str:
    """Return the output of a tool that reads `given`. Raises `NoStackError` with its last line of errors."""
    # With DEBUGINFOD_URLS set, elfutils downloads debug information: seconds, while the program may be stopped.
    variables = {name: value for name, value in os.environ.items() if name != "DEBUGINFOD_URLS"}
    try:
        done = subprocess.run(
            command,
            input=given,
            capture_output=True,
            timeout=patience,
            check=False,
            env=variables,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NoStackError(f"{os.path.basename(command[0])}: {error}") from None
    errors = done.stderr.decode(errors="replace").strip()
    if done.returncode == 0 and done.stdout.strip():
        return done.stdout.decode(errors="replace")
    last = (errors.splitlines() or [f"exit code {done.returncode}"])[-1].strip()
    refused = ("permission denied", "operation not permitted", "permissionerror")
    if any(words in errors.lower() for words in refused):
        raise NotPermittedError(last)
    raise NoStackError(f"{os.path.basename(command[0])}: {last}")


def json_output(output: str) -> Any:
    """Parse JSON. Raises `NoStackError`."""
    try:
        return json.loads(output)
    except ValueError as error:
        raise NoStackError(f"unexpected output: {error}") from None


_FRAME = re.compile(r"#(\d+)\s+0x([0-9a-f]+)(?: - \d+)?(.*?)(?: - ([/\[].*))?$")
_MOST_MAPS = 4 << 20
_MOST_ADDRESSES = 1000
_SYSTEM = re.compile(r"/(?:usr/)?lib(?:32|64)?/")
"""Modules whose lines are not looked up: of the C library alone this would take 35 ms."""


def parse_eu_stack(output: str) -> list[CapturedThread]:
    """Parse the output of `eu-stack -m`; frames have no lines."""
    threads: list[tuple[int, list[StackFrame]]] = []
    for row in output.splitlines():
        if row.startswith("TID "):
            threads.append((int(row[4:].rstrip(":")), []))
        elif threads and (found := _FRAME.match(row)):
            # All but the innermost frame have the address that follows their call.
            address = int(found[2], 16) - (int(found[1]) > 0)
            function = found[3].strip().partition("@")[0]  # "sleep@@GLIBC_2.2.5"
            threads[-1][1].append(StackFrame(function or "??", found[4] or "", 0, address))
    return [CapturedThread(thread, "", False, None, bounded(frames)) for thread, frames in threads if frames]


def read_functions(path: str, pid: int) -> list[CapturedThread]:
    """Read the stacks of all threads with eu-stack. Raises `NoStackError`."""
    threads = parse_eu_stack(output_of([path, "-m", "-p", str(pid)]))
    if not threads:
        raise NoStackError("eu-stack found no frame")
    return threads


# -- lines


def mapped_modules(pid: int, threads: Iterable[CapturedThread]) -> str:
    """Return the rows of /proc/PID/maps for the modules of these frames that may have lines; empty if there are none."""
    modules = {frame.file for thread in threads for frame in thread.frames if _may_have_line(frame)}
    if not modules:
        return ""
    try:
        with open(f"/proc/{pid}/maps", encoding="utf-8", errors="surrogateescape") as file:
            rows = file.read(_MOST_MAPS).splitlines()
    except OSError:
        return ""
    return "".join(f"{row}\n" for row in rows if row[row.find("/") :] in modules)


def find_lines(maps: str, threads: Iterable[CapturedThread], patience: float) -> dict[int, list[StackFrame]]:
    """Return the calls at each address, inlined ones first, for which debug information has a line.

    Args:
        maps: rows of `mapped_modules`.
        threads: their frames have the addresses.
        patience: seconds after which the lookup is given up.

    Raises `NoStackError`.

    """
    path = shutil.which("eu-addr2line")
    addresses = {frame.address for thread in threads for frame in thread.frames if _may_have_line(frame)}
    if path is None or not addresses:
        return {}
    command = [path, "-a", "-f", "-i", "-C", "--pretty-print", "-M", "/dev/stdin"]
    given = maps.encode(errors="surrogateescape")
    return parse_addr2line(
        output_of([*command, *map(hex, sorted(addresses)[:_MOST_ADDRESSES])], patience, given)
    )


def _may_have_line(frame: StackFrame) -> bool:
    return frame.address > 0 and frame.file.startswith("/") and not _SYSTEM.match(frame.file)


_CALL = re.compile(r"(?:0x([0-9a-f]+): | \(inlined by\) )(.*) at (.*?):(\d+)(?::\d+)?$")


def parse_addr2line(output: str) -> dict[int, list[StackFrame]]:
    """Parse the output of `eu-addr2line -a -f -i -C --pretty-print`."""
    found: dict[int, list[StackFrame]] = {}
    calls: list[StackFrame] = []
    for row in output.splitlines():
        call = _CALL.match(row)
        if call is None:
            continue
        if call[1] is not None:
            calls = found.setdefault(int(call[1], 16), [])
        if call[3] != "??":
            calls.append(StackFrame(call[2], call[3], int(call[4])))
    return {address: calls for address, calls in found.items() if calls}


def with_lines(thread: CapturedThread, found: Mapping[int, list[StackFrame]]) -> CapturedThread:
    """Return the thread with these calls in place of their addresses."""
    frames = [call for frame in thread.frames for call in found.get(frame.address, [frame])]
    return thread._replace(frames=bounded(frames))


_THREAD = re.compile(r'^"(.*)" .*?(?:nid=(0x[0-9a-f]+|\d+)).*?(runnable)?', re.MULTILINE)
_JAVA_FRAME = re.compile(r"^\s+at (\S+)\(([^:)]*)(?::(\d+))?\)")
_PID = re.compile(rb"\nNSpid:.*?(\d+)\n")
_REQUEST = b"1\0jcmd\0Thread.print\0\0\0"
"""Version of HotSpot's attach protocol, command, and three arguments."""
_MOST_BYTES = 16 << 20


def read_jvm(path: str, pid: int) -> list[CapturedThread]:
    """Read the threads of a JVM through its socket, or with jcmd if it has none. Raises `NoStackError`."""
    try:
        output = _through_socket(pid)
    except OSError:
        output = output_of([path, str(pid), "Thread.print"])
    threads = parse_thread_dump(output)
    if not threads:
        raise NoStackError("the thread dump has no thread")
    return threads


def _through_socket(pid: int) -> str:
    """Return the thread dump. Raises `OSError`, above all if jcmd has not been used yet."""
    found = _PID.search(read_once(f"/proc/{pid}/status"))
    # PID and /tmp as the JVM sees them: it may run in a container.
    name = f"/proc/{pid}/root/tmp/.java_pid{int(found[1]) if found else pid}"
    if not stat.S_ISSOCK(os.lstat(name).st_mode):
        raise OSError("it is no socket")
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(PATIENCE)
        connection.connect(name)
        connection.sendall(_REQUEST)
        answer = b""
        while len(answer) < _MOST_BYTES and (part := connection.recv(1 << 16)):
            answer += part
    status, _, output = answer.partition(b"\n")
    if status != b"0":
        raise OSError("it refuses the request")
    return output.decode(errors="replace")


def parse_thread_dump(output: str) -> list[CapturedThread]:
    """Parse the output of `Thread.print`; threads without Java frames are left out."""
    threads: list[tuple[int, str, bool, list[StackFrame]]] = []
    for row in output.splitlines():
        if head := _THREAD.match(row):
            threads.append((int(head[2], 0), head[1], " runnable " in row, []))
        elif threads and (call := _JAVA_FRAME.match(row)):
            threads[-1][3].append(StackFrame(call[1], call[2], int(call[3] or 0)))
    return [
        CapturedThread(number, name, active, None, bounded(frames))
        for number, name, active, frames in threads
        if frames
    ]
