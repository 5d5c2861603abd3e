"""`wrap` with clocks between its steps, for `timeline.py`: clocked.py FOLDER COMMAND... It imports next to nothing itself."""

from __future__ import annotations

import os
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

MONITOR = "otel_memwatch.monitor"
STEPS = {
    (f"{MONITOR}.run.wrap", "wrap"): ("arguments and modules until the start", None),
    (f"{MONITOR}.run.wrap", "launch"): ("cgroup and run directory", "the command starts"),
    (f"{MONITOR}.recording.recording", "RunRecording.begin"): (
        "modules of the recording, run.json",
        "first sample",
    ),
    (f"{MONITOR}.run.monitor", "Monitor._complete"): ("other sources, last sample", "figures, run.json"),
    (f"{MONITOR}.workers.rendering", "make"): ("modules of the summary, files of the page", "summary"),
    (f"{MONITOR}.run.monitor", "Monitor.start_detached"): ("cgroup removed", "detached process"),
}
"""Functions, with the name of the step that ends when each begins, and of the one that ends with it."""


def record(folder: str, command: list[str]) -> None:
    """Run the program in this process, and write the moments when it ends."""
    moments: list[tuple[str, float, float]] = []
    own, leave = os.getpid(), os._exit

    def note(name: str | None) -> None:
        if name is not None:
            moments.append((name, time.process_time(), time.monotonic()))

    def exit_with(code: int) -> None:
        if os.getpid() == own:
            note("end")
            rows = ", ".join(f'["{name}", {cpu!r}, {wall!r}]' for name, cpu, wall in moments)
            with open(f"{folder}/moments", "w", encoding="utf-8") as file:
                file.write(f"[{rows}]")
        leave(code)

    note("interpreter")
    os._exit = exit_with  # type: ignore[assignment]
    sys.argv = ["otel-memwatch", "wrap", "--out", f"{folder}/run", "--", *command]
    from otel_memwatch import cli
    from otel_memwatch.runtime import module_finder

    run_module = module_finder._CachedLoader.exec_module

    def exec_module(loader: module_finder._CachedLoader, module: ModuleType) -> None:
        run_module(loader, module)
        for (home, path), names in STEPS.items():
            if home == module.__name__:
                _put_clocks(module, path, names, note)

    module_finder._CachedLoader.exec_module = exec_module  # type: ignore[assignment, method-assign]
    cli.main()


def _put_clocks(
    module: ModuleType,
    path: str,
    names: tuple[str | None, str | None],
    note: Callable[[str | None], None],
) -> None:
    """Replace a function of a module by one that notes when it begins and ends."""
    *outer, name = path.split(".")
    owner = getattr(module, outer[0]) if outer else module
    function = getattr(owner, name)

    def timed(*arguments: object, **named: object) -> object:
        note(names[0])
        try:
            return function(*arguments, **named)
        finally:
            note(names[1])

    setattr(owner, name, timed)


if __name__ == "__main__":
    record(sys.argv[1], sys.argv[2:])
