"""`advise`: recommend memory, CPU and time for the next run."""

from __future__ import annotations

import os
from collections import defaultdict
from functools import partial

import click

from otel_memwatch.config import parse_size, parsed
from otel_memwatch.errors import UsageError
from otel_memwatch.reports.output import print_text
from otel_memwatch.runtime import strict_json
from otel_memwatch.runtime.terminal import say
from otel_memwatch.runtime.typed import TYPE_CHECKING
from otel_memwatch.text import clean
from otel_memwatch.wings.advice.advice import (
    EXPORTING_SHARE,
    MONITOR_SHARE,
    advise,
    job_of,
    settings_export,
)
from otel_memwatch.wings.advice.jobs import WORDS, jobs_json, jobs_text, jobs_within
from otel_memwatch.wings.advice.measured import with_measured
from otel_memwatch.wings.advice.recommendation import Advice, tight, to_json
from otel_memwatch.wings.advice.sizes import cores_over_time
from otel_memwatch.wings.advice.targets import INSIDE, TARGETS
from otel_memwatch.wings.index.filter import where
from otel_memwatch.wings.index.find import find_runs
from otel_memwatch.wings.index.run_fields import columns
from otel_memwatch.wings.ranks.group_figures import host_rows
from otel_memwatch.wings.ranks.groups import groups_and_runs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from otel_memwatch.wings.index.indexed_run import IndexedRun


def _note_compare(_: click.Context, __: click.Parameter, value: bool) -> None:
    if value:
        say("otel-memwatch: --compare is ignored. docs/benchmarks.md compares advice with VPA, KRR and seff.")


@click.command()
@click.argument("runs", metavar="[RUN]...", nargs=-1)
@click.option(
    "--for",
    "target",
    type=click.Choice([*TARGETS, "json", *WORDS]),
    metavar="FORMAT",
    default="text",
    show_default=True,
    help=f"Output format: {', '.join((*TARGETS, 'json'))}; with --jobs, the option of a runner: {', '.join(WORDS)}.",
)
@click.option(
    "--odds",
    default="1/1000",
    show_default=True,
    metavar="N/M",
    help="Accepted probability that the next run needs more than advised.",
)
@click.option(
    "--by",
    metavar="FIELD,...",
    help="Fields that identify a job. Default: the tag `rule`, else the name, else the key of the command.",
)
@click.option(
    "--where", "condition", metavar="CONDITION", help="Only runs that match, in the syntax of `runs --where`."
)
@click.option(
    "--feature",
    metavar="NAME",
    help="Input that the memory depends on: input (bytes of files among the arguments), files (bytes of files that it mapped or read), or a tag with a number. Default: the one that explains it best.",
)
@click.option(
    "--monitor/--no-monitor",
    "monitor",
    default=None,
    help="Add headroom for the monitor. Default: for slurm, kubernetes and docker.",
)
@click.option(
    "--tight",
    "minimal",
    is_flag=True,
    help="Request the minimum, with which the job is not killed, instead of the size for full speed.",
)
@click.option("--compare", is_flag=True, hidden=True, expose_value=False, callback=_note_compare)
@click.option(
    "--apply",
    "manifest",
    metavar="FILE",
    help="Write the advice into this Kubernetes manifest and keep its comments.",
)
@click.option("--container", metavar="NAME", help="Container in the manifest.")
@click.option("--dry-run", is_flag=True, help="With --apply: show the changes without writing them.")
@click.option(
    "--yes",
    "confirmed",
    is_flag=True,
    help="With --apply: write even if the container does not look like the job, or memory falls on weak evidence.",
)
@click.option(
    "--verify", is_flag=True, help="Run the command once with the advised limit and once with 5 % less."
)
@click.option(
    "--trade",
    "traded",
    is_flag=True,
    help="Run the command under different limits, to find the smallest one with full speed: about ten times, at most 26 on a busy machine.",
)
@click.option(
    "--jobs",
    "at_once",
    is_flag=True,
    help="Recommend the number of commands to run at once, for make and other runners.",
)
@click.option(
    "--within",
    metavar="SIZE",
    help="With --jobs: memory that the commands share. Default: that of this machine.",
)
@click.option(
    "--picture", metavar="FILE", help="With --trade: draw memory limit against time (.png, .svg, .pdf)."
)
def command(
    runs: tuple[str, ...],
    *,
    target: str,
    odds: str,
    by: str | None,
    condition: str | None,
    feature: str | None,
    monitor: bool | None,
    minimal: bool,
    manifest: str | None,
    container: str | None,
    dry_run: bool,
    confirmed: bool,
    verify: bool,
    traded: bool,
    at_once: bool,
    within: str | None,
    picture: str | None,
) -> None:
    """Recommend memory, processors and time for the next run of each job, based on earlier runs.

    A RUN is a directory, a tree of directories, a name, a job, or "latest". Default: all runs in memwatch-runs. Each job
    gets separate advice, with two sizes. The minimum is a prediction bound: the next run needs more, and is killed, with the
    probability of --odds. Full speed adds the files in use at the same time; if they do not fit, the job reads them again.
    Both are at least 32 MiB, and at most the memory of the machine. If no run has an upper bound, the advice says "at least".
    """
    asked = _odds(odds)
    _check_picture(picture, traded=traded)
    rows, hosts = _find_runs(runs, condition, target)
    if at_once:
        _recommend_jobs(rows, parsed(parse_size, within, "--within"), target)
        return
    _require_jobs(target, within)
    same_job = job_of if by is None else _job_by(by)
    finished = _finished(rows, same_job)
    inside = monitor if monitor is not None else target in INSIDE or manifest is not None
    share = (EXPORTING_SHARE if settings_export(rows) else MONITOR_SHARE) if inside else 0
    advised = [
        _completed(one, finished[one.job, one.system], share, of_host=one.job in map(same_job, hosts))
        for one in advise(rows, by=same_job, odds=asked, feature=feature, monitor_share=share)
    ]
    if not advised and target != "json":
        raise UsageError("None of these runs can be read.", "`otel-memwatch runs` shows the reason")
    if minimal:
        advised = [tight(one) for one in advised]
    if manifest is not None:
        _apply(manifest, advised, container, dry_run=dry_run, confirmed=confirmed)
    else:
        _print(advised, target, asked)
    if verify:
        _verify(finished, advised)
    if traded:
        _trade(finished, advised, picture)


