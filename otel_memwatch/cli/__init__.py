"""The command line: one file per command, loaded when it is called."""

from __future__ import annotations

import os
import signal
import sys
from importlib import import_module
from typing import NoReturn

import click

from otel_memwatch import __version__
from otel_memwatch.errors import MemwatchError

COMMANDS: dict[str, str] = {
    "wrap": "Run a command and record its memory, CPU, I/O and GPU use.",
    "attach": "Record a process that is running already, with its descendants.",
    "mark": "Mark where a phase of a shell script begins.",
    "report": "Print what a recorded run tells.",
    "plot": "Draw a recorded run.",
    "export": "Write a recorded run in another format.",
    "replay": "Send a recorded run to an OTLP endpoint.",
    "runs": "List recorded runs.",
    "metrics": "Print the table of all metrics.",
    "doctor": "Tell what works on this machine, how exactly, and what would improve it.",
    "demo": "A small workload to try this with.",
    "tradeoff": "Tabulate and plot accuracy against memory footprint.",
}
"""Each command: the module `otel_memwatch.cli.<name>` with its function `command`."""


class _LazyGroup(click.Group):
    """Imports a command's module when the command is called: `wrap` must not wait for the others."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - Click's signature
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name not in COMMANDS:
            return None
        command = import_module(f"otel_memwatch.cli.{cmd_name}").command
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@click.group(cls=_LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="otel-memwatch")
def cli() -> None:
    """Watch how much memory, CPU, I/O and GPU a command and all its descendants need.

    `otel-memwatch wrap -- python train.py` runs the command as it would run alone, and leaves a record
    from which reports and plots are made at any later time.
    """


def say(text: str) -> None:
    """Prints one of our own lines to stderr; stdout is the target's."""
    if sys.stderr is None:
        return
    try:
        sys.stderr.write(f"{text}\n")
        sys.stderr.flush()
    except (OSError, ValueError):
        # Nobody reads our stderr: what we had to say must not end the target.
        return


def main() -> NoReturn:
    """Entry point: a person's mistake is one sentence and an exit code, never a traceback."""
    try:
        result = cli.main(prog_name="otel-memwatch", standalone_mode=False)
        code = result if isinstance(result, int) else 0
    except click.ClickException as error:
        say(f"otel-memwatch: {error.format_message()}")
        code = error.exit_code
    except MemwatchError as error:
        say(f"otel-memwatch: {error}")
        code = error.exit_code
    except (KeyboardInterrupt, click.Abort):
        _die_of(signal.SIGINT)
    except BrokenPipeError:
        # The reader of our output has gone, as `| head` does: nothing is wrong.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        code = 0
    sys.exit(code)


def _die_of(number: signal.Signals) -> NoReturn:
    """Ends as a program without a handler would, so that a shell loop stops too."""
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)
    sys.exit(128 + number)
