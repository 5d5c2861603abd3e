"""The run directory, schema 1: names of its files, their lines, and the meaning of each field.

A promise: every later version reads a run directory written by any released version. Fields may be added; none changes
its meaning. Sizes are bytes, times monotonic seconds of the recording machine; `null` means unknown.

`run.json`
    One object, replaced atomically at the start, on a change and at the end. `run_info_schema.RunInfo` declares the
    fields that describe the run and its recording. Further fields:

    ==============  ==========================================================================
    schema          1; 2 once closed segments hold samples
    gpus            [{"id", "name", "pci", "vendor", "driver", "parent", "visible", "recorded", "absent", "accounting",
                    "processes", "trouble", "unknown", "held", "accounted", "xid"}]: GPUs of the machine. `parent` is the card of
                    a MIG instance. `visible` is null if the devices that the target may use are unknown. `absent`
                    names values that the GPU does not report. `processes` is "by process" if it reports memory by
                    process, otherwise the reason why not. `held` and `accounted` are {pid: bytes} for processes of the tree: largest
                    sample, and the driver's own exact peak. `xid` is [{"time", "uuid", "code"}].
                    `unknown` is {question: {"seconds", "error"}}: time without an answer, and the first error
    peaks           null, or {"main", "process", "tree", "cgroup", "gpu", "gpu_tree", "gpu_used", "hugetlb", "swap"} as in the report's contract
    totals          null, or as in the report's contract
    quality         null, or as in the report's contract
    resource        attributes of the run as an OpenTelemetry resource: service, process, host, container ...
    group           null, or the position among the runs of one job: {"group", "launcher", "rank", "local_rank", "size",
                    "first", "step", "node", "attempt"}; `first` is the lowest rank, `step` the difference of two ranks
    clock           {"boot_id", "monotonic_offset"}: boot of the machine that the monotonic seconds belong to, and
                    seconds by which a time namespace has moved them
    ci              attributes of the CI run that it belongs to; on spans, not on metrics
    vcs             commit of the working directory; exported nowhere
    limit           only under --limit: {"bytes", "by", "breached", "peak", "operation", "largest"}. `by` is "control
                    group" or "process" (for each process). `breached` is true if the run was killed for exceeding
                    the limit, null if unknown. `operation` is the innermost operation open then. `largest` is
                    [{"pid", "command", "bytes"}], the largest processes
    verdict         only if the guard ended the run: its event, {"kind", "at", "largest", ...}. `kind` is "limit", "stalled",
                    "machine" or "timeout"
    findings        as in the report's contract, without "text"; absent in older records
    heaps           [{"pid", "time", "anonymous", "private", "threads", "allocators"}]: the last reading of each large process, as
                    in `operations-<pid>.jsonl`; absent in older records
    measured_by     only if another tool measured: its name; the run has no samples then, and its peaks are "sampled"
    imported_from   only then: the path of its file
    ==============  ==========================================================================

`recipes.jsonl`
    Beside the run directories: short recipes of make, one object a line, with fields of `run.json` and readings of the
    kernel. A recipe is a run; its path is that of a directory named by its `id`. The directory exists only if the recipe
    marked operations.

`samples.jsonl`
    A line that is an object declares the columns of the arrays after it::

        {"schema": 1, "columns": [{"metric": "process.memory.usage", "unit": "By", "attributes": {}, "period": 0}]}

    A line that is an array is one sample: monotonic seconds, then one value for each column. Values missing at the end
    of the array are null; columns without a value in every sample come last. Counters have the kernel's values. If the
    target ran before the recording (mode "attach" or "watch"), the tree's counters include earlier use. Differences
    from the first value belong to the run.

    In a long run, these lines are the last ones. The earlier ones lie in closed segments, `samples-1.jsonl.gz` and so on,
    compressed by gzip. The last closed segment also exists uncompressed, without `.gz`.

    The readings of a sample follow its time: within `reading_seconds` of run.json, or the seconds in its column
    `memwatch.sampler.reading.duration`.

`processes.jsonl`
    Objects with the fields of `model.ProcessRecord`; fields without a value are omitted. A process has one "seen",
    any number of "figures" and at most one "exit". A process without "exit" was alive when the record ended.

`budgets.json`
    Verdicts, if the run had budgets:

        {"schema": 1, "budgets": [{"figure", "unit", "limit", "verdict", "value", "low", "high", "certainty", "why"}]}

    The verdict is "within", "over" or "cannot tell".

`stacks.json`
    Only under --stacks: {"schema": 1, "highest", "problems", "captures": [...]}, replaced atomically at each capture.
    `stacks.Capture` declares a capture and its threads; a frame is [function, file, line], the innermost first.
    `highest` is the largest memory, also between captures; `problems` has sentences for the user.

`made_of.json`
    Kinds of memory at a peak: {"schema": 1, "time", "level", "tree": [part, ...], "processes": [{"pid", "parts": [part, ...]}],
    "unread"}, replaced atomically at each reading. A part is [kind, name, bytes]; `made_of.MadeOf` declares the rest.

`trade.json`
    Result of `advise --trade` for the command of the run: {"schema": 1, "enough", "less", "runs"}: the smallest limit with full
    speed, the largest one without it (null: none was tried), in bytes, and the number of runs.

`torch-<pid>.json`, `torch-peak-<pid>.pickle`, `torch-oom-<pid>.pickle`
    Only under --torch-snapshot, written by the process `pid` itself. The first lists the others, which are PyTorch's:
    {"schema": 1, "pid", "rank", "snapshots": [{"kind", "file", "time", "reserved", "device", "requested"}], "grown", "problem"}.

`clock.jsonl`, `clock.upload.jsonl`
    Only in older records of a group. No longer read: hosts are not compared at one instant.

`.reserve`
    64 KiB reserved for `run.json` during the recording, to report a full disk.

`operations-<pid>.jsonl`
    Objects, one a line, written by the process `pid` itself. `otel-memwatch mark` writes `operations-mark-<pid>.jsonl`,
    with the pid of the shell. The monitor writes received spans to `operations-otlp-<pid>.jsonl`, without memory values.

    header
        {"schema": 1, "pid", "start", "program", "exact": true|false, "floor", "rank"}: `start` is the start of the
        process in monotonic seconds. `exact` is true if the process resets its high-water mark itself. `rank` exists only
        if a launcher of many processes set it.
    header with "heap"
        A later line with the fields of the header, and "heap": {"time", "anonymous", "private", "threads", "allocators":
        {name: {"live", "free", "scattered"}}}: statistics of the process's allocators, in bytes
    opening
        {"open": id, "time", "name", "trace", "span", "parent", "thread", "rss", "segment", "attributes",
        "exported"}: `exported` is true if the program's own tracer exports a span for it
    closing
        {"close": id, "time", "status": "ok"|"error", "error", "rss", "segment", "peak", "low", "high", "certainty",
        "cpu_user", "cpu_system", "minor_faults", "major_faults", "read_bytes", "write_bytes", "read_chars",
        "write_chars", "gpu"}: the totals are those of the process between opening and closing, including its reaped
        children. `attributes` added while it was open may occur here too.

    `segment` is the largest RSS of the process since its previous boundary, of any operation. It is exact if the header
    says so. The largest of all segments is then the process's lifetime peak, despite the resets.
"""

