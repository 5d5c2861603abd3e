"""Importing a framework that may not be there."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from otel_memwatch.errors import Unavailable


def framework(*names: str, install: str) -> Any:
    """The first of these modules that is installed. Raises `Unavailable` when none is."""
    for name in names:
        try:
            return import_module(name)
        except ModuleNotFoundError as error:
            if error.name is None or not name.startswith(error.name.partition(".")[0]):
                raise
    raise Unavailable(f"{names[0].partition('.')[0]} is not installed.", f"pip install {install}")
