"""Names of a package that are loaded when they are first used: importing it must cost a watched program nothing."""

from __future__ import annotations

TYPE_CHECKING = False  # the name that type checkers know: importing `typing` costs every watched program 9 ms
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any


def names(package: str, homes: Mapping[str, str]) -> Callable[[str], Any]:
    """The `__getattr__` of a package.

    Args:
        package: its full name.
        homes: the module, relative to the package, of each name.

    What it returns raises `AttributeError` for any other name, and keeps what it has found in the package.
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
