"""The run directory, schema 1: names of its files, their lines, and what each field means.

A promise: a run directory written by any released version is read by every later one. Fields may be added;
none changes its meaning. Sizes are bytes, times monotonic seconds of the recording machine, `null` is "not known".

`run.json`
    One object, replaced atomically at the start, on a change and at the end. `run_info_schema.RunInfo` declares the
    fields that describe the run and its recording. Beside them:

    ==============  ==========================================================================
    schema          1
    gpus            [{"id", "name", "pci", "vendor", "driver", "parent", "visible", "recorded", "absent", "accounting",
                    "processes", "trouble", "held", "accounted", "xid"}]: the machine's GPUs. `parent` is the card of
                    a MIG instance; `visible` null: which devices the target may use could not be told; `absent` names
                    what it does not tell; `processes` whether memory is told by process, or why not; `held` and
                    `accounted` are {pid: bytes} for processes of the tree: most that was seen, and the driver's own
                    exact peak; `xid` [{"time", "uuid", "code"}]
    peaks           null, or {"main", "process", "tree", "cgroup", "gpu", "hugetlb"} as in the report's contract
    totals          null, or as in the report's contract
    quality         null, or as in the report's contract
    resource        attributes of the run as an OpenTelemetry resource: service, process, host, container ...
    group           null, or who it is among the runs of one job: {"group", "launcher", "rank", "local_rank", "size", "first",
                    "step", "node", "attempt"}; `first` is the lowest rank, `step` what is from one to the next
    clock           {"boot_id", "monotonic_offset"}: which clocks the monotonic seconds are of, and by how many seconds a time
                    namespace has moved them
    ci              attributes of the CI run that it belongs to; on spans, not on metrics
    limit           only under --limit: {"bytes", "by", "breached", "peak", "operation", "largest"}: `by` is "control group"
                    or "process" (each has it), `breached` whether the run was ended for it, null: not known; `operation`
                    the innermost one that was open then, `largest` [{"pid", "command", "bytes"}] the largest processes
    measured_by     only where others have measured: who; the run has no ticks then, and its peaks are "sampled"
    imported_from   only there: the path of their file
    ==============  ==========================================================================

`samples.jsonl`
    A line that is an object declares the columns of the arrays after it::

        {"schema": 1, "columns": [{"metric": "process.memory.usage", "unit": "By", "attributes": {}, "period": 0}]}

    A line that is an array is one tick: monotonic seconds, then one value for each column. Values missing at
    the end of the array are null: columns that are not read every tick stand last. Counters stand as the kernel
    has them: where the target was there before the run (mode "attach" or "watch"), the tree's begin with what had
    been used before, and their differences from the first value are the run's.

`processes.jsonl`
    Objects of the fields of `model.ProcessRecord`, fields of no value left out. A process has one "seen",
    any number of "figures" and at most one "exit". A process without "exit" was alive when the record ended.

`budgets.json`
    Where the run was given budgets, what came of them: {"schema": 1, "budgets": [{"figure", "unit", "limit", "verdict",
    "value", "low", "high", "certainty", "why"}]}; the verdict is "within", "over" or "cannot tell".

`clock.jsonl`, `clock.upload.jsonl`
    Only in older records of a group. Not read any more: hosts are not compared at one instant.

`.reserve`
    64 KiB kept aside for `run.json` while the run is recorded, so that a full disk can still be told of.

`operations-<pid>.jsonl`
    Written by the process `pid` itself (or by `otel-memwatch mark`, whose file is `operations-mark-<pid>.jsonl`
    with the pid of the shell; or by the monitor from spans that it received, `operations-otlp-<pid>.jsonl`, without
    figures of memory). Objects, one a line:

    header
        {"schema": 1, "pid", "start", "program", "exact": true|false, "floor", "rank"}: `start` is the start of the
        process in monotonic seconds, `exact` whether it resets its own watermark; `rank` is there where a launcher of many
        processes gave it one.
    opening
        {"open": id, "time", "name", "trace", "span", "parent", "thread", "rss", "segment", "attributes",
        "exported"}: `exported` is true where the program's own tracer made a span of it
    closing
        {"close": id, "time", "status": "ok"|"error", "error", "rss", "segment", "peak", "low", "high", "certainty",
        "cpu_user", "cpu_system", "minor_faults", "major_faults", "read_bytes", "write_bytes", "read_chars",
        "write_chars", "gpu"}: the totals are those of the process between opening and closing, its reaped children
        included. `attributes` added while it was open may stand here too.

    `segment` is the largest RSS of the process since its boundary before this one (whatever the operation), exact
    where the header says so: the largest of all segments is the process's lifetime peak although it was reset.
"""

