"""The magics, as plain functions of a shell and its watcher."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from otel_memwatch.compat.ipython.perf import DEFAULT_EVENT
from otel_memwatch.errors import MemwatchError

if TYPE_CHECKING:
    from otel_memwatch.compat.ipython.cells import Cell, Summary
    from otel_memwatch.compat.ipython.watcher import Watcher

_PERF = "--perf"

NAMES = {
    "line": (
        "imu_start",
        "imu_stop",
        "imu_summary",
        "ipython_memory_usage_start",
        "ipython_memory_usage_stop",
        "memwatch",
    ),
    "cell": ("memwatch",),
}
"""What is registered, by kind."""


class MemwatchMagics:
    """What stands behind the magics of one shell."""

    def __init__(self, shell: Any, watcher: Watcher) -> None:
        self._shell = shell
        self._watcher = watcher

    def register(self) -> None:
        """Makes the magics known to the shell."""
        for kind, names in NAMES.items():
            for name in names:
                method = getattr(self, name.replace("ipython_memory_usage", "imu"))
                self._shell.register_magic_function(method, magic_kind=kind, magic_name=name)

    def unregister(self) -> None:
        """Takes them away."""
        for kind, names in NAMES.items():
            for name in names:
                self._shell.magics_manager.magics[kind].pop(name, None)

    def imu_start(self, line: str) -> str:
        """Report memory, time and CPU after each cell from now on: %imu_start [--perf [EVENT]].

        With --perf an event of perf stat is counted in each cell; without EVENT: cache-misses.
        """
        try:
            self._watcher.start(_event(line.split()))
        except MemwatchError as error:
            # IPython prints this one as a sentence, without a traceback.
            raise import_module("IPython.core.error").UsageError(str(error)) from None
        return "IPython Memory Usage started"

    def imu_stop(self, line: str) -> str:  # noqa: ARG002 - a magic's signature
        """Report no more."""
        self._watcher.stop()
        return "IPython Memory Usage stopped"

    def imu_summary(self, line: str) -> Summary:  # noqa: ARG002 - a magic's signature
        """All cells measured so far, the largest peak first."""
        return self._watcher.summary()

    def memwatch(self, line: str, cell: str | None = None) -> Cell:
        """Measure one statement (%memwatch STATEMENT) or the rest of the cell (%%memwatch); gives the figures."""
        source = line if cell is None else cell
        shell = self._shell

        def run() -> None:
            exec(compile(shell.transform_cell(source), "<memwatch>", "exec"), shell.user_ns)  # noqa: S102 - the user's own

        return self._watcher.measure(source.strip(), run)


def _event(words: list[str]) -> str | None:
    """The event asked for; `None`: none. Raises `MemwatchError` for other words."""
    if not words:
        return None
    if words[0].startswith(f"{_PERF}="):
        words = [_PERF, words[0].partition("=")[2], *words[1:]]
    if words[0] != _PERF or len(words) > 2:
        raise MemwatchError(f"%imu_start does not know {' '.join(words)!r}.", f"it takes {_PERF} [EVENT]")
    return words[1] if len(words) == 2 and words[1] else DEFAULT_EVENT
