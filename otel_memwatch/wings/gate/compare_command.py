"""`compare`: runs of a program against runs of an earlier version."""

from __future__ import annotations

import contextlib
import tempfile
from fnmatch import fnmatchcase
from pathlib import Path

import click

from otel_memwatch.config import parse_effect, parsed
from otel_memwatch.errors import UsageError
from otel_memwatch.record.redaction import Redactor, redacted_copy
from otel_memwatch.reports import write_data
from otel_memwatch.run import load
from otel_memwatch.run.figures import OPERATION
from otel_memwatch.runtime.terminal import say
from otel_memwatch.runtime.typed import TYPE_CHECKING
from otel_memwatch.text import clean
from otel_memwatch.wings.gate import baseline as baselines
from otel_memwatch.wings.gate.comparison import ComparisonVerdict, Effect, compare, usual_effect
from otel_memwatch.wings.gate.comparison_formats import FORMATS, regressions
from otel_memwatch.wings.gate.group_causes import Side, explain_sides
from otel_memwatch.wings.gate.judged_runs import comparable, fed, successful
from otel_memwatch.wings.gate.project import project
from otel_memwatch.wings.gate.verdicts import (
    FAILED,
    UNKNOWN,
    annotate_failures,
    find_groups,
    find_runs,
    name_skipped,
    need_runs,
    parse_also,
    print_verdicts,
    verdict_options,
)
from otel_memwatch.wings.index.page_options import RedactingCommand, open_option, redact_option
from otel_memwatch.wings.ranks.group_commands import redacted_group
from otel_memwatch.wings.ranks.group_figures import group_figures

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from otel_memwatch.run.figures import RunFigures
    from otel_memwatch.wings.gate.comparison import Comparison

_DIVIDER = "\0"
"""Replacement of `--` among the runs: no path can have this name."""


_USAGE = "compare BASE HEAD, compare BASE... -- HEAD..., or compare --baseline FILE RUN..."


