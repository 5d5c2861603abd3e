"""The names of `typing` that this package needs at run time, without importing it.

A command waits for what is imported before it starts, and importing `typing` takes 2 to 3 ms. Type checkers see the
originals. Modules with named tuples need `from __future__ import annotations`.
"""

from __future__ import annotations

TYPE_CHECKING = False  # the name that type checkers know
if TYPE_CHECKING:
    from typing import Any, BinaryIO, NamedTuple, NoReturn, Protocol
else:
    from collections import _tuplegetter as field_getter

    Any = BinaryIO = NoReturn = Protocol = object
    _codes = {}
    """By the number of its fields, the code that makes a named tuple: some numbers are those of many classes."""

    def _constructor(cls: str, fields: tuple[str, ...], defaults: tuple[Any, ...]) -> Any:
        """`__new__` of a named tuple, which takes its fields by position and by name."""
        code = _codes.get(len(fields))
        if code is None:
            given = "".join(f"_{index}," for index in range(len(fields)))
            code = _codes[len(fields)] = eval(f"lambda _cls, {given}: new(_cls, ({given}))").__code__  # noqa: S307
        made = type(_constructor)(
            code.replace(co_name="__new__", co_varnames=("_cls", *fields)),
            {"new": tuple.__new__},
            "__new__",
            defaults,
        )
        made.__qualname__ = f"{cls}.__new__"
        return made

    class _Named(tuple):
        """What all named tuples have in common; see `collections.namedtuple`."""

        __slots__ = ()

        @classmethod
        def _make(cls, values: Any) -> Any:
            made = tuple.__new__(cls, values)
            if len(made) != len(cls._fields):
                raise TypeError(f"{cls.__name__} has {len(cls._fields)} fields, not {len(made)}")
            return made

        def _replace(self, /, **changes: Any) -> Any:
            made = tuple.__new__(type(self), map(changes.pop, self._fields, self))
            if changes:
                raise TypeError(f"Got unexpected field names: {list(changes)!r}")
            return made

        __replace__ = _replace

        def _asdict(self) -> dict[str, Any]:
            return dict(zip(self._fields, self))  # noqa: B905 - they have one length

        def __repr__(self) -> str:
            values = ", ".join(f"{field}={value!r}" for field, value in zip(self._fields, self))  # noqa: B905
            return f"{type(self).__name__}({values})"

        def __getnewargs__(self) -> tuple[Any, ...]:
            return tuple(self)

    class _NamedTupleMaker(type):
        """Makes of `class Point(NamedTuple)` what `typing.NamedTuple` makes of it, in a fifth of the time."""

        def __new__(cls, name: str, _bases: tuple[type, ...], namespace: dict[str, Any]) -> type:
            fields = tuple(namespace["__annotations__"])
            defaults = {field: namespace[field] for field in fields if field in namespace}
            namespace.update(
                {field: field_getter(index, "") for index, field in enumerate(fields)},
                __slots__=(),
                __new__=_constructor(name, fields, tuple(defaults.values())),
                __match_args__=fields,
                _fields=fields,
                _field_defaults=defaults,
            )
            return type(name, (_Named,), namespace)

    class _NamedTuple:
        """Stands for the base class: it is replaced when a class statement names it."""

        _base = type.__new__(_NamedTupleMaker, "NamedTuple", (), {})

        def __mro_entries__(self, bases: tuple[Any, ...]) -> tuple[type, ...]:
            return (self._base,)

    NamedTuple = _NamedTuple()

__all__ = ["TYPE_CHECKING", "Any", "BinaryIO", "NamedTuple", "NoReturn", "Protocol"]
