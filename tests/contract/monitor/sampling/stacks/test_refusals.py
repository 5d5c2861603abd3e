"""Refusals of tools that read stacks, checked with the kernel."""

from __future__ import annotations

import os
from typing import Any

import pytest

from otel_memwatch.monitor.sampling.stacks import means


def _refused_by_tool(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: str, pid: int) -> Any:
        raise means.NotPermittedError("Operation not permitted")

    tools = tuple(one._replace(executable=lambda: "tool", read=refuse) for one in means.MEANS)
    monkeypatch.setattr(means, "MEANS", tools)


def test_a_refused_tool_is_no_refusal_if_the_process_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    _refused_by_tool(monkeypatch)
    child = os.posix_spawn("/bin/true", ["true"], {})
    os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)  # a zombie
    with pytest.raises(means.NoStackError) as caught:
        means.capture(child)
    os.waitpid(child, 0)
    assert type(caught.value) is means.NoStackError


def test_the_kernel_decides_what_a_refusal_is(monkeypatch: pytest.MonkeyPatch) -> None:
    _refused_by_tool(monkeypatch)
    monkeypatch.setattr(means, "_is_refused", lambda pid: True)
    with pytest.raises(means.NotPermittedError):
        means.capture(os.getpid())
