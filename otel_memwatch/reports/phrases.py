"""What several reports say of a run in the same words: how it ended, its limit, who held the peak.

Nothing here reads the whole record: the summary has to be there at once, after a run of a day too.
"""

from __future__ import annotations

import os
from collections import Counter

from otel_memwatch.model import Certainty, Peak, ProcessNote
from otel_memwatch.record.fields import mapping, number, text
from otel_memwatch.run.figures import figure_name
from otel_memwatch.run.process_names import INTERPRETERS, telling
from otel_memwatch.runtime.masking import public_name
from otel_memwatch.runtime.typed import TYPE_CHECKING, Any, NamedTuple
from otel_memwatch.text import (
    amount,
    bounds,
    cells,
    clean,
    command_line,
    count,
    duration,
    share,
    shorten,
    signal_name,
    size,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from otel_memwatch.run import ProcessFigures, RecordedRun

_LESS_CACHE = "less page cache"
_NEARER = 0.02
"""Seconds between two looks: in a shorter time less page cache moves, so that the bounds are nearer."""
_BY_PROCESSES = ("at one tick", "page faults")
"""Words of `Peak.how` where needed memory is known from processes alone, each page once."""

_NEAR = 1.2
"""How many times the lower bound the upper one may be for both to be one answer to a person."""

_USUAL = (ProcessNote.ALIVE_AT_END, ProcessNote.ZOMBIE, ProcessNote.EXEC)
"""Notes that say nothing of a process that a person would wonder about."""

PEERS = 100
"""Processes of the same program that one is told apart from."""

_NEEDED = (
    "Needed memory counts each page once, however many processes share it, and leaves out page cache that can be "
    "dropped at any time."
)
IN_A_GROUP = "with page cache and kernel memory: what the OOM killer compares with the limit"
"""What the figure of a control group counts."""
_SUMMED = (
    "This system tells no more than each process's resident size: their sum counts a page once for each process that "
    "shares it, and pages of files and libraries too."
)


class Named(NamedTuple):
    """A process as far as its name is concerned."""

    command: str | None
    argv: tuple[str, ...] | None


class Limit(NamedTuple):
    """The memory that there was."""

    bytes: int
    whose: str
    """In words: "control group", "machine"."""


def limit(run: RecordedRun) -> Limit | None:
    """The smallest limit on the memory of the run; `None` when none is known."""
    found = []
    group = run.limits.get("cgroup_bytes") or run.recorded_limit
    if group:
        found.append(Limit(int(group), "control group"))
    machine = run.limits.get("host_bytes") or run.host.get("memory_bytes")
    if isinstance(machine, int | float) and machine > 0:
        found.append(Limit(int(machine), "machine"))
    return min(found, default=None)


def address_space(run: RecordedRun) -> str | None:
    """The limit that ends a program with an error of its own, long before any memory is short; `None`: none is known."""
    limit = run.limits.get("rlimit_as_bytes")
    return f"{size(limit)} of address space for each process (ulimit -v)" if limit else None


def headline_meaning(run: RecordedRun) -> str:
    """What the first figure counts."""
    return _SUMMED if run.info.get("portable") is True else _NEEDED


def would_be_exact(run: RecordedRun) -> str:
    """What would make the figure of needed memory exact here, or nearer, where its bounds are far apart; empty where nothing is known."""
    peak = run.peaks.tree
    if peak is None or peak.certainty is not Certainty.INTERVAL:
        return ""
    if peak.high is not None and peak.low and peak.high <= _NEAR * peak.low:
        return ""
    hint = run.info.get("cgroup_hint")
    if hint:
        return f"exact with: {clean(str(hint))}"
    if peak.high is not None and run.mode == "wrap" and run.settings.get("cgroup") == "off":
        return "exact with: a control group for the run, where there can be one (without --cgroup off)"
    interval = run.settings.get("interval")
    if _LESS_CACHE in peak.how and isinstance(interval, int | float) and interval > _NEARER:
        return (
            f"nearer with: --interval {1000 * _NEARER:.0f}ms (files came to its page cache between two looks)"
        )
    return ""


def not_seen(run: RecordedRun) -> str:
    """What of needed memory nobody could see where no control group told; empty where one did."""
    peak = run.peaks.tree
    if peak is None or not any(words in peak.how for words in _BY_PROCESSES):
        return ""
    return (
        "Without a control group of the run's own it is the private and shared memory of its processes, and files in memory "
        "that are there at a tick; kernel memory (page tables, pipes, sockets) is not in it. The upper end assumes that no "
        "other program writes into these processes."
    )


def above_needed(run: RecordedRun) -> str:
    """Why the largest process is above what all needed, where it is; else empty.

    A process's resident size has the pages of its files and libraries. They are page cache, which is not needed memory.
    """
    tree, largest = run.peaks.tree, run.peaks.process
    if tree is None or largest is None or largest.bytes <= tree.bytes:
        return ""
    if not any(words in tree.how for words in ("cgroup", *_BY_PROCESSES)):
        return ""
    if size(largest.bytes) == size(tree.bytes):
        return ""
    certain = 0
    if largest.low is not None and tree.high is not None:
        certain = largest.low - tree.high
    elif tree.high is None:
        return ""  # all may have needed as much as the largest process has
    much = f"at least {size(certain)}" if certain > 0 else "pages"
    return f"with {much} of files and libraries, which are cache"


def hugetlb(run: RecordedRun) -> str:
    """What the figures of memory leave out; empty where no huge pages of hugetlbfs were seen.

    Control groups of version 2 contain them only where they are mounted with memory_hugetlb_accounting (Linux 6.7).
    """
    seen = run.peaks.hugetlb
    if seen is None:
        return ""
    return f"beside it {size(seen.bytes)} of huge pages (hugetlbfs): not in VmHWM nor, as a rule, in control groups"


def limit_share(peak: Peak | None, of: Limit) -> str | None:
    """The peak's share of a limit: "61 %", "59 to 80 %"; `None` when the peak is not known."""
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
    return high if float(bare) == float(high.removesuffix(" %")) else f"{bare} to {high}"


def breach(run: RecordedRun) -> tuple[str, str]:
    """What came of the hard limit that the run was given, and who had most then; empty where it had none, or kept to it."""
    limit = mapping(run.info.get("limit"))
    if limit.get("breached") is not True:
        return "", ""
    operation, listed = text(limit.get("operation")), limit.get("largest")
    words = f"ended, since it wanted more than {size(number(limit.get('bytes')))}"
    words += f", in {clean(operation)}" if operation else ""
    largest = mapping(listed[0]) if isinstance(listed, list) and listed else {}
    if not largest:
        return words, ""
    return (
        f"{words}; the largest process had {size(number(largest.get('bytes')))}",
        f"{clean(text(largest.get('command')) or '')} (pid {largest.get('pid')})",
    )


BUDGET_TONES = {"over": "bad", "cannot tell": "warning"}
"""Tones of the sentences about budgets, by verdict."""


def budget_sentence(entry: Mapping[str, Any]) -> str:
    """What came of a budget: "memory: 2.31 GiB, over its budget of 2.00 GiB". The entry is as `record.format` has it."""
    unit, name = str(entry.get("unit")), figure_name(str(entry.get("figure")))
    limit, value, low, high = (number(entry.get(key)) for key in ("limit", "value", "low", "high"))
    of = "its budget" if limit is None else f"its budget of {amount(limit, unit)}"
    if value is None:
        return f"{name}: cannot be held against {of}: {clean(str(entry.get('why')))}"
    certainty = entry.get("certainty")
    known = amount(value, unit) if certainty in ("exact", "sampled") else bounds(low, high, unit)
    known += " seen" if certainty == "sampled" else ""
    verdict = str(entry.get("verdict"))
    if verdict == "cannot tell":
        return f"{name}: {known}, cannot be held against {of}: {clean(str(entry.get('why')))}"
    return f"{name}: {known}, {clean(verdict)} {of}"


def ending(run: RecordedRun) -> str:
    """How the run ended and after how long: "exit code 0, after 12.4 s"."""
    reason = clean(run.ending.reason)
    if run.state == "running":
        return f"{reason}, {duration(run.seconds)} so far"
    if run.state == "incomplete":
        return reason
    after = f"after {duration(run.seconds)}"
    # Whom nobody waits for leaves no exit code: "ended: ended" would say nothing.
    return after if reason == "ended" else f"{reason}, {after}"


def ended_badly(run: RecordedRun) -> bool:
    """Whether the target failed, was killed, or lost a process to the OOM killer."""
    end = run.ending
    return bool(end.signal or end.exit_code or end.oom_kills)


def when_and_where(run: RecordedRun, peak: Peak | None) -> str:
    """When a peak was, and in what: "at 8.20 s, in Compilation"; empty when neither is known.

    A peak is first seen at a tick, and the last one is taken when the command has ended: no later than that it was.
    """
    if peak is None:
        return ""
    parts = []
    if peak.at is not None:
        parts.append(f"at {duration(min(peak.at, run.seconds))}")
    if peak.operation:
        parts.append(f"in {_one_of(peak.operations) if peak.operations else clean(peak.operation)}")
    return ", ".join(parts)


_TOLD = 3
"""Names that are written out where a peak was in one of several operations."""


def _one_of(names: Sequence[str]) -> str:
    """One of several operations: "epoch 58 or 59", "load, train or save", "load or another one"."""
    if len(names) > _TOLD:
        return f"{clean(names[0])} or another one"
    words = [clean(name) for name in names]
    if len({word.rpartition(" ")[0] for word in words}) == 1:
        words[1:] = [word.rpartition(" ")[2] for word in words[1:]]
    return f"{', '.join(words[:-1])} or {words[-1]}"


def holder(run: RecordedRun, peak: Peak | None, width: int, *, public: bool = False) -> str:
    """The process that held a peak: "python worker.py (pid 1234)"; empty when it is not known.

    `public`: without its arguments, for what leaves the machine.
    """
    if peak is None or peak.pid is None:
        return ""
    suffix = f"(pid {peak.pid})"
    # Pids are used again: the one that had this much memory is meant.
    candidates = [p for p in run.processes if p.pid == peak.pid]
    process = max(candidates, key=lambda p: -1 if p.peak is None else p.peak.bytes, default=None)
    argv = process.argv if process else None
    argv = argv or (run.command if peak.pid == target_pid(run) else None)
    room = width - len(suffix) - 1
    if public and argv:
        name = process_name(None, public_name(argv).split(" "), room)
    elif process is not None and argv is process.argv:
        program = os.path.basename(argv[0]) if argv else ""
        peers = [p for p in run.processes if p.argv and os.path.basename(p.argv[0]) == program]
        name = process_names([process, *peers[:PEERS]], room, run.ranks)[0]
    else:
        name = process_name(process.command if process else None, argv, room)
    return f"{name} {suffix}" if name else suffix


def target_pid(run: RecordedRun) -> object:
    """The target's pid; `None` where it is not known."""
    target = run.info.get("target")
    return target.get("pid") if isinstance(target, dict) else None


def process_names(
    processes: Sequence[ProcessFigures | Named], width: int, ranks: Mapping[int, int] | None = None
) -> list[str]:
    """What each process is called, with what tells it from the others of its program.

    Forked processes have one command line: those that called themselves something are named for it too, and those of whom a
    launcher told the rank (`ranks`, by pid) for that.
    """
    names = []
    for process, words in zip(processes, telling([process.argv for process in processes]), strict=True):
        name = process_name(process.command, words, width)
        own = clean(process.command or "")
        if words and own and _renamed(own, words, process.argv or ()):
            name = f"{shorten(name, width - cells(own) - 3)} [{own}]"
        rank = (ranks or {}).get(getattr(process, "pid", 0))
        if rank is not None and "rank" not in name:
            name = f"{shorten(name, width - 12)} [rank {rank}]"
        names.append(name)
    return names


def _renamed(own: str, words: Sequence[str], argv: Sequence[str]) -> bool:
    """Whether a process's short name, of which the kernel keeps 15 bytes, is none of its program's."""
    return not any(
        os.path.basename(word).startswith(own[:14]) or own in word for word in (*words[:2], *argv[:2])
    ) and not own.startswith(INTERPRETERS)


def process_name(command: str | None, argv: Sequence[str] | None, width: int) -> str:
    """What a process is called: its command line without the folders of program and script, else its short name."""
    if not argv:
        return f"[{clean(command)}]" if command else ""
    program = os.path.basename(argv[0]) or argv[0]
    script = [os.path.basename(word) or word for word in argv[1:2] if program.startswith(INTERPRETERS)]
    return command_line([program, *script, *argv[1 + len(script) :]], width)


def process_ending(process: ProcessFigures) -> str:
    """How a process ended, as far as that is known; with what is special about it."""
    if process.signal is not None:
        words = signal_name(process.signal)
    elif process.exit_code is not None:
        words = f"exit {process.exit_code}"
    else:
        words = "alive" if process.end is None else "ended"
    note = clean(process.note or "")
    return f"{words}, {note}" if note and note not in _USUAL else words


def process_start(run: RecordedRun, process: ProcessFigures) -> float:
    """Seconds since the start of the run. A command's own process is there a moment before the command is: that is 0."""
    return process.start if run.mode != "wrap" else max(0.0, process.start)


def lane_owners(run: RecordedRun, pids: Iterable[int]) -> dict[int, str]:
    """What the lanes of each process are called: "rank 3" where that names one process, else "pid 4711"."""
    pids = set(pids)
    told = Counter(run.ranks[pid] for pid in pids if pid in run.ranks)
    return {
        pid: f"rank {run.ranks[pid]}" if told.get(run.ranks.get(pid, -1)) == 1 else f"pid {pid}"
        for pid in pids
    }


def main_is_largest(run: RecordedRun) -> bool:
    """Whether the target's own process is the largest one, so that one line is enough for both."""
    main, largest = run.peaks.main, run.peaks.process
    if main is None or largest is None:
        return main is None
    return main.pid == largest.pid if main.pid and largest.pid else main.bytes == largest.bytes


def cpu(run: RecordedRun) -> str:
    """CPU time and what that is in cores: "34.2 s, 2.76 cores on average"."""
    seconds = run.totals.get("cpu_seconds")
    if seconds is None:
        return "unknown"
    if run.seconds <= 0:
        return duration(seconds)
    return f"{duration(seconds)}, {seconds / run.seconds:.2f} cores on average"


def io_pair(read: float | None, written: float | None) -> str:
    """What was read and written: "read 1.20 GiB, wrote 300.0 MiB"; empty when neither is known."""
    if read is None and written is None:
        return ""
    return f"read {size(read)}, wrote {size(written)}"


def processes(run: RecordedRun) -> str:
    """How many there were: "1 process", "5 to 302 processes" where ticks cannot have seen them all; "": unknown."""
    seen, unseen = run.totals.get("processes"), run.totals.get("unseen_processes")
    if not seen:
        return ""
    if not unseen:
        return count(seen, "process", "processes")
    return f"{seen:,.0f} to ".replace(",", " ") + count(seen + unseen, "process", "processes")


def of_processes(run: RecordedRun) -> str:
    """What follows the largest one: ", of 4 processes", ", of at least 4" where ticks cannot have seen them all.

    How many there can have been at most is in the report: pids of other programs are counted there too. "" where there was one
    only, or where it is unknown.
    """
    seen, unseen = run.totals.get("processes"), run.totals.get("unseen_processes")
    if not seen or (seen == 1 and not unseen):
        return ""
    return f", of {'at least ' if unseen else ''}{count(seen, 'process', 'processes')}"


def recording(run: RecordedRun) -> str:
    """How well it was recorded: "10.0 Hz of 10.0 Hz asked for, longest gap 140 ms, no tick missed"."""
    quality = run.quality
    achieved, interval, missed = (
        quality.get("achieved_hz"),
        quality.get("interval"),
        quality.get("missed_ticks"),
    )
    ticks = quality.get("ticks")
    if achieved is None:
        return f"{count(ticks or 0, 'tick')}, one every {duration(interval)} asked for"
    words = f"{achieved:.3g} Hz"
    if interval:
        words += f" of {1 / interval:.3g} Hz asked for"
    words += f", longest gap {duration(quality.get('longest_gap'))}"
    return f"{words}, {count(missed, 'tick') if missed else 'no tick'} missed"
