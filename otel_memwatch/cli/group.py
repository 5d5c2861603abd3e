"""The command line as Click sees it."""

from __future__ import annotations

from importlib import import_module

import click

from otel_memwatch._version import __version__
from otel_memwatch.cli import COMMANDS, say


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


def run() -> int:
    """Runs the command line; gives the exit code. What a person mistyped is one sentence."""
    try:
        result = cli.main(prog_name="otel-memwatch", standalone_mode=False)
    except click.ClickException as error:
        say(f"otel-memwatch: {error.format_message()}")
        return error.exit_code
    except click.Abort:
        raise KeyboardInterrupt from None
    return result if isinstance(result, int) else 0
