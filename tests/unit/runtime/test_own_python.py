"""A Python of its own for a module of ours finds this package."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

import otel_memwatch
from otel_memwatch.runtime import own_python


def test_the_package_lies_where_its_own_python_looks_for_it() -> None:
    """An installed copy, of another version perhaps, would be taken instead."""
    assert Path(own_python.PACKAGE_PARENT, "otel_memwatch", "__init__.py").samefile(otel_memwatch.__file__)


@pytest.mark.parametrize(("isolated", "options"), [(1, ["-I"]), (0, [])])
def test_a_python_of_its_own_ignores_what_this_one_ignores(
    isolated: int, options: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """PYTHONHOME and PYTHONPATH are then meant for the command."""
    monkeypatch.setattr(sys, "flags", SimpleNamespace(isolated=isolated))
    assert own_python.interpreter() == [sys.executable, *options]
    assert own_python.python_command("m")[: 1 + len(options)] == [sys.executable, *options]
