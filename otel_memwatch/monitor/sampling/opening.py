"""Opening of the sources: those of the kernel at once, those of drivers in threads, because a driver may take seconds."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

from otel_memwatch.errors import Unavailable
from otel_memwatch.monitor.sampling.sources import SOURCES, Context, open_sources
from otel_memwatch.runtime.threads import Flag, Thread
from otel_memwatch.runtime.typed import TYPE_CHECKING

if TYPE_CHECKING:
    from otel_memwatch.model import Source

    Opened = tuple[Sequence[Source], Mapping[str, Unavailable]]

PATIENCE = 3.0
"""Seconds for which the rest of a recording waits for drivers. Slower drivers join it when they answer."""

_ROOM = 16 << 20
"""Bytes of address space for a driver's library."""


_DRIVERS = {
    "gpu_nvidia": (
        "The NVIDIA driver",
        "nvidia-persistenced keeps idle cards awake; if nvidia-smi hangs too, see dmesg",
    ),
    "gpu_drm": ("The GPU's kernel driver", "see dmesg"),
}
"""Driver of each source, and advice if it is silent."""


class SilentDriver(Unavailable):
    """A driver has not answered, after at least `PATIENCE`."""


class Opening:
    """All sources of a run, opened in two steps.

    `done` is set when all drivers have answered, or after `PATIENCE`. The NVIDIA driver takes up to three seconds for
    each GPU if no daemon keeps the cards awake.
    """

    def __init__(self, context: Context, done: Flag) -> None:
        self._context = context
        self._silence = "was not asked because the command had already ended"
        self._overdue = False
        self._done = done
        self._answers: dict[str, Opened] = {}
        """Answers of drivers that `late` has not returned yet, by name of the source."""
        self._silent = [entry.name for entry in SOURCES if entry.gpus]
        """Sources of which `late` has returned no answer."""

    def first(self) -> Opened:
        """Open the sources of the kernel."""
        opened = open_sources(self._context, [entry.name for entry in SOURCES if not entry.gpus])
        self._context = self._context.knowing(opened[0])
        return opened

    def start(self) -> None:
        """Start to open the others. Not called if the command has already ended."""
        self._silence = "did not answer within the run"
        try:
            Thread(self._open_all, "otel-memwatch-opening").start()
        except Unavailable as error:
            self._silence = f"was not asked: {str(error).rstrip('.')}"
            self._done.set()

    @property
    def answered(self) -> bool:
        """Return whether `late` has an answer to return."""
        return bool(self._answers)

    def late(self) -> Opened:
        """Return the sources that drivers have opened since the last call, and each absent one with the reason."""
        sources: list[Source] = []
        absent: dict[str, Unavailable] = {}
        for name in tuple(self._silent):
            if name in self._answers:
                opened, missing = self._answers.pop(name)
                self._silent.remove(name)
                sources.extend(opened)
                absent.update(missing)
            else:
                driver, hint = _DRIVERS[name]
                sentence = f"{driver} {self._silence}"
                absent[name] = SilentDriver(sentence, hint) if self._overdue else Unavailable(f"{sentence}.")
        return sources, absent

    def _open_all(self) -> None:
        """Ask each driver in a separate thread: a hanging driver must not keep another one waiting."""
        until = time.monotonic() + PATIENCE
        threads = []
        for name in tuple(self._silent):
            thread = Thread(self._open, f"otel-memwatch-opening {name}", (name,), room=_ROOM)
            try:
                thread.start()
            except Unavailable as error:
                self._answers[name] = (), {name: error}
            else:
                threads.append(thread)
        for thread in threads:
            thread.join(max(0.0, until - time.monotonic()))
        self._overdue = time.monotonic() >= until
        self._done.set()

    def _open(self, name: str) -> None:
        self._answers[name] = open_sources(self._context._replace(opening_limit=None), [name])
