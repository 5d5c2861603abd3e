"""`check`: recorded runs held against budgets, and kept as a baseline."""

from __future__ import annotations

import json
import os

import click

from otel_memwatch.cli import say
from otel_memwatch.cli.output import print_text
from otel_memwatch.errors import UsageError
from otel_memwatch.runs import baseline as baselines
from otel_memwatch.runs.budgets import Budget, Judgement
from otel_memwatch.runs.find import find_run
from otel_memwatch.runs.gate import annotation, judge_run, over
from otel_memwatch.runs.project import project
from otel_memwatch.runs.run_figures import figures_of, usable
from otel_memwatch.runs.tables import budget_table
from otel_memwatch.runtime.typed import TYPE_CHECKING

if TYPE_CHECKING:
    from otel_memwatch.analysis import RecordedRun

FAILED, USAGE, UNKNOWN = 1, 2, 3
"""Exit codes: over budget or regressed; nothing could be done; it cannot be told, under --strict."""


@click.command()
@click.argument("runs", metavar="[RUN]...", nargs=-1)
@click.option(
    "--budget",
    "budgets",
    multiple=True,
    metavar="NAME=LIMIT",
    help="What a figure may be at most: memory=2GiB, process=, operation:NAME=, gpu=, written=, cpu=, seconds=600, or "
    "memory=+5% against the baseline. More in [tool.otel-memwatch.budgets] of pyproject.toml.",
)
@click.option("--baseline", metavar="FILE", help="What budgets such as +5% are held against.")
@click.option("--save-baseline", metavar="FILE", help="Keep the figures of the runs in FILE, for compare.")
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
@click.option("--strict", is_flag=True, help="Exit with 3 where it cannot be told.")
def command(
    runs: tuple[str, ...],
    *,
    budgets: tuple[str, ...],
    baseline: str | None,
    save_baseline: str | None,
    as_json: bool,
    strict: bool,
) -> int:
    """Hold recorded runs against budgets. Without RUN: the newest below memwatch-runs.

    A figure is within if its upper bound is, over if its lower bound is beyond; else it cannot be told. Exit code: 0,
    or 1 where a figure is over, 2 where nothing could be checked, 3 under --strict where it cannot be told.
    """
    for text in budgets:
        Budget.parse(text)
    named = {text.rpartition("=")[0].strip() for text in budgets}
    more = (text for text in project().budgets if text.rpartition("=")[0].strip() not in named)
    texts = (*budgets, *more)
    if not texts and save_baseline is None:
        raise UsageError(
            "There is no budget to check.", "give --budget, or [tool.otel-memwatch.budgets] in pyproject.toml"
        )
    earlier = None if baseline is None else [run.figures for run in baselines.load(baseline)]
    found = read_runs(runs or (None,))
    checked = [(str(run.path), judge_run(run, texts, earlier)) for run in found]
    if save_baseline is not None:
        baselines.save(save_baseline, [figures_of(run) for run in found])
    if as_json:
        document = {"schema": 1, "runs": [{"run": name, "budgets": entries} for name, entries in checked]}
        print_text(json.dumps(document, indent=2) + "\n")
    elif texts:
        print_text("\n".join(budget_table(checked)) + "\n")
    return _code(checked, strict=strict)


def read_runs(named: tuple[str | None, ...], *, must: bool = True) -> list[RecordedRun]:
    """The runs that were named, as far as they have ended and can be read; the others are named on stderr.

    Raises `UsageError` where none is left, unless `must` is false.
    """
    found, left_out = usable(find_run(name) for name in named)
    for one in left_out:
        say(f"otel-memwatch: {one.name} is left out: {one.why}")
    if not found and must:
        raise UsageError("There is no run that could be used.")
    return found


def _code(checked: list[tuple[str, list[dict[str, object]]]], *, strict: bool) -> int:
    sentences = [sentence for _, entries in checked for sentence in over(entries)]
    if os.environ.get("GITHUB_ACTIONS") == "true":
        for sentence in sentences:
            say(annotation("error", sentence))
    if sentences:
        return FAILED
    unknown = any(entry["verdict"] == Judgement.UNKNOWN.value for _, entries in checked for entry in entries)
    return UNKNOWN if strict and unknown else 0