def _find_runs(
    runs: Sequence[str], condition: str | None, target: str
) -> tuple[list[IndexedRun], list[IndexedRun]]:
    """Return the runs to learn from, and the hosts of their groups. Raises `UsageError` if there is no run."""
    groups = [group for name in runs for group in groups_and_runs(name)[0]]
    rows, hosts = find_runs(runs), [row for group in groups for row in host_rows(group)]
    # A Slurm request is for the memory of a host. Other formats show hosts and ranks.
    rows = hosts if hosts and target == "slurm" else [*rows, *hosts]
    if condition:
        accepts = where(condition)
        rows = [row for row in rows if accepts(row)]
    if not rows:
        raise UsageError("There is no run to learn from.", "record one with: otel-memwatch wrap -- COMMAND")
    return rows, hosts


def _completed(advice: Advice, rows: Sequence[IndexedRun], share: int, *, of_host: bool) -> Advice:
    """Return the advice with what the records of its runs show: a measured full speed, and processors over time.

    Args:
        advice: for one job.
        rows: finished runs of the job.
        share: bytes for the monitor.
        of_host: the runs are sums over the ranks of a host, without records.

    """
    if of_host:
        return advice
    return with_measured(advice, rows, share)._replace(cores=cores_over_time(rows) or advice.cores)


def _print(advised: Sequence[Advice], target: str, odds: float) -> None:
    if target == "json":
        documents = [to_json(one) for one in advised]
        print_text(strict_json.dumps({"schema": 1, "odds": odds, "advice": documents}, indent=2) + "\n")
        return
    written = [
        f"# {clean(one.job)}: no advice: {'; '.join(one.notes)}"
        if one.memory is None and target != "text"
        else TARGETS[target](one)
        for one in advised
    ]
    print_text("\n\n".join(written) + "\n")


def _job_by(fields: str) -> Callable[[IndexedRun], str]:
    """Return the function that names a run's job by the fields of `--by`."""
    chosen = columns(fields, "--by")
    return lambda row: ", ".join(str(field.of(row)) for field in chosen)