class _TwoSides(RedactingCommand):
    """Keep the `--` between the two sides, which Click would drop as the end of the options."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if "--" in args:
            args[args.index("--")] = _DIVIDER
        return super().parse_args(ctx, args)


@click.command(cls=_TwoSides)
@click.argument("runs", metavar="[BASE... --] HEAD...", nargs=-1)
@click.option(
    "--baseline",
    metavar="FILE",
    help="Baseline: a file from check --save-baseline, or git:REF:PATH for a file in a commit.",
)
@click.option(
    "--effect",
    "effects",
    multiple=True,
    metavar="[NAME=]SHARE",
    help="Smallest difference that counts: 2%, or seconds=10%. [default: 1% and 1 MiB; for times 5% and 50 ms]",
)
@click.option(
    "--figure",
    "wanted",
    multiple=True,
    metavar="NAME",
    help="Compare only these figures: memory, operation:*.",
)
@click.option(
    "--page",
    metavar="FILE",
    help="Also write a page with both curves and paired tables: one file for any browser, without a network.",
)
@redact_option
@click.option("--require-operations", is_flag=True, help="Fail if an operation of the base is missing.")
@verdict_options(FORMATS)
@open_option("--page")
def command(
    runs: tuple[str, ...],
    *,
    baseline: str | None,
    effects: tuple[str, ...],
    wanted: tuple[str, ...],
    form: str,
    also: tuple[str, ...],
    page: str | None,
    redact: str,
    require_operations: bool,
    strict: bool,
) -> int:
    """Compare the runs HEAD with the runs BASE or a baseline: memory, each operation, GPU, CPU, time, bytes written.

    A run may be a directory of runs. One run of each is enough for programs with one process and one thread; others need
    five. Exit codes: 0; 1 if a figure regressed; 2 if nothing could be compared; 3 with --strict if one is inconclusive.
    """
    _check_page(page, redact, baseline)
    effect, others = _effect(effects), parse_also(also, FORMATS)
    base_names, head_names = _sides(runs, has_baseline=baseline is not None)
    base_names, base_groups = find_groups(base_names)
    head_names, head_groups = find_groups(head_names)
    before, unusable = find_runs(base_names)
    after, more = find_runs(head_names)
    enough, starved = fed([*before, *after])
    succeeded, failed = successful(enough, must=baseline is not None)
    base, damaged = comparable(run for run in before if run in succeeded)
    head, damaged_too = comparable(run for run in after if run in succeeded)
    if baseline is not None:
        base = baselines.load(baseline, pipe=True)
    base = [*base, *map(group_figures, base_groups)]
    head = [*head, *map(group_figures, head_groups)]
    failed += [*starved, *damaged, *damaged_too]
    name_skipped(failed)
    need_runs(base, "baseline run")
    need_runs(head, "run to compare")

    found = compare(base, head, effect, lambda name: not wanted or any(_matches(name, one) for one in wanted))
    if not found.figures:
        # A misspelt name must not let everything pass.
        raise UsageError(
            f"No figure of these runs is called {' or '.join(wanted) or 'anything'}.",
            "compare without --figure",
        )
    name_skipped(found.left_out)
    found = found._replace(left_out=[*unusable, *more, *failed, *found.left_out])
    if baseline is None:
        sides = [
            Side([run for run in runs if run in succeeded], groups)
            for runs, groups in ((before, base_groups), (after, head_groups))
        ]
        found = found._replace(explanation=explain_sides(*sides))
        if page is not None:
            _write_page(found, sides, page, redact)
    print_verdicts(found, form, others, FORMATS)
    annotate_failures(regressions(found))
    return _exit_code(found, require_operations=require_operations, strict=strict)


def _check_page(page: str | None, redact: str, baseline: str | None) -> None:
    if redact and page is None:
        raise UsageError("--redact is for --page.", "name the file with --page")
    if page is not None and baseline is not None:
        raise UsageError("A baseline has no curves for --page.", "compare with the runs of the base")


def _exit_code(found: Comparison, *, require_operations: bool, strict: bool) -> int:
    gone = [one for one in found.figures if one.head is None and one.name.startswith(OPERATION)]
    if found.having(ComparisonVerdict.REGRESSED) or (require_operations and gone):
        return FAILED
    open_ = found.having(ComparisonVerdict.NOT_ENOUGH, ComparisonVerdict.NOT_COMPARABLE)
    return UNKNOWN if strict and open_ else 0


def _write_page(found: Comparison, sides: Sequence[Side], file: str, redact: str) -> None:
    """Write the page; with `redact` from redacted copies of the runs. Raises `RunError`."""
    from otel_memwatch.wings.gate.comparison_page import html

    if not redact:
        content = html(found, *sides, redacted=False)
    else:
        with contextlib.ExitStack() as stack:
            # Copies of the runs in temporary directories, with placeholders for their texts.
            redactor = Redactor(everything=redact == "all")
            place = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            redacted = []
            for name, side in zip(("base", "head"), sides, strict=True):
                copies = []
                for number, run in enumerate(side.runs, 1):
                    copy = place / f"{name}-{number}"
                    copy.mkdir()
                    redacted_copy(run.path, copy, redactor)
                    copies.append(load(copy))
                groups = [
                    stack.enter_context(redacted_group(group, "names", redactor)) for group in side.groups
                ]
                redacted.append(Side(copies, groups))
            base, head = redacted
            again = compare(_figures(base), _figures(head))
            content = html(
                again._replace(explanation=explain_sides(base, head), left_out=()), base, head, redacted=True
            )
    say(clean(write_data(content, Path(file), force=True)))


def _figures(side: Side) -> list[RunFigures]:
    runs = [one._replace(name=Path(one.name).name) for one in comparable(side.runs)[0]]
    return [*runs, *map(group_figures, side.groups)]


def _sides(runs: Sequence[str], *, has_baseline: bool) -> tuple[Sequence[str], Sequence[str]]:
    """Return the runs of the base and those of the head. Raises `UsageError` if a side is missing."""
    base_names: Sequence[str] = ()
    head_names: Sequence[str] = runs
    if _DIVIDER in runs:
        place = runs.index(_DIVIDER)
        base_names, head_names = runs[:place], runs[place + 1 :]
    elif not has_baseline and len(runs) == 2:
        base_names, head_names = runs[:1], runs[1:]
    divider = _DIVIDER in runs or bool(base_names)
    if divider == has_baseline:
        raise UsageError("There are two bases." if divider else "The base is missing.", _USAGE)
    if not head_names or (divider and not base_names):
        raise UsageError("Runs are missing on one side.", _USAGE)
    return base_names, head_names


def _effect(texts: Sequence[str]) -> Callable[[str], Effect]:
    """Return the smallest effect of each figure, from "2%" and "NAME=2%"."""
    given = [pair for text in texts if (pair := parsed(parse_effect, text, "--effect"))]
    usual = project().effect

    def effect(name: str) -> Effect:
        found = usual_effect(name)
        if usual is not None:
            found = found._replace(share=usual)
        for pattern, share in given:
            if pattern is None or _matches(name, pattern):
                found = found._replace(share=share)
        return found

    return effect


def _matches(name: str, pattern: str) -> bool:
    """Return whether a pattern selects a figure. A name with brackets, as pytest's tests have, is not a pattern of itself."""
    return name == pattern or fnmatchcase(name, pattern)