from __future__ import annotations

SCHEMA = 1
SEGMENTED_SCHEMA = 2
"""Schema in `run.json` once samples lie in segments: older versions would read the last ones only."""

READING_SECONDS = 0.002
"""Seconds that reading a sample takes at most, unless the sample states it: it reads some files after its time."""

RUNS_DIRECTORY = "memwatch-runs"
"""Default parent of run directories, in the working directory."""
RECIPES_STORE = "recipes.jsonl"
"""In a directory of runs: its recipes, one line each; see `record.recipes`."""
RUN_FILE = "run.json"
SAMPLES_FILE = "samples.jsonl"
SEGMENT_PREFIX, SEGMENT_SUFFIXES = "samples-", (".jsonl", ".jsonl.gz")
"""Names of closed segments around their number; see `record.sample_files`."""
SEGMENT_BYTES = 2 << 20
"""Size at which the writer closes a segment."""
PROCESSES_FILE = "processes.jsonl"
OPERATIONS_PREFIX = "operations-"
OPERATIONS_SUFFIX = ".jsonl"
RESERVE_FILE = ".reserve"
"""Space reserved during the recording, for `run.json` on a full disk."""
BUDGETS_FILE = "budgets.json"
STACKS_FILE = "stacks.json"
MADE_OF_FILE = "made_of.json"
TRADE_FILE = "trade.json"
REPORT_FILE = "report.txt"
PAGE_FILE = "report.html"
PLOT_FILE = "memory.png"
PHASES_FILE = "phases.png"
"""Picture of `plot --style phases`."""
PART = ".part-"
"""Separator of a file's name and the offset of a part, in a store that receives uploads during the run."""
INDEX_FILE = ".memwatch-index.sqlite"
"""Cache of the runs in a directory, next to them; it may be deleted at any time."""
METRICS_OTLP_FILE = "metrics.otlp.jsonl"
TRACES_OTLP_FILE = "traces.otlp.jsonl"