def _require_jobs(target: str, within: str | None) -> None:
    """Raise `UsageError` for options that only --jobs understands."""
    if target in WORDS:
        raise UsageError(f"--for {target} needs --jobs.")
    if within is not None:
        raise UsageError("--within needs --jobs.")


def _odds(text: str) -> float:
    one, slash, many = text.partition("/")
    try:
        value = float(one) / float(many) if slash else float(one)
    except (ValueError, ZeroDivisionError):
        value = 0.0
    if not 1e-9 <= value < 0.5:
        raise UsageError(
            f"--odds: {text!r} are no odds between 1/1000000000 and 1/2.", "use for example --odds 1/1000"
        )
    return value


def _finished(
    rows: Sequence[IndexedRun], same_job: Callable[[IndexedRun], str]
) -> Mapping[tuple[str, str], Sequence[IndexedRun]]:
    """Return the finished runs by job and system, on which each advice is based."""
    found: dict[tuple[str, str], list[IndexedRun]] = defaultdict(list)
    for row in rows:
        if row.state == "finished":
            found[same_job(row), row.system].append(row)
    return found


# -- --jobs, --apply, --verify and --trade


def _recommend_jobs(rows: Sequence[IndexedRun], within: int | None, target: str) -> None:
    if target not in ("text", "json", *WORDS):
        raise UsageError(
            f"--jobs has no words for {target}.", f"use --for {', '.join(('text', 'json', *WORDS))}"
        )
    found = jobs_within(
        rows, os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") if within is None else within
    )
    if target == "json":
        print_text(strict_json.dumps({"schema": 1, **jobs_json(found)}, indent=2) + "\n")
    elif target == "text":
        print_text(jobs_text(found) + "\n")
    elif found.jobs:
        print_text(WORDS[target].format(found.jobs) + "\n")
    else:
        raise UsageError(f"{jobs_text(found)}.")


def _apply(
    manifest: str, advised: Sequence[Advice], container: str | None, *, dry_run: bool, confirmed: bool
) -> None:
    from otel_memwatch.wings.advice.manifest import patch

    for change in patch(
        manifest, _one_job(advised, "--apply"), container, write=not dry_run, confirmed=confirmed
    ):
        say(f"otel-memwatch: {change}")


def _check_picture(picture: str | None, *, traded: bool) -> None:
    """Raise `UsageError` for a picture of nothing, or in an unknown format."""
    if picture is not None and not (traded and picture.endswith((".png", ".svg", ".pdf"))):
        raise UsageError(
            "--picture needs --trade and a FILE in a known format.", "as in: --trade --picture trade.png"
        )


def _one_job(advised: Sequence[Advice], option: str) -> Advice:
    """Return the only advice. Raises `UsageError` for no or several jobs."""
    known = [one for one in advised if one.memory is not None]
    if len(known) != 1:
        found = f"{len(known)} jobs" if known else "no job with advice"
        raise UsageError(f"{option} needs one job; these runs have {found}.", "name its runs, or use --where")
    return known[0]


def _verify(finished: Mapping[tuple[str, str], Sequence[IndexedRun]], advised: Sequence[Advice]) -> None:
    from otel_memwatch.wings.advice.verification import verify

    _repeat(finished, advised, verify)


def _trade(
    finished: Mapping[tuple[str, str], Sequence[IndexedRun]], advised: Sequence[Advice], picture: str | None
) -> None:
    from otel_memwatch.wings.advice.trade import trade

    drawn = advised if picture is None else [_one_job(advised, "--picture")]
    _repeat(finished, drawn, partial(trade, picture=picture))


def _repeat(
    finished: Mapping[tuple[str, str], Sequence[IndexedRun]],
    advised: Sequence[Advice],
    tried: Callable[[Advice, IndexedRun], Iterator[str]],
) -> None:
    """Run the newest command of each job again and print the lines about it."""
    for advice in advised:
        if advice.memory is None:
            continue
        newest = finished[advice.job, advice.system][-1:]
        for line in tried(advice, newest[0]) if newest else ():
            print_text(line + "\n")
