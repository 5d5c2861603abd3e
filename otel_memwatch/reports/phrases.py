"""Phrases about a run that several reports use: how it ended, its limit, which process held the peak.

Nothing here reads the whole record, because the summary must appear at once, even after a run of a day.
"""

from __future__ import annotations

import os

from otel_memwatch.config import AUTO
from otel_memwatch.model import Certainty, Evidence, Peak, ProcessNote
from otel_memwatch.record.fields import number
from otel_memwatch.run.figures import figure_name
from otel_memwatch.runtime.exactness import EXACT_BYTES, is_small
from otel_memwatch.runtime.masking import public_name
from otel_memwatch.runtime.system_calls import signal_name
from otel_memwatch.runtime.typed import TYPE_CHECKING, Any, NamedTuple
from otel_memwatch.text import (
    amount,
    bounds,
    cells,
    clean,
    command_line,
    count,
    duration,
    peak_sentence,
    share,
    shorten,
    size,
)
from otel_memwatch.truth.cgroup import BY_CGROUP
from otel_memwatch.truth.cgroup_windows import charge_error

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from otel_memwatch.run import OperationFigures, ProcessFigures, RecordedRun

_LESS_CACHE = frozenset((Evidence.CGROUP_PEAK_LESS_CACHE, Evidence.CGROUP_LESS_CACHE))
_UP_TO_CGROUP_PEAK = frozenset((Evidence.CGROUP_PEAK_LESS_CACHE, Evidence.SHARED_CGROUP_PEAK))
"""Evidence of an upper bound that is a cgroup's peak."""
_NEARER = 0.02
"""Sampling interval in seconds within which little page cache moves, so the range is narrow."""
_BY_PROCESSES = frozenset((Evidence.ONE_SAMPLE, Evidence.PAGE_FAULTS, Evidence.CHILDREN_FAULTS))
"""Evidence of needed memory from processes alone, without a cgroup."""
_WITHOUT_FILES = frozenset(
    (
        *_BY_PROCESSES,
        *BY_CGROUP,
        Evidence.CGROUP_LESS_CACHE,
        Evidence.CGROUP_OR_PROCESS,
        Evidence.CGROUP_PEAK_WHILE_READ,
    )
)
"""Evidence of needed memory without pages of files."""

_NEAR = 1.2
"""Ratio of upper to lower bound up to which a hint at a narrower range is not worth a line."""

_USUAL = (ProcessNote.ALIVE_AT_END, ProcessNote.ZOMBIE, ProcessNote.EXEC)
"""Notes that explain nothing unusual about a process."""

PEERS = 100
"""Processes of the same program that a name must distinguish from."""

_ASSUMED = " The upper bound assumes that no other program writes into these processes."


class ProcessCommand(NamedTuple):
    """Command and arguments of a process, for its name."""

    command: str | None
    argv: tuple[str, ...] | None


class Limit(NamedTuple):
    """A limit on the run's memory."""

    bytes: int
    whose: str
    """Owner of the limit as in JSON: "control group" or "machine"."""

    @property
    def owner(self) -> str:
        """Owner of the limit in words."""
        return "machine" if self.whose == "machine" else "cgroup"


STACKS_MEANING = (
    "Stacks show what ran while memory reached these levels. They do not show who holds the memory: an earlier call may "
    "have allocated it."
)


def limit(run: RecordedRun) -> Limit | None:
    """Return the smallest limit on the run's memory; `None` if none is known."""
    found = []
    group = run.limits.get("cgroup_bytes") or run.recorded_limit
    if group:
        found.append(Limit(int(group), "control group"))
    machine = run.limits.get("host_bytes") or run.host.get("memory_bytes")
    if isinstance(machine, int | float) and machine > 0:
        found.append(Limit(int(machine), "machine"))
    return min(found, default=None)


def address_space(run: RecordedRun) -> str | None:
    """Return the limit on address space; a program that reaches it fails although memory is free. `None`: unknown."""
    limit = run.limits.get("rlimit_as_bytes")
    return f"{size(limit)} of address space per process (ulimit -v)" if limit else None


