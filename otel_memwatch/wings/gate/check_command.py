"""`check`: judge recorded runs by budgets, and save them as a baseline."""

from __future__ import annotations

import click

from otel_memwatch.errors import UsageError
from otel_memwatch.runtime.terminal import say
from otel_memwatch.text import clean, count
from otel_memwatch.wings.gate import baseline as baselines
from otel_memwatch.wings.gate.budget_formats import FORMATS
from otel_memwatch.wings.gate.budgets import Budget, Judgement, judge_run, over
from otel_memwatch.wings.gate.judged_runs import comparable, successful
from otel_memwatch.wings.gate.project import with_budgets
from otel_memwatch.wings.gate.verdicts import (
    FAILED,
    UNKNOWN,
    annotate_failures,
    find_runs,
    name_skipped,
    need_runs,
    parse_also,
    print_verdicts,
    verdict_options,
)
from otel_memwatch.wings.index.find import LATEST


@click.command()
@click.argument("runs", metavar="[RUN]...", nargs=-1)
@click.option(
    "--budget",
    "budgets",
    multiple=True,
    metavar="NAME=LIMIT",
    help="Upper limit of a figure: memory=2GiB, process=, operation:NAME=, gpu=, written=, cpu=, seconds=600, stalled=5%, or "
    "memory=+5% against the baseline. Also read from [tool.otel-memwatch.budgets] in pyproject.toml.",
)
@click.option(
    "--baseline",
    metavar="FILE",
    help="Baseline for budgets such as +5%: a file from --save-baseline, or git:REF:PATH.",
)
@click.option(
    "--save-baseline",
    metavar="FILE",
    help="Save the figures of the runs to FILE, for --baseline and compare.",
)
@verdict_options(FORMATS)
def command(
    runs: tuple[str, ...],
    *,
    budgets: tuple[str, ...],
    baseline: str | None,
    save_baseline: str | None,
    form: str,
    also: tuple[str, ...],
    strict: bool,
) -> int:
    """Check recorded runs against budgets. RUN may be a directory of runs. Default: the newest run in memwatch-runs.

    A figure passes if its upper bound is within the budget, and fails if its lower bound exceeds it. Otherwise it is
    inconclusive. Exit codes: 0; 1 if a figure fails; 2 if nothing could be checked; 3 with --strict if one is inconclusive.
    """
    for text in budgets:
        Budget.parse(text)
    chosen = with_budgets({"budget": budgets, "baseline": baseline}, try_baseline=False)
    texts, baseline = chosen["budget"], chosen["baseline"]
    others = parse_also(also, FORMATS)
    if not texts and save_baseline is None:
        raise UsageError(
            "There is no budget to check.",
            "pass --budget, or add [tool.otel-memwatch.budgets] to pyproject.toml",
        )
    earlier = None if baseline is None else [run.figures for run in baselines.load(baseline, pipe=True)]
    found, _ = find_runs(runs or (LATEST,))
    need_runs(found, "run")
    checked = [(str(run.path), judge_run(run, texts, earlier)) for run in found]
    if save_baseline is not None:
        kept, failed = successful(found)
        figures, damaged = comparable(kept)
        name_skipped([*failed, *damaged])
        need_runs(figures, "run for the baseline")
        baselines.save(save_baseline, figures)
        say(f"otel-memwatch: saved the figures of {count(len(figures), 'run')} to {clean(save_baseline)}")
    if texts:
        print_verdicts(checked, form, others, FORMATS)
    sentences = [sentence for _, entries in checked for sentence in over(entries)]
    if sentences:
        annotate_failures(sentences)
        return FAILED
    unknown = any(entry["verdict"] == Judgement.UNKNOWN.value for _, entries in checked for entry in entries)
    return UNKNOWN if strict and unknown else 0
