"""Operations as the program writes them: context manager, decorator, phases. Nothing here raises into the program."""

from __future__ import annotations

from contextvars import ContextVar, Token
from sys import modules

from otel_memwatch.in_target.operations import tracing
from otel_memwatch.in_target.operations.journal import warn_once
from otel_memwatch.in_target.operations.opened import Figures
from otel_memwatch.in_target.operations.state import State, may_set_context
from otel_memwatch.in_target.operations.state import recorder as settle
from otel_memwatch.in_target.operations.text import clean_name

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import TracebackType
    from typing import Any, TypeVar

    from otel_memwatch.in_target.operations.opened import Closing, Opened
    from otel_memwatch.in_target.operations.recorder import Recorder

    F = TypeVar("F")
    Entry = tuple[Opened, Token[Opened | None] | None]

current: ContextVar[Opened | None] = ContextVar("otel_memwatch_operation", default=None)
"""The innermost operation of the running context, possibly closed meanwhile, possibly of a process forked from."""

MARK = "mark"
"""Owner of the operations that `mark` begins."""
open_marks: dict[Opened, None] = {}
"""Phases that have not ended, in the order of their beginning; of a process forked from too."""


class Operation:
    """A named stretch of work. Every entry is an operation of its own, also of the same object at the same time."""

    __slots__ = ("_added", "_closing", "_entries", "attributes", "name")

    def __init__(self, name: object, attributes: Mapping[str, object]) -> None:
        self.name = name
        self.attributes = attributes
        self._closing: Closing | None = None
        self._entries: list[Entry] = []
        self._added: dict[str, object] | None = None

    @property
    def figures(self) -> Figures | None:
        """Figures of the entry that was left last; `None` outside a run."""
        return None if self._closing is None else Figures(self._closing)

    def set(self, **attributes: object) -> None:
        """Attributes that are known only while it runs; they are recorded when it is left."""
        if self._added is None:
            self._added = attributes
        else:
            self._added.update(attributes)

    def __enter__(self) -> Operation:  # noqa: PYI034 - `Self` is in `typing` from 3.11 on only
        recorder = State.recorder
        if recorder is None and (State.settled or (recorder := settle()) is None):
            return self
        try:
            opened = begin(recorder, self.name, self.attributes)
            opened.owner = self
            if State.collecting is None or may_set_context():
                self._entries.append((opened, current.set(opened)))
                if opened.native is not None:
                    opened.native.attach()
            else:
                self._entries.append((opened, None))
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
            opened, token = entries.pop() if len(entries) == 1 else _own_entry(entries)
            if token is not None and (State.collecting is None or may_set_context()):
                try:
                    current.reset(token)
                except (ValueError, RuntimeError):  # left in another context than it was entered in
                    if current.get() is opened:
                        current.set(opened.parent)
            if error is None and opened.mark is None and opened.native is None:
                opened.recorder.finish(opened, None, self._added)
            else:
                end(opened, error, self._added)
            self._closing = opened.closing
        except Exception as failure:  # noqa: BLE001 - as above
            trouble(failure)

    def __call__(self, function: F) -> F:
        """Decorate a function, a coroutine function, or a generator or asynchronous generator function."""
        from otel_memwatch.in_target.operations.decorator import decorate

        decorated: F = decorate(self, function)
        return decorated


def operation(name: object, /, **attributes: object) -> Any:
    """Mark a stretch of work; as a context manager or as a decorator.

    Its exact peak, memory at start and end, CPU, I/O and faults are recorded in the run directory of the run that
    the program is part of; outside a run nothing happens, in less than a microsecond. `@operation` alone names
    the operation after the function.
    """
    made = Operation(name, attributes)
    if not attributes and not isinstance(name, str) and callable(name):
        made.name = getattr(name, "__qualname__", None) or type(name).__name__
        return made(name)
    return made


def begin(recorder: Recorder, name: object, attributes: Mapping[str, object] | None) -> Opened:
    """Open an operation below the context's current one, as a span of the program's tracer if there is one."""
    if type(name) is not str or not 0 < len(name) <= 512:
        name = _usable(name)
    parent = current.get()
    while parent is not None and parent.closed:
        parent = parent.parent
    if "opentelemetry.trace" in modules:
        native = tracing.start(name, attributes)
        if native is not None:
            opened = recorder.begin(name, attributes, parent, native.ids)
            opened.native = native
            return opened
    return recorder.begin(name, attributes, parent)


def end(opened: Opened, error: BaseException | None, attributes: Mapping[str, object] | None = None) -> None:
    """Close an operation, the phases marked inside it before it, and its span."""
    inner = opened.mark
    if inner is not None and not inner.closed:
        end(inner, None)
    if opened.owner is MARK:
        open_marks.pop(opened, None)
    if opened.native is not None and may_set_context():
        opened.native.detach()
    failed = error is not None and not is_orderly(error)
    closed = opened.recorder.finish(opened, type(error).__name__ if failed else None, attributes)
    if opened.native is not None and closed:
        opened.native.end(opened.figures, error if failed else None)


def is_orderly(error: BaseException) -> bool:
    """Whether an exception is a way of ending, not of failing: a generator given up, `sys.exit()`."""
    return isinstance(error, GeneratorExit) or (isinstance(error, SystemExit) and error.code in {None, 0})


def _own_entry(entries: list[Entry]) -> Entry:
    """The innermost entry of the running context, or the last one when it was entered elsewhere."""
    opened = current.get()
    while opened is not None:
        for index in range(len(entries) - 1, -1, -1):
            if entries[index][0] is opened:
                return entries.pop(index)
        opened = opened.parent
    return entries.pop()


def _usable(name: object) -> str:
    text, good = clean_name(name)
    if not good:
        warn_once(
            "name",
            "an operation has a name that is empty, too long or no text; it is recorded as far as it goes.",
        )
    return text


def trouble(error: BaseException) -> None:
    """Say once that an operation is missing from the record."""
    warn_once("trouble", f"an operation could not be recorded: {type(error).__name__}: {error}.")
