"""What the picture shows, asked of its artists; that it is the same for the same run; that it has no side effects."""

from __future__ import annotations

import itertools
import json
from io import BytesIO
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib.collections import LineCollection
from matplotlib.patches import Rectangle

from otel_memwatch.errors import UsageError
from otel_memwatch.model import Column
from otel_memwatch.record.samples import Samples, read_samples
from otel_memwatch.reports import render
from otel_memwatch.reports.lanes import LANES, lay_out
from otel_memwatch.reports.plot import figure, memory
from otel_memwatch.reports.plot.peak import LABEL
from otel_memwatch.reports.plot.series import BUCKETS, line, rates, time_unit
from otel_memwatch.run import RecordedRun, load
from tests.support import recorded
from tests.support.recorded import MIB, closed, opened

if TYPE_CHECKING:
    from pathlib import Path

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

TREE = Column("memwatch.tree.memory.usage")


def drawn(name: str, path: Path) -> tuple[RecordedRun, Figure]:
    run = load(getattr(recorded, name)(path / name))
    return run, figure(run)


def panel(picture: Figure, title: str) -> Axes:
    return next(axes for axes in picture.axes if axes.get_title(loc="left").startswith(title))


def label(picture: Figure) -> Any:
    return next(text for text in panel(picture, "Memory").texts if text.get_gid() == LABEL)


def words(axes: Axes) -> list[str]:
    legend = axes.get_legend()
    return [] if legend is None else [text.get_text() for text in legend.get_texts()]


def image(run: RecordedRun, suffix: str = ".png") -> bytes:
    out = BytesIO()
    render("plot", run, out, suffix=suffix)
    return out.getvalue()


def samples(values: list[float | None], step: float = 0.1, period: float = 0.0) -> tuple[Samples, Column]:
    column = Column("memwatch.tree.memory.usage", (), period)
    numbers = np.array([np.nan if v is None else v for v in values])
    return Samples(np.arange(len(values)) * step, [column], {column: numbers}), column


# -- lines


@pytest.mark.parametrize("ticks", [1, 3, 100, 50_000])
def test_the_line_keeps_the_largest_and_the_smallest_value(ticks: int) -> None:
    rng = np.random.default_rng(ticks)
    values = rng.integers(1, 2**40, ticks).astype(float)
    made = line(*samples(list(values)), 0.1)
    assert made.maximum() == values.max()
    assert np.nanmin(made.value) == values.min()
    assert len(made.time) <= max(ticks, 4 * BUCKETS + 2)
    assert np.all(np.diff(made.time) >= 0)


def test_every_local_peak_of_a_long_run_is_kept_where_it_was() -> None:
    values = np.ones(200_000)
    places = np.arange(500, 200_000, 9_973)
    values[places] = 100 + np.arange(len(places))
    made = line(*samples(list(values)), 0.1)
    assert len(places) == 21
    for place in places:
        at = np.flatnonzero(made.value == values[place])
        assert len(at) == 1
        assert made.time[at[0]] == pytest.approx(place * 0.1)


def test_a_stretch_without_values_is_no_line() -> None:
    made = line(*samples([1.0, 2.0, None, None, 3.0, 4.0]), 0.1)
    assert [None if np.isnan(v) else v for v in made.value] == [1, 2, None, 3, 4]


def test_a_stretch_without_ticks_is_no_line_but_a_missed_tick_is_one() -> None:
    column = TREE
    time = np.array([0.0, 0.1, 0.3, 0.4, 5.0, 5.1])
    made = line(Samples(time, [column], {column: np.arange(6.0)}), column, 0.1)
    assert [None if np.isnan(v) else v for v in made.value] == [0, 1, 2, 3, None, 4, 5]


def test_a_point_without_neighbours_is_not_lost() -> None:
    made = line(*samples([1.0, 1.0, None, 9.0, None, 1.0, 1.0]), 0.1)
    assert list(made.value[made.lonely]) == [9.0]


def test_what_is_read_seldom_is_one_line() -> None:
    values: list[float | None] = [float(i) if i % 10 == 0 else None for i in range(100)]
    assert not np.isnan(line(*samples(values, period=1.0), 0.1).value).any()
    assert not np.isnan(line(*samples(values), 0.1).value).any()


