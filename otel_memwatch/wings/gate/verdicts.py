"""Shared parts of `check` and `compare`: their runs, the output of verdicts, exit codes."""

from __future__ import annotations

import os
from pathlib import Path

import click

from otel_memwatch.errors import UsageError, describe
from otel_memwatch.reports.ci_summary import add_to_step
from otel_memwatch.reports.output import print_text
from otel_memwatch.runtime.terminal import say
from otel_memwatch.runtime.typed import TYPE_CHECKING, Any
from otel_memwatch.text import clean
from otel_memwatch.wings.gate.budgets import annotation
from otel_memwatch.wings.gate.judged_runs import LeftOut, usable
from otel_memwatch.wings.index.find import find_paths
from otel_memwatch.wings.ranks.groups import groups_and_runs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from typing import TypeVar

    from otel_memwatch.run import RecordedRun
    from otel_memwatch.wings.ranks.rank_group import RankGroup

    _F = TypeVar("_F", bound=Callable[..., object])

FAILED, UNKNOWN = 1, 3
"""Exit codes: over budget or regressed; inconclusive, with --strict. 2 is a usage error."""


def verdict_options(forms: Iterable[str]) -> Callable[[_F], _F]:
    """Add the options `--format` and `--also`, in one of the `forms`, and `--strict`."""
    chosen = click.option(
        "--format",
        "form",
        type=click.Choice(list(forms)),
        default="table",
        help="Output format. [default: table]",
    )
    also = click.option(
        "--also",
        multiple=True,
        metavar="FORMAT=FILE",
        help="Also write the verdicts to FILE in this format; may be repeated.",
    )
    strict = click.option("--strict", is_flag=True, help="Exit with 3 if a figure is inconclusive.")
    return lambda function: chosen(also(strict(function)))


def find_runs(named: Sequence[str]) -> tuple[list[RecordedRun], list[LeftOut]]:
    """Return the finished, readable runs of these names, and the others, which are named on stderr.

    A name refers to a run, or to a directory with several runs.
    """
    found, left_out = usable(path for name in named for path in find_paths(name))
    name_skipped(left_out)
    return found, left_out


def find_groups(named: Sequence[str]) -> tuple[list[str], list[RankGroup]]:
    """Return the names that are not groups, and the groups, each of which counts as one run. Running groups are skipped."""
    runs: list[str] = []
    finished = []
    for name in named:
        groups, others = groups_and_runs(name)
        runs += others
        for group in groups:
            if group.state == "finished":
                finished.append(group)
                continue
            why = "it is still running" if group.state == "running" else "the record of a rank was cut off"
            name_skipped([LeftOut(group.name, why)])
    return runs, finished


def name_skipped(left_out: Iterable[LeftOut]) -> None:
    """Name the skipped runs on stderr."""
    for one in left_out:
        say(f"otel-memwatch: skipped {clean(one.name)}: {clean(one.why)}")


def need_runs(runs: Sequence[Any], which: str) -> None:
    """Raise `UsageError` if there is nothing to judge."""
    if not runs:
        raise UsageError(f"No usable {which}.")


def parse_also(texts: Iterable[str], forms: Iterable[str]) -> list[tuple[str, str]]:
    """Return further formats with their files, from "markdown=FILE". Raises `UsageError`."""
    result = []
    for text in texts:
        form, _, file = text.partition("=")
        if form not in forms or not file:
            raise UsageError(f"--also: {text!r} is not FORMAT=FILE.", "formats are " + ", ".join(forms))
        result.append((form, file))
    return result


def print_verdicts(
    subject: Any, form: str, also: Iterable[tuple[str, str]], forms: Mapping[str, Callable[[Any], str]]
) -> None:
    """Print the verdicts in one format and write them in others; in GitHub Actions also to the step's page."""
    print_text(forms[form](subject))
    for other, file in also:
        try:
            Path(file).write_text(forms[other](subject), encoding="utf-8", errors="backslashreplace")
        except OSError as error:
            raise UsageError(f"{file} cannot be written: {error.strerror}.") from None
    try:
        add_to_step(forms["markdown"](subject), os.environ)
    except OSError as error:
        say(f"otel-memwatch: cannot write the step's summary: {describe(error)}")


def annotate_failures(sentences: Sequence[str]) -> None:
    """Annotate the job's page in GitHub Actions with the failures."""
    if os.environ.get("GITHUB_ACTIONS") == "true":
        for sentence in sentences:
            say(annotation(sentence))
