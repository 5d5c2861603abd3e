"""QEfficient's profiler on the new base: its document's examples, and what it used to get wrong."""

from __future__ import annotations

import re
import sys
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from otel_memwatch.compat.qefficient import QEffMemoryProfiler
from tests.support.programs import PROGRAMS, run, run_file

if TYPE_CHECKING:
    from pathlib import Path

COMPAT = PROGRAMS / "compat"

IMPORT = "from otel_memwatch.compat.qefficient import QEffMemoryProfiler\n"


def is_png(path: Path) -> bool:
    data = path.read_bytes()
    width, height = (int.from_bytes(data[i : i + 4], "big") for i in (16, 20))
    return (
        data[:8] == b"\x89PNG\r\n\x1a\n" and abs(width / height - 6600 / 3600) < 0.2
    )  # the margins are cut to the content


def test_quick_start(tmp_path: Path) -> None:
    output = run_file(COMPAT / "qefficient_quick_start.py", tmp_path)
    assert output.startswith(
        "\nQEFFICIENT PERFORMANCE MONITORING REPORT\n" + "=" * 60 + "\nPeak Memory Usage:\n"
    )
    assert "   • Operations:     1\n" in output
    assert float(re.findall(r"Total Write: +([\d.]+) MB", output)[0]) == pytest.approx(20, abs=1)
    assert is_png(tmp_path / "profile.png")
    assert not (tmp_path / "memwatch-runs").exists()


@pytest.mark.quiet  # labels of phases that a busy machine stretches reach beyond the picture, which grows with them
def test_configuration_marks_raw_data_and_integration(tmp_path: Path) -> None:
    output = run_file(COMPAT / "qefficient_configuration.py", tmp_path)
    lines = re.findall(r"^Time: (\S+ \S+), RSS: ([\d.]+) MB$", output, re.MULTILINE)
    times = [datetime.fromisoformat(time) for time, _ in lines]
    sizes = [float(size) for _, size in lines]
    assert len(times) >= 5
    assert times == sorted(times)
    assert times[-1] - times[0] >= timedelta(seconds=0.4), "two pauses of 0.3 s, less an interval at each end"
    assert max(sizes) - sizes[0] == pytest.approx(40, abs=10)
    assert is_png(tmp_path / "my_profile.png")


def test_a3_and_a11_nothing_is_billed_to_a_phase_that_holds_the_interpreter(tmp_path: Path) -> None:
    output = run_file(COMPAT / "qefficient_held_interpreter.py", tmp_path)
    held, gap, delta, allocated = map(float, output.splitlines()[0].split())
    assert gap < held / 2
    assert abs(delta) < 5
    assert allocated == pytest.approx(500, abs=5)
    assert re.search(r"GILhold \([\d.]+s\) \n", output), "no delta worth a mention"


def test_a5_and_a12_a_child_beside_another_and_phases_of_one_name(tmp_path: Path) -> None:
    output = run_file(COMPAT / "qefficient_children.py", tmp_path)
    assert float(output.split()[0]) == pytest.approx(430, rel=0.05)
    first, second = re.findall(r"- Export \(([\d.]+)s\) (.*)", output)
    assert float(first[0]) > 1
    assert float(first[0]) > float(second[0])
    assert first[1] == ""
    assert float(second[1].strip("[+ MB]")) == pytest.approx(100, abs=2)


def test_a13_what_a_reaped_child_wrote_is_no_spike(tmp_path: Path) -> None:
    output = run_file(COMPAT / "qefficient_reaped_child.py", tmp_path)
    rate, written, stored = map(float, output.splitlines()[0].split())
    assert written == pytest.approx(200, abs=3)
    assert rate < 1000, "five MB at a time, not all of it when the child was reaped"
    assert 0 <= stored <= written + 3
    assert re.search(r"Total Write: +200\.\d\d MB", output)


@pytest.mark.thorough
def test_a10_a_long_record_costs_the_program_no_memory(tmp_path: Path) -> None:
    output = run_file(COMPAT / "qefficient_long_record.py", tmp_path)
    assert int(output.splitlines()[0]) < 8 * 1024, "KiB"
    assert int(re.findall(r"Data Points: +(\d+)", output)[0]) > 40_000, output


