"""What is certain about the peaks of a run: from facts folded by the tally to `Peak`s.

The rules, and why they hold:

* A watermark (VmHWM, the maximum that wait4 tells, a control group's) misses nothing; it is exact up to the error of
  the kernel's counters. wait4's covers a process *and* all the descendants that it reaped: it is the target's own
  only where the target's last watermark already reached it, else an upper bound. At or below the launcher's own
  maximum it tells nothing: censored.
* A tree never has more than the sum of the bounds of its processes that live at the same time, and never less than
  its largest process, or its proportional set sizes at one moment. The sum of resident sizes is no lower bound: it
  counts shared pages several times.
* A control group of the run's own counts every page once, page cache included: `charged` bounds how much of its
  watermark, between any two ticks, was not cache.
* All of this holds up to the last look. Where nobody looked at the end (the monitor was killed, the group was taken
  away), whatever could have grown since has a lower bound only: the tree and a control group always, a process unless
  its end was seen, the largest process unless a tick after the target's end found nobody alive.
"""

from __future__ import annotations

from otel_memwatch.analysis.cgroup_bounds import Window, Windows
from otel_memwatch.analysis.maxima import Maximum
from otel_memwatch.analysis.results import Peaks
from otel_memwatch.analysis.stretches import Stretches
from otel_memwatch.model import Certainty, Peak
from otel_memwatch.runtime.typed import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from otel_memwatch.analysis.life import Life
    from otel_memwatch.analysis.process_bounds import Lives
    from otel_memwatch.analysis.run_conditions import Basis
    from otel_memwatch.analysis.tree_bounds import Span

_RECORDED_TO = 0.001
"""Seconds to which a tick's moment is recorded, and some."""
_NEAR_SHARE = 0.02
_NEAR_BYTES = 4 * 1024**2


class Facts:
    """What the tally has folded so far.

    Attributes:
        rss: largest sum of resident sizes.
        pss: largest sum of proportional set sizes.
        stretches: upper bounds from windowed watermarks.
        needed: largest charged memory without file cache, at ticks.
        unmapped: largest charged memory that no process's resident size holds (shared memory files, kernel).
        watermark: of the control group.
        watermark_read: whether the last tick could read it.
        last: monotonic seconds of the last tick.
        windows, least, most: bounds of what the group needed between two ticks; the largest lower and upper one.
        unobserved: upper bound of the processes that no tick saw.
        unseen: those of the last tick, while it is not known what the next one tells of them.

    """

    def __init__(self, basis: Basis, lives: Lives) -> None:
        self.basis = basis
        self.lives = lives
        self.rss, self.pss, self.stretches = Maximum(), Maximum(), Stretches()
        self.needed, self.unmapped = Maximum(), Maximum()
        self.watermark = Maximum()
        self.watermark_read = True
        self.last: float | None = None
        self.windows = Windows(basis.started, basis.charge_error, basis.cpus)
        self.least, self.most = Maximum(), Maximum()
        self.unobserved = 0
        self.unseen: Span | None = None

    def take_window(self, window: Window | None) -> None:
        """Takes in the bounds of a stretch between two ticks."""
        if window is not None:
            self.least.take(window.end, window.low)
            self.most.take(window.end, window.high)

    def needed_bounds(self) -> tuple[Maximum, Maximum]:
        """The largest certain lower bound of what the group needed, and the largest upper bound."""
        least, most = self.least.copy(), self.most.copy()
        for window in self.windows.rest():
            least.take(window.end, window.low)
            most.take(window.end, window.high)
        if self.needed.at is not None:
            least.take(self.needed.at, self.needed.value)
        return least, most


def judge(facts: Facts, *, whole: bool = True) -> Peaks:
    """The peaks of a run; `gpu` is left empty. `whole`: whether it was looked at up to its end."""
    main = _main(facts)
    process = _process(facts, main)
    tree = _tree(facts, main, process)
    if whole:
        return Peaks(main, process, tree, _cgroup(facts, whole=facts.watermark_read))
    return Peaks(
        main,
        process if _all_over(facts) else at_least(process),
        at_least(_told_later(facts, process) or tree),
        _cgroup(facts, whole=False),
    )


def _told_later(facts: Facts, process: Peak | None) -> Peak | None:
    """The largest process, where it told of itself (at its operations' boundaries) after the last tick of the tree."""
    if process is None or process.at is None or facts.last is None or not facts.basis.own_cgroup:
        return None
    later = process.at + facts.basis.started > facts.last + _RECORDED_TO
    return process._replace(how="largest process") if later and process.low else None


def at_least(peak: Peak | None) -> Peak | None:
    """What is left of a peak that may have been exceeded when nobody looked any more; `None`: nothing."""
    if peak is None or peak.certainty is Certainty.SAMPLED:
        return peak
    low = peak.low or 0
    if not low:
        return None
    return Peak.interval(low, None, at=peak.at, pid=peak.pid, operation=peak.operation, how=peak.how)