def would_be_exact(run: RecordedRun) -> str:
    """Say how to get an exact figure of needed memory, or a narrower range; empty if the range is narrow already.

    Counters of a cgroup are less exact on many processors (`charge_error`). So the sentence promises an exact figure only if
    they allow it.
    """
    peak = run.peaks.tree
    if peak is None or peak.certainty is not Certainty.INTERVAL:
        return ""
    if peak.high is not None and peak.low and peak.high <= _NEAR * peak.low:
        return ""
    processors = run.fields.processors or run.host.get("cpus")
    error = charge_error(processors) if isinstance(processors, int) else 0
    figure = "an exact figure" if is_small(error, peak.low or 0) else "a narrower range"
    if run.fields.cgroup_hint:
        return f"for {figure}: {clean(run.fields.cgroup_hint)}"
    if peak.high is not None and run.mode == "wrap" and run.settings.get("cgroup") == "off":
        return f"for {figure}: run in a dedicated cgroup (without --cgroup off)"
    if peak.high is not None and peak.high - (peak.low or 0) <= 2 * error + EXACT_BYTES:
        return f"the kernel's counters of {processors} processors are off by up to {size(error)}"
    around = run.peaks.cgroup
    earlier = around is not None and Evidence.AROUND_NOT_REACHED in around.evidence
    if run.mode == "attach" and earlier and peak.high and not _UP_TO_CGROUP_PEAK.isdisjoint(peak.evidence):
        return "the upper bound is a peak of the cgroup from before the recording"
    interval = run.settings.get("interval")
    long = interval == AUTO or (isinstance(interval, int | float) and interval > _NEARER)
    if long and not _LESS_CACHE.isdisjoint(peak.evidence):
        return f"for a narrower range: --interval {1000 * _NEARER:.0f}ms (page cache between samples is uncertain)"
    return ""


def in_a_cgroup(peak: Peak) -> str:
    """Explain a cgroup's peak. Page cache is subtracted only from that of a shared cgroup."""
    if Evidence.CGROUP_LESS_CACHE in peak.evidence:
        return "may include other programs"
    return "includes page cache and kernel memory; the OOM killer compares this figure with the limit"


def not_seen(run: RecordedRun) -> str:
    """Name memory that the figure excludes if no cgroup measured it; else empty."""
    peak = run.peaks.tree
    if peak is None or _BY_PROCESSES.isdisjoint(peak.evidence):
        return ""
    return (
        "The run had no dedicated cgroup. Its figure covers private and shared memory of its processes, and at each sample "
        "page tables, kernel stacks and files in memory. Kernel memory such as pipes, sockets and dentries is not visible "
        f"here.{'' if peak.high is None else _ASSUMED}"
    )


def above_needed(run: RecordedRun) -> str:
    """Explain why the largest process exceeds the needed memory of all processes; empty if it does not.

    A process's resident size includes pages of its files and libraries. They are page cache, which is not needed memory.
    """
    tree, largest = run.peaks.tree, run.peaks.process
    if tree is None or largest is None or largest.bytes <= tree.bytes:
        return ""
    if _WITHOUT_FILES.isdisjoint(tree.evidence):
        return ""
    if size(largest.bytes) == size(tree.bytes):
        return ""
    certain = 0
    if largest.low is not None and tree.high is not None:
        certain = largest.low - tree.high
    elif tree.high is None:
        return ""  # all may have needed as much as the largest process has
    much = f"at least {size(certain)} of " if certain > 0 else ""
    return f"includes {much}reclaimable file pages"


def hugetlb(run: RecordedRun) -> str:
    """Name huge pages that the figures exclude; empty if no huge pages of hugetlbfs were sampled.

    Cgroups of version 2 count them only if mounted with memory_hugetlb_accounting (Linux 6.7).
    """
    seen = run.peaks.hugetlb
    if seen is None:
        return ""
    shared = ", shared ones in each process," if (run.totals.get("processes") or 1) > 1 else ","
    return f"plus {size(seen.bytes)} of huge pages (hugetlbfs){shared} which neither VmHWM nor most cgroups count"


def swap(run: RecordedRun) -> str:
    """Name the memory in swap that the figures exclude; empty if no sample found any."""
    seen = run.peaks.swap
    if seen is None or seen.bytes <= EXACT_BYTES:
        return ""
    return f"plus {size(seen.bytes)} in swap (largest sample): without swap, the run needs both"


