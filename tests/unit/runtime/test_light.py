"""The light parts of the standard library behave like the originals."""

from __future__ import annotations

import builtins
import contextlib
import functools
import sys
from typing import Any

import pytest

from otel_memwatch.runtime import light

LIBRARIES = pytest.mark.parametrize("library", [contextlib, light])
CACHES = pytest.mark.parametrize("library", [functools, light])


@LIBRARIES
def test_only_the_named_exceptions_are_suppressed(library: Any) -> None:
    with library.suppress(OSError, ValueError):
        raise FileNotFoundError
    with library.suppress():
        pass
    with pytest.raises(KeyError), library.suppress(OSError):
        raise KeyError


@LIBRARIES
def test_every_callback_runs_in_reverse_order_even_if_one_raises(library: Any) -> None:
    called: list[str] = []

    def fail() -> None:
        called.append("fail")
        raise OSError("of a callback")

    stack = library.ExitStack()
    stack.callback(called.append, "first")
    stack.callback(fail)
    stack.callback(called.append, "last")
    with pytest.raises(OSError, match="of a callback"):
        stack.close()
    assert called == ["last", "fail", "first"]


@LIBRARIES
def test_callbacks_run_once_and_not_after_pop_all(library: Any) -> None:
    called: list[int] = []
    with library.ExitStack() as stack:
        stack.callback(called.append, 1)
        stack.close()
        stack.callback(called.append, 2)
        stack.pop_all()
    assert called == [1]


@CACHES
def test_a_cached_property_is_computed_once_for_each_object(library: Any) -> None:
    class Square:
        computed = 0

        def __init__(self, side: int) -> None:
            self.side = side

        @library.cached_property
        def area(self) -> int:
            """Area."""
            Square.computed += 1
            return self.side * self.side

    two, three = Square(2), Square(3)
    assert (two.area, two.area, three.area, Square.computed) == (4, 4, 9, 2)
    assert Square.area.__doc__ == "Area."
    del two.area
    two.side = 5
    assert two.area == 25


@CACHES
def test_a_cache_keeps_the_last_results_and_the_names(library: Any) -> None:
    called: list[int] = []

    @library.lru_cache(2)
    def double(value: int) -> int:
        """Return twice the value."""
        called.append(value)
        return 2 * value

    assert [double(value) for value in (1, 2, 1, 3, 1, 2)] == [2, 4, 2, 6, 2, 4]
    assert called == [1, 2, 3, 2]
    assert (double.__name__, double.__doc__) == ("double", "Return twice the value.")
    double.cache_clear()
    assert double(1) == 2
    assert called == [1, 2, 3, 2, 1]


@pytest.mark.parametrize("fails", [False, True])
def test_array_is_loaded_without_traces_of_the_stand_in(
    monkeypatch: pytest.MonkeyPatch, *, fails: bool
) -> None:
    """Also by a version of Python that needs more: then the module that uses it loads both."""
    for name in ("array", "collections", "collections.abc"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    original = builtins.__import__

    def imported(name: str, *arguments: Any) -> Any:
        if fails and name == "array":
            raise AttributeError("OrderedDict")
        return original(name, *arguments)

    monkeypatch.setattr(builtins, "__import__", imported)
    light.load_array()
    assert "collections" not in sys.modules
    assert "collections.abc" not in sys.modules
