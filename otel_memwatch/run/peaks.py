"""Derive the peaks of a run from the aggregator's evidence; the rules are those of `truth`."""

from __future__ import annotations

from otel_memwatch.model import Certainty, Evidence, Peak
from otel_memwatch.run.cgroup_bounds import CgroupBounds, CgroupWindow
from otel_memwatch.run.faults_elsewhere import FaultsElsewhere
from otel_memwatch.run.ledger_bounds import LedgerBounds
from otel_memwatch.run.maximum import Maximum
from otel_memwatch.run.results import Peaks
from otel_memwatch.run.tree_bounds import SumOverTime, WindowBounds, processes_between
from otel_memwatch.runtime.typed import TYPE_CHECKING
from otel_memwatch.truth.cgroup import (
    lifetime_watermark,
    own_watermark,
    stopped_watermark,
    tree_around_cgroup,
    tree_from_cgroup,
    tree_low_in_cgroup,
    tree_while_cgroup_was_read,
    within_limit,
)
from otel_memwatch.truth.cgroup_windows import low_on_few_processors, peak_error
from otel_memwatch.truth.estimates import largest_sample, likely_of_any, most_by_faults, with_estimate
from otel_memwatch.truth.exact import at_least, tolerance
from otel_memwatch.truth.outside_faults import excludes_memory_files, with_unseen_fill
from otel_memwatch.truth.partial_records import is_after, is_over, stopped
from otel_memwatch.truth.process import (
    bounded_above,
    main_process_peak,
    process_peak,
    raised_by_sample,
    reaches,
)
from otel_memwatch.truth.processes import is_bounded, largest_process
from otel_memwatch.truth.tree import (
    Certificate,
    highest,
    lone_process_bound,
    tree_between,
    tree_bound_by_group,
    tree_of_one_process,
    tree_of_unread_processes,
    within_machine,
)

if TYPE_CHECKING:
    from otel_memwatch.run.conditions import RunConditions
    from otel_memwatch.run.process_bounds import ProcessBounds, ProcessCollection
    from otel_memwatch.run.tree_bounds import Span


