"""Used and peaked GPU memory between two points of a program."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, TypeVar, cast

from otel_memwatch.compat.fastai.meter import folding, gauge

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from typing_extensions import Self

_Function = TypeVar("_Function", bound="Callable[..., Any]")

_MB = 2**20


class _Silence(int):
    """A truth value that can also be called to set it: both spellings are in use."""

    _owner: GPUMemTrace

    @classmethod
    def of(cls, owner: GPUMemTrace, value: object) -> _Silence:
        made = cls(bool(value))
        made._owner = owner
        return made

    def __call__(self, silent: object = True) -> None:
        self._owner.silent = silent

    def __repr__(self) -> str:
        return repr(bool(self))


class GPUMemTrace:
    """Traces used and peaked GPU memory from its construction on; see the package's documentation.

    Args:
        silent: `report` and `report_n_reset` print nothing.
        ctx: stands in every report.
        on_exit_report: whether leaving it as a context manager prints a report.

    Attributes:
        used_start: bytes in use when it was started or reset.
        used_peak: most bytes in use since then.

    """

    def __init__(self, silent: object = False, ctx: str | None = None, on_exit_report: object = True) -> None:
        self._silent = bool(silent)
        self.ctx = ctx
        self.on_exit_report = on_exit_report
        self.is_running = False
        self.used_start = self.used_peak = 0
        self.delta_used = self.delta_peaked = 0
        self._gauge = gauge()
        self.start()

    @property
    def silent(self) -> Any:
        """Whether reports are silent; `trace.silent(True)`, `trace.silent = True` and `if trace.silent` all work."""
        return _Silence.of(self, self._silent)

    @silent.setter
    def silent(self, value: object) -> None:
        self._silent = bool(value)

    def start(self) -> None:
        """Starts, or starts anew, on the calling thread's current device."""
        folding.close(self._gauge, self)
        self._gauge = gauge()
        self.is_running = True
        self.reset()

    def stop(self) -> None:
        """Takes the figures and freezes them."""
        if self.is_running:
            self.data_set()
        self.is_running = False
        folding.close(self._gauge, self)

    def reset(self) -> None:
        """Begins to count from what is in use now."""
        self.used_start = folding.open(self._gauge, self)
        if not self.is_running:
            folding.close(self._gauge, self)

    def data_set(self) -> None:
        """Computes the two differences from the present moment."""
        used = folding.boundary(self._gauge) - self.used_start
        peaked = max(0, self.used_peak - self.used_start)
        if used > 0:
            peaked = max(0, peaked - used)
        self.delta_used, self.delta_peaked = int(used / _MB), int(peaked / _MB)

    def data(self) -> tuple[int, int]:
        """MB (of 2**20 bytes) used since the start, and peaked above that; as of the stop when it is stopped."""
        if self.is_running:
            self.data_set()
        return self.delta_used, self.delta_peaked

    def __repr__(self) -> str:
        return self._text(None)

    def _text(self, subctx: str | None) -> str:
        used, peaked = self.data()
        place = [text for text in (self.ctx, subctx) if text is not None]
        note = f" ({': '.join(place)})" if place else ""
        return f"\u25b3Used Peaked MB: {used:6,.0f} {peaked:6,.0f}{note}"

    def report(self, subctx: str | None = None, *, note: str | None = None) -> None:
        """Prints the figures, with a remark; `note` is the older spelling of `subctx`."""
        text = self._text(note or None if subctx is None else subctx)
        if not self._silent:
            print(text)  # noqa: T201 - this method reports by printing

    def report_n_reset(self, subctx: str | None = None, *, note: str | None = None) -> None:
        """Prints the figures and begins anew."""
        self.report(subctx, note=note)
        self.reset()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
        if self.on_exit_report:
            self.report("exit")

    def peak_monitor_start(self) -> None:
        """Does nothing: no thread watches for peaks, the allocator's own counter keeps them."""

    def peak_monitor_stop(self) -> None:
        """Does nothing."""

    def peak_monitor_func(self) -> None:
        """Not supported."""
        raise NotImplementedError(
            "There is no polling thread; data() gives the peak from the allocator's counter."
        )


def gpu_mem_trace(func: _Function) -> _Function:
    """Decorator: traces each call of the function and reports at its end."""

    @functools.wraps(func)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        with GPUMemTrace(ctx=func.__qualname__, on_exit_report=True):
            return func(*args, **kwargs)

    return cast("_Function", wrapper)
