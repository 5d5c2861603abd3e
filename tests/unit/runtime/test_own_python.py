"""A separate Python for a module of ours finds this package."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

import otel_memwatch
from otel_memwatch.runtime import own_python


def test_the_package_lies_where_the_separate_python_looks_for_it() -> None:
    """An installed copy, of another version perhaps, would be taken instead."""
    assert Path(own_python.PACKAGE_PARENT, "otel_memwatch", "__init__.py").samefile(otel_memwatch.__file__)


@pytest.mark.parametrize(
    ("isolated", "ignore_environment", "options"), [(1, 1, ["-I"]), (0, 1, ["-E"]), (0, 0, [])]
)
def test_a_separate_python_ignores_what_this_one_ignores(
    isolated: int, ignore_environment: int, options: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """PYTHONHOME and PYTHONPATH are then intended for the command."""
    flags = SimpleNamespace(isolated=isolated, ignore_environment=ignore_environment)
    monkeypatch.setattr(sys, "flags", flags)
    start = [sys.executable, *options]
    assert own_python.interpreter() == start
    assert own_python.python_command("m")[: len(start)] == start
    assert own_python.command_line("wrap", "x")[: len(start) + 1] == [*start, "-c"]
    assert own_python.command_line("wrap", "x")[-2:] == ["wrap", "x"]
