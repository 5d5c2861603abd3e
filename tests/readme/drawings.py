"""A drawing for each rule of certainty, as SVG; what it says of a peak is what the rule says of the numbers that are drawn."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from html import escape

from otel_memwatch.model import Peak
from otel_memwatch.text import peak_sentence
from otel_memwatch.truth import partial_records
from otel_memwatch.truth.cgroup import lifetime_watermark, tree_around_cgroup, tree_from_cgroup
from otel_memwatch.truth.cgroup_windows import needed_between_samples
from otel_memwatch.truth.faults import certainly_there, family_there, gained, own_pages, tree_kept
from otel_memwatch.truth.operation import no_more_than, part_of_tree
from otel_memwatch.truth.outside_faults import is_outside_ledger, shared_at_tick
from otel_memwatch.truth.process import process_peak
from otel_memwatch.truth.processes import largest_process, unseen_max
from otel_memwatch.truth.ranks import sum_at_one_instant
from otel_memwatch.truth.tree import tree_bound_by_group, tree_of_processes

MIB = 1 << 20
ERROR = MIB // 4
"""Bytes by which the kernel's counters of a process may be off, in the examples."""

WIDTH, LEFT, RIGHT, TOP, BOTTOM = 760, 64, 290, 18, 34
STYLE = """
text{font:13px system-ui,sans-serif;fill:#333}.small{font-size:12px;fill:#666}.said{font-weight:600}
.axis{stroke:#888;fill:none}.true{stroke:#1b7f79;stroke-width:2;fill:none}.kept{stroke:#c2571a;stroke-width:2;stroke-dasharray:6 4;fill:none}
.tick{fill:#333}.band{fill:#1b7f79;opacity:.18}.box{fill:#1b7f79;opacity:.25}.other{fill:#c2571a;opacity:.25}.edge{stroke:#888;stroke-dasharray:2 4}
@media(prefers-color-scheme:dark){text{fill:#ddd}.small{fill:#aaa}.tick{fill:#ddd}}
"""


class Drawing:
    """Memory over time: x from 0 to 10, y in MiB."""

    def __init__(self, top: float, height: int = 190) -> None:
        self.top = top
        self.height = height
        self.parts: list[str] = []
        base = height - BOTTOM
        self.parts.append(f'<path class="axis" d="M{LEFT} {TOP}V{base}H{WIDTH - RIGHT}"/>')
        self.text(0, 0, "time", dy=16)
        self.parts.append(f'<text class="small" x="4" y="{TOP + 10}">memory</text>')

    def at(self, x: float, y: float) -> tuple[float, float]:
        """Where a moment and a size are in the picture."""
        across = LEFT + x / 10 * (WIDTH - LEFT - RIGHT)
        up = self.height - BOTTOM - y / self.top * (self.height - TOP - BOTTOM)
        return round(across, 1), round(up, 1)

    def line(self, points: Sequence[tuple[float, float]], kind: str = "true") -> Drawing:
        """What memory was ("true"), or what the kernel keeps of it ("kept")."""
        shown = " ".join("{},{}".format(*self.at(*point)) for point in points)
        self.parts.append(f'<polyline class="{kind}" points="{shown}"/>')
        return self

    def ticks(self, points: Sequence[tuple[float, float]]) -> Drawing:
        """What looks saw."""
        for point in points:
            x, y = self.at(*point)
            self.parts.append(f'<circle class="tick" cx="{x}" cy="{y}" r="3.5"/>')
        return self

    def band(self, low: float, high: float, begin: float = 0, end: float = 10) -> Drawing:
        """Where the truth is."""
        return self.box(begin, low, end, high, "band")

    def box(self, x1: float, y1: float, x2: float, y2: float, kind: str = "box", words: str = "") -> Drawing:
        """A part of memory, or a process's life with what it can have had."""
        (left, bottom), (right, top) = self.at(x1, y1), self.at(x2, y2)
        size = f'width="{right - left:.1f}" height="{bottom - top:.1f}"'
        self.parts.append(f'<rect class="{kind}" x="{left}" y="{top}" {size}/>')
        if words:
            down = (top + bottom) / 2 + 4 if bottom - top > 16 else top - 4
            self.parts.append(f'<text class="small" x="{left + 6}" y="{down:.1f}">{escape(words)}</text>')
        return self

    def text(
        self, x: float, y: float, words: str, *, dx: float = 0, dy: float = 0, kind: str = "small"
    ) -> Drawing:
        """Words beside a point."""
        left, up = self.at(x, y)
        self.parts.append(
            f'<text class="{kind}" x="{left + dx:.1f}" y="{up + dy:.1f}">{escape(words)}</text>'
        )
        return self

    def edge(self, x: float, words: str = "") -> Drawing:
        """A moment."""
        (left, top), (_, base) = self.at(x, self.top), self.at(x, 0)
        self.parts.append(f'<path class="edge" d="M{left} {top}V{base}"/>')
        return self.text(x, 0, words, dx=3, dy=16) if words else self

    def said(self, y: float, *lines: str) -> Drawing:
        """What follows, to the right."""
        for number, words in enumerate(lines):
            self.text(10, y, words, dx=10, dy=16 * number, kind="said" if number == 0 else "small")
        return self

    def svg(self, title: str) -> str:
        """The whole picture."""
        head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {self.height}" role="img">'
        return f"{head}<title>{escape(title)}</title><style>{STYLE}</style>{''.join(self.parts)}</svg>\n"


