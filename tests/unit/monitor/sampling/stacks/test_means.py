"""Outputs of the tools that read stacks."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from otel_memwatch.monitor.sampling.stacks import means
from otel_memwatch.record.stacks import StackFrame


def _process(proc: Path, executable: str, maps: bytes = b"") -> int:
    (proc / "5").mkdir()
    os.symlink(executable, proc / "5" / "exe")
    (proc / "5" / "maps").write_bytes(maps)
    return 5


@pytest.mark.parametrize(
    ("executable", "maps", "kind"),
    [
        ("/usr/bin/python3.12", b"", "python"),
        ("/opt/blender", b"7f /usr/lib/libpython3.11.so.1.0\n", "python"),
        ("/usr/bin/java", b"7f /usr/lib/jvm/lib/server/libjvm.so\n", "jvm"),
        ("/usr/bin/sort", b"7f /usr/lib/libc.so.6\n", "native"),
    ],
)
def test_the_kind_of_a_program(tmp_path: Path, executable: str, maps: bytes, kind: str) -> None:
    assert means.kind_of(_process(tmp_path, executable, maps), str(tmp_path)) == kind


def test_a_process_that_has_ended_counts_as_native(tmp_path: Path) -> None:
    assert means.kind_of(5, str(tmp_path)) == "native"


def test_py_spy_stops_the_program_only_after_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []

    def run(command: Any) -> str:
        seen.append("--nonblocking" in command)
        if len(seen) < 2:
            raise means.NoStackError("changed while it was read")
        return (
            '[{"os_thread_id": 9, "thread_name": "T", "active": true, "owns_gil": false, "frames": '
            '[{"name": "f", "filename": "a.py", "line": 2}]}, {"frames": []}]'
        )

    monkeypatch.setattr(means, "output_of", run)
    (thread,) = means._by_py_spy("py-spy", 9)
    assert seen == [True, False]
    assert (thread.id, thread.active, thread.frames) == (9, True, (StackFrame("f", "a.py", 2),))


def test_no_tool_is_a_reason_with_a_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(means, "MEANS", tuple(one._replace(executable=lambda: None) for one in means.MEANS))
    monkeypatch.setattr(means, "kind_of", lambda pid: "native")
    with pytest.raises(means.NoStackError, match="elfutils"):
        means.capture(5)


@pytest.mark.parametrize(
    ("scope", "root", "expected"),
    [
        ("0", False, (True, False)),
        ("1", True, (True, False)),
        ("1", False, (True, True)),
        ("2", True, (True, False)),
        ("2", False, (False, True)),
        ("3", True, (False, True)),
        (None, False, (True, False)),
    ],
)
def test_permission_follows_the_ptrace_scope(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    scope: str | None,
    root: bool,
    expected: tuple[bool, bool],
) -> None:
    if scope is not None:
        (tmp_path / "scope").write_text(f"{scope}\n")
    monkeypatch.setattr(means, "_YAMA", str(tmp_path / "scope"))
    monkeypatch.setattr(means, "may_trace_all", lambda: root)
    monkeypatch.setattr(means.os, "geteuid", lambda: 1000)
    allowed, words = means.permission()
    assert (allowed, bool(words)) == expected


def test_root_without_the_capability_may_read_some_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(means, "_YAMA", "/gone")
    monkeypatch.setattr(means, "may_trace_all", lambda: False)
    monkeypatch.setattr(means.os, "geteuid", lambda: 0)
    allowed, words = means.permission()
    assert allowed
    assert "SYS_PTRACE" in words
