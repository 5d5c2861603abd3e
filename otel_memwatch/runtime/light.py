"""Parts of the standard library that the start of a command needs, without the modules that define them.

`contextlib`, `threading`, `functools`, `collections` and others load each other, and take 2 ms. Their fast parts are
compiled into the interpreter, and the rest is a few lines. Type checkers see the originals.
"""

from __future__ import annotations

import sys

TYPE_CHECKING = False  # type checkers know this name
if TYPE_CHECKING:
    from collections import OrderedDict, defaultdict, deque
    from collections.abc import Callable, Mapping
    from contextlib import ExitStack, suppress
    from functools import cached_property, lru_cache, partial
    from operator import attrgetter, eq, ge, itemgetter, le
    from struct import Struct
    from threading import Lock, get_ident
    from types import MappingProxyType
    from typing import Any
else:
    from _collections import OrderedDict, defaultdict, deque
    from _collections_abc import Mapping
    from _functools import _lru_cache_wrapper, partial
    from _operator import attrgetter, eq, ge, itemgetter, le
    from _struct import Struct
    from _thread import allocate_lock as Lock  # noqa: N812
    from _thread import get_ident

    MappingProxyType = type(type.__dict__)

    class suppress:  # noqa: N801 - named like the original, as are the classes below
        """Context that ends silently at an exception of these kinds."""

        def __init__(self, *kinds: type[BaseException]) -> None:
            self._kinds = kinds

        def __enter__(self) -> None:
            pass

        def __exit__(self, kind: type[BaseException] | None, *_: object) -> bool:
            return kind is not None and issubclass(kind, self._kinds)

    class ExitStack:
        """Functions to call at the end of a context, the last one first. All are called, even if one raises."""

        def __init__(self) -> None:
            self._callbacks: list[Any] = []

        def callback(self, function: Callable[..., object], /, *arguments: Any) -> None:
            """Call `function` at the end."""
            self._callbacks.append((function, arguments))

        def pop_all(self) -> None:
            """Call nothing at the end."""
            self._callbacks.clear()

        def close(self) -> None:
            """Call the functions now."""
            if self._callbacks:
                function, arguments = self._callbacks.pop()
                try:
                    function(*arguments)
                finally:
                    self.close()

        def __enter__(self) -> Any:
            return self

        def __exit__(self, *_: object) -> None:
            self.close()

    class cached_property:  # noqa: N801
        """Attribute that a method computes at its first use."""

        def __init__(self, func: Callable[[Any], Any]) -> None:
            self.func = func
            self.__doc__ = func.__doc__

        def __set_name__(self, owner: type, name: str) -> None:
            self._name = name

        def __get__(self, instance: Any, owner: type | None = None) -> Any:
            if instance is None:
                return self
            value = instance.__dict__[self._name] = self.func(instance)
            return value

    def lru_cache(maxsize: int | None) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        """Return a decorator that keeps the last results of a function, all of them if `maxsize` is `None`."""

        def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
            made = _lru_cache_wrapper(function, maxsize, False, lambda *figures: figures)
            for name in ("__module__", "__name__", "__qualname__", "__doc__", "__annotations__"):
                setattr(made, name, getattr(function, name))
            made.__wrapped__ = function
            return made

        return decorate


def load_array() -> None:
    """Load `array` without `collections`, of which it needs one abstract class. This saves 2 ms.

    Call it while no other thread imports: one that imports `collections` meanwhile would get the stand-in.
    """
    if "array" in sys.modules or "collections" in sys.modules:
        return
    import _collections_abc

    stand_ins = "collections", "collections.abc"
    sys.modules.update(dict.fromkeys(stand_ins, _collections_abc))
    try:
        import array  # noqa: F401
    except (ImportError, AttributeError):  # a version that needs more of `collections`: its user loads both
        pass
    finally:
        for name in stand_ins:
            del sys.modules[name]


__all__ = [
    "ExitStack",
    "Lock",
    "Mapping",
    "MappingProxyType",
    "OrderedDict",
    "Struct",
    "attrgetter",
    "cached_property",
    "defaultdict",
    "deque",
    "eq",
    "ge",
    "get_ident",
    "itemgetter",
    "le",
    "load_array",
    "lru_cache",
    "partial",
    "suppress",
]
