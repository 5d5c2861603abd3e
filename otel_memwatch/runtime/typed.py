"""Replacements for names of `typing` that this package needs at run time.

Imports delay the start of the command, and `typing` takes 2 to 3 ms. Type checkers see the originals. Modules with
named tuples need `from __future__ import annotations`.

Enumerations stand here for the same reason: importing `enum` takes 1 ms, and each of its classes 0.15 ms.

A hundred named tuples are defined for a short run. `collections.namedtuple` compiles a constructor for each, in 0.1 ms. Here a
class gets a copy of a template with other names instead, at its second instance. One with very many fields has no template.
"""

from __future__ import annotations

TYPE_CHECKING = False  # type checkers know this name
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from enum import Enum
    from typing import Any, BinaryIO, NamedTuple, NoReturn, Protocol
else:
    try:
        from _collections import _tuplegetter
    except ImportError:  # as in `collections`: not CPython
        from operator import itemgetter

        def _tuplegetter(index: int, doc: str | None) -> property:
            return property(itemgetter(index), doc=doc)

    Any = BinaryIO = NoReturn = Protocol = object

    _new = tuple.__new__
    # fmt: off
    _TEMPLATES = (
        lambda _cls: _new(_cls, ()),
        lambda _cls, a: _new(_cls, (a,)),
        lambda _cls, a, b: _new(_cls, (a, b)),
        lambda _cls, a, b, c: _new(_cls, (a, b, c)),
        lambda _cls, a, b, c, d: _new(_cls, (a, b, c, d)),
        lambda _cls, a, b, c, d, e: _new(_cls, (a, b, c, d, e)),
        lambda _cls, a, b, c, d, e, f: _new(_cls, (a, b, c, d, e, f)),
        lambda _cls, a, b, c, d, e, f, g: _new(_cls, (a, b, c, d, e, f, g)),
        lambda _cls, a, b, c, d, e, f, g, h: _new(_cls, (a, b, c, d, e, f, g, h)),
        lambda _cls, a, b, c, d, e, f, g, h, i: _new(_cls, (a, b, c, d, e, f, g, h, i)),
        lambda _cls, a, b, c, d, e, f, g, h, i, j: _new(_cls, (a, b, c, d, e, f, g, h, i, j)),
        lambda _cls, a, b, c, d, e, f, g, h, i, j, k: _new(_cls, (a, b, c, d, e, f, g, h, i, j, k)),
        lambda _cls, a, b, c, d, e, f, g, h, i, j, k, m: _new(_cls, (a, b, c, d, e, f, g, h, i, j, k, m)),
        lambda _cls, a, b, c, d, e, f, g, h, i, j, k, m, n: _new(_cls, (a, b, c, d, e, f, g, h, i, j, k, m, n)),
    )
    # fmt: on
    """Constructors of named tuples by the number of fields. A copy with other names takes a fortieth of compiling one."""

    _FEW = 8
    """Instances for which compiling a constructor costs more than it saves."""
    _instances: dict[type, int] = {}
    """Number of instances of each class without a compiled constructor."""

    _getters: list[Any] = []
    """Descriptor of each index, shared by all classes."""

    def _initializer(fields: tuple[str, ...], defaults: tuple[Any, ...]) -> Callable[..., Any]:
        """Return the `__new__` of a named tuple."""
        if len(fields) < len(_TEMPLATES):
            code = _TEMPLATES[len(fields)].__code__.replace(co_varnames=("_cls", *fields))
            return type(_initializer)(code, globals(), argdefs=defaults)
        names = ", ".join(fields)
        made = eval(f"lambda _cls, {names}: _new(_cls, ({names},))")  # noqa: S307
        made.__defaults__ = defaults
        return made

    class _Tuple(tuple):
        """Methods of all named tuples."""

        __slots__ = ()
        _fields = ()

        def __new__(cls, *values: Any, **named: Any) -> Any:
            """Return an instance. Make a constructor if the class has several, or if the arguments are wrong."""
            owner = cls
            if "_field_defaults" not in cls.__dict__:
                owner = next(one for one in cls.__mro__ if "_field_defaults" in one.__dict__)
            number = _instances[owner] = _instances.get(owner, 0) + 1
            fields = owner._fields
            if number <= (1 if len(fields) < len(_TEMPLATES) else _FEW):
                if len(values) == len(fields) and not named:
                    return tuple.__new__(cls, values)
                missing = fields[len(values) :]
                try:
                    made = tuple.__new__(
                        cls, (*values, *map({**owner._field_defaults, **named}.__getitem__, missing))
                    )
                except KeyError:
                    made = ()
                if len(made) == len(fields) and named.keys() <= set(missing):
                    return made
            made = _initializer(owner._fields, tuple(owner._field_defaults.values()))
            made.__name__ = made.__qualname__ = owner.__name__  # the subject of its error messages
            owner.__new__ = staticmethod(made)
            return cls.__new__(cls, *values, **named)

        @classmethod
        def _make(cls, values: Iterable[Any]) -> _Tuple:
            made = tuple.__new__(cls, values)
            if len(made) != len(cls._fields):
                raise TypeError(f"{cls.__name__} has {len(cls._fields)} fields, not {len(made)}")
            return made

        def _replace(self, /, **changes: Any) -> _Tuple:
            made = self._make(map(changes.pop, self._fields, self))
            if changes:
                raise ValueError(f"{type(self).__name__} has no field {', '.join(changes)}")
            return made

        def _asdict(self) -> dict[str, Any]:
            return dict(zip(self._fields, self, strict=True))

        def __repr__(self) -> str:
            shown = ", ".join(f"{name}={value!r}" for name, value in self._asdict().items())
            return f"{type(self).__name__}({shown})"

        def __getnewargs__(self) -> tuple[Any, ...]:
            return tuple(self)

    _METHODS: dict[str, Any] = {
        name: value for name, value in vars(_Tuple).items() if callable(value) or name == "_make"
    }

    class _NamedTupleMaker(type):
        """Metaclass that turns `class Point(NamedTuple)` into a named tuple, like `typing.NamedTuple`."""

        def __new__(cls, name: str, _bases: tuple[type, ...], namespace: dict[str, Any]) -> type:
            fields = tuple(namespace["__annotations__"])
            defaults = {field: namespace[field] for field in fields if field in namespace}
            while len(_getters) < len(fields):
                _getters.append(_tuplegetter(len(_getters), None))
            namespace.update(zip(fields, _getters))  # noqa: B905 - there may be more getters
            namespace.update(__slots__=(), _fields=fields, _field_defaults=defaults, __match_args__=fields)
            # With the methods in each class, not in a base: a class with another base takes 3 us more.
            return type(name, (tuple,), _METHODS | namespace)

    class _NamedTuple:
        """Placeholder for the base class, replaced when a class statement names it."""

        _base = type.__new__(_NamedTupleMaker, "NamedTuple", (), {})

        def __mro_entries__(self, bases: tuple[Any, ...]) -> tuple[type, ...]:
            return (self._base,)

    NamedTuple = _NamedTuple()

    def named_tuple(module: str, name: str, fields: Iterable[str], defaults: Mapping[str, Any]) -> type:
        """Return a named tuple with the fields of a table."""
        namespace = {"__module__": module, "__annotations__": dict.fromkeys(fields), **defaults}
        return _NamedTupleMaker(name, (), namespace)

    def _name_of_member(member: Any) -> str:
        return f"{type(member).__name__}.{member.name}"

    _OF_MEMBERS = {
        "__str__": _name_of_member,
        "__repr__": lambda member: f"<{_name_of_member(member)}: {member.value!r}>",
        "__format__": lambda member, form: format(_name_of_member(member), form),
        "__reduce_ex__": lambda member, _: (type(member), (member.value,)),
    }
    """Methods of members, which come before those of `str`."""

    class _EnumMeta(type):
        """Metaclass that turns the attributes of a class into its members, like that of `enum.Enum`."""

        def __new__(cls, name: str, bases: tuple[type, ...], namespace: dict[str, Any]) -> type:
            values = {
                key: value
                for key, value in namespace.items()
                if not key.startswith("_") and not hasattr(value, "__get__")
            }
            members: dict[str, Any] = {}
            by_value: dict[Any, Any] = {}
            made = type.__new__(
                cls, name, bases, {**_OF_MEMBERS, **namespace, "__members__": members, "_by_value": by_value}
            )
            for key, value in values.items():
                given = value if isinstance(value, tuple) else (value,)
                member = (
                    object.__new__(made) if made.__new__ is object.__new__ else made.__new__(made, *given)
                )
                member.name, member.value = key, given[0]
                members[key] = by_value[given[0]] = member
                setattr(made, key, member)
            return made

        def __call__(cls, value: Any) -> Any:
            """Return the member of a value."""
            try:
                return cls._by_value[value]
            except (KeyError, TypeError):
                raise ValueError(f"{value!r} is not a valid {cls.__qualname__}") from None

        def __contains__(cls, value: Any) -> bool:
            return isinstance(value, cls)

        def __iter__(cls) -> Iterator[Any]:
            return iter(cls.__members__.values())

        def __len__(cls) -> int:
            return len(cls.__members__)

    class Enum(metaclass=_EnumMeta):
        """Base of enumerations."""


__all__ = ["TYPE_CHECKING", "Any", "BinaryIO", "Enum", "NamedTuple", "NoReturn", "Protocol"]