def test_a_gap_of_a_long_run_is_seen() -> None:
    values: list[float | None] = [1.0] * 100_000
    values[40_000:50_000] = [None] * 10_000
    made = line(*samples(values), 0.1)
    gap = np.flatnonzero(np.isnan(made.value))
    assert len(gap) == 1
    assert made.time[gap[0] - 1] < 4000 < 5000 <= made.time[gap[0] + 1] + 1e-6


def test_rates_are_true_over_gaps_and_never_negative() -> None:
    time = np.array([0.0, 1.0, 2.0, 10.0, 11.0])
    steps = rates(time, np.array([0.0, 1.0, 3.0, 11.0, 10.0]), 0.05)
    assert list(steps.rates) == [1.0, 2.0, 1.0, 0.0]
    assert float((steps.rates * np.diff(steps.edges)).sum()) == 11.0


def test_rates_of_a_long_run_add_up_to_its_total() -> None:
    time = np.arange(100_000) * 0.1
    counter = np.cumsum(np.random.default_rng(1).random(100_000))
    steps = rates(time, counter, 0.05)
    assert len(steps.rates) <= BUCKETS // 3 + 2
    assert float((steps.rates * np.diff(steps.edges)).sum()) == pytest.approx(counter[-1] - counter[0])


# -- the memory panel


def test_the_tick_at_the_end_makes_no_additional_step() -> None:
    """Two hundredths of CPU time in 9 ms are no 2.2 cores."""
    time = np.array([0.0, 0.1, 0.2, 0.209])
    steps = rates(time, np.array([0.0, 0.01, 0.02, 0.04]), 0.05)
    assert list(steps.edges) == [0.0, 0.1, 0.209]
    assert steps.maximum() < 0.3


@pytest.mark.parametrize("name", ["short", "workers", "nested", "gpus"])
def test_the_largest_value_drawn_is_the_largest_recorded(name: str, tmp_path: Path) -> None:
    run, picture = drawn(name, tmp_path)
    axes = panel(picture, "Memory")
    scale = {"MiB": MIB, "GiB": 1024 * MIB}[axes.get_title(loc="left").split("(")[1].rstrip(")")]
    shown = next(found for found in axes.get_lines() if found.get_label() == "all processes (RSS)")
    recorded_most = np.nanmax(run.samples().column(TREE.metric))
    assert np.nanmax(shown.get_ydata()) * scale == pytest.approx(recorded_most, abs=1)
    assert axes.get_ylim()[1] * scale > recorded_most


def test_an_exact_peak_is_a_point(tmp_path: Path) -> None:
    _, picture = drawn("short", tmp_path)
    point = next(
        found
        for found in panel(picture, "Memory").get_lines()
        if found.get_marker() == "o" and len(found.get_xdata()) == 1
    )
    assert point.get_xdata()[0] == pytest.approx(250)
    assert point.get_ydata()[0] == pytest.approx(209.4, abs=0.01)
    assert label(picture).get_text() == "peak 209.4 MiB, exact"


def test_an_interval_is_a_bar_between_its_bounds(tmp_path: Path) -> None:
    _, picture = drawn("workers", tmp_path)
    (bar,) = [c for c in panel(picture, "Memory").collections if isinstance(c, LineCollection)]
    (segment,) = bar.get_segments()
    assert segment[:, 1] == pytest.approx([560.2, 655.9], abs=0.01)
    assert segment[:, 0] == pytest.approx([54.9, 54.9])
    assert label(picture).get_text() == "peak 560.2 to 655.9 MiB"


def test_a_lower_bound_is_an_arrow(tmp_path: Path) -> None:
    run = load(recorded.short(tmp_path / "r"))
    only = {"tree": recorded.peak(300, "interval", low=300, at=0.2)}
    run = load(
        recorded.record(tmp_path / "s", seconds=0.35, series=[recorded.TREE], ticks=[(0.1, MIB)], peaks=only)
    )
    picture = figure(run)
    arrow = next(found for found in panel(picture, "Memory").get_lines() if found.get_marker() == "^")
    assert arrow.get_ydata()[0] == pytest.approx(300)
    assert label(picture).get_text() == "peak at least 300.0 MiB"


