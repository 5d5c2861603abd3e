"""Stacks of a JVM, from its thread dump.

`jcmd` is a Java program and takes 200 ms of CPU time. It makes the JVM open a socket for tools, `/tmp/.java_pid<pid>`. Later
captures write the same request to that socket, which takes 1 ms. Only the owner of the process may connect.
"""

from __future__ import annotations

import os
import re
import socket
import stat

from otel_memwatch.monitor.sampling.stacks.tools import PATIENCE, NoStackError, output_of
from otel_memwatch.record.stacks import CapturedThread, StackFrame, bounded
from otel_memwatch.runtime.kernel import read_once

_THREAD = re.compile(r'^"(.*)" .*?(?:nid=(0x[0-9a-f]+|\d+)).*?(runnable)?', re.MULTILINE)
_FRAME = re.compile(r"^\s+at (\S+)\(([^:)]*)(?::(\d+))?\)")
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
        elif threads and (call := _FRAME.match(row)):
            threads[-1][3].append(StackFrame(call[1], call[2], int(call[3] or 0)))
    return [
        CapturedThread(number, name, active, None, bounded(frames))
        for number, name, active, frames in threads
        if frames
    ]
