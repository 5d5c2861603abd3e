"""The names of `typing` that this package needs at run time, without importing it.

Importing `typing` takes 2 ms, and each `typing.NamedTuple` 0.1 ms, since it compiles every annotation and a function
for each class. A short command would wait for that. Type checkers see the originals.
Modules with named tuples need `from __future__ import annotations`.
"""

from __future__ import annotations

TYPE_CHECKING = False  # the name that type checkers know
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any, BinaryIO, NamedTuple, NoReturn, Protocol
else:
    from collections import _tuplegetter

    Any = BinaryIO = NoReturn = Protocol = object

    def _new(cls: type, /, *values: Any, **named: Any) -> Any:
        if named or len(values) != len(cls._fields):
            values = _complete(cls, values, named)
        return tuple.__new__(cls, values)

    def _complete(cls: type, values: tuple[Any, ...], named: dict[str, Any]) -> tuple[Any, ...]:
        """The values of all fields. Raises `TypeError` as a call of a function with these parameters does."""
        fields, defaults = cls._fields, cls._field_defaults
        if len(values) > len(fields):
            raise TypeError(f"{cls.__name__} takes {len(fields)} values, {len(values)} were given")
        twice = [name for name in fields[: len(values)] if name in named]
        unknown = [name for name in named if name not in fields]
        rest = fields[len(values) :]
        missing = [name for name in rest if name not in named and name not in defaults]
        if twice or unknown or missing:
            raise TypeError(f"{cls.__name__}: given twice {twice}, unknown {unknown}, missing {missing}")
        return (*values, *[named[name] if name in named else defaults[name] for name in rest])

    def _make(cls: type, values: Iterable[Any]) -> Any:
        made = tuple.__new__(cls, values)
        if len(made) != len(cls._fields):
            raise TypeError(f"{cls.__name__} takes {len(cls._fields)} values, {len(made)} were given")
        return made

    def _replace(self: Any, /, **named: Any) -> Any:
        made = tuple.__new__(type(self), [named.pop(*pair) for pair in zip(self._fields, self, strict=True)])
        if named:
            raise TypeError(f"{type(self).__name__} has no {list(named)}")
        return made

    def _asdict(self: Any) -> dict[str, Any]:
        return dict(zip(self._fields, self, strict=True))

    def _repr(self: Any) -> str:
        inner = ", ".join(f"{name}={value!r}" for name, value in zip(self._fields, self, strict=True))
        return f"{type(self).__name__}({inner})"

    def _newargs(self: Any) -> tuple[Any, ...]:
        return tuple(self)

    _METHODS = {
        "__slots__": (),
        "__new__": _new,
        "__repr__": _repr,
        "__getnewargs__": _newargs,
        "_make": classmethod(_make),
        "_replace": _replace,
        "_asdict": _asdict,
    }

    class _Maker(type):
        """Makes of a class statement a class of tuples, as `typing.NamedTuple` does."""

        def __new__(cls, name: str, _bases: tuple[type, ...], namespace: dict[str, Any]) -> type:
            fields = tuple(namespace["__annotations__"])
            defaults = {field: namespace[field] for field in fields if field in namespace}
            accessors = {field: _tuplegetter(place, None) for place, field in enumerate(fields)}
            own = {"_fields": fields, "_field_defaults": defaults, "__match_args__": fields}
            return type(name, (tuple,), {**_METHODS, **namespace, **own, **accessors})

    class _NamedTuple:
        """Stands for the base class in `class Point(NamedTuple)`."""

        _base = type.__new__(_Maker, "NamedTuple", (), {})

        def __mro_entries__(self, bases: tuple[Any, ...]) -> tuple[type, ...]:
            return (self._base,)

    NamedTuple = _NamedTuple()

__all__ = ["TYPE_CHECKING", "Any", "BinaryIO", "NamedTuple", "NoReturn", "Protocol"]