class RunEvidence:
    """Evidence so far for the peaks of a run.

    Attributes:
        rss: largest sum of resident sizes.
        pss: largest sum of proportional set sizes.
        hugetlb, shared: largest sum of huge pages of hugetlbfs, and of resident shared memory.
        outside: processes seen outside of the cgroup; no value: not sampled.
        faults_elsewhere: page faults of the tree, and those that its cgroup did not count.
        cgroup_swap, system_swap: most bytes in swap, of the cgroup and of the machine.
        limits: smallest and largest limit of the cgroup that was read.
        window_bounds: upper bounds from high-water marks that are reset at every sample.
        ledger: bounds from page faults, of anonymous and shared memory.
        counted_faults, unseen_faults: page faults of the sampled processes, and of others; the former `None`: not known.
        most_unseen_faults: the most of the latter that one sample reported.
        most_written: most bytes between two samples that write calls wrote and that did not go to disk.
        written_by_mapping: bytes that the tree wrote to disk beyond its write calls, at the last sample.
        needed: largest charged memory without file cache, at samples.
        private: most private memory in the cgroup, at samples.
        unmapped: largest charged memory that no process's resident size holds (shared memory files, kernel).
        alive: processes of the tree at the last sample; `None`: not known.
        tree_read: false if the last sample could not read the tree, so processes may have come and grown unseen.
        watermark: of the cgroup.
        watermark_read: true if the last sample could read it.
        last_tick: monotonic seconds of the last sample.
        left, moved: bytes charged to the cgroup, and moved to and from storage, at the last sample; `None`: not known.
        charged: the largest peak of the cgroup less all page cache that it can have held.
        cgroup, needed_low, needed_high: bounds of the cgroup's needed memory between samples; the largest lower and upper one.
        needed_likely: the largest best estimate of the needed memory between two samples.
        unseen_count: upper bound of the processes that no sample saw.
        unseen: unseen processes of the last sample, until the next sample reports on them.
        latest_unseen: latest monotonic seconds at which one of them can have started.
    """

    def __init__(self, conditions: RunConditions, processes: ProcessCollection) -> None:
        self.conditions = conditions
        self.processes = processes
        self.rss, self.pss, self.window_bounds = Maximum(), Maximum(), WindowBounds()
        self.ledger = LedgerBounds(conditions.page_bytes, carried=conditions.faults_carried)
        self.needed, self.unmapped, self.private = Maximum(), Maximum(), Maximum()
        self.hugetlb, self.shared, self.outside = Maximum(), Maximum(), Maximum()
        self.faults_elsewhere = FaultsElsewhere(conditions.faults_before)
        self.cgroup_swap, self.system_swap = Maximum(), Maximum()
        self.limits: tuple[int, int] | None = None
        self.alive: int | None = None
        self.tree_read = True
        self.most_written = self.written_by_mapping = self.unseen_faults = self.most_unseen_faults = 0
        self.counted_faults: int | None = None
        self.watermark = Maximum()
        self.watermark_read = True
        self.last_tick: float | None = None
        self.cgroup = CgroupBounds(conditions)
        self.needed_low, self.needed_high, self.needed_likely = Maximum(), Maximum(), Maximum()
        self.charged = Maximum()
        self.left: int | None = None
        self.moved: int | None = None
        self.unseen_count = 0
        self.unseen: Span | None = None
        self.latest_unseen: float | None = None

    def add_cgroup_window(self, window: CgroupWindow | None) -> None:
        """Add the bounds between two samples."""
        if window is not None:
            self.needed_low.add(window.end, window.low)
            self.needed_high.add(window.end, window.high)
            self.needed_likely.add(window.end, window.likely)
            self.charged.add(window.end, window.charged)

    def needed_bounds(self) -> tuple[Maximum, Maximum]:
        """Return the largest lower and the largest upper bound of the memory that the cgroup needed."""
        low, high, charged = self.needed_low.copy(), self.needed_high.copy(), self.charged.copy()
        for window in self.cgroup.rest(all_ended=not self.processes.living):
            low.add(window.end, window.low)
            high.add(window.end, window.high)
            charged.add(window.end, window.charged)
        if self.needed.at is not None:
            low.add(self.needed.at, self.needed.value)
        if charged.at is not None:
            low.add(charged.at, self._low_on_few_processors(charged.value or 0))
        return low, high

    def _low_on_few_processors(self, charged: int) -> int | None:
        placements = self.processes.placements_of_all
        if self.alive != 0 or placements is None or self.left is None or self.moved is None:
            return None
        if self.faults_elsewhere.uncounted.dropped:
            return None  # nor are the context switches of these children counted
        return low_on_few_processors(charged, self.conditions.processors, placements, self.left, self.moved)

    def likely_need(self) -> int | None:
        """Return the best estimate of the cgroup's peak of needed memory, in bytes; `None`: not known."""
        likely = self.needed_likely.copy()
        for window in self.cgroup.rest(all_ended=True):
            likely.add(window.end, window.likely)
        return likely.value

    @property
    def tree_faults(self) -> int | None:
        """Page faults of the tree so far, from samples or from the reports of ended processes; `None`: not known."""
        ended = self.processes.ended_faults
        if self.counted_faults is None and not ended:
            return None
        return max(self.counted_faults or 0, ended + self.unseen_faults)

    @property
    def unseen_max_bytes(self) -> int | None:
        """Upper bound of any process that ended without an individual one; `None`: there is none."""
        return self.processes.unseen_max_bytes(self.latest_unseen)

    @property
    def single_process(self) -> bool:
        """True if the target is the only process of the run."""
        if not self.tree_read:
            return False
        return self.processes.count == 1 and not self.unseen_count and not self.processes.unwatched

    @property
    def unread(self) -> bool:
        """True if no memory of a process was read while it lived."""
        return not (self.processes.sampled or self.rss.value or self.pss.value)

    def alone(self, begin: float, end: float) -> bool:
        """Return whether the tree was one process between two moments, in monotonic seconds."""
        processes, unseen = self.processes, [] if self.unseen is None else [self.unseen]
        if not self.tree_read or processes.unwatched or begin < processes.ended_spans.merged_until:
            return False
        spans = *processes.ended_spans.spans(), *map(processes.span, processes.recent()), *unseen
        return processes_between(spans, begin, end) == 1