def test_a_peak_between_two_ticks_is_joined_to_the_curve(tmp_path: Path) -> None:
    run = load(
        recorded.record(
            tmp_path / "s", seconds=1, series=[recorded.TREE], ticks=[(i / 10, 50 * MIB) for i in range(10)],
            peaks={"tree": recorded.peak(300, at=0.5)},
        )
    )  # fmt: skip
    stem = next(found for found in panel(figure(run), "Memory").get_lines() if found.get_linestyle() == ":")
    assert list(stem.get_ydata()) == pytest.approx([50, 300])


@pytest.mark.parametrize("at", [0.0, 0.1, 0.5, 0.97, 1.0])
@pytest.mark.parametrize("limit", [None, 310, 512])
def test_the_label_of_the_peak_covers_no_title_and_leaves_no_edge(
    at: float, limit: int | None, tmp_path: Path
) -> None:
    run = load(
        recorded.record(
            tmp_path / "s", seconds=1, series=[recorded.TREE], ticks=[(i / 10, 300 * MIB) for i in range(11)],
            peaks={"tree": recorded.peak(300, "interval", low=300, high=305, at=at)},
            limits={"cgroup_bytes": None if limit is None else limit * MIB},
        )
    )  # fmt: skip
    picture = figure(run)
    axes = panel(picture, "Memory")
    picture.draw_without_rendering()
    box, room = label(picture).get_window_extent(), axes.get_window_extent()
    assert box.y1 <= room.y1
    assert box.x0 >= room.x0 - 10
    assert box.x1 <= room.x1 + 10
    for other in (*picture.texts, axes.get_legend()):
        assert not box.overlaps(other.get_window_extent())
    if limit is not None:
        line_at = axes.transData.transform((0, limit))[1]
        assert not box.y0 < line_at < box.y1


def test_a_near_limit_is_a_line_and_a_far_one_a_word(tmp_path: Path) -> None:
    _, picture = drawn("nested", tmp_path)
    assert "limit 512.0 MiB" in words(panel(picture, "Memory"))
    axes = panel(picture, "Memory")
    assert axes.get_ylim()[1] > 512
    _, picture = drawn("workers", tmp_path)
    axes = panel(picture, "Memory")
    assert axes.get_ylim()[1] < 1000
    far = load(
        recorded.record(
            tmp_path / "far", seconds=1, series=[recorded.TREE], ticks=[(i / 10, 9 * MIB) for i in range(10)],
            limits={"cgroup_bytes": 64 << 30},
        )
    )  # fmt: skip
    remarks = [text.get_text() for text in panel(figure(far), "Memory").texts]
    assert "off the scale: limit 64.00 GiB" in remarks


def test_a_group_full_of_others_memory_does_not_flatten_the_curve(tmp_path: Path) -> None:
    rows = [(i / 10, 100 * MIB, 90_000 * MIB) for i in range(10)]
    run = load(recorded.record(tmp_path / "r", seconds=1, series=[recorded.TREE, recorded.GROUP], ticks=rows))
    axes = panel(figure(run), "Memory")
    assert axes.get_ylim()[1] < 200
    assert any("cgroup 87.89 GiB" in text.get_text() for text in axes.texts)


def test_the_main_process_is_drawn_where_it_is_not_all(tmp_path: Path) -> None:
    assert "main process" not in words(panel(drawn("short", tmp_path)[1], "Memory"))
    picture = drawn("workers", tmp_path)[1]
    assert {"main process", "shared pages once (PSS)"} <= set(words(panel(picture, "Memory")))


def test_a_sum_that_counts_shared_pages_several_times_says_so(tmp_path: Path) -> None:
    run = load(
        recorded.record(
            tmp_path / "s", seconds=1, series=[recorded.TREE], ticks=[(i / 10, 900 * MIB) for i in range(10)],
            peaks={"tree": recorded.peak(400, "interval", low=400, high=500, at=0.5)},
        )
    )  # fmt: skip
    assert words(panel(figure(run), "Memory")) == [
        "all processes (RSS, shared pages repeated), up to 900.0 MiB"
    ]


