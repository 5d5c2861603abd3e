"""`mark`: phases that follow each other, each ending the one before."""

from __future__ import annotations

import atexit
from _thread import _local

from otel_memwatch.in_target.operations.scope import MARK, begin, current, end, open_marks, trouble
from otel_memwatch.in_target.operations.state import State, may_set_context
from otel_memwatch.in_target.operations.state import recorder as settle

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from otel_memwatch.in_target.operations.opened import Opened
    from otel_memwatch.in_target.operations.recorder import Recorder


class _Outermost(_local):
    """The phase of a thread that was begun outside any operation."""

    mark: Opened | None = None


_outermost = _Outermost()


def mark(name: object, /, **attributes: object) -> None:
    """Begin a phase; the phase before it ends. `mark(None)` only ends it.

    Phases belong to the operation they are begun in and end with it at the latest; outside any operation they
    belong to their thread and end with the program. Operations opened after a mark lie inside the phase.
    """
    recorder = State.recorder
    if recorder is None and (State.settled or (recorder := settle()) is None):
        return
    try:
        _mark(recorder, name, attributes)
    except Exception as error:  # noqa: BLE001 - a program must not fail because it is watched
        trouble(error)


def _mark(recorder: Recorder, name: object, attributes: Mapping[str, object]) -> None:
    scope = current.get()
    while scope is not None and (scope.closed or scope.owner is MARK):
        scope = scope.parent
    before = _outermost.mark if scope is None else scope.mark
    if before is not None and not before.closed:
        end(before, None)
    if may_set_context():
        current.set(scope)
    opened = None
    if name is not None:
        opened = begin(recorder, name, attributes)
        opened.owner = MARK
        open_marks[opened] = None
        if may_set_context():
            current.set(opened)
            if opened.native is not None:
                opened.native.attach()
    if scope is None:
        _outermost.mark = opened
    else:
        scope.mark = opened


@atexit.register
def _end_all() -> None:
    for opened in list(open_marks):
        try:
            end(opened, None)
        except Exception as error:  # noqa: BLE001 - as above
            trouble(error)