def peaks_from(evidence: RunEvidence, *, whole: bool = True) -> Peaks:
    """Return the peaks of a run; `gpu` is left empty. `whole`: it was sampled up to its end."""
    main = _main(evidence)
    process = _process(evidence, main)
    tree = _tree(evidence, main, process)
    cgroup = _cgroup(evidence, whole=whole and evidence.watermark_read)
    if not whole:
        tree = stopped(tree)
        target = evidence.processes.main
        end, anybody_alive = None if target is None else target.end, bool(evidence.processes.living)
        if not is_over(end, evidence.last_tick, anybody_alive=anybody_alive):
            process = stopped(process)
    # The kernel has no high-water mark of these pages.
    hugetlb = _largest_sample(evidence, evidence.hugetlb, Evidence.HUGETLB_SUM)
    swap = None
    if evidence.conditions.own_cgroup:
        swap = _largest_sample(evidence, evidence.cgroup_swap, Evidence.SAMPLES)
    machine = evidence.conditions.machine_bytes
    main, process, tree, cgroup = (within_machine(peak, machine) for peak in (main, process, tree, cgroup))
    return Peaks(main, process, tree, cgroup, hugetlb=hugetlb, swap=swap)


def _largest_sample(evidence: RunEvidence, seen: Maximum, source: Evidence) -> Peak | None:
    return (
        largest_sample(seen.value, source, at=evidence.conditions.since_start(seen.at))
        if seen.value
        else None
    )


def tree_low(evidence: RunEvidence) -> int | None:
    """Return the lower bound of the tree's needed memory so far, in bytes; `None`: not known."""
    largest = evidence.processes.largest
    process = largest.low if largest is not None else 0
    if evidence.conditions.portable:
        return max(process, evidence.rss.value or 0) or None
    if evidence.conditions.own_cgroup and evidence.watermark.value is not None:
        needed, _ = evidence.needed_bounds()
        private = max(0, (evidence.private.value or 0) - evidence.conditions.charge_error)
        still_read = evidence.watermark_read
        low = tree_low_in_cgroup(
            max(needed.value or 0, private),
            evidence.watermark.value,
            evidence.processes.charged_bytes,
            still_read=still_read,
        )
        if evidence.processes.left_cgroup:
            low = max(low, evidence.processes.charged_bytes)
        return low or None
    if evidence.ledger.low.value is not None:
        return evidence.ledger.low.value or None
    if evidence.processes.knows_needed or evidence.unread:
        return evidence.processes.charged_bytes or None
    return max(process, evidence.pss.value or 0) or None


def peak_of_process(
    process: ProcessBounds, conditions: RunConditions, unseen_max: int | None = None
) -> Peak | None:
    """Return the peak of one process; `None`: not known.

    Args:
        process: bounds of its memory.
        conditions: of the run.
        unseen_max: upper bound of a process that ended without one; `None`: not known.
    """
    low, high = process.low, process.bound
    if high is None and process.end is not None and low:
        high = unseen_max
    peak = process_peak(low, high, conditions.rss_error, conditions.floor, sampled=conditions.portable)
    peak = raised_by_sample(peak, process.sampled - conditions.sum_error)
    if peak is None:
        return None
    at = process.at if low else process.end
    peak = peak._replace(at=conditions.since_start(at), pid=process.pid)
    return within_machine(peak, conditions.machine_bytes)


def _main(evidence: RunEvidence) -> Peak | None:
    """Return the peak of the target's process. Without descendants, wait4's figure is its peak."""
    processes, conditions = evidence.processes, evidence.conditions
    target = processes.main
    if target is None:
        return None
    peak = main_process_peak(
        peak_of_process(target, conditions),
        processes.attained_bytes,
        conditions.rss_error,
        conditions.floor,
        alone=evidence.single_process,
        end=conditions.since_start(target.end),
    )
    return bounded_above(peak, _lone_high(evidence)[0])


