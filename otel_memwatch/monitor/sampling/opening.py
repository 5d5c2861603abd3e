"""Opening of the sources: those of the kernel at once, those of drivers in a thread, because a driver may take seconds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from otel_memwatch.errors import Unavailable
from otel_memwatch.monitor.sampling.sources import SOURCES, Context, open_sources
from otel_memwatch.runtime.threads import Thread
from otel_memwatch.runtime.typed import TYPE_CHECKING

if TYPE_CHECKING:
    from otel_memwatch.model import Source
    from otel_memwatch.monitor.sampling.sampler import Flag

    Opened = tuple[Sequence[Source], Mapping[str, Unavailable]]

_ROOM = 16 << 20
"""Bytes of address space for a driver's library."""


class Opening:
    """All sources of a run, opened in two steps; `done` is set after the second."""

    def __init__(self, context: Context, done: Flag) -> None:
        self._context = context
        self._late: Opened | None = None
        self._silence = "was not asked because the command had already ended"
        self._done = done

    def first(self) -> Opened:
        """Open the sources of the kernel."""
        opened = open_sources(self._context, self._names(gpus=False))
        self._context = self._context.knowing(opened[0])
        return opened

    def start(self) -> None:
        """Start to open the others. Not called if the command has already ended."""
        self._silence = "did not answer within the run"
        try:
            Thread(self._open, "otel-memwatch-opening", room=_ROOM).start()
        except Unavailable as error:
            self._silence = f"was not asked: {error}"
            self._done.set()

    def late(self) -> Opened:
        """Return the other sources; none if their drivers were not asked, or have not answered yet."""
        if self._late is not None:
            return self._late
        why = f"The driver {self._silence.rstrip('.')}."
        return (), {name: Unavailable(why) for name in self._names(gpus=True)}

    def _open(self) -> None:
        try:
            self._late = open_sources(self._context, self._names(gpus=True))
        finally:
            self._done.set()

    @staticmethod
    def _names(*, gpus: bool) -> list[str]:
        return [entry.name for entry in SOURCES if entry.gpus is gpus]