def _all_over(facts: Facts) -> bool:
    """Whether a tick after the target's end found none of its processes alive: none can have grown after it."""
    main = facts.lives.main
    if main is None or main.end is None or facts.last is None or facts.lives.living:
        return False
    return facts.last >= main.end - _RECORDED_TO


def tree_low(facts: Facts) -> int | None:
    """Bytes that the tree certainly needed so far; `None`: nothing known."""
    largest = facts.lives.largest
    low = largest.low if largest is not None else 0
    if facts.basis.portable:
        low = max(low, facts.rss.value or 0)
    elif facts.basis.own_cgroup and facts.watermark.value is not None:
        needed = facts.needed_bounds()[0].value or min(low, facts.watermark.value)
        low = needed if facts.watermark_read else max(low, needed)
    else:
        low = max(low, facts.pss.value or 0)
    return low or None


def _main(facts: Facts) -> Peak | None:
    """The target's own process. If it never had a descendant, what wait4 told is its own."""
    lives, basis = facts.lives, facts.basis
    if lives.main is None:
        return None
    peak = life_peak(lives.main, basis)
    if peak is None or peak.certainty is not Certainty.INTERVAL or peak.high is None or not _alone(facts):
        return peak
    if basis.floor < lives.attained and lives.attained >= peak.high - basis.rss_error:
        at = basis.since_start(lives.main.end)
        return Peak.exact(lives.attained, basis.rss_error, at=at, pid=lives.main.pid, how="wait4")
    return peak


def _alone(facts: Facts) -> bool:
    """Whether the target is the only process there was."""
    return facts.lives.seen == 1 and not facts.unobserved and not facts.basis.blind


def life_peak(life: Life, basis: Basis, others: int | None = None) -> Peak | None:
    """The peak of one process; `None` when nothing is known of it.

    Args:
        life: the process.
        basis: of the run.
        others: upper bound of a process that ended without one of its own; `None`: there is none.

    """
    low, high, eps = life.low, life.bound, basis.rss_error
    if high is None and life.end is not None and low:
        high = others
    where: dict[str, Any] = {"at": basis.since_start(life.at), "pid": life.pid}
    if high is None:
        if basis.portable and low:
            return Peak.sampled(low, **where, how="resident size at ticks")
        return Peak.interval(low, None, **where, how="VmHWM, last read before its end") if low else None
    high = max(high, low)
    if low and low >= high - eps:
        return Peak.exact(high, eps, **where, how="VmHWM")
    if not low:
        where["at"] = basis.since_start(life.end)
    if high <= basis.floor:
        return Peak.censored(basis.floor, low or None, **where, how="wait4, not above the launcher's own")
    if low:
        return Peak.interval(low, high, **where, how="VmHWM, wait4")
    return Peak.interval(0, high, **where, how="wait4, its descendants included")


def _process(facts: Facts, main: Peak | None) -> Peak | None:
    """The largest single process."""
    lives, eps = facts.lives, facts.basis.rss_error
    if main is not None and _alone(facts):
        return main
    low, where = _largest_seen(facts)
    if facts.basis.blind and lives.attained > max(low, facts.basis.floor):
        return Peak.interval(lives.attained, None, how="wait4")
    if not _covered(facts):
        if facts.basis.portable and low:
            return Peak.sampled(low, **where, how="resident size at ticks")
        return Peak.interval(low, None, **where, how="VmHWM") if low else None
    high = max([low, lives.reaped or 0, *(life.bound or 0 for life in lives.living)])
    if not high:
        return None
    if low >= high - eps:
        return Peak.exact(high, eps, **where, how="VmHWM")
    if high <= facts.basis.floor:
        return Peak.censored(facts.basis.floor, low or None, how="wait4, not above the launcher's own")
    if facts.basis.floor < lives.attained and lives.attained >= high - eps:
        return Peak.exact(high, eps, how="wait4")
    if facts.basis.floor < lives.attained and lives.attained > low:
        low, where = lives.attained, {}
    return Peak.interval(low, high, **where, how="wait4, windows of VmHWM")


def _largest_seen(facts: Facts) -> tuple[int, dict[str, Any]]:
    """The largest maximum that a known process certainly had; when, and which one."""
    largest, late = facts.lives.largest, facts.lives.late
    low, where = 0, {}
    if largest is not None and largest.low:
        low, where = largest.low, {"at": facts.basis.since_start(largest.at), "pid": largest.pid}
    if late is not None and late[1].value > low:
        low, where = late[1].value, {"at": facts.basis.since_start(late[1].time), "pid": late[0]}
    return low, where


def _covered(facts: Facts) -> bool:
    """Whether no process can have had more than what is known: all ended under our eyes, or left word with the kernel."""
    lives = facts.lives
    if facts.basis.blind:
        return False
    if any(not life.final for life in lives.living) or lives.untold:
        return False
    if not lives.vanished and not facts.unobserved:
        return bool(lives.seen)
    main = lives.main
    if facts.unobserved and lives.heedless:
        return False
    return main is not None and main.told and not lives.living and not lives.unreaped


