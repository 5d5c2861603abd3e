"""Click's group of all commands: their examples, and options made from the option table."""

from __future__ import annotations

from collections.abc import Callable
from difflib import get_close_matches
from importlib import import_module
from typing import Any, TypeVar

import click

from otel_memwatch._version import __version__
from otel_memwatch.cli import COMMANDS, module_of
from otel_memwatch.cli.top_help import PARAGRAPHS
from otel_memwatch.config import OPTIONS
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
        shown = example_lines(cmd_name)
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
        message = error.format_message()  # without a command: the help
        say(message if message.startswith("Usage:") else f"otel-memwatch: {' '.join(message.split())}")
        return error.exit_code
    except click.Abort:
        raise KeyboardInterrupt from None
    return result if isinstance(result, int) else 0


EXAMPLES: dict[str, tuple[tuple[str, str], ...]] = {
    "wrap": (
        ("otel-memwatch wrap -- python train.py", "record it; report and page are below memwatch-runs"),
        ("otel-memwatch wrap -o runs/a -- make -j8", "record into the directory runs/a"),
        ("otel-memwatch wrap -- sh -c 'sort big.txt | uniq -c'", "record a shell command line"),
        ("otel-memwatch wrap --quiet --interval 1s -- ./job", "sample once a second, print nothing"),
        ("otel-memwatch wrap --summary-file out.md -- pytest", "write the summary as Markdown, for CI"),
        ("otel-memwatch wrap --otlp http://collector:4318 -- ./job", "push metrics and spans while it runs"),
    ),
    "attach": (
        ("otel-memwatch attach 4711", "record until the process ends, or Ctrl-C"),
        ("otel-memwatch attach gunicorn", "record a program or script by its name, with its workers"),
        ("otel-memwatch attach --unit nginx", "record a systemd unit, again after each restart"),
        ("otel-memwatch attach --container web", "record a container"),
    ),
    "stop": (
        ("otel-memwatch stop", "stop the newest recording of attach"),
        ("otel-memwatch stop nginx.service", "stop recording a unit, by the name of its run"),
    ),
    "mark": (
        ("otel-memwatch mark Download", "start the phase Download in a script under wrap"),
        ("otel-memwatch mark --end", "end the last phase"),
    ),
    "live": (
        ("otel-memwatch live", "show the newest run below memwatch-runs"),
        ("otel-memwatch live 4711", "show the run that recorded this process"),
        ("otel-memwatch live --once runs/a", "print one snapshot as text"),
    ),
    "report": (
        ("otel-memwatch report", "report the newest run below memwatch-runs"),
        ("otel-memwatch report runs/a --json", "print its figures as JSON"),
        ("otel-memwatch report runs/a --format markdown > comment.md", "write it as Markdown"),
        ("otel-memwatch report --follow", "print status lines, then the summary"),
    ),
    "plot": (
        ("otel-memwatch plot", "draw memory.png in the newest run"),
        (
            "otel-memwatch plot runs/a -o a.svg --dark --size 10x6",
            "draw a vector picture with a dark background",
        ),
        ("otel-memwatch plot runs/a --from 2min --to 3min -o part.png", "draw one minute of it"),
        ("otel-memwatch plot runs/a runs/b -o both.png", "draw two runs into one picture"),
    ),
    "export": (
        ("otel-memwatch export runs/a --to csv -o a.csv", "write every sample as a row"),
        ("otel-memwatch export --to perfetto -o trace.json", "write the newest run for ui.perfetto.dev"),
    ),
    "replay": (
        ("otel-memwatch replay runs/a --otlp http://127.0.0.1:4318", "send it with its original timestamps"),
    ),
    "runs": (
        ("otel-memwatch runs", "list the runs below memwatch-runs, newest last"),
        ("otel-memwatch runs --last 10 --sort -peak", "list the newest ten, largest first"),
        ("otel-memwatch runs --json results/", "list runs as JSON"),
    ),
    "check": (("otel-memwatch check runs/a --budget memory=2GiB", "exit with 1 if it needed more"),),
    "compare": (("otel-memwatch compare runs/a runs/b", "compare b with a"),),
    "metrics": (("otel-memwatch metrics", "list every metric with unit and meaning"),),
    "doctor": (("otel-memwatch doctor", "check what is exact here, and the cost of watching"),),
    "demo": (("otel-memwatch wrap -- otel-memwatch demo", "record the demonstration"),),
    "tradeoff": (
        ("otel-memwatch tradeoff results.csv -o tables", "make a table and a plot from a file of results"),
    ),
    "man": (
        ("otel-memwatch man wrap | man -l -", "read the page"),
        ("otel-memwatch man > ~/.local/share/man/man1/otel-memwatch.1", "install the page"),
    ),
}


def example_lines(command: str) -> list[str]:
    """Return the examples of a command as lines of text, each with its meaning after a "#"."""
    listed = EXAMPLES.get(command, ())
    width = max((len(line) for line, _ in listed), default=0)
    return [f"{line:<{width}}  # {meaning}" for line, meaning in listed]


_F = TypeVar("_F", bound=Callable[..., Any])

_GROUPS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("Record", ("out", "runs", "name", "tag", "group", "rank", "upload", "interval", "cgroup", "exact", "stacks", "exact_gpu", "torch_snapshot", "receive_otlp", "strict", "repeat", "warmup")),
    ("Limits and budgets", ("limit", "limit_fallback", "leave", "stalled", "timeout", "kill_after", "limit_exit_code", "warn", "events", "budget", "baseline", "budget_exit_code")),
    (
        "At the end",
        ("quiet", "summary", "summary_file", "step_summary", "termination_log", "report", "page", "plot", "log_dir", "tracker"),
    ),
    (
        "Telemetry",
        (
            "metrics", "operation_metrics", "prometheus", "prometheus_cert", "prometheus_key", "prometheus_client_ca",
            "linger", "textfile", "otlp", "otlp_protocol", "otlp_metrics", "metric_interval",
        ),
    ),
)  # fmt: skip
"""Settings in the order of help. Settings without a group come last."""


class CommandWithSettings(click.Command):
    """Command with groups of options in its help."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options, group by group."""
        records = {
            parameter.name: record
            for parameter in self.get_params(ctx)
            if (record := parameter.get_help_record(ctx)) is not None and record[1]
        }
        for title, names in _GROUPS:
            listed = [records.pop(name) for name in names if name in records]
            if listed:
                with formatter.section(title):
                    formatter.write_dl(listed)
        if records:
            with formatter.section("Other"):
                formatter.write_dl(list(records.values()))


def setting_options(command: str) -> Callable[[_F], _F]:
    """Add every option of `command` in the table. Values are passed on unparsed, `None` if not given.

    Values of a repeated option are a tuple.
    """

    def decorate(function: _F) -> _F:
        for option in reversed(OPTIONS.values()):
            if command not in option.commands:
                continue
            if option.metavar is None:
                default = "on" if option.default else "off"
                text = f"{option.help} [{option.variable}; default: {default}]"
                flag = f"{option.flag}/--no-{option.flag[2:]}"
                function = click.option(flag, option.name, default=None, help=text)(function)
                continue
            default = "" if option.default in (None, ()) else f"; default: {option.default}"
            function = click.option(
                *([option.short] if option.short else []),
                option.flag,
                option.name,
                metavar=option.metavar,
                default=None,
                multiple=option.repeated,
                callback=lambda _context, _parameter, value: None if value == () else value,
                help=f"{option.help} [{option.variable}{default}]",
            )(function)
        return function

    return decorate
