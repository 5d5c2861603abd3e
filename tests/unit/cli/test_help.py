"""Help for new users: examples, groups of options, sentences for what was mistyped, manual pages."""

from __future__ import annotations

import re
import shlex

import click
import pytest
from click.testing import CliRunner

from otel_memwatch.cli import COMMANDS
from otel_memwatch.cli.command_group import EXAMPLES, cli, example_lines, run
from otel_memwatch.cli.fast_args import parse
from otel_memwatch.config import OPTIONS, misspelt
from otel_memwatch.wings.engines import ENGINES


def shown(*words: str) -> str:
    done = CliRunner().invoke(cli, words, prog_name="otel-memwatch")
    assert done.exit_code == 0, done.output
    return done.output


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_shows_examples(name: str) -> None:
    help_text = shown(name, "--help")
    for line in example_lines(name):
        assert f"    {line}\n" in help_text
    assert example_lines(name) or name not in EXAMPLES
    assert shown(name, "--help") == help_text  # and once only


@pytest.mark.parametrize(
    "line", [line for name, listed in EXAMPLES.items() if name in COMMANDS for line, _ in listed]
)
def test_examples_are_what_the_commands_understand(line: str) -> None:
    words = shlex.split(line)
    words = words[: next((index for index, word in enumerate(words) if word in ("|", ">")), None)]
    assert words[0] == "otel-memwatch"
    group = click.Context(cli)
    command = cli.get_command(group, words[1])
    assert command is not None
    context = command.make_context(words[1], words[2:], parent=group)
    if isinstance(command, click.Group):
        name, command, rest = command.resolve_command(context, [*context._protected_args, *context.args])
        assert command is not None
        context = command.make_context(name, rest, parent=context)
    assert not context.args


@pytest.mark.parametrize(
    ("name", "lines"),
    [
        ("shell", ["make SHELL=DIR/bash", "PATH=DIR:$PATH snakemake", "process.shell = ['DIR/bash', '-euo', 'pipefail']"]),
        ("engine", list(ENGINES.values())),
    ],
)  # fmt: skip
def test_the_lines_of_an_epilog_stay_apart(name: str, lines: list[str]) -> None:
    shown_lines = shown(name, "--help").splitlines()
    assert all(sum(shown.endswith(f" {line}") for shown in shown_lines) == 1 for line in lines), shown_lines


def test_options_stand_in_groups_each_once() -> None:
    text = shown("wrap", "--help")
    places = [text.index(f"\n{title}:") for title in ("Record", "At the end", "Telemetry")]
    assert places == sorted(places)
    for option in OPTIONS.values():
        if "wrap" in option.commands:
            assert len(re.findall(rf"^  (-\w, )?{option.flag}[ /\n]", text, re.MULTILINE)) == 1, option.flag


def test_the_short_spelling() -> None:
    plain = parse(["wrap", "-o", "runs/a", "--", "true"], {})
    assert plain is not None
    assert plain.given == {"out": "runs/a"}
    assert parse(["wrap", "-o=a", "true"], {}) is None  # Click's to say what that means


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("sleep", "1"), "No such command 'sleep' (to record a command: otel-memwatch wrap -- sleep 1)"),
        (("run", "a b", "-c"), "otel-memwatch wrap -- 'a b' -c"),
        (("reprot",), "did you mean report?"),
    ],
)
def test_what_is_no_command(words: tuple[str, ...], told: str) -> None:
    done = CliRunner().invoke(cli, words, standalone_mode=False)
    assert isinstance(done.exception, click.UsageError)
    assert told in done.exception.format_message()


@pytest.mark.parametrize(
    ("words", "first", "lines"),
    [((), "Usage: otel-memwatch", 30), (("engine",), "otel-memwatch: Missing argument", 1)],
)
def test_a_usage_error_is_one_line_and_help_has_no_prefix(
    words: tuple[str, ...],
    first: str,
    lines: int,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("sys.argv", ["otel-memwatch", *words])
    run()
    printed = "".join(capfd.readouterr()).strip().splitlines()
    assert printed[0].startswith(first)
    assert (len(printed) >= lines) if lines > 1 else (len(printed) == 1)


def test_variables_that_are_nearly_ours() -> None:
    told = misspelt({"OTEL_MEMWATCH_INTERVL": "3", "OTEL_MEMWATCH_OUT": "x", "PATH": "y"})
    assert told == [
        "OTEL_MEMWATCH_INTERVL is not a setting and is ignored; did you mean OTEL_MEMWATCH_INTERVAL?"
    ]
    # Kubernetes makes these of a service that is called otel-memwatch; and those that programs read are no settings.
    others = ("SERVICE_HOST", "PORT", "PORT_9464_TCP_ADDR", "RUN_DIR", "PLAIN_OPERATIONS")
    assert misspelt({f"OTEL_MEMWATCH_{name}": "" for name in others}) == []
