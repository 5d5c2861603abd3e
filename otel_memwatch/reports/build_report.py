"""The largest actions of a build by what they made, and the `-j` that fits into memory. Text, or JSON with `as_json`."""

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
from otel_memwatch.text import certainty, clean, count, duration, peak_figure, shorten, size, table

if TYPE_CHECKING:
    from otel_memwatch.reports import Options
    from otel_memwatch.run import RecordedRun

SHOWN = 10
"""Actions that the text shows."""

_BAZEL = ("bazel", "bazelisk", "bazel-real")
_SERVED = (
    "Bazel's actions are started by its server: by one that ran before, they are not processes of this run, nor is the server. "
    "With `bazel shutdown` before the build, or with `bazel --batch build`, they are."
)

_OUTPUT, _PROGRAM = 60, 16
_HEADER = ("peak", "", "action", "took", "CPU", "by", "output")


def render(run: RecordedRun, out: BinaryIO, options: Options) -> None:
    """Writes the table, the largest action first, and the sentence about `-j`."""
    actions = build_actions(run.processes, run.seconds)
    limit = phrases.limit(run)
    within = options.get("within") or (limit.bytes if limit else None)
    fits = parallelism(actions, beside_actions(run.processes), within) if actions and within else None
    if options.get("as_json"):
        out.write(_json(actions, fits))
        return
    whose = "asked about" if options.get("within") or limit is None else f"of the {limit.whose}"
    text = "\n".join(_lines(run, actions, fits, whose)) + "\n"
    out.write(text.encode(options.get("encoding", "utf-8"), "backslashreplace"))


def _lines(run: RecordedRun, actions: list[BuildAction], fits: Parallelism | None, whose: str) -> list[str]:
    if not actions:
        none = "No process of this run names an output (-o FILE): there are no build actions to tell of."
        return [none, _SERVED] if _calls_bazel(run) else [none]
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
        lines.append(f"... and {count(len(left), 'more output')}, none above {size(left[0].needed)}.")
    unseen = run.totals.get("unseen_processes")
    if unseen:
        lines.append(
            f"{count(unseen, 'process', 'processes')} came and went between two looks, and may be missing here."
        )
    lines += ["", *_advice(run, fits, whose)]
    return lines


def _calls_bazel(run: RecordedRun) -> bool:
    commands = [run.command, *(process.argv for process in run.processes)]
    return any(command and command[0].rpartition("/")[2] in _BAZEL for command in commands)


def _advice(run: RecordedRun, fits: Parallelism | None, whose: str) -> list[str]:
    if fits is None:
        return ["How many fit at once cannot be told: no limit is known (--within SIZE names one)."]
    room = f"{size(fits.within)} {whose}"
    if fits.jobs == 0:
        return [f"Not even the largest alone fits into {room}."]
    processors = run.host.get("cpus")
    if fits.every:
        fit = f"All of them at once take {size(fits.needed)} and fit into {room}: memory sets no limit to -j."
    else:
        fit = f"-j {fits.jobs} fits into {room}: the {fits.jobs} largest at once take {size(fits.needed)}."
        if fits.jobs == 1:
            fit = f"-j 1 fits into {room}: the two largest at once do not."
    if isinstance(processors, int) and 0 < processors < fits.jobs:
        fit += f" There are {count(processors, 'processor')}."
    return [fit]


def _json(actions: list[BuildAction], fits: Parallelism | None) -> bytes:
    document = {
        "actions": [
            {
                **action._asdict(),
                "peak": None if action.peak is None else action.peak.to_json(),
            }
            for action in actions
        ],
        "parallelism": None if fits is None else fits._asdict(),
    }
    return (strict_json.dumps(document, indent=2) + "\n").encode("ascii")
