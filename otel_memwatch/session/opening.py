"""Opens the sources: those of the kernel at once, those of drivers in a thread, since a driver may take seconds."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence

from otel_memwatch.errors import Unavailable
from otel_memwatch.sources import SOURCES, Context, open_sources
from otel_memwatch.typed import TYPE_CHECKING

if TYPE_CHECKING:
    from otel_memwatch.model import Source
    from otel_memwatch.sampler import Flag

    Opened = tuple[Sequence[Source], Mapping[str, Unavailable]]

_OF_DRIVERS = "gpu_"
"""How the names of sources begin that ask a driver."""


class Opening:
    """All sources of a run, opened in two steps; `done` is set when the second is over."""

    def __init__(self, context: Context, done: Flag) -> None:
        self._context = context
        self._late: Opened | None = None
        self._done = done

    def first(self) -> Opened:
        """Opens the sources of the kernel."""
        return open_sources(self._context, self._names(of_drivers=False))

    def start(self) -> None:
        """Begins to open the others."""
        threading.Thread(target=self._open, name="otel-memwatch-opening", daemon=True).start()

    def late(self) -> Opened:
        """The others; while their drivers have not answered, none of them."""
        if self._late is not None:
            return self._late
        names = self._names(of_drivers=True)
        return (), {name: Unavailable(f"{name}: the driver did not answer within the run.") for name in names}

    def _open(self) -> None:
        try:
            self._late = open_sources(self._context, self._names(of_drivers=True))
        finally:
            self._done.set()

    @staticmethod
    def _names(*, of_drivers: bool) -> list[str]:
        return [entry.name for entry in SOURCES if entry.name.startswith(_OF_DRIVERS) is of_drivers]
