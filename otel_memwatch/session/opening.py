"""Opens the sources: those of the kernel at once, those of drivers in a thread, since a driver may take seconds."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from otel_memwatch.sources import SOURCES, Context, open_sources

if TYPE_CHECKING:
    from otel_memwatch.errors import Unavailable
    from otel_memwatch.model import Source

    Opened = tuple[Sequence[Source], Mapping[str, Unavailable]]

_OF_DRIVERS = "gpu_"
"""How the names of sources begin that ask a driver."""


class Opening:
    """All sources of a run, opened in two steps; `done` is set when the second is over."""

    def __init__(self, context: Context, done: threading.Event) -> None:
        self._context = context
        self._late: Opened = ((), {})
        self._done = done

    def first(self) -> Opened:
        """Opens the sources of the kernel."""
        return open_sources(self._context, self._names(of_drivers=False))

    def start(self) -> None:
        """Begins to open the others."""
        threading.Thread(target=self._open, name="otel-memwatch-opening", daemon=True).start()

    def late(self) -> Opened:
        """The others, as far as they are open; those of a driver that hangs are not."""
        return self._late

    def _open(self) -> None:
        try:
            self._late = open_sources(self._context, self._names(of_drivers=True))
        finally:
            self._done.set()

    @staticmethod
    def _names(*, of_drivers: bool) -> list[str]:
        return [entry.name for entry in SOURCES if entry.name.startswith(_OF_DRIVERS) is of_drivers]
