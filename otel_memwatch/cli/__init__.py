"""Command line: one file per command, loaded when it is called. Click is loaded only when needed."""

from __future__ import annotations

import gc
import os
import sys

from otel_memwatch.runtime import lazy

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn

COMMANDS: dict[str, str] = {
    "wrap": "Run a command and record its memory, CPU, I/O and GPU use.",
    "attach": "Record a running process and its descendants.",
    "stop": "Stop recording a process that keeps running.",
    "mark": "Mark the start of a phase in a shell script.",
    "live": "Show a run while it is running.",
    "report": "Print the report of a recorded run.",
    "plot": "Draw a recorded run.",
    "export": "Write a recorded run in another format.",
    "bundle": "Pack a recorded run into one file for a colleague or a bug report.",
    "replay": "Send a recorded run to an OTLP endpoint.",
    "runs": "List recorded runs as one table; remove old ones, import those of other tools.",
    "advise": "Recommend memory, CPU and time for the next run, based on earlier runs.",
    "check": "Check recorded runs against budgets.",
    "compare": "Compare runs with earlier ones and report regressions.",
    "shell": "Run a shell for make and workflow engines that records its commands.",
    "engine": "Put measured figures into the files of a workflow engine.",
    "metrics": "Print the table of all metrics.",
    "doctor": "Check which sources work on this machine, how exact they are, and how to improve them.",
    "man": "Print the manual page of a command.",
    "demo": "Run a small workload to try the recording.",
    "tradeoff": "Tabulate and plot accuracy against memory footprint.",
}
"""Each command with its line in the help; `module_of` names its module."""

WINGS = {
    "live": "live.command",
    "runs": "index.command",
    "advise": "advice.command",
    "check": "gate.check_command",
    "compare": "gate.compare_command",
    "shell": "engines.shell_command",
    "engine": "engines.command",
}
"""Commands in wings, with their modules below `otel_memwatch.wings`."""


STARTED = "OTEL_MEMWATCH_STARTED"
"""Variable in which `monitor/launcher/launch.c` passes the state of the command that it has started."""

COMPLETION = "_OTEL_MEMWATCH_COMPLETE"
"""Variable in which a shell requests completions from Click."""


def module_of(command: str) -> str:
    """Return the full name of a command's module, which contains the function `command`."""
    return f"otel_memwatch.wings.{WINGS[command]}" if command in WINGS else f"otel_memwatch.cli.{command}"


def main() -> NoReturn:
    """Run the program: a user error prints one sentence and sets the exit code, never a traceback."""
    asks = bool(sys.argv[1:2]) and sys.argv[1].startswith("-") and COMPLETION not in os.environ
    if not asks:
        from otel_memwatch.runtime import module_finder

        module_finder.install()
    from otel_memwatch.errors import MemwatchError, shell_code
    from otel_memwatch.runtime.terminal import say

    if sys.platform == "win32":
        say("otel-memwatch: it measures programs on Linux and macOS, not on Windows; WSL 2 is a Linux.")
        sys.exit(1)
    try:
        code = 0 if asks and _answered() else _run()
    except MemwatchError as error:
        say(f"otel-memwatch: {error}")
        code = error.exit_code
    except KeyboardInterrupt:
        # End like a program without a handler: a shell loop then stops too.
        import signal

        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
        code = shell_code(signal.SIGINT)
    except BrokenPipeError:
        # The reader of our output has closed it, as `| head` does: this is no error.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        code = 0
    sys.exit(code)


def _run() -> int:
    if sys.argv[1:2] == ["wrap"]:
        # Importing Click would delay the command by 20 ms, so a simple command line runs without it. The start creates almost
        # no garbage, and collections would take 5 ms in total. The monitor enables them again.
        gc.disable()
        from otel_memwatch.cli.fast_args import parse

        parsed = parse(sys.argv[1:], os.environ)
        if parsed is not None:
            from otel_memwatch.config import settings
            from otel_memwatch.runtime.terminal import say

            if sys.flags.no_site and STARTED in os.environ:
                from otel_memwatch.monitor.launcher.adopt import record_started

                record_started(parsed.argv, settings("wrap", parsed.given), say, os.environ.pop(STARTED))
            from otel_memwatch.monitor.run.wrap import wrap
            from otel_memwatch.wings.gate.project import with_budgets

            chosen = with_budgets(settings("wrap", parsed.given))
            if chosen["repeat"] is not None:
                gc.enable()
                from otel_memwatch.cli.repeat import repeat

                repeat(parsed.argv, parsed.given, chosen)
            wrap(parsed.argv, chosen, say)
        gc.enable()
    from otel_memwatch.cli.command_group import run

    return run()


def _answered() -> bool:
    """Print help or version of the whole program, if the arguments request it and Click is not needed."""
    from otel_memwatch.cli.top_help import answer
    from otel_memwatch.runtime.terminal import columns

    text = answer(sys.argv[1:], COMMANDS, columns(1, os.environ) or 80)
    if text is None:
        return False
    if sys.stdout is not None:
        sys.stdout.write(f"{text}\n")
        sys.stdout.flush()
    return True


__getattr__ = lazy.names(__name__, {"cli": "command_group"})
