"""Lazy names of a package, loaded at their first use. Importing the package costs a watched program nothing."""

from __future__ import annotations

TYPE_CHECKING = (
    False  # type checkers know this name; importing `typing` would cost every watched program 9 ms
)
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any


def names(package: str, homes: Mapping[str, str]) -> Callable[[str], Any]:
    """Return the `__getattr__` of a package.

    Args:
        package: its full name.
        homes: the module, relative to the package, of each name.

    The returned function stores each loaded name in the package, and raises `AttributeError` for any other name.
    """

    def load(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        import sys
        from importlib import import_module

        value = getattr(import_module(f"{package}.{homes[name]}"), name)
        vars(sys.modules[package])[name] = value
        return value

    return load