def limit_used(run: RecordedRun) -> str | None:
    """Return the share of the run's limit that its peak used; `None` if it is unknown or the limit did not hold."""
    found = limit(run)
    return None if found is None or limit_not_held(run) else limit_share(run.peaks.tree, found)


def limit_share(peak: Peak | None, of: Limit) -> str | None:
    """Return the peak's share of a limit: "61 %", "59-80 %"; `None` if the peak is unknown."""
    if peak is None or of.bytes <= 0:
        return None
    if peak.certainty is Certainty.CENSORED:
        return f"at most {share(peak.bytes, of.bytes)}"
    low = share(peak.bytes if peak.low is None else min(peak.low, peak.bytes), of.bytes)
    if peak.certainty is not Certainty.INTERVAL:
        return share(peak.bytes, of.bytes)
    if peak.high is None:
        return f"at least {low}"
    high = share(peak.high, of.bytes)
    bare = low.removesuffix(" %")
    return high if float(bare) == float(high.removesuffix(" %")) else f"{bare}-{high}"


def breach(run: RecordedRun) -> str:
    """Say that the run was killed at its limit, and name the largest process then; empty if it was not."""
    limit = run.fields.limit
    if not limit.breached:
        return ""
    words = f"killed at the {size(limit.bytes)} limit"
    words += f", during {clean(limit.operation)}" if limit.operation else ""
    if not limit.largest:
        return words
    largest = limit.largest[0]
    name = shorten(clean(largest.command or ""), _HOLDER)
    return f"{words}; largest process: {size(largest.bytes)}, {name} (pid {largest.pid})"


def limit_not_held(run: RecordedRun) -> str:
    """Say that --limit did not hold, because processes left the cgroup that has the limit; empty if it held."""
    limit, tree = run.fields.limit, run.peaks.tree
    if limit.by != "control group" or tree is None or Evidence.LEFT_CGROUP not in tree.evidence:
        return ""
    return f"the {size(limit.bytes)} limit did not hold: processes left the run's cgroup"


_HOLDER = 60
"""Columns of the name of a process in a sentence."""

BUDGET_TONES = {"over": "bad", "cannot tell": "warning"}
"""Tones of the sentences about budgets, by verdict."""


def largest_by_name(run: RecordedRun) -> list[OperationFigures]:
    """Return the largest operation of each name: the one of the run's peak, then those that needed most."""
    if not run.marked:
        return []
    from otel_memwatch.run.operation_digest import needed_most

    largest: dict[str, OperationFigures] = {}
    listed = run.operation_digest.largest if run.too_many_operations else run.operations
    for figures in sorted(listed, key=needed_most, reverse=True):
        largest.setdefault(figures.operation.name, figures)
    return list(largest.values())


def budget_sentence(entry: Mapping[str, Any]) -> str:
    """Say how a figure compares with its budget: "memory: 2.31 GiB, over its budget of 2.00 GiB".

    Args:
        entry: a verdict as `record.format` describes it.

    """
    unit, name = str(entry.get("unit")), figure_name(str(entry.get("figure")))
    limit, value, low, high = (number(entry.get(key)) for key in ("limit", "value", "low", "high"))
    of = "its budget" if limit is None else f"its budget of {amount(limit, unit)}"
    if value is None:
        return f"{name}: inconclusive against {of}: {clean(str(entry.get('why')))}"
    certainty = entry.get("certainty")
    known = amount(value, unit) if certainty in ("exact", "sampled") else bounds(low, high, unit)
    known += " (sampled)" if certainty == "sampled" else ""
    verdict = str(entry.get("verdict"))
    if verdict == "cannot tell":
        return f"{name}: {known}, inconclusive against {of}: {clean(str(entry.get('why')))}"
    return f"{name}: {known}, {clean(verdict)} {of}"


def ending(run: RecordedRun) -> str:
    """Say how the run ended and after how long: "exit code 0 after 12.4 s"."""
    reason = clean(run.ending.reason)
    if run.state == "running":
        return f"{reason}, {duration(run.seconds)} so far"
    if run.state == "incomplete":
        return reason
    after = f"after {duration(run.seconds)}"
    # A process without a waiting parent leaves no exit code.
    if reason == "ended":
        return f"ended {after}"
    return f"{reason}, {after}" if "," in reason else f"{reason} {after}"