def words_of(peak: Peak | None) -> str:
    """A peak as the program says it, without where it comes from."""
    return peak_sentence(peak, source=False)


def watermark() -> Drawing:
    """A spike between two looks, and the watermark that has it."""
    true = [(0, 20), (2, 60), (4.3, 60), (4.6, 180), (4.9, 60), (10, 60)]
    kept = [(0, 20), (2, 60), (4.3, 60), (4.6, 180), (10, 180)]
    drawn = (
        Drawing(200)
        .line(true)
        .line(kept, "kept")
        .ticks([(0.5, 30), (2.5, 60), (4, 60), (5.5, 60), (7, 60), (8.5, 60)])
    )
    return drawn.said(180, "the kernel's watermark: 180 MiB").said(60, "what looks saw: 60 MiB")


def process() -> Drawing:
    """The last reading reaches what wait4 reports at the end."""
    peak = process_peak(300 * MIB - MIB // 8, 300 * MIB, ERROR, 12 * MIB)
    drawn = (
        Drawing(340)
        .line([(0, 10), (3, 120), (5, 300), (7, 200), (9, 200)])
        .line([(0, 10), (3, 120), (5, 300), (9, 300)], "kept")
    )
    drawn.ticks([(2, 83), (4, 210), (6, 300), (8, 300)]).edge(9, "its end")
    return drawn.said(300, words_of(peak), "VmHWM at the last look: 300", "wait4 at the end: 300")


def process_unknown() -> Drawing:
    """The last reading is far below what wait4 reports: it may have been a child's."""
    peak = process_peak(5 * MIB, 300 * MIB, ERROR, 1 * MIB)
    drawn = (
        Drawing(340)
        .band(5, 300)
        .line([(0, 5), (8, 5)])
        .ticks([(2, 5), (4, 5), (6, 5), (8, 5)])
        .edge(9, "its end")
    )
    return drawn.said(300, words_of(peak), "wait4: 300, its own or a child's").said(5, "VmHWM at looks: 5")


def floor() -> Drawing:
    """wait4's figure is not above what the launcher had."""
    peak = process_peak(0, 12 * MIB, ERROR, 12 * MIB)
    drawn = (
        Drawing(20, 150)
        .band(0, 12)
        .box(0, 0, 2, 12, "other", "launcher: 12")
        .edge(2, "exec")
        .line([(2, 3), (6, 5), (8, 5)])
    )
    return drawn.said(12, words_of(peak), "wait4: 12, which the process", "inherits from its launcher")


def before() -> Drawing:
    """A watermark from before the run says nothing of it."""
    peak = lifetime_watermark(900 * MIB, 900 * MIB, ERROR)
    drawn = (
        Drawing(1000)
        .line([(0, 100), (1.5, 900), (3, 50), (10, 120)])
        .line([(0, 100), (1.5, 900), (10, 900)], "kept")
    )
    return (
        drawn.band(0, 900, 4)
        .edge(4, "the run begins")
        .said(900, words_of(peak), "the watermark did not rise in the run")
    )


def unseen() -> Drawing:
    """A compiler between two looks is bounded by what wait4 hands on."""
    bound = unseen_max(
        300 * MIB, 0, unreaped=False, unreported_reset=False, latest_start=None, oldest_alive=None
    )
    assert bound == 300 * MIB
    drawn = (
        Drawing(400)
        .box(4.2, 0, 5.6, 300, "other", "cc")
        .box(0, 0, 9, 30, "box", "make")
        .ticks([(1, 30), (4, 30), (7, 30)])
    )
    drawn.edge(9, "make's end")
    return drawn.said(
        300,
        "who was not seen: no more than 300 MiB",
        "make waited for cc, we waited for make:",
        "the figure is handed on",
    ).said(30, "no look met cc")


def largest() -> Drawing:
    """One process had it; which one is unknown."""
    peak = largest_process(30 * MIB, 300 * MIB, 300 * MIB, ERROR, 12 * MIB, at=None, pid=None)
    drawn = Drawing(400).box(4.2, 0, 5.6, 300, "other", "?").box(0, 0, 9, 30, "box", "make")
    return drawn.said(300, words_of(peak), "wait4: somebody had 300,", "and nobody can have had more")


def unwatched() -> Drawing:
    """A process that /proc hides may have hidden children of any number."""
    peak = largest_process(2 * MIB, None, 200 * MIB, ERROR, 1 * MIB, at=None, pid=None, unwatched=True)
    drawn = Drawing(300).box(0, 0, 9, 2, "box").box(3, 0, 6, 200, "other", "hidden").band(200, 300)
    return drawn.said(200, words_of(peak), "wait4 told of 200; others may", "have been hidden beside it")


def group() -> Drawing:
    """The watermark of the run's own group, less the page cache that it can have held."""
    low, high = needed_between_samples(
        502 * MIB,
        502 * MIB,
        file_before=2 * MIB,
        file=2 * MIB,
        locked=0,
        moved=0,
        reset_gap=None,
        error=MIB // 2,
        cpus=2,
    )
    assert low is not None
    assert high is not None
    peak = tree_from_cgroup(low, high)
    drawn = (
        Drawing(600)
        .line([(0, 40), (3, 300), (5, 502), (6, 250), (10, 250)])
        .line([(3, 502), (7, 502)], "kept")
    )
    drawn.edge(3, "a look").edge(7, "the next").ticks([(3, 300), (7, 250)])
    return drawn.said(
        502,
        words_of(peak),
        "watermark between the looks: 502",
        "page cache before and after: 2",
        "read and written meanwhile: 0",
    )


def group_cache() -> Drawing:
    """It is unknown how much of the watermark was cache at that moment."""
    low, high = needed_between_samples(
        140 * MIB,
        140 * MIB,
        file_before=0,
        file=40 * MIB,
        locked=0,
        moved=40 * MIB,
        reset_gap=None,
        error=0,
        cpus=2,
    )
    assert low is not None
    assert high is not None
    peak = tree_from_cgroup(low, high)
    drawn = (
        Drawing(170)
        .band(100, 140)
        .line([(0, 60), (3, 60), (5, 140), (10, 110)])
        .edge(3, "a look")
        .edge(7, "the next")
    )
    return drawn.said(
        140, words_of(peak), "watermark 140, of which up to 40", "may have been a file just read"
    )


def left() -> Drawing:
    """A process that was outside of the group."""
    peak = tree_around_cgroup(300 * MIB, 320 * MIB, 1 * MIB)
    drawn = Drawing(400).box(0, 0, 10, 6, "box").box(3, 0, 6, 313, "other", "moved itself out")
    return drawn.said(313, words_of(peak), "never exact: the group did not", "have all of the run").said(
        6, "the group's watermark"
    )


def there_at_once() -> Drawing:
    """What two processes certainly had at one moment, though they were read one after the other."""
    first = certainly_there(200 * MIB, 4 * MIB)
    second = certainly_there(100 * MIB, 1 * MIB)
    drawn = (
        Drawing(340)
        .box(0, 0, 10, 196, "box", "first: 200 held, 4 of them new")
        .box(0, 196, 10, 295, "other", "second: 100 held, 1 new")
    )
    drawn.edge(4, "all read once").edge(6, "all read again")
    return drawn.said(
        295,
        f"at least {(first + second) // MIB} MiB",
        "less what page faults can have",
        "brought between the readings",
    )


def own_of_workers() -> Drawing:
    """What forked workers have beyond the least that they were read with, beside all of their parent's."""
    own = own_pages(71 * MIB, 47 * MIB, 0)
    low = family_there(47 * MIB, 3 * own)
    drawn = Drawing(190).box(0, 0, 10, 47, "box", "the parent's 47, which all four map")
    for number in range(3):
        drawn.box(4, 47 + 24 * number, 10, 71 + 24 * number, "other", "a worker has 24 more")
    drawn.edge(2, "first look: 47 each").edge(7, "now: 71 each")
    return drawn.said(119, f"at least {low // MIB} MiB", "a fork gives its pages at birth", "and never again")


def overlap() -> Drawing:
    """The sum of the bounds of processes whose lives overlap."""
    drawn = (
        Drawing(330)
        .box(0, 0, 4, 100, "box", "at most 100")
        .box(3, 100, 7, 200, "other", "at most 100")
        .box(6, 0, 10, 100, "box", "at most 100")
    )
    return drawn.band(0, 200).said(200, "no more than 200 MiB", "never were three alive at once")


def ledger() -> Drawing:
    """A pool of forked workers: page faults count each page once."""
    faults = 4 * 10 * MIB // 4096
    most = tree_kept(100 * MIB, gained(faults), 540 * MIB)
    drawn = Drawing(600).box(0, 0, 10, 100, "box", "before the forks: 100, in all five")
    for number in range(4):
        drawn.box(3, 100 + 10 * number, 10, 110 + 10 * number, "other")
    drawn.line([(0, 100), (3, 100), (3.2, 500), (10, 540)], "kept").edge(3, "four forks")
    return drawn.said(540, "sum of resident sizes: 540").said(
        170, f"no more than {most // MIB} MiB", "100, and 10 240 faults of 4 KiB"
    )


def outside() -> Drawing:
    """Memory that came without a page fault."""
    assert is_outside_ledger(10 * MIB, 80 * MIB, gained(200), ERROR)
    drawn = Drawing(110).line([(0, 10), (4.5, 10), (4.6, 80), (10, 80)]).ticks([(4, 10), (6, 80)])
    return drawn.said(80, "the ledger is not used", "70 MiB more, and 200 faults", "can bring 0.8")


def shared() -> Drawing:
    """Shared memory that several processes map."""
    had = shared_at_tick(320 * MIB, 88 * MIB, 80 * MIB)
    drawn = Drawing(340).box(0, 0, 10, 80, "box", "the pages, once")
    for number in range(1, 4):
        drawn.box(0, 80 * number, 10, 80 * number + 80, "other", "mapped again")
    return drawn.said(320, "mapped: 320").said(
        88, f"counted: {had // MIB} MiB", "no more than all that the", "machine has of it"
    )


def narrow() -> Drawing:
    """Two bounds that are near, and what neither of them has."""
    peak = tree_of_processes(169 * MIB, 170 * MIB)
    drawn = Drawing(220).band(169, 170).line([(0, 30), (4, 120), (6, 169.5), (8, 100), (10, 90)])
    return drawn.said(170, words_of(peak), "at least 169.0, no more than 170.0")


def around() -> Drawing:
    """The limit of a group that others are in too."""
    bound = tree_bound_by_group(
        None, (200 * MIB, 200 * MIB), error=MIB, shared=0, outside=0, swapped=0, joined=False
    )
    assert bound is not None
    drawn = Drawing(1100).box(0, 0, 10, 50, "box", "20 programs of 50 MiB, one after the other")
    drawn.line([(0, 1000), (10, 1000)], "kept").line([(0, 200), (10, 200)], "kept")
    return drawn.said(1000, "sum of what none exceeded: 1 000").said(
        260, f"at most {bound.bytes // MIB} MiB", "the container's limit, to its error"
    )


def operation() -> Drawing:
    """The watermark is started anew at each boundary."""
    drawn = Drawing(260).line([(0, 40), (2, 40), (2.5, 200), (3, 60), (5, 60), (6, 120), (8, 120), (10, 120)])
    drawn.line([(0, 40), (2, 40)], "kept").line([(2, 40), (2.5, 200), (5, 200)], "kept").line(
        [(5, 60), (6, 120), (8, 120)], "kept"
    )
    drawn.edge(2, "Load").edge(5, "Train").edge(8, "")
    return drawn.said(200, "Load: 200 MiB, exact").said(
        120, "Train: 120 MiB, exact", "a new watermark at each boundary,", "by the process itself"
    )


def part() -> Drawing:
    """No part of the run needed more than the whole."""
    gib = 1024 * MIB
    peak = no_more_than(Peak.interval(gib, int(1.87 * gib)), Peak.interval(gib, int(1.22 * gib)))
    drawn = (
        Drawing(2)
        .band(1.0, 1.22, 3, 6)
        .box(3, 1.22, 6, 1.87, "other", "not possible")
        .line([(0, 1.22), (10, 1.22)], "kept")
    )
    drawn.edge(3, "Train").edge(6, "")
    return drawn.said(1.87, "Train by itself: up to 1.87 GiB").said(
        1.22, words_of(peak), "the run: up to 1.22 GiB"
    )


def moment() -> Drawing:
    """The operation certainly had the run's lower bound: both have the same figure."""
    whole, part = Peak.exact(496 * MIB, 2 * MIB), Peak.interval(494 * MIB, 540 * MIB)
    peak = part_of_tree(part, whole)
    drawn = (
        Drawing(600)
        .line([(0, 60), (3, 200), (5, 496), (6, 250), (10, 250)])
        .band(494, 540, 3, 7)
        .edge(3, "Sort")
        .edge(7, "")
    )
    return drawn.said(
        496,
        words_of(peak),
        "Sort by itself: between 494 and 540",
        "the run, at its worst in Sort: 496, exact",
    )


def together() -> Drawing:
    """The peaks of two ranks were at different times: what counts is the largest sum at one instant."""
    peak = sum_at_one_instant(399 * MIB, 401 * MIB, 400 * MIB)
    drawn = (
        Drawing(520)
        .line([(0, 50), (3, 300), (4, 100), (10, 100)])
        .line([(0, 50), (4, 100), (6, 300), (10, 290)])
        .line([(0, 100), (3, 375), (4, 200), (6, 400), (10, 390)], "kept")
        .band(380, 420, 5.7, 6.3)
    )
    return drawn.said(405, words_of(peak), "each had 300, but not at once;", "clocks leave 399 to 401 open")


def stopped() -> Drawing:
    """The recording stopped before the run did."""
    peak = partial_records.stopped(Peak.exact(500 * MIB))
    drawn = (
        Drawing(700)
        .line([(0, 50), (3, 500), (5, 300), (6, 300)])
        .ticks([(1, 200), (3, 500), (5, 300)])
        .edge(6, "kill -9 of the monitor")
    )
    return drawn.band(500, 700, 6).said(
        500, words_of(peak), "a lower bound stays true,", "an upper bound does not"
    )


DRAWINGS: dict[str, Callable[[], Drawing]] = {
    one.__name__.replace("_", "-"): one
    for one in (
        watermark, process, process_unknown, floor, before, unseen, largest, unwatched, group, group_cache, left, there_at_once,
        own_of_workers, overlap, ledger, outside, shared, narrow, around, operation, part, moment, together, stopped,
    )
}  # fmt: skip


def pictures() -> dict[str, str]:
    """Each drawing's file name and text."""
    return {f"{name}.svg": make().svg((make.__doc__ or "").strip()) for name, make in DRAWINGS.items()}
