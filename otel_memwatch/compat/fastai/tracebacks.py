"""Exceptions without references to memory: their frames are cleared before IPython stores them."""

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
    from collections.abc import Callable
    from types import TracebackType

    from typing_extensions import Self

_Function = TypeVar("_Function", bound="Callable[..., Any]")

VARIABLE = "FASTAI_TB_CLEAR_FRAMES"
"""Environment variable: "0" never clears frames, "1" always; other values only for CUDA errors."""

_OUT_OF_MEMORY = "CUDA out of memory"
_ASSERTION = "device-side assert triggered"
_CUDA_ERRORS = (_OUT_OF_MEMORY, _ASSERTION)


def is_in_ipython() -> bool:
    """Return whether an IPython shell runs this program, in a terminal or a notebook."""
    ipython = sys.modules.get("IPython")
    return ipython is not None and ipython.get_ipython() is not None


def is_in_colab() -> bool:
    """Return whether this is a Google Colab notebook."""
    return is_in_ipython() and "google.colab" in sys.modules


def get_ref_free_exc_info() -> tuple[type[BaseException] | None, BaseException | None, TracebackType | None]:
    """Clear the locals in all frames of the exception and its causes, and return `sys.exc_info()`.

    Running frames keep their locals.
    """
    kind, value, trace = sys.exc_info()
    if value is not None:
        _release(value)
    return kind, value, trace


def _release(error: BaseException) -> None:
    """Clear the frames of the exception, of its causes and contexts, and of the members of exception groups."""
    seen: set[int] = set()
    pending: list[BaseException | None] = [error]
    while pending:
        current = pending.pop()
        if current is None or id(current) in seen:
            continue
        seen.add(id(current))
        # clear_frames() may refuse a running frame; continue with the other exceptions.
        with suppress(RuntimeError):
            traceback.clear_frames(current.__traceback__)
        pending += [current.__cause__, current.__context__]
        pending += getattr(current, "exceptions", ())
    gc.collect()


def gpu_mem_restore(func: _Function) -> _Function:
    """Decorate a function to release its locals after a CUDA error or an interrupt.

    The original exception reaches the caller, with unchanged type, message, arguments and traceback lines. Only `%debug`
    finds no locals in it. No effect outside IPython, or if the environment variable is "0".
    """

    @functools.wraps(func)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        mode = os.environ.get(VARIABLE)
        if mode == "0" or not is_in_ipython():
            return func(*args, **kwargs)
        try:
            return func(*args, **kwargs)
        except BaseException as error:
            is_cuda_error = any(words in str(error) for words in _CUDA_ERRORS)
            if mode == "1" or isinstance(error, KeyboardInterrupt) or is_cuda_error:
                if _ASSERTION in str(error):
                    warnings.warn(
                        "A device-side assert leaves CUDA unusable: restart the kernel; CUDA_LAUNCH_BLOCKING=1 "
                        "tells where it happened.",
                        stacklevel=2,
                    )
                # The traceback keeps this frame too, so drop its arguments.
                args, kwargs = (), {}
                _release(error)
            raise

    return cast("_Function", wrapper)


class gpu_mem_restore_ctx:  # noqa: N801 - the name that users import
    """Context manager that releases the locals in the frames of any exception from its block.

    The exception propagates unchanged. The frame of the `with` statement still runs, and keeps its locals.
    """

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> Literal[False]:
        if error is not None:
            _release(error)
        return False