@pytest.mark.parametrize("limit", [350, 10_000])
@pytest.mark.parametrize("group", [300, 90_000])
def test_nothing_above_the_panel_covers_anything_else(limit: int, group: int, tmp_path: Path) -> None:
    series = [
        recorded.TREE,
        recorded.MAIN,
        recorded.PSS,
        recorded.GROUP,
        recorded.WORKING_SET,
        recorded.KILLS,
    ]
    rows = [
        (i / 10, 300 * MIB, 99 * MIB, 98 * MIB, group * MIB, (group - 5) * MIB, i // 5) for i in range(10)
    ]
    run = load(
        recorded.record(
            tmp_path / "s", seconds=1, series=series, ticks=rows, peaks={"tree": recorded.peak(150, at=0.5)},
            limits={"cgroup_bytes": limit * MIB}, operations={100: [opened(1, 0.5, "x"), closed(1, 0.501, 5)]},
        )
    )  # fmt: skip
    picture = figure(run)
    picture.draw_without_rendering()
    axes = panel(picture, "Memory")
    boxes = [text.get_window_extent() for text in (*picture.texts, *axes.texts) if text.get_gid() != LABEL]
    boxes += [
        axes.get_legend().get_window_extent(),
        *(o.get_legend().get_window_extent() for o in picture.axes[1:2]),
    ]
    assert len(boxes) > 2
    for place, box in enumerate(boxes):
        assert not any(box.overlaps(other) for other in boxes[place + 1 :])


# -- ending and title


def test_the_title_says_what_ran_and_how_it_ended(tmp_path: Path) -> None:
    _, picture = drawn("nested", tmp_path)
    title, second = (text.get_text() for text in picture.texts[:2])
    assert title.startswith("python train.py --epochs 3")
    assert r"\$dollars\$" in title
    assert "the kernel's OOM killer" in second
    assert any(text.get_text() == "OOM killer" for text in panel(picture, "Memory").texts)
    assert "OOM kill" in words(panel(picture, "Memory"))


def test_a_command_of_any_length_stays_in_the_picture(tmp_path: Path) -> None:
    run = load(
        recorded.record(
            tmp_path / "r", seconds=1, command=["W" * 5000, "\u6f22\u5b57", "$x$", "\x1b[0m", "a_b^c"]
        )
    )
    picture = figure(run)
    picture.draw_without_rendering()
    right = picture.get_size_inches()[0] * picture.dpi
    assert picture.texts
    for text in picture.texts:
        assert text.get_window_extent().x1 <= right


def test_a_good_end_has_no_mark(tmp_path: Path) -> None:
    axes = panel(drawn("short", tmp_path)[1], "Memory")
    assert not any(text.get_rotation() == 270 for text in axes.texts)


@pytest.mark.parametrize(
    ("seconds", "unit"),
    [(0.4, "ms"), (1.0, "s"), (179.0, "s"), (180.0, "min"), (86_400.0, "h"), (1e6, "days")],
)
def test_the_time_axis_has_a_readable_unit(seconds: float, unit: str, tmp_path: Path) -> None:
    scale, name = time_unit(seconds)
    assert name == unit
    run = load(recorded.record(tmp_path / "r", seconds=seconds))
    bottom = figure(run).axes[-1]
    assert bottom.get_xlabel() == f"time since the start ({unit})"
    assert bottom.get_xlim()[1] == pytest.approx(seconds / scale)


def test_a_run_without_any_tick_is_drawn(tmp_path: Path) -> None:
    run = load(recorded.record(tmp_path / "r", seconds=0.0))
    axes = panel(figure(run), "Memory")
    assert any(text.get_text() == "no samples were recorded" for text in axes.texts)
    assert image(run).startswith(b"\x89PNG")


# -- operations


def operations(path: Path, lines: list[dict[str, Any]], seconds: float = 10.0) -> RecordedRun:
    return load(recorded.record(path / "ops", seconds=seconds, operations={100: lines}))


def test_nested_operations_lie_below_those_around_them(tmp_path: Path) -> None:
    lines = [opened(1, 1, "a"), opened(2, 2, "b", 1), closed(2, 3, 5), opened(3, 4, "c", 1), closed(3, 5, 5), closed(1, 6, 5),
             opened(4, 7, "d"), closed(4, 8, 5)]  # fmt: skip
    lanes = lay_out(operations(tmp_path, lines).operations, 0.01)
    assert [(bar.label, bar.lane) for bar in lanes.bars] == [("a", 0), ("d", 0), ("b", 1), ("c", 1)]
    assert lanes.hidden == 0


def test_concurrent_operations_do_not_cover_each_other(tmp_path: Path) -> None:
    lines = [
        opened(1, 1, "a"),
        opened(2, 2, "b"),
        closed(1, 4, 5),
        closed(2, 5, 5),
        opened(3, 4.5, "c"),
        closed(3, 6, 5),
    ]
    lanes = lay_out(operations(tmp_path, lines).operations, 0.01)
    for lane in range(lanes.lanes):
        bars = [bar for bar in lanes.bars if bar.lane == lane]
        assert all(first.end <= second.start for first, second in itertools.pairwise(bars))
    assert lanes.lanes == 2


def test_what_lies_too_deep_is_counted(tmp_path: Path) -> None:
    lines = [opened(n, 1 + n / 100, f"o{n}", n - 1 if n else None) for n in range(10)]
    lines += [closed(n, 9 - n / 100, 5) for n in reversed(range(10))]
    run = operations(tmp_path, lines)
    lanes = lay_out(run.operations, 0.01)
    assert (lanes.lanes, lanes.hidden) == (LANES, 10 - LANES)
    assert any(text.get_text() == f"+{10 - LANES}" for text in figure(run).axes[1].texts)


def test_many_short_operations_become_few_bars_and_none_is_lost(tmp_path: Path) -> None:
    lines = []
    for n in range(3000):
        lines += [opened(n, 1 + n * 0.002, "step" if n != 1500 else "big"), closed(n, 1.0015 + n * 0.002, 5)]
    lanes = lay_out(operations(tmp_path, lines).operations, 0.02)
    assert len(lanes.bars) == 1
    assert lanes.bars[0].number == 3000
    assert lanes.bars[0].label == "3000 operations"
    run = load(
        recorded.record(
            tmp_path / "peak", seconds=10, peaks={"tree": recorded.peak(77, at=4.0)}, processes=recorded.process(100, 0, 10, 80),
            operations={100: [line | ({"peak": 77 * MIB, "low": 77 * MIB, "high": 77 * MIB} if line.get("close") == 1500 else {})
                              for line in lines]},
        )
    )  # fmt: skip
    bars = lay_out(run.operations, 0.02).bars
    assert sum(bar.number for bar in bars) == 3000
    assert [bar.label for bar in bars if bar.sets_peak] == ["big"]


def test_operations_shade_the_memory_and_are_named(tmp_path: Path) -> None:
    _, picture = drawn("nested", tmp_path)
    strip = next(axes for axes in picture.axes if any(text.get_text() == "operations" for text in axes.texts))
    shown = {text.get_text() for text in strip.texts} | set(words(strip))
    assert {"Load", "Read weights", "Check", "Train", "step", "forward", "backward"} <= shown
    shades = [p for p in panel(picture, "Memory").patches if isinstance(p, Rectangle)]
    assert [(p.get_x(), p.get_x() + p.get_width()) for p in shades] == [
        pytest.approx((0.4, 3.0)),
        pytest.approx((3.2, 11.0)),
    ]
    bars = [p for p in strip.patches if isinstance(p, Rectangle)]
    assert len(bars) == 20


# -- GPUs


def test_gpus_have_panels_of_their_own(tmp_path: Path) -> None:
    run, picture = drawn("gpus", tmp_path)
    memory, busy = panel(picture, "GPU memory"), panel(picture, "GPU utilization")
    assert words(memory) == [
        "GPU 0 NVIDIA H200 0b3c...7a10",
        "GPU 1 NVIDIA H200 1b3c...7a11",
        "device memory",
    ]
    used = np.nanmax(run.samples().column("hw.gpu.memory.usage"))
    curves = [found for found in memory.get_lines() if found.get_label().startswith("GPU 0")]
    assert np.nanmax(curves[0].get_ydata()) * 1024 * MIB == pytest.approx(used)
    assert len(busy.get_lines()) == 2
    assert not any(axes.get_title(loc="left").startswith("GPU") for axes in drawn("short", tmp_path)[1].axes)


# -- files


@pytest.mark.parametrize(("suffix", "magic"), [(".png", b"\x89PNG"), (".pdf", b"%PDF"), (".svg", b"<?xml")])
def test_the_same_run_gives_the_same_bytes(suffix: str, magic: bytes, tmp_path: Path) -> None:
    run = load(recorded.nested(tmp_path / "run"))
    first = image(run, suffix)
    assert first.startswith(magic)
    assert first == image(load(tmp_path / "run"), suffix)


def test_names_in_an_svg_are_found_again(tmp_path: Path) -> None:
    import re

    svg = image(load(recorded.nested(tmp_path / "run")), ".svg").decode()
    defined = set(re.findall(r'\bid="([^"]+)"', svg))
    used = set(re.findall(r'href="#([^"]+)"', svg)) | set(re.findall(r"url\(#([^)]+)\)", svg))
    assert used
    assert used <= defined


def test_other_formats_are_refused(tmp_path: Path) -> None:
    run = load(recorded.short(tmp_path / "run"))
    with pytest.raises(UsageError, match="jpg"):
        image(run, ".jpg")
    with pytest.raises(UsageError, match="sparkles"):
        render("plot", run, BytesIO(), style="sparkles")


def test_nobodys_settings_change_it_and_none_are_changed(tmp_path: Path) -> None:
    run = load(recorded.nested(tmp_path / "run"))
    plain = image(run)
    with mpl.rc_context({"axes.facecolor": "black", "text.color": "red", "font.size": 30, "lines.linewidth": 9, "axes.grid": True,
                         "figure.autolayout": True, "savefig.dpi": 10, "xtick.color": "green", "axes.edgecolor": "red",
                         "lines.marker": "x", "axes.labelcolor": "red", "legend.fontsize": 30, "axes.titlecolor": "red",
                         "axes.spines.top": False, "font.family": "serif", "xtick.top": True, "ytick.right": True}):  # fmt: skip
        before = dict(mpl.rcParams)
        styled = image(run)
        assert dict(mpl.rcParams) == before
    assert styled == plain


def test_a_long_run_keeps_its_peak_in_the_picture(tmp_path: Path) -> None:
    run = load(recorded.day(tmp_path / "day", ticks=60_000))
    axes = panel(figure(run), "Memory")
    shown = next(found for found in axes.get_lines() if found.get_label() == "all processes (RSS)")
    assert np.nanmax(shown.get_ydata()) == pytest.approx(3333 / 1024)
    assert len(shown.get_xdata()) <= 4 * BUCKETS + 2


@pytest.mark.parametrize("state", ["finished", "running"])
def test_a_day_is_read_once(state: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """For the lines, for the figures of operations, and for the peaks of a run whose monitor died."""
    path = recorded.nested(tmp_path / "run")
    if state == "running":
        info = json.loads((path / "run.json").read_text())
        (path / "run.json").write_text(json.dumps(info | {"state": state, "ended": None}))
    readings = []

    def counted(*arguments: Any) -> Samples:
        readings.append(arguments)
        return read_samples(*arguments)

    monkeypatch.setattr("otel_memwatch.record.samples.read_samples", counted)
    figure(load(path))
    assert len(readings) == 1


# -- what may be asked for, and what is left out


def owned(path: Path, *, peak: float = 110, more: dict[str, Any] | None = None) -> RecordedRun:
    """A run in a separate group: it needed 100 MiB, its resident sizes add up to 400."""
    file = ("memwatch.cgroup.memory.file", {})
    rows = [(i / 10, 400 * MIB, 120 * MIB, 20 * MIB) for i in range(31)]
    return load(
        recorded.record(
            path, seconds=3, series=[recorded.TREE, recorded.GROUP, file], ticks=rows, own_cgroup="/x",
            peaks={"tree": recorded.peak(peak, at=1.05)}, **(more or {}),
        )
    )  # fmt: skip


@pytest.mark.parametrize(("options", "drawn"), [({}, False), ({"begin": 1.0}, True)])
def test_of_a_long_run_only_what_is_drawn_is_kept(
    options: dict[str, float], drawn: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The windows between ticks take half of a day's memory, and are drawn where ticks are few only."""
    monkeypatch.setattr("otel_memwatch.reports.plot.picture.STEPS", 30)
    run = owned(tmp_path / "r", more={"quality": {"ticks": 31}})
    figure(run, options)  # type: ignore[arg-type]
    names = {column.metric for column in run.record.samples([]).columns}
    assert "memwatch.cgroup.memory.file" in names
    assert (run.record._kept is not None and "memwatch.cgroup.memory.window" in run.record._kept) == drawn


def test_what_was_needed_sets_the_scale_and_the_sum_ends_there(tmp_path: Path) -> None:
    axes = panel(figure(owned(tmp_path / "r")), "Memory")
    assert 110 < axes.get_ylim()[1] < 140
    assert "all processes (RSS, shared pages repeated), up to 400.0 MiB" in words(axes)
    total = next(found for found in axes.get_lines() if str(found.get_label()).startswith("all processes"))
    clip = total.get_clip_box()
    assert clip is not None
    assert clip.y1 == pytest.approx(axes.transData.transform((0, 110))[1], abs=1)


def test_resident_sizes_little_above_the_need_are_drawn_whole(tmp_path: Path) -> None:
    """The line of a Python program vanished where it was 13 % above its need, in a panel with room for it."""
    axes = panel(figure(owned(tmp_path / "r", peak=300)), "Memory")
    assert axes.get_ylim()[1] > 400
    assert "all processes (RSS, shared pages repeated)" in words(axes)


@pytest.mark.parametrize(("spike", "drawn"), [(108, True), (99, False)])
def test_a_spike_between_samples_stands_on_the_curve_and_in_the_legend(
    spike: int, drawn: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Lower bounds below the curve say nothing more: drawn, they looked like a contradiction."""
    ends = [recorded.STARTED + i / 10 for i in range(31)]
    least = [spike * MIB if i == 5 else 90.0 * MIB for i in range(31)]
    windows = SimpleNamespace(certain=lambda: (ends, least))
    monkeypatch.setattr(memory, "TreeSeries", lambda *_, **__: SimpleNamespace(windows=windows))
    axes = panel(figure(owned(tmp_path / "r")), "Memory")
    name = "spike between samples, at least"
    found = [shown for shown in axes.get_lines() if shown.get_label() == name]
    assert len(found) == words(axes).count(name) == drawn
    if drawn:
        known = [(x, y) for x, y in zip(*found[0].get_data(), strict=True) if not np.isnan(y)]
        assert [x for x, _ in known] == pytest.approx([0.4, 0.4, 0.5, 0.5])
        assert [y for _, y in known] == pytest.approx([100, 108, 108, 100])


def test_all_sizes_are_in_one_unit(tmp_path: Path) -> None:
    run = owned(tmp_path / "r", peak=700, more={"limits": {"cgroup_bytes": 1 << 30}})
    picture = figure(run)
    axes = panel(picture, "Memory")
    assert axes.get_title(loc="left") == "Memory (MiB)"
    assert "limit 1024.0 MiB" in words(axes)
    assert label(picture).get_text() == "peak 700.0 MiB, exact"
    assert any("memory needed: 700.0 MiB, exact" in text.get_text() for text in picture.texts)


def test_what_there_was_nothing_of_has_no_panel(tmp_path: Path) -> None:
    titles = [axes.get_title(loc="left") for axes in figure(owned(tmp_path / "r")).axes]
    assert titles == ["Memory (MiB)"]
    busy = [axes.get_title(loc="left").split(" (")[0] for axes in drawn("workers", tmp_path)[1].axes]
    assert busy == ["Memory", "CPU", "I/O"]


def numbered(path: Path, pids: tuple[int, ...]) -> RecordedRun:
    """60 epochs in each of these processes."""
    lines = [
        line
        for n in range(60)
        for line in (opened(n, 0.1 + n * 0.04, f"epoch {n}"), closed(n, 0.13 + n * 0.04, 50))
    ]
    return owned(path, more={"operations": dict.fromkeys(pids, lines)})


def test_numbered_names_are_one_series(tmp_path: Path) -> None:
    strip, _ = figure(numbered(tmp_path / "r", (100,))).axes[1::-1]
    bars = [p for p in strip.patches if isinstance(p, Rectangle)]
    assert len(bars) == 60
    assert len({bar.get_facecolor() for bar in bars}) == 1
    assert words(strip) == ["epoch 0 \u2026 epoch 59"]


def test_lanes_say_whose_they_are(tmp_path: Path) -> None:
    run = numbered(tmp_path / "r", (100, 101, 102))
    strip = figure(run).axes[1]
    assert [t.get_text() for t in strip.texts if t.get_text().startswith("pid")] == [
        "pid 100",
        "pid 101",
        "pid 102",
    ]
    lanes = lay_out(run.operations, 0.0)
    assert all(lanes.owners[bar.lane] == bar.pid for bar in lanes.bars)


def test_dark_paper_has_light_letters(tmp_path: Path) -> None:
    from matplotlib.colors import to_rgb

    picture = figure(numbered(tmp_path / "r", (100,)), {"dark": True})
    assert max(to_rgb(picture.get_facecolor())) < 0.2
    for axes in picture.axes:
        shown = [t for t in (*axes.texts, *axes.get_xticklabels(), *axes.get_yticklabels()) if t.get_text()]
        for text in (*shown, *picture.texts):
            if text.get_gid() != "on-area":
                assert max(to_rgb(text.get_color())) > 0.5, text
    assert image(owned(tmp_path / "s")) == image(load(tmp_path / "s"))  # light ones are as they were


def test_size_and_dots(tmp_path: Path) -> None:
    import struct

    out = BytesIO()
    render("plot", owned(tmp_path / "r"), out, size=(8.0, 5.0), dpi=100)
    assert struct.unpack(">II", out.getvalue()[16:24]) == (800, 500)
    _, picture = drawn("workers", tmp_path)
    small = figure(load(tmp_path / "workers"), {"size": (7.0, 4.0)})
    assert list(small.get_size_inches()) == [7.0, pytest.approx(4.0, abs=0.3)]
    assert picture.get_size_inches()[0] == 12


def test_a_part_of_the_time(tmp_path: Path) -> None:
    run = numbered(tmp_path / "r", (100,))
    picture = figure(run, {"begin": 1.5, "end": 2.5})
    axes = panel(picture, "Memory")
    assert axes.get_xlim() == pytest.approx((1.5, 2.5))
    assert not [text for text in axes.texts if text.get_gid() == LABEL]  # the peak was before
    bars = [p for p in picture.axes[1].patches if isinstance(p, Rectangle)]
    assert 20 < len(bars) < 30
    with pytest.raises(UsageError, match="No samples between"):
        figure(run, {"begin": 5.0})


def test_several_runs_in_one_picture(tmp_path: Path) -> None:
    first, second = owned(tmp_path / "first"), load(recorded.workers(tmp_path / "second"))
    picture = figure(first, {"others": [second], "title": "both"})
    (axes,) = picture.axes
    assert words(axes)[0].startswith("python train.py: 110.0 MiB, exact")
    assert words(axes)[1].startswith("make -j4: 560.2 to 655.9 MiB")
    assert "resident sizes drawn" in words(axes)[1]
    assert axes.get_xlim()[1] == pytest.approx(60)
    stem = next(found for found in axes.get_lines() if found.get_linestyle() == ":")
    assert list(stem.get_ydata()) == pytest.approx([100, 110])
    assert "points are peaks" in [text.get_text() for text in axes.texts] + [axes.get_title(loc="left")]
    assert "both" in [text.get_text() for text in picture.texts]


@pytest.mark.parametrize("name", ["plot", "phases"])
def test_vector_formats_hold_no_pixels(name: str, tmp_path: Path) -> None:
    run = load(recorded.nested(tmp_path / "run"))
    for suffix, pixels in ((".svg", b"<image"), (".pdf", b"/Subtype /Image")):
        out = BytesIO()
        render(name, run, out, suffix=suffix)
        assert pixels not in out.getvalue()


def test_the_lanes_of_a_process_stand_together(tmp_path: Path) -> None:
    main = [
        opened(1, 0.1, "Train"),
        opened(2, 2.0, "Spike", parent=1),
        closed(2, 2.1, 90),
        closed(1, 2.8, 90),
    ]
    worker = [opened(1, 0.5, "Epoch"), closed(1, 2.5, 50)]
    lanes = lay_out(owned(tmp_path / "r", more={"operations": {100: main, 101: worker}}).operations, 0.0)
    assert lanes.owners == (100, 100, 101)
    assert {bar.names[0]: bar.lane for bar in lanes.bars} == {"Train": 0, "Spike": 1, "Epoch": 2}
