"""Thread dumps of a JVM: parsed, and requested through its socket."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from threading import Thread

import pytest

from otel_memwatch.monitor.sampling.stacks import tools
from otel_memwatch.monitor.sampling.stacks.tools import NoStackError
from otel_memwatch.record.stacks import StackFrame

JCMD = """77:
2026-11-24 15:00:00
Full thread dump OpenJDK 64-Bit Server VM:

"main" #1 prio=5 os_prio=0 cpu=120.35ms elapsed=1.07s tid=0x00007f nid=0x4d1 runnable  [0x00007f]
   java.lang.Thread.State: RUNNABLE
\tat Grow.load(Grow.java:7)
\tat Grow.main(Grow.java:12)

"Reference Handler" #2 daemon prio=10 os_prio=0 tid=0x00007f nid=1235 waiting on condition  [0x00007f]
   java.lang.Thread.State: RUNNABLE
\tat java.lang.ref.Reference.waitForReferencePendingList(java.base@17/Native Method)

"GC Thread#0" os_prio=0 tid=0x00007f nid=0x4d2 runnable
"""


def test_java_threads_have_their_native_id() -> None:
    main, handler = tools.parse_thread_dump(JCMD)
    assert (main.id, main.name, main.active) == (0x4D1, "main", True)
    assert main.frames == (StackFrame("Grow.load", "Grow.java", 7), StackFrame("Grow.main", "Grow.java", 12))
    assert (handler.id, handler.active) == (1235, False)
    assert handler.frames[0].line == 0


def test_output_without_frames_has_no_threads() -> None:
    assert tools.parse_thread_dump("") == []


def _answer(server: socket.socket, answer: bytes, seen: list[bytes]) -> None:
    connection, _ = server.accept()
    with connection:
        seen.append(connection.recv(1000))
        connection.sendall(answer)


def _no_tool(command: object) -> str:
    raise NoStackError(f"{command}")


def test_a_jvm_with_a_socket_needs_no_tool(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tools, "output_of", _no_tool)
    path = Path(f"/tmp/.java_pid{os.getpid()}")
    seen: list[bytes] = []
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
        server.listen(1)
        try:
            helper = Thread(target=_answer, args=(server, b"0\n" + JCMD.encode(), seen))
            helper.start()
            threads = tools.read_jvm("jcmd", os.getpid())
            helper.join()
            assert seen == [b"1\0jcmd\0Thread.print\0\0\0"]
            assert threads[0].frames[0] == StackFrame("Grow.load", "Grow.java", 7)
            helper = Thread(target=_answer, args=(server, b"101\nnot supported", seen))
            helper.start()
            with pytest.raises(NoStackError, match="jcmd"):  # the tool is tried then
                tools.read_jvm("jcmd", os.getpid())
            helper.join()
        finally:
            path.unlink()


def test_without_a_socket_jcmd_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[object] = []
    monkeypatch.setattr(tools, "output_of", lambda command: asked.append(command) or JCMD)
    path = Path(f"/tmp/.java_pid{os.getpid()}")
    for create in (False, True):
        if create:
            path.write_text("0\n")  # no socket
        assert len(tools.read_jvm("jcmd", os.getpid())) == 2
    path.unlink()
    assert asked == [["jcmd", str(os.getpid()), "Thread.print"]] * 2