def _process(evidence: RunEvidence, main: Peak | None) -> Peak | None:
    """Return the peak of the largest single process."""
    if main is not None and evidence.single_process:
        return main
    processes, conditions = evidence.processes, evidence.conditions
    low, time, pid = 0, None, None
    if processes.largest is not None and processes.largest.low:
        low, time, pid = processes.largest.low, processes.largest.at, processes.largest.pid
    unclaimed = processes.unclaimed_segment
    if unclaimed is not None and unclaimed[1].value > low:
        pid, (_, low, time) = unclaimed
    most = None  # a process may have grown after its last reading
    if _is_bounded(evidence, evidence.unseen_max_bytes):
        bounds = (process.bound or 0 for process in processes.living)
        most = max([processes.reaped_max_bytes or 0, *bounds])
    largest = largest_process(
        low,
        most,
        processes.attained_bytes,
        conditions.rss_error,
        conditions.floor,
        at=conditions.since_start(time),
        pid=pid,
        sampled=conditions.portable,
        unwatched=processes.unwatched,
    )
    return raised_by_sample(largest, processes.sampled - conditions.sum_error)


def _is_bounded(evidence: RunEvidence, unseen_max: int | None) -> bool:
    processes = evidence.processes
    return is_bounded(
        seen=bool(processes.count),
        all_bounded=evidence.tree_read and all(process.bound is not None for process in processes.living),
        unbounded=bool(evidence.unseen_count) or processes.any_vanished,
        unseen=unseen_max,
        unwatched=processes.unwatched,
    )


def _tree(evidence: RunEvidence, main: Peak | None, process: Peak | None) -> Peak | None:
    """Return the memory that the whole tree needed."""
    conditions, processes, rss = evidence.conditions, evidence.processes, evidence.rss
    since_start = conditions.since_start
    if conditions.portable:
        if rss.value is None:
            return None
        return largest_sample(rss.value, Evidence.RSS_SUM, at=since_start(rss.at))
    if conditions.own_cgroup and evidence.watermark.value is not None and evidence.watermark_read:
        return _tree_by_cgroup(evidence, evidence.watermark.value)
    if conditions.own_cgroup and conditions.joined:
        # Processes of a group come from anywhere, so page faults of the tree are no bound.
        return tree_while_cgroup_was_read(tree_low(evidence) or 0)
    if evidence.ledger.low.value is not None:
        return _tree_by_ledger(evidence)
    if evidence.unread:
        return tree_of_unread_processes(process, alone=evidence.single_process)
    if main is not None and evidence.single_process and not processes.knows_needed:
        return tree_of_one_process(main)
    if processes.knows_needed:
        lows = [Certificate(processes.charged_bytes, Evidence.LARGEST_PROCESS)]
    else:
        low, at = (0, None) if process is None else (process.low or 0, process.at)
        pss = Certificate(evidence.pss.value or 0, Evidence.PSS_SUM, since_start(evidence.pss.at))
        lows = [Certificate(low, Evidence.LARGEST_PROCESS, at), pss]
    if conditions.own_cgroup:  # it could be read for a time
        needed, _ = evidence.needed_bounds()
        lows.append(Certificate(needed.value or 0, Evidence.CGROUP_LESS_CACHE, since_start(needed.at)))
    high = _bound_by_processes(evidence)
    return tree_between(highest(*lows), high, _bound_by_group(evidence), conditions.sum_error)


def _tree_by_cgroup(evidence: RunEvidence, watermark: int) -> Peak | None:
    needed, most = evidence.needed_bounds()
    low, faults, conditions = tree_low(evidence) or 0, evidence.faults_elsewhere, evidence.conditions
    error = conditions.charge_error
    high = watermark if most.value is None else most.value
    if conditions.unbroken_watermark:
        high = min(high, watermark + peak_error(error))
    high = within_limit(high, evidence.limits, error)
    if evidence.processes.have_left(watermark, faults.uncounted, faults.of_tree):
        by_faults = None
        if (
            faults.uncounted.elsewhere
            and evidence.processes.all_faults_counted
            and not evidence.cgroup.reset_by_others
        ):
            by_faults = high + faults.uncounted.most * conditions.fault_bytes
        return tree_around_cgroup(low, tree_bound(evidence), evidence.unmapped.value, by_faults)
    if evidence.cgroup.reset_by_others:
        return tree_while_cgroup_was_read(low)
    at = needed.at if needed.value else evidence.watermark.at
    likely = evidence.likely_need()
    if likely is not None and evidence.tree_faults is not None:
        by_faults = evidence.tree_faults * conditions.page_bytes
        likely = max(likely, _likely_of_any(evidence, by_faults))
    peak = tree_from_cgroup(low, high, charged=watermark, likely=likely)
    return peak._replace(at=conditions.since_start(at))


