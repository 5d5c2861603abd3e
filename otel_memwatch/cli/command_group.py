"""Click's group of all commands."""

from __future__ import annotations

from difflib import get_close_matches
from importlib import import_module

import click

from otel_memwatch._version import __version__
from otel_memwatch.cli import COMMANDS, examples, module_of
from otel_memwatch.cli.top_help import PARAGRAPHS
from otel_memwatch.runtime.terminal import say
from otel_memwatch.text import shell_word, shorten

_EXAMPLES = "Examples:"
_NEAR = 0.72
"""Similarity from which a word counts as a misspelt command."""
_WORDS_FOR_WRAP = ("run", "record", "exec", "time", "watch", "profile", "start")
"""Names of `wrap` in other tools."""


class _LazyGroup(click.Group):
    """Group that imports a command's module when the command is called: `wrap` must not wait for the others."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - Click's signature
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name not in COMMANDS:
            return None
        command = import_module(module_of(cmd_name)).command
        assert isinstance(command, click.Command)
        shown = examples.example_lines(cmd_name)
        # A group shows them in the help of its first subcommand, the default.
        last = next(iter(command.commands.values())) if isinstance(command, click.Group) else command
        if shown and _EXAMPLES not in (last.epilog or ""):
            # Click breaks no lines after a backspace.
            listed = "\n".join(("\b", _EXAMPLES, *(f"  {line}" for line in shown)))
            last.epilog = "\n\n".join(filter(None, (last.epilog, listed)))
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Resolve a command as Click does; for an unknown one suggest the likely command."""
        name = args[0]
        if name in COMMANDS or name.startswith("-"):
            return super().resolve_command(ctx, args)
        near = get_close_matches(name, COMMANDS, 1, _NEAR)
        if near and name not in _WORDS_FOR_WRAP:
            hint = f"did you mean {near[0]}?"
        else:
            command = args[1:] if name in _WORDS_FOR_WRAP else args
            hint = f"to record a command: otel-memwatch wrap -- {shorten(' '.join(map(shell_word, command)), 60)}"
        raise click.UsageError(f"No such command {name!r} ({hint}).", ctx)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@click.group(
    cls=_LazyGroup,
    help="\n\n".join(PARAGRAPHS),
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(__version__, "-V", "--version", prog_name="otel-memwatch")
def cli() -> None:
    """Run nothing: each command is a function elsewhere."""


def run() -> int:
    """Run the command line and return the exit code. A usage error prints one sentence."""
    try:
        result = cli.main(prog_name="otel-memwatch", standalone_mode=False)
    except click.ClickException as error:
        say(f"otel-memwatch: {error.format_message()}")
        return error.exit_code
    except click.Abort:
        raise KeyboardInterrupt from None
    return result if isinstance(result, int) else 0