def peak_at(run: RecordedRun, peak: Peak | None) -> str:
    """Return a peak with its certainty, time and operation: "469.6 MiB (exact) at 6.30 s, during Spike"."""
    words, where = peak_sentence(peak, source=False), when_and_where(run, peak)
    if not where:
        return words
    return f"{words} {where}" if words.endswith(")") else f"{words}, {where}"


def when_and_where(run: RecordedRun, peak: Peak | None) -> str:
    """Return time and operation of a peak: "at 8.20 s, during Compilation"; empty if neither is known.

    "likely during" if samples of a wide range decided about the operation.

    A peak is first visible at a sample, and the last sample is taken after the end. So the time is at most the end's.
    """
    if peak is None:
        return ""
    parts = []
    if peak.at is not None:
        parts.append(f"at {duration(min(peak.at, run.seconds))}")
    if peak.operation:
        names = _one_of(peak.operations) if peak.operations else clean(peak.operation)
        parts.append(f"{'likely ' if peak.operation_likely else ''}during {names}")
    return ", ".join(parts)


_MOST_NAMES = 3
"""Names that are written out if a peak may belong to several operations."""


def _one_of(names: Sequence[str]) -> str:
    """Join the operations that a peak may belong to: "epoch 58 or 59", "load, train or save", "load or another one"."""
    if len(names) > _MOST_NAMES:
        return f"{clean(names[0])} or another one"
    words = [clean(name) for name in names]
    if len({word.rpartition(" ")[0] for word in words}) == 1:
        words[1:] = [word.rpartition(" ")[2] for word in words[1:]]
    return f"{', '.join(words[:-1])} or {words[-1]}"


def holder(run: RecordedRun, peak: Peak | None, width: int, *, public: bool = False) -> str:
    """Return the process that held a peak: "python worker.py (pid 1234)", "pid 1234" without a name; empty if unknown.

    Args:
        run: the run.
        peak: the peak.
        width: columns of the text.
        public: without arguments, for texts that leave the machine.

    """
    if peak is None or peak.pid is None:
        return ""
    suffix = f"(pid {peak.pid})"
    # Pids are reused: take the process with the most memory.
    candidates = [p for p in run.processes if p.pid == peak.pid]
    process = max(candidates, key=lambda p: -1 if p.peak is None else p.peak.bytes, default=None)
    argv = process.argv if process else None
    argv = argv or (run.command if peak.pid == run.fields.target.pid else None)
    room = width - len(suffix) - 1
    if public and argv:
        name = process_name(None, public_name(argv).split(" "), room)
    elif process is not None and argv is process.argv:
        program = os.path.basename(argv[0]) if argv else ""
        peers = [p for p in run.processes if p.argv and os.path.basename(p.argv[0]) == program]
        (name,) = process_names([process], room, run.ranks, peers[:PEERS])
    else:
        name = process_name(process.command if process else None, argv, room)
    return f"{name} {suffix}" if name else f"pid {peak.pid}"


def process_names(
    processes: Sequence[ProcessFigures | ProcessCommand],
    width: int,
    ranks: Mapping[int, int] | None = None,
    others: Sequence[ProcessFigures] = (),
) -> list[str]:
    """Return a name for each process that distinguishes it from these and from `others` of its program.

    Forked processes share a command line. A name that the process gave itself is added, and so is its rank.

    Args:
        processes: the processes.
        width: columns of each name.
        ranks: numbers that a launcher gave to processes, by pid.
        others: processes that need no name.

    """
    from otel_memwatch.run.process_names import distinguishing_words

    named = distinguishing_words([process.argv for process in (*processes, *others)])
    known: dict[Any, str] = {}
    """Names of those before: forked processes share theirs, apart from the rank."""
    names = []
    for process, words in zip(processes, named):  # noqa: B905 - without those of `others`
        key = process.command, words, tuple((process.argv or ())[:2])
        name = known.get(key)
        if name is None:
            name = known[key] = _own_name(*key, width)
        rank = (ranks or {}).get(getattr(process, "pid", 0))
        if rank is not None and "rank" not in name:
            name = f"{shorten(name, width - 12)} [rank {rank}]"
        names.append(name)
    return names


