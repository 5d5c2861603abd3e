"""`wrap`: record a command."""

from __future__ import annotations

import click

from otel_memwatch.cli.command_group import CommandWithSettings, setting_options
from otel_memwatch.cli.repeat import repeat
from otel_memwatch.config import settings
from otel_memwatch.errors import UsageError
from otel_memwatch.monitor.run.wrap import wrap
from otel_memwatch.runtime.terminal import say
from otel_memwatch.wings.gate.project import with_budgets


@click.command(cls=CommandWithSettings, context_settings={"allow_interspersed_args": False})
@setting_options("wrap")
@click.argument("argv", metavar="[--] COMMAND [ARGS]...", nargs=-1, type=click.UNPROCESSED)
def command(argv: tuple[str, ...], **given: object) -> None:
    """Run COMMAND unchanged, and record the memory, CPU, I/O and GPU use of its whole process tree.

    Exit code, signals, terminal, descriptors and environment are those of the command. The summary goes to stderr, at the end.
    Every option can also be set in the environment, by the name in brackets.
    """
    if not argv:
        raise UsageError(
            "There is no command to run.", "write it after --, as in: otel-memwatch wrap -- python train.py"
        )
    chosen = with_budgets(settings("wrap", given))
    if chosen["repeat"] is not None:
        repeat(argv, given, chosen)
    wrap(argv, chosen, say)