def _tree(facts: Facts, main: Peak | None, process: Peak | None) -> Peak | None:
    if facts.basis.portable:
        rss = facts.rss
        if rss.value is None:
            return None
        return Peak.sampled(
            rss.value, at=facts.basis.since_start(rss.at), how="sum of resident sizes at ticks"
        )
    if facts.basis.own_cgroup and facts.watermark.value is not None and facts.watermark_read:
        return _tree_by_cgroup(facts)
    if main is not None and _alone(facts):
        return main
    return _tree_by_bounds(facts, process)


def _tree_by_cgroup(facts: Facts) -> Peak:
    least, most = facts.needed_bounds()
    high, how = most.value if most.value is not None else facts.watermark.value or 0, "cgroup watermark"
    low, at = min(tree_low(facts) or 0, high), least.at if least.value else facts.watermark.at
    held = tree_bound(facts)
    if held is not None and facts.unmapped.value is not None and held + facts.unmapped.value < high:
        high, how = max(low, held + facts.unmapped.value), "sum of VmHWM and cgroup"
    since = facts.basis.since_start(at)
    if high - low <= near(high, facts.basis):
        return one_figure(low, high)._replace(at=since, how=how)
    return Peak.interval(low, high, at=since, how=f"{how} less page cache")


def one_figure(low: int, high: int) -> Peak:
    """Two bounds of charged memory that are `near`: the figure in the middle, which is the least wrong."""
    return Peak((low + high) // 2, Certainty.EXACT, low, high)


def near(high: int, basis: Basis) -> int:
    """Bytes between two bounds of charged memory up to which they count as one figure."""
    return max(4 * basis.charge_error, int(_NEAR_SHARE * high), _NEAR_BYTES)


def _tree_by_bounds(facts: Facts, process: Peak | None) -> Peak | None:
    low = (process.low or 0) if process is not None else 0
    at, how = (process.at if process is not None else None), "largest process"
    if facts.pss.value is not None and facts.pss.value > low:
        low, at, how = facts.pss.value, facts.basis.since_start(facts.pss.at), "sum of PSS"
    if facts.basis.own_cgroup:  # it could be read for a time
        least, _ = facts.needed_bounds()
        if least.value is not None and least.value > low:
            low, at, how = least.value, facts.basis.since_start(least.at), "cgroup less page cache"
    high = tree_bound(facts)
    if high is not None:
        high = max(high, low)
    if high is not None and high <= low + 2 * facts.basis.rss_error:
        return Peak.exact(max(low, high - facts.basis.rss_error), facts.basis.rss_error, at=at, how=how)
    if not low and high is None:
        return None
    above = ", sum of VmHWM" if high is not None else ""
    return Peak.interval(low, high, at=at, how=how + above)


def tree_bound(facts: Facts) -> int | None:
    """Bytes that the processes of the tree never had together; `None`: no bound can be certified."""
    lives = facts.lives
    if facts.basis.blind:
        return None
    unit = None if facts.unobserved and lives.heedless else lives.unit
    if not lives.seen or (unit is None and (lives.vanished or facts.unobserved)):
        return None
    if any(life.bound is None for life in lives.living):
        return None
    unseen = [] if facts.unseen is None else [facts.unseen]
    sums = lives.past.steps(unit or 0, [*(lives.span(life) for life in lives.present()), *unseen])
    overlap = sums.largest()
    if not facts.basis.exact:
        return overlap
    return int(min(overlap, facts.stretches.largest(unit or 0, sums.largest)))


def _cgroup(facts: Facts, *, whole: bool) -> Peak | None:
    watermark = facts.watermark
    if watermark.value is None:
        return None
    at, batch = facts.basis.since_start(watermark.at), facts.basis.charge_error
    if not whole:
        return _cgroup_at_least(facts)
    if facts.basis.own_cgroup:
        return Peak.exact(watermark.value, batch, at=at, how="cgroup watermark")
    if watermark.first is not None and watermark.value > watermark.first:
        return Peak.exact(
            watermark.value, batch, at=at, how="watermark of the cgroup around it, rose during the run"
        )
    return Peak.censored(watermark.value, how="watermark of the cgroup around it, not reached")


def _cgroup_at_least(facts: Facts) -> Peak | None:
    """Of a group that nobody looked at in the end: its watermark where that is the run's, else what ticks found in it."""
    watermark, needed, since = facts.watermark, facts.needed, facts.basis.since_start
    rose = watermark.first is not None and (watermark.value or 0) > watermark.first
    if watermark.value is not None and (facts.basis.own_cgroup or rose):
        low = max(0, watermark.value - facts.basis.charge_error)
        whose = "cgroup watermark" if facts.basis.own_cgroup else "watermark of the cgroup around it"
        return Peak.interval(low, None, at=since(watermark.at), how=f"{whose}, up to the last tick")
    if needed.value:
        return Peak.interval(needed.value, None, at=since(needed.at), how="cgroup less page cache, at ticks")
    return None
