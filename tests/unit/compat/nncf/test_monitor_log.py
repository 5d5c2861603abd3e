"""Two-column memory logs: the text to the character, the plot by its content."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from otel_memwatch.compat.nncf import monitor_log
from otel_memwatch.compat.nncf.monitor_log import (
    MemoryCurve,
    curves_of,
    figure,
    parse,
    plot,
    summary,
    text,
    values,
    write,
)
from otel_memwatch.errors import RunError
from otel_memwatch.run import load
from tests.support.recorded import MIB, TREE, record

if TYPE_CHECKING:
    from pathlib import Path


def test_the_text_has_a_line_for_each_sample_and_two_that_sum_it_up() -> None:
    times, memory = values(MemoryCurve([10.0, 10.25, 10.5], [100 * MIB, 300.5 * MIB, 200 * MIB]))
    assert text(times, memory, "MiB") == (
        "0 100.000\n0.25 300.500\n0.5 200.000\nTotal time: 0.5\nMax memory: 300.500 (MiB)"
    )


def test_from_zero_takes_off_the_first_sample_and_may_be_negative() -> None:
    times, memory = values(MemoryCurve([1.0, 2.0], [100 * MIB, 40 * MIB]), "KiB", from_zero=True)
    assert text(times, memory, "KiB").splitlines() == [
        "0 0.000",
        "1.0 -61440.000",
        "Total time: 1.0",
        "Max memory: 0.000 (KiB)",
    ]


@pytest.mark.parametrize(
    ("unit", "divisor"), [("B", 1), ("KiB", 2**10), ("GiB", 2**30), ("KB", 1e3), ("MB", 1e6), ("GB", 1e9)]
)
def test_all_units(unit: str, divisor: float) -> None:
    assert values(MemoryCurve([0.0], [3e9]), unit)[1] == [3e9 / divisor]


def test_no_samples_are_reported_in_words_and_not_drawn(tmp_path: Path) -> None:
    assert values(MemoryCurve([], [])) == ([], [])
    assert (
        text([], [], "MiB")
        == "No measurements recorded.\nPlease make sure logging duration or interval were enough."
    )
    empty = MemoryCurve([], [])
    maxima = write(tmp_path, {"rss": empty, "system": empty})
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "rss_memory_usage.txt",
        "rss_memory_usage_from-zero.txt",
        "system_memory_usage.txt",
        "system_memory_usage_from-zero.txt",
    ]
    assert set(maxima.values()) == {None}
    with pytest.raises(RunError, match="no measurements"):
        plot(tmp_path / "rss_memory_usage.txt", tmp_path / "x.png")


def test_a_log_reads_as_it_was_written() -> None:
    log = parse(text([0, 0.5], [1.25, 2.5], "GB"))
    assert log == monitor_log.Log([0.0, 0.5], [1.25, 2.5], 0.5, 2.5, "GB")


@pytest.mark.parametrize(
    "content",
    [
        "",
        "hello",
        "1 2\n3",
        "0 1\nTotal time: x\nMax memory: 1 (MiB)",
        "0 1 2\nTotal time: 0\nMax memory: 1.0 (MiB)",
    ],
)
def test_what_is_no_log_is_refused(content: str) -> None:
    with pytest.raises(RunError):
        parse(content)


def test_the_plot_is_one_line_with_the_maximum_in_its_title() -> None:
    drawn = figure(parse(text([0, 1.0, 2.0], [1.0, 5.0, 2.0], "MiB")), "rss", "My run")
    (axes,) = drawn.axes
    (line,) = axes.lines
    assert list(line.get_xdata()) == [0, 1, 2]
    assert list(line.get_ydata()) == [1, 5, 2]
    assert axes.get_title() == "My run Max_rss: 5.00 MiB"
    assert axes.get_xlabel() == "Time (seconds)"
    assert axes.get_ylabel() == "Memory Usage (rss, MiB)"
    assert axes.get_legend() is None
    assert tuple(drawn.get_size_inches() * drawn.dpi) == (1000, 600)


def test_eight_files_and_their_maxima(tmp_path: Path) -> None:
    series = {
        "rss": MemoryCurve([0.0, 1.0], [10 * MIB, 90.9 * MIB]),
        "system": MemoryCurve([0.0, 1.0], [1000 * MIB, 1060 * MIB]),
    }
    maxima = write(tmp_path / "logs", series)
    stems = {f"{kind}_memory_usage{suffix}" for kind in ("rss", "system") for suffix in ("", "_from-zero")}
    assert {path.name for path in (tmp_path / "logs").iterdir()} == {
        f"{stem}.{e}" for stem in stems for e in ("txt", "png")
    }
    data = (tmp_path / "logs" / "rss_memory_usage.png").read_bytes()
    assert (int.from_bytes(data[16:20], "big"), int.from_bytes(data[20:24], "big")) == (1000, 600)
    assert summary(maxima) == (
        "\nMemory summary:\n"
        "Memory type    From zero    Peak value\n"
        "-------------  -----------  ------------\n"
        "rss            True         80 MiB\n"
        "rss            False        90 MiB\n"
        "system         True         60 MiB\n"
        "system         False        1060 MiB"
    )


def test_a_long_log_is_drawn_with_every_peak() -> None:
    memory = [float(i % 7) for i in range(100_000)]
    memory[54_321], memory[77_777] = 999.0, -5.0
    (line,) = figure(parse(text([float(i) for i in range(100_000)], memory, "MiB")), "rss").axes[0].lines
    x, y = list(line.get_xdata()), list(line.get_ydata())
    assert len(x) <= 4000
    assert (x[y.index(999.0)], x[y.index(-5.0)]) == (54_321, 77_777)
    assert x == sorted(x)


def test_a_run_s_log_has_regular_samples_of_living_processes(tmp_path: Path) -> None:
    ticks = [
        (0.0, 10.0 * MIB),
        (0.03, 50.0 * MIB),  # an early sample, though not the largest
        (0.1, 20.0 * MIB),
        (0.14, 90.0 * MIB),  # an early sample that alone has the largest value
        (0.2, 15.0 * MIB),
        (0.3, 0.0),  # the process is ending
        (0.31, None),
    ]
    run = load(record(tmp_path / "run", seconds=0.32, series=[TREE], ticks=ticks))
    curve = curves_of(run)["rss"]
    assert list(curve.times) == pytest.approx([0.0, 0.1, 0.14, 0.2])
    assert list(curve.memory) == [10 * MIB, 20 * MIB, 90 * MIB, 15 * MIB]
