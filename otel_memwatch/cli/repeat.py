"""`wrap --repeat`: record the same command several times, each as one run, in one directory."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys

from otel_memwatch.config import MOST_REPEATS, OPTIONS, as_arguments
from otel_memwatch.errors import MemwatchError, Unavailable, shell_code
from otel_memwatch.runtime.own_python import command_line
from otel_memwatch.runtime.terminal import say
from otel_memwatch.runtime.typed import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

_OURS = ("repeat", "warmup", "out", "runs")
"""Settings that are not passed to the runs, because each has another directory."""
_PASSED_ON = (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
"""Signals that reach only this process. Those from a terminal's keys reach the command too."""
AUTO_LEAST = 3


def repeat(argv: Sequence[str], given: Mapping[str, Any], settings: Mapping[str, Any]) -> NoReturn:
    """Run the command as often as the settings say. Exit with the code of the first failing run, which is the last, else 0.

    * "auto": three times, then until every memory figure is known to within the smallest effect, at most
      `config.MOST_REPEATS` times.
    * Warm-up runs come first and are not kept.
    """
    from importlib.util import find_spec
    from pathlib import Path

    from otel_memwatch.monitor.run.run_directory import make_run_directory

    times = settings["repeat"]
    if times == "auto" and find_spec("scipy") is None:
        raise Unavailable(
            "--repeat auto needs scipy, which is not installed.", "pip install 'otel-memwatch[compare]'"
        )
    parent = Path(make_run_directory(settings, argv, say))
    options = as_arguments({name: value for name, value in given.items() if name not in _OURS}, "wrap")
    for index in range(settings["warmup"]):
        _once(parent / f"warmup-{index + 1}", argv, options, keep=False)
    runs: list[Path] = []
    while not _enough(times, runs):
        runs.append(parent / str(len(runs) + 1))
        _once(runs[-1], argv, options, keep=True)
    if not settings["quiet"]:
        from otel_memwatch.text import from_here

        here = from_here(parent)
        say(f"otel-memwatch: {len(runs)} runs in {here}: otel-memwatch compare BASE... -- {here}")
    sys.exit(0)


def _enough(times: int | str, runs: Sequence[Path]) -> bool:
    if times != "auto":
        return len(runs) >= int(times)
    if len(runs) < AUTO_LEAST:
        return False
    if len(runs) >= MOST_REPEATS:
        return True
    from otel_memwatch.run import load
    from otel_memwatch.run.figures import figures_of
    from otel_memwatch.wings.gate.comparison import settled

    try:
        return settled([figures_of(load(path)) for path in runs])
    except MemwatchError as error:
        say(f"otel-memwatch: no further run, since one cannot be read: {error}")
        return True


def _once(directory: Path, argv: Sequence[str], options: Sequence[str], *, keep: bool) -> None:
    """Run the command once. If it fails, end this process with the same exit code or signal."""
    names = {OPTIONS[name].variable for name in _OURS}
    environment = {key: value for key, value in os.environ.items() if key not in names}
    out = f"--out={directory}"
    command = command_line("wrap", *options, out, "--", *argv)
    started: list[subprocess.Popen[bytes]] = []

    def pass_on(number: int, _: object) -> None:
        for one in started:
            one.send_signal(number)

    # A terminal's keys reach the command too; this process ends as the command ends.
    for number in (signal.SIGINT, signal.SIGQUIT):
        signal.signal(number, lambda *_: None)
    for number in _PASSED_ON:
        signal.signal(number, pass_on)
    started.append(subprocess.Popen(command, env=environment))
    code = started[0].wait()
    for number in (signal.SIGINT, signal.SIGQUIT, *_PASSED_ON):
        signal.signal(number, signal.SIG_DFL)
    if not keep:
        shutil.rmtree(directory, ignore_errors=True)
        if code:
            with contextlib.suppress(OSError):  # only an empty directory is removed
                directory.parent.rmdir()
    if code < 0:
        os.kill(os.getpid(), -code)
        sys.exit(shell_code(-code))
    if code:
        sys.exit(code)
