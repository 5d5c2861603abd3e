"""Ways of data through the package: files entered, switches between files, and climbs.

    python -m tests.bench.walks [--files]

Traces six ways of ARCHITECTURE section 4 in running programs. A switch is a call from one file into another; a climb is a call
into a file that is on the stack already. Code that runs on import does not count. Of the samples of a run,
the one with most files counts. --files lists the files in their order.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import otel_memwatch
from tests.support import recorded

PACKAGE = f"{Path(otel_memwatch.__file__).parent}/"
WRAP = [sys.executable, "-m", "otel_memwatch", "wrap", "--quiet", "--out"]


class Walk:
    """Calls from a root function on, in one thread.

    Args:
        root: file and name of the function; empty: everything in the main thread.
    """

    def __init__(self, root: tuple[str, str] | None) -> None:
        self._root = root
        self._local = threading.local()
        self.longest: dict[str, Any] = {"files": [], "switches": 0, "climbs": []}

    def profile(self, frame: FrameType, event: str, _: object) -> None:
        """Follow calls and returns of Python functions."""
        local = self._local
        if not hasattr(local, "stack"):
            local.stack, local.walk = [], None
            if self._root is None and threading.current_thread() is threading.main_thread():
                local.walk = self.longest
        if event == "call":
            code = frame.f_code
            here = code.co_filename.removeprefix(PACKAGE) if code.co_filename.startswith(PACKAGE) else ""
            begins = local.walk is None and (here, code.co_name) == self._root
            if begins:
                local.walk = {"files": [], "switches": 0, "climbs": []}
            imports = "importlib" in code.co_filename or code.co_name == "<module>"
            if local.walk is not None and here and not imports and not any(one[2] for one in local.stack):
                self._enter(local.walk, here, [one[0] for one in local.stack if one[0]])
            local.stack.append((here, begins, imports))
        elif event == "return" and local.stack and local.stack.pop()[1]:
            if len(local.walk["files"]) > len(self.longest["files"]):
                self.longest = local.walk
            local.walk = None

    @staticmethod
    def _enter(walk: dict[str, Any], here: str, stack: list[str]) -> None:
        if here not in walk["files"]:
            walk["files"].append(here)
        caller = stack[-1] if stack else ""
        if here != caller:
            walk["switches"] += bool(caller)
            if here in stack and [caller, here] not in walk["climbs"]:
                walk["climbs"].append([caller, here])


def traced(work: Callable[[], object], root: tuple[str, str] | None, note: str) -> None:
    """Run `work` and write its walk to the file `note`, also if it ends by `os._exit`."""
    walk, leave, pid = Walk(root), os._exit, os.getpid()

    def write() -> None:
        sys.setprofile(None)
        threading.setprofile(None)
        if os.getpid() == pid:
            Path(note).write_text(json.dumps(walk.longest))

    def exit_now(code: int) -> None:
        write()
        leave(code)

    os._exit = exit_now  # type: ignore[assignment]
    threading.setprofile(walk.profile)
    sys.setprofile(walk.profile)
    try:
        work()
    finally:
        write()


def command(*arguments: str) -> Callable[[], object]:
    """Return the work of one command."""

    def work() -> object:
        sys.argv = ["otel-memwatch", *arguments]
        from otel_memwatch.cli import main

        return main()

    return work


def figure(directory: str) -> Callable[[], object]:
    """Return the work from a run directory to the line of a report."""

    def work() -> object:
        from otel_memwatch.run import load
        from otel_memwatch.text import peak_sentence

        tree = load(directory).peaks.tree
        assert tree is not None
        return peak_sentence(tree)

    return work


def marked() -> object:
    """Mark an operation."""
    from otel_memwatch import operation

    with operation("step"):
        return None


def trace(name: str, folder: str, note: str) -> None:
    """Trace one way in this process."""
    if name == "sample":
        work = command("wrap", "--quiet", "--interval", "50ms", "--out", f"{folder}/a", "--", "sleep", "1")
        traced(work, ("monitor/sampling/sampler.py", "tick"), note)
    elif name == "command":
        traced(command("wrap", "--quiet", "--out", f"{folder}/b", "--", "true"), None, note)
    elif name == "operation":
        marked()  # the second one finds everything loaded
        traced(marked, None, note)
    else:
        traced(figure(f"{folder}/{name}"), None, note)


def main() -> None:
    """Trace each way in a separate process, and print a line for it."""
    if sys.argv[1:2] == ["--trace"]:
        trace(*sys.argv[2:5])
        return
    with tempfile.TemporaryDirectory() as folder:
        recorded.short(Path(folder, "finished"))
        recorded.short(Path(folder, "died"))
        info = Path(folder, "died", "run.json")
        info.write_text(json.dumps(json.loads(info.read_text()) | {"state": "running"}))
        os.utime(info.with_name("samples.jsonl"), (0, 0))
        for title, name, plain in (
            ("sample of one process", "sample", False),
            ("peak of a finished run", "finished", False),
            ("peak, the monitor died", "died", False),
            ("operation, compiled", "operation", False),
            ("operation, plain", "operation", True),
            ("command to exit code", "command", False),
        ):
            note = f"{folder}/note"
            step = [sys.executable, "-m", "tests.bench.walks", "--trace", name, folder, note]
            if name == "operation":
                step = [*WRAP, f"{folder}/operation-{plain}", "--", *step]
            environment = os.environ | ({"OTEL_MEMWATCH_PLAIN_OPERATIONS": "1"} if plain else {})
            subprocess.run(step, check=True, env=environment, stdout=subprocess.DEVNULL)
            walk = json.loads(Path(note).read_text())
            files, climbs = walk["files"], [f"{one} -> {other}" for one, other in walk["climbs"]]
            print(f"{title:24} files {len(files):3}  switches {walk['switches']:4}  climbs {len(climbs)}")
            if "--files" in sys.argv:
                print("   ", " > ".join(files), *(f"\n    climb {climb}" for climb in climbs), flush=True)


if __name__ == "__main__":
    main()
