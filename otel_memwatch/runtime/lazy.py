"""Lazy names of a package, loaded at their first use. Importing the package costs a watched program nothing."""

from __future__ import annotations

TYPE_CHECKING = (
    False  # type checkers know this name; importing `typing` would cost every watched program 9 ms
)
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any


def load_module(name: str) -> Any:
    """Import and return a module. `importlib` can do this, but importing it takes 0.3 ms."""
    import sys

    __import__(name)
    return sys.modules[name]


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
        value = getattr(load_module(f"{package}.{homes[name]}"), name)
        vars(load_module(package))[name] = value
        return value

    return load
