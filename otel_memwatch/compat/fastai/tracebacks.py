"""Exceptions that do not keep memory alive: their frames are cleared before IPython stores them."""

from __future__ import annotations

import functools
import gc
import os
import sys
import traceback
import warnings
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Literal, TypeVar, cast

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import TracebackType

    from typing_extensions import Self

_Function = TypeVar("_Function", bound="Callable[..., Any]")

VARIABLE = "FASTAI_TB_CLEAR_FRAMES"
"""Environment variable: "0" never clears frames, "1" always, else only for errors of CUDA."""

_OUT_OF_MEMORY = "CUDA out of memory"
_ASSERTION = "device-side assert triggered"
_CUDA_ERRORS = (_OUT_OF_MEMORY, _ASSERTION)


def is_in_ipython() -> bool:
    """Whether an IPython shell runs this program, in a terminal or a notebook."""
    ipython = sys.modules.get("IPython")
    return ipython is not None and ipython.get_ipython() is not None


def is_in_colab() -> bool:
    """Whether this is a notebook of Google Colab."""
    return is_in_ipython() and "google.colab" in sys.modules


def get_ref_free_exc_info() -> tuple[type[BaseException] | None, BaseException | None, TracebackType | None]:
    """As `sys.exc_info()`, after the locals of all frames of the exception, and of those it came from, were cleared.

    Frames that still run keep theirs.
    """
    kind, value, trace = sys.exc_info()
    if value is not None:
        _release(value)
    return kind, value, trace


def _chain(error: BaseException) -> Iterator[BaseException]:
    """The exception and all those in whose handling it was raised."""
    seen: set[int] = set()
    pending: list[BaseException | None] = [error]
    while pending:
        current = pending.pop()
        if current is None or id(current) in seen:
            continue
        seen.add(id(current))
        yield current
        pending += [current.__cause__, current.__context__]
        pending += getattr(current, "exceptions", ())


def _release(error: BaseException) -> None:
    for each in _chain(error):
        # A frame that is being executed elsewhere refuses; the others are cleared all the same.
        with suppress(RuntimeError):
            traceback.clear_frames(each.__traceback__)
    gc.collect()


def _is_to_be_cleared(error: BaseException, mode: str | None) -> bool:
    if mode == "1" or isinstance(error, KeyboardInterrupt):
        return True
    return any(words in str(error) for words in _CUDA_ERRORS)


def gpu_mem_restore(func: _Function) -> _Function:
    """Decorator: when CUDA runs out of memory in the function, or it is interrupted, its locals are let go.

    The very exception goes on to the caller: type, message, arguments and traceback lines are its own; only
    `%debug` finds no locals in it. Does nothing outside IPython, or where the environment variable is "0".
    """

    @functools.wraps(func)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        mode = os.environ.get(VARIABLE)
        if mode == "0" or not is_in_ipython():
            return func(*args, **kwargs)
        try:
            return func(*args, **kwargs)
        except BaseException as error:
            if _is_to_be_cleared(error, mode):
                if _ASSERTION in str(error):
                    warnings.warn(
                        "A device-side assert leaves CUDA unusable: restart the kernel; CUDA_LAUNCH_BLOCKING=1 "
                        "tells where it happened.",
                        stacklevel=2,
                    )
                # This frame is kept by the traceback too: let it not keep the arguments.
                args, kwargs = (), {}
                _release(error)
            raise

    return cast("_Function", wrapper)


class gpu_mem_restore_ctx:  # noqa: N801 - the name that people import
    """Context manager: any exception in its block lets go of the locals of the frames it came through.

    The exception itself goes on unchanged. The frame of the `with` statement still runs, and keeps its locals.
    """

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> Literal[False]:
        if error is not None:
            _release(error)
        return False
