"""A Python of its own for a module of ours finds this package."""

from __future__ import annotations

from pathlib import Path

import otel_memwatch
from otel_memwatch.runtime import own_python


def test_the_package_lies_where_its_own_python_looks_for_it() -> None:
    """An installed copy, of another version perhaps, would be taken instead."""
    assert Path(own_python.PACKAGE_PARENT, "otel_memwatch", "__init__.py").samefile(otel_memwatch.__file__)
