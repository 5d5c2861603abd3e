"""Replacements for names of `typing` that this package needs at run time.

Imports delay the start of the command, and `typing` takes 2 to 3 ms. Type checkers see the originals. Modules with
named tuples need `from __future__ import annotations`.
"""

from __future__ import annotations

TYPE_CHECKING = False  # type checkers know this name
if TYPE_CHECKING:
    from typing import Any, BinaryIO, NamedTuple, NoReturn, Protocol
else:
    from collections import namedtuple

    Any = BinaryIO = NoReturn = Protocol = object

    class _NamedTupleMaker(type):
        """Metaclass that turns `class Point(NamedTuple)` into a named tuple, like `typing.NamedTuple`."""

        def __new__(cls, name: str, _bases: tuple[type, ...], namespace: dict[str, Any]) -> type:
            fields = tuple(namespace["__annotations__"])
            defaults = [namespace.pop(field) for field in fields if field in namespace]
            made = namedtuple(name, fields, defaults=defaults, module=namespace["__module__"])  # noqa: PYI024
            for key, value in namespace.items():
                setattr(made, key, value)
            return made

    class _NamedTuple:
        """Placeholder for the base class, replaced when a class statement names it."""

        _base = type.__new__(_NamedTupleMaker, "NamedTuple", (), {})

        def __mro_entries__(self, bases: tuple[Any, ...]) -> tuple[type, ...]:
            return (self._base,)

    NamedTuple = _NamedTuple()

__all__ = ["TYPE_CHECKING", "Any", "BinaryIO", "NamedTuple", "NoReturn", "Protocol"]
