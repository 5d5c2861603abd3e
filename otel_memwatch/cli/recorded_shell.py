"""Recording for the file that `shell --install` writes: `wrap`, or a reason to run the shell without it."""

from __future__ import annotations

import contextlib
import gc
import os
from collections.abc import Sequence

from otel_memwatch.errors import CommandNotStarted, describe
from otel_memwatch.runtime.terminal import say

_QUIET = "--quiet", "--no-report"


def record_started(real: str, state: Sequence[str], options: Sequence[str], arguments: Sequence[str]) -> None:
    """Record a shell that `recipe.c` has started, and end as it ends; `state`: see `monitor.launcher.adopt`.

    An exception, which has nothing else to lose, leaves the shell to the caller.
    """
    gc.disable()
    from otel_memwatch.cli.fast_args import parse
    from otel_memwatch.config import settings
    from otel_memwatch.monitor.launcher.adopt import StartedCommand, adopt

    parsed = parse(["wrap", *_QUIET, *options, "--", real, *arguments], os.environ)
    assert parsed is not None  # `recipe.c` does not start a shell if the environment asks for completions
    adopt(parsed.argv, settings("wrap", parsed.given), say, StartedCommand.of(state))


def record(real: str, options: Sequence[str], arguments: Sequence[str]) -> str:
    """Run the shell under `wrap` and end as it ends; return the reason if nothing was started.

    Signals are then as this process inherited them, so the caller can become the shell.
    """
    gc.disable()  # as for `wrap`: the monitor enables it again
    reason = _record(real, options, arguments)
    with contextlib.suppress(Exception):  # no descriptor is left to load it
        from otel_memwatch.monitor.run.supervise import signals

        signals.let_go(signals.hold())
    return reason


def _record(real: str, options: Sequence[str], arguments: Sequence[str]) -> str:
    started = False

    def note_start() -> None:
        nonlocal started
        started = True

    try:
        from otel_memwatch.cli.fast_args import parse
        from otel_memwatch.config import settings
        from otel_memwatch.monitor.run.wrap import wrap
        from otel_memwatch.wings.gate.project import with_budgets

        parsed = parse(["wrap", *_QUIET, *options, "--", real, *arguments], os.environ)
        if parsed is None:
            return "the environment asks for completions"
        chosen = with_budgets(settings("wrap", parsed.given))
        if chosen["repeat"] is not None:
            return "--repeat is not for scripts of an engine"
        wrap(parsed.argv, chosen, say, note_start)
    except Exception as error:
        # A process that cannot be forked has not been started either; any other failure comes after the start.
        if started and not (isinstance(error, CommandNotStarted) and isinstance(error.__cause__, OSError)):
            raise
        if started:
            from otel_memwatch.runtime import system_calls

            # The failed start made this process a subreaper, which would survive exec.
            system_calls.prctl(system_calls.PR_SET_CHILD_SUBREAPER, 0)
        return describe(error)