UNFINISHED = ".part"
"""Suffix of a report during its writing."""

RUNNING = "running"
FINISHED = "finished"

TICK_DECIMALS = 4
"""Decimals of a sample's monotonic seconds: live results and those of a reader then agree."""

DIRECTORY_MODE = 0o700
FILE_MODE = 0o600

TRACE_DIGITS, SPAN_DIGITS = 32, 16
"""Hexadecimal digits of trace and span ids in OpenTelemetry."""

RUN_DIRECTORY_VARIABLE = "OTEL_MEMWATCH_RUN_DIR"
"""Environment variable that names the run directory to the target and all its descendants."""


_OLD_FILES = ("clock.jsonl", "clock.upload.jsonl")
"""Only in older records: `runs prune` still removes them. `.clock.<pid>` was a temporary file beside them."""
_FILES = frozenset(
    (RUN_FILE, SAMPLES_FILE, PROCESSES_FILE, RESERVE_FILE, BUDGETS_FILE, STACKS_FILE, MADE_OF_FILE, TRADE_FILE, REPORT_FILE, PAGE_FILE, PLOT_FILE, PHASES_FILE,
     METRICS_OTLP_FILE, TRACES_OTLP_FILE, *_OLD_FILES)
)  # fmt: skip
_WRITTEN_WITH_PID = (
    f".{RUN_FILE}",
    f".{BUDGETS_FILE}",
    f".{STACKS_FILE}",
    f".{MADE_OF_FILE}",
    f".{TRADE_FILE}",
    ".clock",
)
_OPERATIONS_WRITERS = ("", "mark-", "otlp-")
_OFFSET_DIGITS, _RANDOM_DIGITS = 14, 8


def is_run_file(name: str) -> bool:
    """Return whether this package uses the name for a file in a run directory, including temporary and uploaded parts.

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
    before, _, ending = name.removeprefix(".").rpartition(".")
    for start, its_ending in (("torch-", "json"), ("torch-peak-", "pickle"), ("torch-oom-", "pickle")):
        if ending == its_ending and before.startswith(start) and _is_digits(before[len(start) :]):
            return True
    if _is_segment(name):
        return True
    if not name.startswith("."):
        return False
    before, _, last = name.rpartition(".")
    if f".{last}" != UNFINISHED:
        return (before in _WRITTEN_WITH_PID or _is_segment(before[1:])) and _is_digits(last)
    report, _, random = before.rpartition(".")
    return report[1:] in _FILES and len(random) == _RANDOM_DIGITS and not random.strip("0123456789abcdef")


def _is_segment(name: str) -> bool:
    number, dot, suffix = name.removeprefix(SEGMENT_PREFIX).partition(".")
    return name.startswith(SEGMENT_PREFIX) and f"{dot}{suffix}" in SEGMENT_SUFFIXES and _is_digits(number)


def _is_digits(text: str, number: int | None = None) -> bool:
    return text.isascii() and text.isdigit() and number in (None, len(text))


def is_id(text: str, digits: int) -> bool:
    """Return whether `text` is an id with this number of hexadecimal digits, in lower case and not all zero."""
    return len(text) == digits and not text.strip("0123456789abcdef") and bool(text.strip("0"))
