"""`man`: manual page of the program or of one command, made from its help."""

from __future__ import annotations

import click

from otel_memwatch._version import __version__
from otel_memwatch.cli import COMMANDS
from otel_memwatch.cli.command_group import example_lines
from otel_memwatch.errors import UsageError
from otel_memwatch.reports.output import print_text

_PROGRAM = "otel-memwatch"


@click.command()
@click.argument("command", required=False)
def command(command: str | None) -> None:
    """Print the manual page of COMMAND, or of the whole program, for man(1)."""
    from otel_memwatch.cli.command_group import cli

    if command is None:
        lines = _head(_PROGRAM, "what a command and all its descendants need of memory, CPU, I/O and GPU")
        lines += [".SH SYNOPSIS", f".B {_PROGRAM}", _escaped("COMMAND [OPTIONS] [ARGS]...")]
        lines += [".SH DESCRIPTION", *_paragraphs(cli.help or "")]
        lines.append(".SH COMMANDS")
        for name, text in COMMANDS.items():
            lines += [".TP", f".B {_escaped(name)}", _escaped(text)]
        lines += [".SH SEE ALSO", _escaped(f"{_PROGRAM} man COMMAND prints the page of a command.")]
        print_text("\n".join(lines) + "\n")
        return
    found = cli.get_command(click.Context(cli), command)
    if found is None:
        raise UsageError(f"There is no command {command!r}.", "there are " + ", ".join(COMMANDS))
    print_text(_command_page(command, found))


def _command_page(name: str, found: click.Command) -> str:
    context = click.Context(found, info_name=f"{_PROGRAM} {name}")
    lines = _head(f"{_PROGRAM}-{name}", COMMANDS[name].rstrip("."))
    usage = " ".join(found.collect_usage_pieces(context))
    lines += [".SH SYNOPSIS", f".B {_escaped(f'{_PROGRAM} {name}')}", _escaped(usage)]
    lines += [".SH DESCRIPTION", *_paragraphs(found.help or "")]
    records = [
        record
        for option in found.get_params(context)
        if (record := option.get_help_record(context)) and record[1]
    ]
    if records:
        lines.append(".SH OPTIONS")
        for option, text in records:
            # A list of choices may be longer than a line: roff may break it after each bar.
            lines += [".TP", f".B {_escaped(option)}".replace("|", "|\\:"), _escaped(text)]
    shown = example_lines(name)
    if shown:
        lines += [".SH EXAMPLES", ".nf", *map(_escaped, shown), ".fi"]
    return "\n".join(lines) + "\n"


def _head(name: str, what: str) -> list[str]:
    return [
        f'.TH "{_escaped(name.upper())}" 1 "" "otel-memwatch {_escaped(__version__)}" "User Commands"',
        ".SH NAME",
        f"{_escaped(name)} \\- {_escaped(what)}",
    ]


def _paragraphs(text: str) -> list[str]:
    lines: list[str] = []
    for paragraph in text.replace("\f", "").replace("\b", "").split("\n\n"):
        words = " ".join(paragraph.split())
        if words:
            lines += [".PP", _escaped(words)]
    return lines


def _escaped(text: str) -> str:
    """Escape text so roff prints it unchanged: no escapes, and no line that is a request."""
    text = text.replace("\\", "\\e").replace("-", "\\-")
    return f"\\&{text}" if text.startswith((".", "'")) else text
