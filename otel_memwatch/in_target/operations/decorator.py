"""Decorator `@operation(...)`: an operation around every call, for all four kinds of functions.

A generator is inside its operation only while the generator's code runs. Its consumer's code between two values is
outside, although the operation's time continues.
"""

from __future__ import annotations

from functools import partial, wraps

from otel_memwatch.in_target.operations.context import begin, current, end, trouble
from otel_memwatch.in_target.operations.journal import warn_once
from otel_memwatch.in_target.operations.recorder import get_recorder, may_set_context

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Mapping
    from contextlib import AbstractContextManager
    from contextvars import Token
    from types import CodeType
    from typing import Any

    from otel_memwatch.in_target.operations.operation_values import LiveOperation

    Attributes = Mapping[str, object]
    Enter = Callable[[object, Attributes], AbstractContextManager[object]]

_GENERATOR, _COROUTINE, _ITERABLE_COROUTINE, _ASYNC_GENERATOR = 0x20, 0x80, 0x100, 0x200


def decorate(name: object, attributes: Attributes, function: Any, enter: Enter) -> Any:
    """Return `function` with an operation around every call. Classes are not changed. `enter` creates each operation."""
    if isinstance(function, (classmethod, staticmethod)):
        return type(function)(decorate(name, attributes, function.__func__, enter))
    if isinstance(function, type) or not callable(function):
        warn_once("decorator", f"@operation works only on functions; {function!r} is not changed.")
        return function
    flags = _flags(function)
    if flags & (_COROUTINE | _ITERABLE_COROUTINE):
        return _coroutine(name, attributes, function, enter)
    if flags & _ASYNC_GENERATOR:
        return _async_generator(name, attributes, function)
    if flags & _GENERATOR:
        return _generator(name, attributes, function)

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        with enter(name, attributes):
            return function(*args, **kwargs)

    return call


def _flags(function: Any) -> int:
    while isinstance(function, partial):
        function = function.func
    function = getattr(function, "__func__", function)
    code: CodeType | None = getattr(function, "__code__", None) or getattr(
        type(function).__dict__.get("__call__"), "__code__", None
    )
    return code.co_flags if code is not None else 0


def _coroutine(
    name: object, attributes: Attributes, function: Callable[..., Awaitable[Any]], enter: Enter
) -> Callable[..., Awaitable[Any]]:
    @wraps(function)
    async def call(*args: Any, **kwargs: Any) -> Any:
        with enter(name, attributes):
            return await function(*args, **kwargs)

    return call


class _Stage:
    """Operation of one generator, current only while the generator's code runs.

    A generator pauses between two values while its consumer runs. In ::

        for batch in load():        # @operation("Load") def load(): yield ...
            with operation("Train"):
                ...

    "Train" is not inside "Load", although "Load" has not ended. Each step of `load` makes "Load" the current operation
    of the context at its beginning, and restores the context at its end.
    """

    __slots__ = ("_live", "_token")

    def __init__(self, name: object, attributes: Attributes) -> None:
        self._live: LiveOperation | None = None
        self._token: Token[LiveOperation | None] | None = None
        recorder = get_recorder()
        if recorder is not None:
            try:
                self._live = begin(recorder, name, attributes)
            except Exception as error:  # noqa: BLE001 - a program must not fail because it is watched
                trouble(error)

    def __enter__(self) -> None:
        live = self._live
        if live is not None and may_set_context():
            self._token = current.set(live)
            if live.program_span is not None:
                live.program_span.attach()

    def __exit__(self, *_: object) -> None:
        live, token = self._live, self._token
        if live is not None and token is not None and may_set_context():
            self._token = None
            if live.program_span is not None:
                live.program_span.detach()
            try:
                current.reset(token)
            except (ValueError, RuntimeError):
                pass  # the generator's code changed the context, such as an asynchronous finalizer

    def end(self, error: BaseException | None) -> None:
        """End the operation with its generator."""
        if self._live is not None:
            try:
                end(self._live, error)
            except Exception as failure:  # noqa: BLE001 - as above
                trouble(failure)


def _generator(
    name: object, attributes: Attributes, function: Callable[..., Generator[Any, Any, Any]]
) -> Callable[..., Any]:
    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Generator[Any, Any, Any]:
        stage, failure = _Stage(name, attributes), None
        try:
            return (yield from _StagedGenerator(function(*args, **kwargs), stage))
        except BaseException as error:
            failure = error
            raise
        finally:
            stage.end(failure)
            failure = None

    return call


class _StagedGenerator:
    """Wrapper of a generator that runs each step inside a stage; `yield from` delegates to it."""

    __slots__ = ("_generator", "_stage")

    def __init__(self, generator: Generator[Any, Any, Any], stage: _Stage) -> None:
        self._generator = generator
        self._stage = stage

    def __iter__(self) -> _StagedGenerator:
        return self

    def __next__(self) -> Any:
        with self._stage:
            return next(self._generator)

    def send(self, value: Any) -> Any:
        with self._stage:
            return self._generator.send(value)

    def throw(self, *error: Any) -> Any:
        with self._stage:
            return self._generator.throw(*error)

    def close(self) -> None:
        with self._stage:
            self._generator.close()


def _async_generator(
    name: object, attributes: Attributes, function: Callable[..., AsyncGenerator[Any, Any]]
) -> Callable[..., Any]:
    @wraps(function)
    async def call(*args: Any, **kwargs: Any) -> AsyncGenerator[Any, Any]:
        stage, failure = _Stage(name, attributes), None
        generator = function(*args, **kwargs)
        step, value = generator.asend, None
        try:
            while True:
                with stage:
                    try:
                        item = await step(value)
                    except StopAsyncIteration:
                        return
                step, value = generator.asend, None
                try:
                    value = yield item
                except GeneratorExit:
                    with stage:
                        await generator.aclose()
                    raise
                except BaseException as error:  # noqa: BLE001 - thrown in by the consumer for the generator to handle
                    step, value = generator.athrow, error
        except BaseException as error:
            failure = error
            raise
        finally:
            stage.end(failure)
            failure = None

    return call