def _tree_by_ledger(evidence: RunEvidence) -> Peak | None:
    """Return the tree's needed memory from page faults: anonymous and shared memory, no pages of files."""
    conditions, ledger, processes = evidence.conditions, evidence.ledger, evidence.processes
    # The cgroup's lower bound, from the time during which it could be read.
    group_low = (evidence.needed_bounds()[0].value or 0) if conditions.own_cgroup else 0
    low = highest(
        Certificate(ledger.low.value or 0, Evidence.ONE_SAMPLE, conditions.since_start(ledger.low.at)),
        Certificate(group_low, Evidence.CGROUP_LESS_CACHE),
    )
    high, by_faults = _bound_by_processes(evidence), _bound_by_faults(evidence)
    if by_faults is not None:
        # Also if it is the higher one: unmapped memory files are in no process's high-water mark.
        filled = with_unseen_fill(by_faults, processes.attained_bytes, processes.most_file, conditions.floor)
        high = Certificate(filled, Evidence.PAGE_FAULTS)
    alone, at_edges, excluded = _lone_high(evidence)[1], ledger.at_edges(over=_is_over(evidence)), 0
    if alone is not None and at_edges is not None:
        # The first sample may have been too late to notice a reset of the maximum, the last one to notice an exec.
        alone = max(alone, at_edges)
        if high is None or alone < high.bytes:
            excluded = 0 if high is None else high.bytes - alone
            high = Certificate(alone, Evidence.WAIT4)
    by_group = _bound_by_group(evidence)
    peak = tree_between(low, high, by_group, conditions.sum_error)
    if peak is None or peak.high is None:
        return peak
    alone_unseen = processes.count == 1 and not ledger.estimate.value
    likely = _likely_of_any(evidence, by_faults, alone=alone_unseen)
    peak = with_estimate(peak, ledger.estimate.value or 0, conditions.since_start(ledger.estimate.at), likely)
    # Page faults that the maximum does not show may have brought files in memory.
    most, excluded = peak.high or 0, max(evidence.most_written, excluded)
    if by_group is not None and by_group.bytes >= low.bytes:
        excluded = min(excluded, by_group.bytes - most)  # files in memory are charged to the group
    unwritten = processes.unwritten_files and (by_group is None or by_group.bytes > most)
    if unwritten or excludes_memory_files(excluded, most):
        return peak._replace(excludes=(*peak.excludes, "files in memory"), excluded_bytes=excluded)
    return peak


def _likely_of_any(evidence: RunEvidence, bound: int | None = None, *, alone: bool = False) -> int:
    return likely_of_any(
        evidence.processes.attained_bytes,
        evidence.processes.most_file,
        evidence.conditions.floor,
        faults=_faults_of_largest(evidence),
        bound=bound,
        written_by_mapping=evidence.written_by_mapping,
        alone=alone,
    )


def _faults_of_largest(evidence: RunEvidence) -> int | None:
    """Return the page faults that can have brought wait4's largest maximum; `None`: unknown.

    If samples did not see all of its process, one sample reports its other page faults. The process had no more than any one
    that samples saw.
    If it had more memory at a sample than its page faults brought, its parent's brought some. If the tree's did not bring
    it, huge pages did.
    """
    largest, attained, most = (
        evidence.processes.largest,
        evidence.processes.attained_bytes,
        evidence.tree_faults,
    )
    if largest is not None and most_by_faults(most, largest.needed) is None:
        return None
    if largest is None or not largest.needed or not reaches(largest.low, attained, tolerance(attained)):
        seen = evidence.processes.most_faults
        return (
            None if most is None else min(most - evidence.unseen_faults, seen) + evidence.most_unseen_faults
        )
    return largest.faults if most_by_faults(largest.faults, largest.needed) else most


def _bound_by_faults(evidence: RunEvidence) -> int | None:
    """Return the bytes that the tree never needed more than, by its page faults; `None`: they give no bound."""
    processes = evidence.processes
    if processes.unwatched or processes.outside_ledger:
        return None
    return evidence.ledger.most(_sums(evidence), over=_is_over(evidence))


