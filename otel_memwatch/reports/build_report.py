"""Largest actions of a build by output file, and the `-j` that fits into memory, as text or JSON."""

from __future__ import annotations

from otel_memwatch.reports import phrases
from otel_memwatch.run.build_actions import (
    BuildAction,
    Parallelism,
    beside_actions,
    build_actions,
    parallelism,
)
from otel_memwatch.runtime import strict_json
from otel_memwatch.runtime.typed import TYPE_CHECKING, BinaryIO
from otel_memwatch.text import (
    certainty,
    clean,
    count,
    duration,
    peak_figure,
    shorten,
    size,
    table,
)

if TYPE_CHECKING:
    from otel_memwatch.reports import Options
    from otel_memwatch.run import RecordedRun

SHOWN = 10
"""Most actions in the text."""

_BAZEL = ("bazel", "bazelisk", "bazel-real")
_SERVED = (
    "Bazel's server starts its actions. If the server ran before the build, the server and the actions are not part of this run. "
    "Run `bazel shutdown` before the build, or use `bazel --batch build`."
)

_OUTPUT, _PROGRAM = 60, 16
_HEADER = ("resident", "", "needed up to", "duration", "CPU", "program", "output")


def render(run: RecordedRun, out: BinaryIO, options: Options) -> None:
    """Write the table, the largest action first, and the sentence about `-j`."""
    actions = build_actions(run.processes, run.seconds, run.tree_bound)
    limit = phrases.limit(run)
    within = options.get("within") or (limit.bytes if limit else None)
    fits = parallelism(actions, beside_actions(run.processes), within) if actions and within else None
    if options.get("as_json"):
        document = {
            "actions": [
                {**action._asdict(), "peak": None if action.peak is None else action.peak.to_json()}
                for action in actions
            ],
            "parallelism": None if fits is None else fits._asdict(),
        }
        out.write((strict_json.dumps(document, indent=2) + "\n").encode("ascii"))
        return
    whose = "" if options.get("within") or limit is None else f" (limit of the {limit.owner})"
    text = "\n".join(_lines(run, actions, fits, whose)) + "\n"
    out.write(text.encode(options.get("encoding", "utf-8"), "backslashreplace"))


def _lines(run: RecordedRun, actions: list[BuildAction], fits: Parallelism | None, whose: str) -> list[str]:
    if not actions:
        none = "No process of this run names an output (-o FILE), so there are no build actions."
        commands = [run.command, *(process.argv for process in run.processes)]
        calls_bazel = any(command and command[0].rpartition("/")[2] in _BAZEL for command in commands)
        return [none, _SERVED] if calls_bazel else [none]
    rows = [
        (
            peak_figure(action.peak),
            certainty(action.peak),
            size(action.needed),
            duration(action.seconds),
            "-" if action.cpu_seconds is None else duration(action.cpu_seconds),
            shorten(clean(action.program), _PROGRAM),
            shorten(clean(action.output), _OUTPUT) + (f" ({action.times} times)" if action.times > 1 else ""),
        )
        for action in actions[:SHOWN]
    ]
    lines = table(rows, _HEADER, "rlrrrll")
    left = actions[SHOWN:]
    if left:
        lines.append(
            f"{count(len(left), 'more output')}, none above {size(max(action.needed for action in left))}."
        )
    unseen = run.totals.get("unseen_processes")
    if unseen:
        lines.append(
            f"{count(unseen, 'short-lived process', 'short-lived processes')} may be missing: not sampled."
        )
    lines += ["", *_advice(run, fits, whose)]
    return lines


def _advice(run: RecordedRun, fits: Parallelism | None, whose: str) -> list[str]:
    if fits is None:
        return ["No memory limit is known, so no -j can be suggested. Set one with --within SIZE."]
    room = f"{size(fits.within)}{whose}"
    if fits.jobs == 0:
        return [f"Not even the largest action fits into {room}."]
    needed = f"need up to {size(fits.needed)}"
    processors = run.host.get("cpus")
    if fits.every:
        fit = f"All at once {needed} of {room}: memory does not limit -j."
    else:
        fit = f"-j {fits.jobs} fits into {room}: the {fits.jobs} largest at once {needed}."
        if fits.jobs == 1:
            fit = f"-j 1 fits into {room}: the two largest at once do not."
    if isinstance(processors, int) and 0 < processors < fits.jobs:
        fit += f" The machine has {count(processors, 'processor')}."
    return [fit]
