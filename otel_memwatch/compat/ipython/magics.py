"""Magics, as methods on a shell and its watcher."""

from __future__ import annotations

from importlib import import_module
from inspect import cleandoc
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
"""Names of the magics, by kind."""


class MemwatchMagics:
    """Implementation of the magics of one shell."""

    def __init__(self, shell: Any, watcher: Watcher) -> None:
        self._shell = shell
        self._watcher = watcher

    def register(self) -> None:
        """Register the magics with the shell."""
        for kind, names in NAMES.items():
            for name in names:
                method = getattr(self, name.replace("ipython_memory_usage", "imu"))
                self._shell.register_magic_function(method, magic_kind=kind, magic_name=name)

    def unregister(self) -> None:
        """Unregister the magics."""
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
            raise _usage_error(str(error)) from None
        return "IPython Memory Usage started"

    def imu_stop(self, line: str) -> str:  # noqa: ARG002 - a magic's signature
        """Report no more."""
        self._watcher.stop()
        return "IPython Memory Usage stopped"

    def imu_summary(self, line: str) -> Summary:  # noqa: ARG002 - a magic's signature
        """Return all cells measured so far, the largest peak first."""
        return self._watcher.summary()

    def memwatch(self, line: str, cell: str | None = None) -> Cell | None:
        """Measure one statement (%memwatch STATEMENT) or the rest of the cell (%%memwatch), and return the figures.

        `%memwatch on` prints a line after every cell from now on, and `%memwatch off` ends that. The peak is the kernel's
        high-water mark, which includes peaks of any duration. A statement that raises an exception is measured too.
        """
        source = line if cell is None else cell
        words = line.split()
        if any(word in ("-h", "--help", "?") for word in words[:1]) or (cell is None and not words):
            print(cleandoc(self.memwatch.__doc__ or ""))  # noqa: T201 - the user requested help
            return None
        if cell is not None and words:
            raise _usage_error(
                f"%%memwatch takes no {words[0]!r}: what is measured stands in the lines below."
            )
        if cell is None and words in (["on"], ["off"]):
            if words == ["on"]:
                self._watcher.start(told=True)
            else:
                self._watcher.stop()
            return None
        shell = self._shell

        def run() -> None:
            exec(compile(shell.transform_cell(source), "<memwatch>", "exec"), shell.user_ns)  # noqa: S102 - the user's code

        return self._watcher.measure(source.strip(), run)


def _usage_error(text: str) -> Exception:
    """Return an error that IPython prints as a sentence, without a traceback."""
    error: Exception = import_module("IPython.core.error").UsageError(text)
    return error


def _event(words: list[str]) -> str | None:
    """Return the requested event, or `None`. Raises `MemwatchError` for other words."""
    if not words:
        return None
    if words[0].startswith(f"{_PERF}="):
        words = [_PERF, words[0].partition("=")[2], *words[1:]]
    if words[0] != _PERF or len(words) > 2:
        raise MemwatchError(f"%imu_start does not know {' '.join(words)!r}.", f"it takes {_PERF} [EVENT]")
    return words[1] if len(words) == 2 and words[1] else DEFAULT_EVENT