def _own_name(command: str | None, words: tuple[str, ...] | None, begin: tuple[str, ...], width: int) -> str:
    """Return the name of a process, with the one that it gave itself. `begin`: its program and first argument."""
    from otel_memwatch.run.process_names import INTERPRETERS

    name, own = process_name(command, words, width), clean(command or "")
    # The kernel keeps 15 bytes of a name.
    shown = (*(words or ())[:2], *begin)
    renamed = not any(os.path.basename(word).startswith(own[:14]) or own in word for word in shown)
    if words and own and renamed and not own.startswith(INTERPRETERS):
        return f"{shorten(name, width - cells(own) - 3)} [{own}]"
    return name


def process_name(command: str | None, argv: Sequence[str] | None, width: int) -> str:
    """Return the command line without the directories of program and script, else the short name."""
    if not argv:
        return f"[{clean(command)}]" if command else ""
    from otel_memwatch.run.process_names import without_folders

    return command_line(without_folders(argv), width)


def process_ending(run: RecordedRun, process: ProcessFigures) -> str:
    """Say how a process ended, with a note on anything unusual."""
    if process.signal is not None:
        words = signal_name(process.signal)
    elif process.exit_code is not None:
        words = f"exit {process.exit_code}"
    elif process.end is None:
        words = "unknown" if run.state == "incomplete" else "alive"
    else:
        words = "ended"
    note = clean(process.note or "")
    return f"{words}, {note}" if note and note not in _USUAL else words


def process_start(run: RecordedRun, process: ProcessFigures) -> float:
    """Return seconds since the start of the run; 0 for the command's own process, which exists a moment earlier."""
    return process.start if run.mode != "wrap" else max(0.0, process.start)


def lane_owners(run: RecordedRun, pids: Iterable[int]) -> dict[int, str]:
    """Return a label for the lanes of each process: "rank 3" if only one process has it, else "pid 4711"."""
    from collections import Counter

    pids = set(pids)
    processes_of = Counter(run.ranks[pid] for pid in pids if pid in run.ranks)
    return {
        pid: f"rank {run.ranks[pid]}" if processes_of.get(run.ranks.get(pid, -1)) == 1 else f"pid {pid}"
        for pid in pids
    }


def cpu(run: RecordedRun) -> str:
    """Return CPU time in seconds and in cores: "34.2 s (2.76 cores on average)"."""
    seconds = run.totals.get("cpu_seconds")
    if seconds is None:
        return "unknown"
    words = ("at least " if run.state == "incomplete" else "") + duration(seconds)
    return words if run.cores is None else f"{words} ({run.cores:.2f} cores on average)"


def io_pair(read: float | None, written: float | None) -> str:
    """Return both amounts: "read 1.20 GiB, wrote 300.0 MiB"; empty if neither is known."""
    if read is None and written is None:
        return ""
    return f"read {size(read)}, wrote {size(written)}"


def processes(run: RecordedRun) -> str:
    """Return the number of processes: "1 process", "5-302 processes" if some were too short to sample; "": unknown."""
    seen, unseen = run.totals.get("processes"), run.totals.get("unseen_processes")
    if not seen:
        return ""
    if not unseen:
        return count(seen, "process", "processes")
    return f"{seen:,.0f}-".replace(",", " ") + count(seen + unseen, "process", "processes")


def recording(run: RecordedRun) -> str:
    """Describe the sampling: "9.98 Hz (10 Hz requested), longest gap 104 ms, no samples missed"."""
    quality = run.quality
    achieved, interval, missed = (
        quality.get("achieved_hz"),
        quality.get("interval"),
        quality.get("missed_ticks"),
    )
    ticks = quality.get("ticks")
    if achieved is None:
        asked = "" if interval is None else f", interval of {duration(interval)} requested"
        return f"{count(ticks or 0, 'sample')}{asked}"
    words = f"{achieved:.3g} Hz"
    if interval:
        varies = run.settings.get("interval") == AUTO
        words += f" (auto, up to {1 / interval:.3g} Hz)" if varies else f" ({1 / interval:.3g} Hz requested)"
    words += f", longest gap {duration(quality.get('longest_gap'))}"
    return f"{words}, {count(missed, 'sample') if missed else 'no samples'} missed"