def _is_over(evidence: RunEvidence) -> bool:
    """Return whether the last sample was taken after the target's end, or found no process alive."""
    target = evidence.processes.main
    return evidence.alive == 0 or (
        target is not None
        and target.end is not None
        and evidence.last_tick is not None
        and not is_after(target.end, evidence.last_tick)
    )


def _lone_high(evidence: RunEvidence) -> tuple[int | None, int | None]:
    """Return the upper bounds of the target and of the tree, if the target was the whole tree (`lone_process_bound`)."""
    main = evidence.processes.main
    if main is None or main.lone is None or not evidence.single_process:
        return None, None
    return lone_process_bound(main.max_rss, *main.lone, evidence.conditions.floor)


def _bound_by_processes(evidence: RunEvidence) -> Certificate | None:
    bound = tree_bound(evidence)
    return None if bound is None else Certificate(bound, Evidence.PROCESS_PEAK_SUM)


def _bound_by_group(evidence: RunEvidence) -> Certificate | None:
    conditions, cgroup_swap = evidence.conditions, evidence.cgroup_swap.value
    return tree_bound_by_group(
        evidence.watermark.value if evidence.watermark_read else None,
        evidence.limits,
        error=conditions.charge_error,
        shared=evidence.shared.value,
        outside=evidence.outside.value,
        swapped=evidence.system_swap.value if cgroup_swap is None else cgroup_swap,
        joined=conditions.joined,
    )


def _sums(evidence: RunEvidence) -> SumOverTime | None:
    """Return the bounds of all processes, summed over those that lived at the same time; `None`: not all have one."""
    processes, unseen_max = evidence.processes, evidence.unseen_max_bytes
    if processes.pinned or not _is_bounded(evidence, unseen_max):
        return None
    weight = 0 if unseen_max is None else unseen_max + evidence.conditions.rss_error
    unseen = [] if evidence.unseen is None else [evidence.unseen]
    recent = [processes.span(process) for process in processes.recent()]
    return processes.ended_spans.sum_over_time(weight, [*recent, *unseen])


def tree_bound(evidence: RunEvidence) -> int | None:
    """Return the upper bound of the tree's memory in bytes, from its processes; `None`: no bound can be certified."""
    sums, unseen_max = _sums(evidence), evidence.unseen_max_bytes
    if sums is None:
        return None
    by_processes = sums.largest()
    if not evidence.conditions.exact:
        return by_processes
    weight = 0 if unseen_max is None else unseen_max + evidence.conditions.rss_error
    return int(min(by_processes, evidence.window_bounds.largest(weight, sums.largest)))


def processes_high(evidence: RunEvidence) -> int | None:
    """Return the likely most memory of the processes in bytes, plus memory files and kernel memory at samples.

    If page cache moved, the bound by the cgroup is wide, because cache may hide needed memory. This figure excludes memory files
    and kernel memory that came and went between two samples. `None`: a process has no bound, or the cgroup is not the run's.
    """
    by_processes, beside = tree_bound(evidence), evidence.unmapped.value
    if by_processes is None or beside is None or not evidence.conditions.own_cgroup:
        return None
    by_faults = most_by_faults(evidence.tree_faults, evidence.private.value or 0)
    return (by_processes if by_faults is None else min(by_processes, by_faults)) + beside


def _cgroup(evidence: RunEvidence, *, whole: bool) -> Peak | None:
    """Return the cgroup's high-water mark. `whole`: it could be read up to the end."""
    watermark, conditions = evidence.watermark, evidence.conditions
    if watermark.value is None or watermark.first is None:
        return None
    at, error = conditions.since_start(watermark.at), conditions.charge_error
    own = conditions.own_from_start
    if not whole:
        left = stopped_watermark(watermark.first, watermark.value, error, own=own)
        if left is not None:
            return left._replace(at=at)
        found, at = evidence.needed.value, conditions.since_start(evidence.needed.at)
        return at_least(found, Evidence.CGROUP_LESS_CACHE, Evidence.SAMPLES, at=at) if found else None
    if own:
        gap = evidence.cgroup.most_in_gap
        peak = own_watermark(watermark.value, gap, error, unbroken=conditions.unbroken_watermark)
        return peak._replace(at=at)
    peak = lifetime_watermark(watermark.first, watermark.value, error)
    return peak if peak.certainty is Certainty.CENSORED else peak._replace(at=at)
