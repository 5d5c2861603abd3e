"""The report and the figure of phases."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from otel_memwatch.compat.qefficient.phases import COLOURS, MB, Phase, Timeline
from otel_memwatch.compat.qefficient.phases.figure import TITLE, figure, save
from otel_memwatch.compat.qefficient.phases.phase_report import report

if TYPE_CHECKING:
    from pathlib import Path

PHASES = (
    Phase("Model Loading", 0.5, 2.0, 500 * MB, 100 * MB, 0),
    Phase("Export", 2.5, 70.25, 30 * MB, 0, 20 * MB),
    Phase("Export", 72.75, 5.0, 4 * MB, 0, 1000),
    Phase("My step", 77.75, 1.25, -200 * MB, 5 * MB, 5 * MB),
    Phase("Completion", 79.0, end_mark=True),
)


def timeline(**changes: object) -> Timeline:
    times = [i * 1.0 for i in range(80)]
    values: dict[str, object] = {
        "started": 1.7e9,
        "times": times,
        "rss": [(100 + i) * MB for i in range(80)],
        "vms": [(1000 + i) * MB for i in range(80)],
        "cpu": [50.0 if i % 2 else 10.0 for i in range(80)],
        "read": [i * MB for i in range(80)],
        "written": [2 * i * MB for i in range(80)],
        "read_rate": [MB] * 80,
        "write_rate": [2 * MB] * 80,
        "phases": PHASES,
        "interval": 0.05,
        "peak_rss": 700 * MB,
        "peak_rss_time": 73.0,
        "peak_vms": 1079 * MB,
        "peak_vms_time": None,
    }
    return Timeline(**(values | changes))  # type: ignore[arg-type]


def test_the_report_to_the_character() -> None:
    text = report(timeline())
    assert re.sub(r"at \d\d:\d\d:\d\d", "at HH:MM:SS", text) == (
        "\n"
        "QEFFICIENT PERFORMANCE MONITORING REPORT\n"
        "============================================================\n"
        "Peak Memory Usage:\n"
        "   • RSS (Physical): 700.00 MB at HH:MM:SS\n"
        "   • VMS (Virtual):  1079.00 MB at N/A\n"
        "   • Peak during:    Export\n"
        "\n"
        "Memory Statistics:\n"
        "   • Current RSS:    179.00 MB (Delta: +79.00 MB)\n"
        "   • Current VMS:    1079.00 MB (Delta: +79.00 MB)\n"
        "   • Average RSS:    139.50 MB\n"
        "   • Min/Max RSS:    100.00 / 700.00 MB\n"
        "   • Memory Range:   600.00 MB\n"
        "Disk I/O Statistics:\n"
        "   • Total Read:     79.00 MB\n"
        "   • Total Write:    158.00 MB\n"
        "   • Peak Read Rate: 1.00 MB/s\n"
        "   • Peak Write Rate:2.00 MB/s\n"
        "   • Avg Read Rate:  1.00 MB/s\n"
        "   • Avg Write Rate: 2.00 MB/s\n"
        "\n"
        "Monitoring Info:\n"
        "   • Duration:       79.0 seconds\n"
        "   • Data Points:    80\n"
        "   • Operations:     5\n"
        "   • Sampling Rate:  0.05s\n"
        "\n"
        "QEfficient Operations Timeline:\n"
        "    1.    0.5s - Model Loading (2.0s) [+500.0 MB]\n"
        "    2.    2.5s - Export (70.2s) [+30.0 MB]\n"
        "    3.   72.8s - Export (5.0s) \n"
        "    4.   77.8s - My step (1.2s) [-200.0 MB]\n"
        "    5.   79.0s - Completion  "
    )


def test_large_memory_is_written_in_gb() -> None:
    text = report(timeline(peak_rss=3 * 1024 * MB))
    assert "   • RSS (Physical): 3.00 GB at" in text
    assert "   • VMS (Virtual):  1.05 GB at" in text
    assert "[+0.5 GB]" in text


def test_without_samples_and_with_one() -> None:
    assert report(timeline(times=[])) == "No memory data collected"
    one = report(
        timeline(times=[0.0], rss=[MB], vms=[MB], read=[0], written=[0], peak_rss_time=0.0, phases=())
    )
    assert "Disk I/O" not in one
    assert "   • Peak during:    Initialization" in one
    assert one.endswith("QEfficient Operations Timeline:")


def test_the_figure_shows_memory_with_its_phases_and_its_peak() -> None:
    drawn = figure(timeline())
    memory, cpu, disk, durations = drawn.axes
    assert drawn.get_suptitle() == TITLE
    assert tuple(drawn.get_size_inches()) == (20, 12)
    line = memory.lines[-2]
    assert (line.get_color(), line.get_linewidth(), len(line.get_xdata())) == ("#2E86AB", 3.5, 80)
    marker = memory.lines[-1]
    assert (marker.get_color(), marker.get_markersize(), list(marker.get_ydata())) == ("#E74C3C", 14, [700])
    assert memory.texts[0].get_text() == "Peak: 700.0 MB\nPhase: Export"
    assert memory.get_title() == "Memory Usage Over Time | Peak: 700.0 MB | Duration: 79.0s"
    assert memory.get_xlim() == pytest.approx((0, 79 * 1.02))
    assert memory.get_ylim() == pytest.approx((0, 700 * 1.15))
    assert memory.get_ylabel() == "Memory Usage (MB)"
    legend = memory.get_legend()
    assert legend is not None
    assert legend.get_title().get_text() == "QEfficient Phases"
    assert [t.get_text() for t in legend.get_texts()] == [
        "Model Loading (2.0s)",
        "Export (75.2s)",
        "My step (1.2s)",
    ]
    for axes in (memory, cpu):
        backgrounds = [p for p in axes.patches if p.get_alpha() == 0.15]
        assert [p.get_facecolor()[:3] for p in backgrounds] == [
            _rgb(c) for c in ("#FF6B6B", "#FFEAA7", "#FFEAA7", "#F0F0F0")
        ]
        dashed = [a.get_xdata()[0] for a in axes.lines if a.get_linestyle() == "--"]
        assert dashed == [2.5, 72.75, 77.75, 79.0]
    assert disk.get_legend() is not None
    assert [bar.get_height() for bar in disk.containers[0]] == [100, 0, 5]
    assert [bar.get_height() for bar in disk.containers[1]] == [0, 20, 5]
    assert [t.get_text() for t in disk.get_xticklabels()] == ["Model Loading", "Export", "My step"]
    assert "Total I/O: 105.0 MB read, 25.0 MB write" in [t.get_text() for t in disk.texts]
    assert [bar.get_width() for bar in durations.containers[0]] == [2.0, 70.25, 5.0, 1.25]
    assert {"1m 10.2s", "Total: 78.5s"} <= {t.get_text() for t in durations.texts}
    assert durations.containers[0][0].get_facecolor()[:3] == _rgb(COLOURS["Model Loading"])
    assert durations.containers[0][3].get_facecolor()[:3] == _rgb("#666666")


def test_the_cpu_panel_has_its_average_and_zones() -> None:
    cpu = figure(timeline()).axes[1]
    assert cpu.get_title() == "CPU Usage Over Time | Peak: 50.0% | Average: 30.0%"
    legend = cpu.get_legend()
    assert legend is not None
    assert [t.get_text() for t in legend.get_texts()] == ["CPU Usage", "Average: 30.0%"]
    zones = [p.get_facecolor()[:3] for p in cpu.patches if p.get_alpha() == 0.08]
    assert zones == [_rgb(c) for c in ("#4CAF50", "#FFC107", "#FF9800", "#F44336")]
    assert cpu.get_ylim() == pytest.approx((0, 55))


def test_panels_without_data_say_so() -> None:
    _, cpu, disk, durations = figure(timeline(cpu=[], phases=PHASES[:1])).axes
    assert cpu.texts[0].get_text() == "CPU data not available or not synchronized"
    assert disk.texts[0].get_text() == "No operation phases available"
    quiet = [phase._replace(read=0, written=5, seconds=None) for phase in PHASES]
    _, _, disk, durations = figure(timeline(phases=quiet)).axes
    assert disk.texts[0].get_text() == "No significant disk I/O detected"
    assert disk.get_title() == "Disk I/O per Phase"
    assert durations.texts[0].get_text() == "No timing data available"


def test_names_are_never_formulas_and_the_file_is_a_png(tmp_path: Path) -> None:
    phases = (Phase("cost $x_{$", 0, 5.0, 0, 9 * MB, 0), Phase("Completion", 5, end_mark=True))
    save(timeline(phases=phases), tmp_path / "any.name")
    assert (tmp_path / "any.name").read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"


def _rgb(colour: str) -> tuple[float, ...]:
    return tuple(int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5))