from __future__ import annotations

SCHEMA = 1

RUNS_DIRECTORY = "memwatch-runs"
"""Default parent of run directories, in the working directory."""
RUN_FILE = "run.json"
SAMPLES_FILE = "samples.jsonl"
PROCESSES_FILE = "processes.jsonl"
OPERATIONS_PREFIX = "operations-"
OPERATIONS_SUFFIX = ".jsonl"
RESERVE_FILE = ".reserve"
"""Space kept aside while the run is recorded, for `run.json` on a full disk."""
BUDGETS_FILE = "budgets.json"
REPORT_FILE = "report.txt"
PAGE_FILE = "report.html"
PLOT_FILE = "memory.png"
PHASES_FILE = "phases.png"
"""The same of `plot --style phases`."""
PART = ".part-"
"""Between the name of a file and the offset of a part of it, in a store to which the run is uploaded while it goes on."""
INDEX_FILE = ".memwatch-index.sqlite"
"""Beside many runs, not in one: what was read of them, which may be deleted at any time."""
METRICS_OTLP_FILE = "metrics.otlp.jsonl"
TRACES_OTLP_FILE = "traces.otlp.jsonl"

UNFINISHED = ".part"
"""Ends the name of a report that is being written."""

RUNNING = "running"
FINISHED = "finished"

TICK_DECIMALS = 4
"""Of the monotonic seconds of a tick: what is made of ticks while they come is then what a reader makes of the record."""

DIRECTORY_MODE = 0o700
FILE_MODE = 0o600

TRACE_DIGITS, SPAN_DIGITS = 32, 16
"""Hexadecimal digits of the ids of OpenTelemetry's traces and spans."""

RUN_DIRECTORY_VARIABLE = "OTEL_MEMWATCH_RUN_DIR"
"""Environment variable that names the run directory to the target and all its descendants."""


_OLD_FILES = ("clock.jsonl", "clock.upload.jsonl")
"""Only in older records: `runs prune` still removes them. `.clock.<pid>` was a temporary file beside them."""
_FILES = frozenset(
    (RUN_FILE, SAMPLES_FILE, PROCESSES_FILE, RESERVE_FILE, BUDGETS_FILE, REPORT_FILE, PAGE_FILE, PLOT_FILE, PHASES_FILE,
     METRICS_OTLP_FILE, TRACES_OTLP_FILE, *_OLD_FILES)
)  # fmt: skip
_WRITTEN_WITH_PID = (f".{RUN_FILE}", f".{BUDGETS_FILE}", ".clock")
_OPERATIONS_WRITERS = ("", "mark-", "otlp-")
_OFFSET_DIGITS, _RANDOM_DIGITS = 14, 8


def is_run_file(name: str) -> bool:
    """Return whether this package gives that name to a file in a run directory, temporary files and uploaded parts included.

    `runs prune` removes nothing else: add each new file here.
    """
    whole, part, offset = name.partition(PART)
    if part:
        return whole.endswith(".jsonl") and is_run_file(whole) and _is_digits(offset, _OFFSET_DIGITS)
    if name in _FILES:
        return True
    if name.startswith(OPERATIONS_PREFIX) and name.endswith(OPERATIONS_SUFFIX):
        middle = name[len(OPERATIONS_PREFIX) : -len(OPERATIONS_SUFFIX)]
        return any(
            middle.startswith(writer) and _is_digits(middle[len(writer) :]) for writer in _OPERATIONS_WRITERS
        )
    if not name.startswith("."):
        return False
    before, _, last = name.rpartition(".")
    if f".{last}" != UNFINISHED:
        return before in _WRITTEN_WITH_PID and _is_digits(last)
    report, _, random = before.rpartition(".")
    return report[1:] in _FILES and len(random) == _RANDOM_DIGITS and not random.strip("0123456789abcdef")


def _is_digits(text: str, number: int | None = None) -> bool:
    return text.isascii() and text.isdigit() and number in (None, len(text))


def is_id(text: str, digits: int) -> bool:
    """Whether `text` is an id of that many hexadecimal digits, in small letters and not all zero."""
    return len(text) == digits and not text.strip("0123456789abcdef") and bool(text.strip("0"))
