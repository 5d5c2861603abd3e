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
        self._asked = False
        self._done = done

    def first(self) -> Opened:
        """Opens the sources of the kernel."""
        return open_sources(self._context, self._names(of_drivers=False))

    def start(self) -> None:
        """Begins to open the others. Not called where the command has ended already."""
        self._asked = True
        threading.Thread(target=self._open, name="otel-memwatch-opening", daemon=True).start()

    def late(self) -> Opened:
        """The others; none of them where their drivers were not asked, or have not answered yet."""
        if self._late is not None:
            return self._late
        why = (
            "did not answer within the run" if self._asked else "was not asked: the command had ended already"
        )
        return (), {name: Unavailable(f"The driver {why}.") for name in self._names(of_drivers=True)}

    def _open(self) -> None:
        try:
            self._late = open_sources(self._context, self._names(of_drivers=True))
        finally:
            self._done.set()

    @staticmethod
    def _names(*, of_drivers: bool) -> list[str]:
        return [entry.name for entry in SOURCES if entry.name.startswith(_OF_DRIVERS) is of_drivers]
