"""Operations for programs: context manager, decorator, phases. No error in this module reaches the program."""

from __future__ import annotations

import atexit
from _thread import _local

from otel_memwatch.in_target.operations.context import begin, current, end, open_phases, trouble
from otel_memwatch.in_target.operations.recorder import State, get_recorder, may_set_context

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from contextvars import Token
    from types import TracebackType
    from typing import Any, TypeVar, overload

    from otel_memwatch.in_target.operations.operation_values import Figures, LiveOperation
    from otel_memwatch.in_target.operations.recorder import Recorder

    F = TypeVar("F")
    Function = TypeVar("Function", bound=Callable[..., Any])
    Entry = tuple[LiveOperation, Token[LiveOperation | None] | None]
else:

    def overload(function: object) -> object:
        """Return the function. Replaces the decorator of `typing`; its import would cost every watched program 9 ms."""
        return function


class _Outermost(_local):
    """Phase that a thread began outside any operation."""

    phase: LiveOperation | None = None


_outermost = _Outermost()


class Operation:
    """A named section of work. Every entry is a new operation, also for several entries of one object at a time."""

    __slots__ = ("_added", "_entries", "_left", "attributes", "name")

    def __init__(self, name: object, attributes: Mapping[str, object]) -> None:
        self.name = name
        self.attributes = attributes
        self._left: LiveOperation | None = None
        """Entry that was left last."""
        self._entries: list[Entry] = []
        self._added: dict[str, object] | None = None

    @property
    def figures(self) -> Figures | None:
        """Return the figures of the entry that was left last; `None` outside a run."""
        return None if self._left is None else self._left.figures

    @property
    def id(self) -> int | None:
        """Return the number of that entry in the record of this process; `None` outside a run."""
        return None if self._left is None else self._left.id

    def set(self, **attributes: object) -> None:
        """Set attributes while the operation runs. They are recorded at its end."""
        if self._added is None:
            self._added = attributes
        else:
            self._added.update(attributes)

    def __enter__(self) -> Operation:  # noqa: PYI034 - `Self` is in `typing` only since 3.11
        recorder = State.recorder
        if recorder is None and (State.settled or (recorder := get_recorder()) is None):
            return self
        try:
            live = begin(recorder, self.name, self.attributes)
            token = None
            if State.collecting is None or may_set_context():
                token = current.set(live)
                if live.program_span is not None:
                    live.program_span.attach()
            self._entries.append((live, token))
        except Exception as error:  # noqa: BLE001 - a program must not fail because it is watched
            trouble(error)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        entries = self._entries
        if not entries:
            return
        try:
            live, token = entries.pop() if len(entries) == 1 else _own_entry(entries)
            if token is not None and (State.collecting is None or may_set_context()):
                try:
                    current.reset(token)
                except (ValueError, RuntimeError):  # left in a different context than entered
                    if current.get() is live:
                        current.set(live.parent)
            if error is None and live.phase is None and live.program_span is None:
                live.recorder.close(live, None, self._added)
            else:
                end(live, error, self._added)
            self._left = live
        except Exception as failure:  # noqa: BLE001 - as above
            trouble(failure)

    def __call__(self, function: F) -> F:
        """Decorate a function, a coroutine function, or a generator or asynchronous generator function."""
        from otel_memwatch.in_target.operations.decorator import decorate

        decorated: F = decorate(self.name, self.attributes, function, Operation)
        return decorated


@overload
def operation(name: str, /, **attributes: object) -> Operation: ...  # noqa: D103
@overload
def operation(name: Function, /) -> Function: ...  # type: ignore[overload-overlap]  # noqa: D103, F811
@overload
def operation(name: object, /, **attributes: object) -> Operation: ...  # noqa: D103, F811
def operation(name: object, /, **attributes: object) -> Any:  # noqa: F811 - ruff knows only the `overload` of `typing`
    """Mark a section of work. Use it as a context manager or as a decorator.

    The run directory records the operation's exact peak, its memory at start and end, CPU, I/O and page faults. Outside
    a run, an operation does nothing and costs less than a microsecond. `@operation` without a name uses the function's.
    """
    made = Operation(name, attributes)
    if not attributes and not isinstance(name, str) and callable(name):
        made.name = getattr(name, "__qualname__", None) or type(name).__name__
        return made(name)
    return made


def mark(name: object, /, **attributes: object) -> None:
    """Begin a phase and end the previous one. `mark(None)` only ends it.

    A phase belongs to the operation in which it begins, and ends with it at the latest. Outside any operation, a phase
    belongs to its thread and ends with the program. Operations opened after a mark are inside the phase.
    """
    recorder = State.recorder
    if recorder is None and (State.settled or (recorder := get_recorder()) is None):
        return
    try:
        _mark(recorder, name, attributes)
    except Exception as error:  # noqa: BLE001 - as above
        trouble(error)


def _mark(recorder: Recorder, name: object, attributes: Mapping[str, object]) -> None:
    around = current.get()
    while around is not None and (around.closed or around.is_phase):
        around = around.parent
    before = _outermost.phase if around is None else around.phase
    if before is not None and not before.closed:
        end(before, None)
    if may_set_context():
        current.set(around)
    phase = None
    if name is not None:
        phase = begin(recorder, name, attributes)
        phase.is_phase = True
        open_phases[phase] = None
        if may_set_context():
            current.set(phase)
            if phase.program_span is not None:
                phase.program_span.attach()
    if around is None:
        _outermost.phase = phase
    else:
        around.phase = phase


@atexit.register
def _end_all_phases() -> None:
    for phase in list(open_phases):
        try:
            end(phase, None)
        except Exception as error:  # noqa: BLE001 - as above
            trouble(error)


def _own_entry(entries: list[Entry]) -> Entry:
    """Remove and return the innermost entry of the current context, or the last one if it was entered elsewhere."""
    live = current.get()
    while live is not None:
        for index in range(len(entries) - 1, -1, -1):
            if entries[index][0] is live:
                return entries.pop(index)
        live = live.parent
    return entries.pop()