def test_a6_a_record_remains_when_the_program_is_killed(tmp_path: Path) -> None:
    (tmp_path / "job.py").write_text(
        IMPORT + "import os, signal, time\n"
        "profiler = QEffMemoryProfiler(); profiler.start_monitoring(); profiler.mark_operation('Export')\n"
        "a = bytearray(50 << 20); time.sleep(0.5); os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    assert run([sys.executable, "job.py"], tmp_path).returncode == -9
    (directory,) = (tmp_path / "memwatch-runs").iterdir()
    done = run(
        [sys.executable, "-m", "otel_memwatch", "report", str(directory), "--format", "qefficient"], tmp_path
    )
    assert re.search(r"1\. +-?0\.\ds - Export \(\d\.\ds\)", done.stdout), done.stdout + done.stderr
    assert float(re.findall(r"RSS \(Physical\): ([\d.]+) MB", done.stdout)[0]) > 55


def test_a_second_start_goes_on_behind_the_first(tmp_path: Path) -> None:
    run_file(COMPAT / "qefficient_second_start.py", tmp_path)


def test_a_peak_before_the_first_mark_is_exact(tmp_path: Path) -> None:
    run_file(COMPAT / "qefficient_before_the_mark.py", tmp_path)


def test_any_run_can_be_reported_and_drawn_so(tmp_path: Path) -> None:
    (tmp_path / "job.py").write_text(
        "from otel_memwatch import operation\n"
        "import time\n"
        "with operation('Model Loading'): a, b = bytearray(80 << 20), bytearray(8 << 20); del b; time.sleep(0.3)\n"
        "with operation('Cleanup'): del a; time.sleep(0.2)\n"
    )
    tool = [sys.executable, "-m", "otel_memwatch"]
    done = run([*tool, "wrap", "--out", "r", "--quiet", "--", sys.executable, "job.py"], tmp_path)
    assert done.returncode == 0, done.stderr
    done = run([*tool, "report", "r", "--format", "qefficient"], tmp_path)
    assert done.returncode == 0, done.stderr
    assert re.search(r"1\. +-?0\.\ds - Model Loading \(\d\.\ds\) \[\+(79|80)\.\d MB\]\n", done.stdout), (
        done.stdout
    )
    assert re.search(r"2\. .* - Cleanup \(\d\.\ds\) \[-(79|80)\.\d MB\]\n +3\. .* - Completion", done.stdout)
    assert "   • Peak during:    Model Loading\n" in done.stdout
    done = run([*tool, "plot", "r", "--style", "phases", "-o", "p.png"], tmp_path)
    assert done.returncode == 0, done.stderr
    assert is_png(tmp_path / "p.png")


def test_what_is_not_supported_says_what_to_use() -> None:
    from otel_memwatch.compat import qefficient

    with pytest.raises(NotImplementedError, match="generate_memory_graph"):
        qefficient.QEffMemoryVisualizer(None)
    assert qefficient.ProfilerConfig() == qefficient.ProfilerConfig(0.2, None, False, True, True, True, 1.0)


def test_the_collector_reads_this_moment() -> None:
    """As public harnesses ask it, beside the profiler or without it."""
    from otel_memwatch.compat.qefficient import ProfilerConfig, QEffMemoryProfiler

    collector = QEffMemoryProfiler().metrics_collector
    collector.initialize_cpu_monitoring()
    first, second = collector.collect_sample(), collector.collect_sample()
    assert first.timestamp < second.timestamp
    assert 5 < second.rss_mb < second.vms_mb
    assert second.disk_read_mb >= first.disk_read_mb > 0
    assert collector.get_memory_usage()[0] > 5
    assert len(collector.get_disk_io_stats()) == 4
    assert 0 <= collector.get_cpu_usage() <= 100
    assert collector.config == ProfilerConfig(0.05, "qeff_memory_profile.png")


def test_io_of_a_child_is_counted_in_the_phase_that_waited_for_it(tmp_path: Path) -> None:
    run_file(COMPAT / "qefficient_io_of_phases.py", tmp_path)


def test_the_sample_at_the_stop_belongs_to_the_last_phase() -> None:
    """A page more at the last tick does not make "Completion" the operation of the peak."""
    profiler = QEffMemoryProfiler()
    marked = datetime(2026, 1, 1)
    profiler.operations = [(marked, "Export"), (marked + timedelta(seconds=2), "Completion")]
    assert profiler._operation_at(marked - timedelta(seconds=1)) == "Initialization"
    assert profiler._operation_at(marked + timedelta(seconds=1)) == "Export"
    assert profiler._operation_at(marked + timedelta(seconds=3)) == "Export"
