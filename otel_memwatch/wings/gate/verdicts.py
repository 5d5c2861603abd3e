"""What `check` and `compare` have in common: which runs they read, where their verdicts go, how they end."""

from __future__ import annotations

import os
from pathlib import Path

import click

from otel_memwatch.errors import UsageError, describe
from otel_memwatch.reports.ci_summary import add_to_step
from otel_memwatch.reports.output import print_text
from otel_memwatch.runtime.terminal import say
from otel_memwatch.runtime.typed import TYPE_CHECKING, Any
from otel_memwatch.wings.gate.budget_check import annotation
from otel_memwatch.wings.gate.judged_runs import LeftOut, usable
from otel_memwatch.wings.index.find import find_paths
from otel_memwatch.wings.ranks.group_figures import group_figures
from otel_memwatch.wings.ranks.groups import groups_and_runs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from typing import TypeVar

    from otel_memwatch.run import RecordedRun
    from otel_memwatch.run.figures import RunFigures

    _F = TypeVar("_F", bound=Callable[..., object])

FAILED, UNKNOWN = 1, 3
"""Exit codes: over budget or regressed; it cannot be told, under --strict. 2 is a usage error."""


def verdict_options(forms: Iterable[str]) -> Callable[[_F], _F]:
    """Adds the options of how verdicts are told: `--format` and `--also`, in one of the `forms`, and `--strict`."""
    chosen = click.option(
        "--format",
        "form",
        type=click.Choice(list(forms)),
        default="table",
        help="What to print. [default: table]",
    )
    also = click.option(
        "--also",
        multiple=True,
        metavar="FORMAT=FILE",
        help="Write it in another form, into FILE; may be repeated.",
    )
    strict = click.option("--strict", is_flag=True, help="Exit with 3 where it cannot be told.")
    return lambda function: chosen(also(strict(function)))


def find_runs(named: Sequence[str]) -> tuple[list[RecordedRun], list[LeftOut]]:
    """The runs that were named, each a run, a name or a tree of several, as far as they have ended and can be read.

    Those that are left out are named on stderr.
    """
    found, left_out = usable(path for name in named for path in find_paths(name))
    tell(left_out)
    return found, left_out


def find_groups(named: Sequence[str]) -> tuple[list[str], list[RunFigures]]:
    """The names that are no groups, and the figures of those that are, each as one run. Groups that go on are left out."""
    runs: list[str] = []
    figures = []
    for name in named:
        groups, others = groups_and_runs(name)
        runs += others
        for group in groups:
            if group.state == "finished":
                figures.append(group_figures(group))
                continue
            why = "it is still running" if group.state == "running" else "the record of a rank was cut off"
            tell([LeftOut(group.name, why)])
    return runs, figures


def tell(left_out: Iterable[LeftOut]) -> None:
    """Names on stderr what is left out."""
    for one in left_out:
        say(f"otel-memwatch: {one.name} is left out: {one.why}")


def some(runs: Sequence[Any], which: str) -> None:
    """Raises `UsageError` where there is nothing to judge."""
    if not runs:
        raise UsageError(f"There is no {which} that could be used.")


def parse_also(texts: Iterable[str], forms: Iterable[str]) -> list[tuple[str, str]]:
    """Further forms of output with their files, from "markdown=FILE". Raises `UsageError`."""
    result = []
    for text in texts:
        form, _, file = text.partition("=")
        if form not in forms or not file:
            raise UsageError(f"--also {text}: it is not FORMAT=FILE.", "formats are " + ", ".join(forms))
        result.append((form, file))
    return result


def give(
    subject: Any, form: str, also: Iterable[tuple[str, str]], forms: Mapping[str, Callable[[Any], str]]
) -> None:
    """Prints the verdicts in one form and writes them in others; in GitHub Actions on the step's page too."""
    print_text(forms[form](subject))
    for other, file in also:
        try:
            Path(file).write_text(forms[other](subject), encoding="utf-8", errors="backslashreplace")
        except OSError as error:
            raise UsageError(f"{file} cannot be written: {error.strerror}.") from None
    try:
        add_to_step(forms["markdown"](subject), os.environ)
    except OSError as error:
        say(f"otel-memwatch: the step's summary could not be made: {describe(error)}")


def fail(sentences: Sequence[str]) -> None:
    """Says in GitHub Actions, on the job's page, what is wrong."""
    if os.environ.get("GITHUB_ACTIONS") == "true":
        for sentence in sentences:
            say(annotation("error", sentence))
