"""QEfficient's profiler on the new base: its document's examples, and what it used to get wrong."""

from __future__ import annotations

import re
import sys
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from otel_memwatch.compat.qefficient import QEffMemoryProfiler
from tests.support.programs import run, run_program

if TYPE_CHECKING:
    from pathlib import Path

STAND_IN = """
import time, types, sys

class QEFFAutoModelForCausalLM:
    @classmethod
    def from_pretrained(cls, name):
        made = cls(); made.weights = bytearray(60 << 20); return made
    def export(self): open("model.onnx", "wb").write(b"x" * (20 << 20))
    def compile(self, **settings): time.sleep(0.2)
    def generate(self, prompts): return prompts

module = types.ModuleType("QEfficient")
module.QEFFAutoModelForCausalLM = QEFFAutoModelForCausalLM
sys.modules["QEfficient"] = module
"""

IMPORT = "from otel_memwatch.compat.qefficient import QEffMemoryProfiler\n"


def is_png(path: Path) -> bool:
    data = path.read_bytes()
    width, height = (int.from_bytes(data[i : i + 4], "big") for i in (16, 20))
    return data[:8] == b"\x89PNG\r\n\x1a\n" and abs(width / height - 6600 / 3600) < 0.1


def test_quick_start(tmp_path: Path) -> None:
    output = run_program(
        f"""{STAND_IN}
{IMPORT}
from QEfficient import QEFFAutoModelForCausalLM

# Initialize profiler
profiler = QEffMemoryProfiler(verbose=True)
profiler.start_monitoring()

# Your QEfficient workflow
model = QEFFAutoModelForCausalLM.from_pretrained("meta-llama/Meta-Llama-3-8B-Instruct")
model.export()
model.compile(prefill_seq_len=128, ctx_len=256, num_cores=16)
output = model.generate(prompts=["Hello world"])

# Generate report and visualization
profiler.stop_monitoring()
print(profiler.get_memory_report())
profiler.generate_memory_graph("profile.png")
""",
        tmp_path,
    )
    assert output.startswith(
        "\nQEFFICIENT PERFORMANCE MONITORING REPORT\n" + "=" * 60 + "\nPeak Memory Usage:\n"
    )
    assert "   • Operations:     1\n" in output
    assert float(re.findall(r"Total Write: +([\d.]+) MB", output)[0]) == pytest.approx(20, abs=1)
    assert is_png(tmp_path / "profile.png")
    assert not (tmp_path / "memwatch-runs").exists()


def test_configuration_marks_raw_data_and_integration(tmp_path: Path) -> None:
    output = run_program(
        f"""{IMPORT}
profiler = QEffMemoryProfiler(
    sampling_interval=0.1,           # Sample every 100ms
    output_file="my_profile.png",    # Custom output file
    verbose=False,
    enable_cpu_monitoring=True,      # Monitor CPU usage
    enable_disk_monitoring=True,     # Monitor disk I/O
)
import time
assert profiler.get_memory_report() == "No memory data collected"
assert profiler.get_synchronized_data() == {{}} and profiler.samples == [] and profiler.peak_rss == 0.0
profiler.start_monitoring()
profiler.start_monitoring()
assert profiler.monitoring and profiler.current_operation == "Initialization"
profiler.mark_operation("Custom Operation 1")
a = bytearray(40 << 20); time.sleep(0.3)
profiler.mark_segment("Custom Operation 2")
time.sleep(0.3)
profiler.stop_monitoring()
profiler.stop_monitoring()

# Get synchronized data arrays
data = profiler.get_synchronized_data()
timestamps = data['timestamps']
memory_usage = data['rss_memory']
cpu_usage = data['cpu_usage']
assert set(data) == {{"timestamps", "rss_memory", "vms_memory", "cpu_usage", "disk_read_bytes", "disk_write_bytes",
                     "disk_read_rate", "disk_write_rate"}}
assert len({{len(values) for values in data.values()}}) == 1 and timestamps[0] == 0 and len(timestamps) >= 5
assert memory_usage == profiler.rss_memory and cpu_usage == profiler.cpu_usage
assert 35 < max(memory_usage) - memory_usage[0] < 50
assert all(vms > 5 for vms in profiler.vms_memory)

# Access individual samples
for sample in profiler.samples:
    print(f"Time: {{sample.timestamp}}, RSS: {{sample.rss_mb}} MB")

assert [name for _, name in profiler.operations] == ["Custom Operation 1", "Custom Operation 2", "Completion"]
assert 38 < profiler.operation_memory_deltas["Custom Operation 1"] < 42
assert abs(profiler.operation_memory_deltas["Custom Operation 2"]) < 1
assert set(profiler.operation_durations) == {{"Custom Operation 1", "Custom Operation 2"}}
assert profiler.peak_rss >= max(memory_usage) and profiler.peak_rss_time and profiler.peak_vms_time
assert profiler.peak_operation.startswith("Custom Operation")
assert (profiler.sampling_interval, profiler.output_file, profiler.verbose) == (0.1, "my_profile.png", False)
assert profiler.get_memory_usage()[0] > 40
report = profiler.stop_and_save()
import re
assert re.search(r"Custom Operation 1 .*\\[\\+40\\.\\d MB\\]", report), report
try: QEffMemoryProfiler(nonsense=1)
except TypeError: pass
else: raise SystemExit("an unknown setting was taken")
""",
        tmp_path,
    )
    assert output.count("RSS: ") >= 5
    assert is_png(tmp_path / "my_profile.png")


def test_a3_and_a11_nothing_is_billed_to_a_phase_that_holds_the_interpreter(tmp_path: Path) -> None:
    output = run_program(
        f"""{IMPORT}
import re, time
profiler = QEffMemoryProfiler(sampling_interval=0.05)
profiler.start_monitoring()
profiler.mark_operation("Allocate")
a = bytearray(500 << 20)
profiler.mark_operation("GILhold")
held, length = 0, 24
while held < 1:
    began = time.monotonic(); re.match(r"(a+)+$", "a" * length + "b"); held = time.monotonic() - began; length += 1
profiler.stop_monitoring()
times = profiler.get_synchronized_data()["timestamps"]
print(held, max(b - a for a, b in zip(times, times[1:])), profiler.operation_memory_deltas["GILhold"], profiler.operation_memory_deltas["Allocate"])
print(profiler.get_memory_report())
""",
        tmp_path,
    )
    held, gap, delta, allocated = map(float, output.splitlines()[0].split())
    assert gap < held / 2
    assert abs(delta) < 5
    assert allocated == pytest.approx(500, abs=5)
    assert re.search(r"GILhold \([\d.]+s\) \n", output), "no delta worth a mention"


def test_a5_and_a12_a_child_beside_another_and_phases_of_one_name(tmp_path: Path) -> None:
    output = run_program(
        f"""{IMPORT}
import subprocess, sys, time
other = subprocess.Popen(["sleep", "60"])
profiler = QEffMemoryProfiler()
profiler.start_monitoring()
time.sleep(0.3)
profiler.mark_operation("Export")
subprocess.run([sys.executable, "-c", "import time; a = bytearray(400 << 20); time.sleep(1)"])
profiler.mark_operation("Export")
a = bytearray(100 << 20)
profiler.stop_monitoring()
other.kill(); other.wait()
print(profiler.peak_rss, profiler.peak_operation)
print(profiler.get_memory_report())
""",
        tmp_path,
    )
    assert float(output.split()[0]) == pytest.approx(430, rel=0.05)
    first, second = re.findall(r"- Export \(([\d.]+)s\) (.*)", output)
    assert float(first[0]) > 1
    assert float(first[0]) > float(second[0])
    assert first[1] == ""
    assert float(second[1].strip("[+ MB]")) == pytest.approx(100, abs=2)


def test_a13_what_a_reaped_child_wrote_is_no_spike(tmp_path: Path) -> None:
    output = run_program(
        f"""{IMPORT}
import subprocess, sys, time
profiler = QEffMemoryProfiler()
profiler.start_monitoring()
profiler.mark_operation("Write")
child = "import time; f = open('out', 'wb')\\nfor _ in range(40): f.write(b'x' * (5 << 20)); f.flush(); time.sleep(0.03)"
subprocess.run([sys.executable, "-c", child])
profiler.stop_monitoring()
samples = profiler.samples
print(max(profiler.disk_write_rate), samples[-1].disk_write_mb - samples[0].disk_write_mb, samples[-1].storage_write_mb - samples[0].storage_write_mb)
print(profiler.get_memory_report())
""",
        tmp_path,
    )
    rate, written, stored = map(float, output.splitlines()[0].split())
    assert written == pytest.approx(200, abs=3)
    assert rate < 1000, "five MB at a time, not all of it when the child was reaped"
    assert 0 <= stored <= written + 3
    assert re.search(r"Total Write: +200\.\d\d MB", output)


def test_a10_a_long_record_costs_the_program_no_memory(tmp_path: Path) -> None:
    output = run_program(
        f"""{IMPORT}
import os, re, time
from otel_memwatch.in_target.operations import operation
profiler = QEffMemoryProfiler(sampling_interval=0.05)
profiler.start_monitoring()
profiler.mark_operation("Work")
time.sleep(0.3)
profiler.stop_monitoring()
path = profiler._recording.path / "samples.jsonl"
header, *ticks = path.read_text().splitlines()
began, ended = profiler._windows[0]
profiler._windows[0] = (began, ended + 1e6)
last = ticks[1].partition(",")[2]
with path.open("a") as file:
    for i in range(100_000):
        file.write(f"[{{ended + i * 0.05:.4f}},{{last}}\\n")
def high():
    return int(re.search(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read())[1])
open("/proc/self/clear_refs", "w").write("5")
before = high()
assert profiler.peak_rss > 1
report = profiler.stop_and_save("x.png")
print(high() - before)
print(report)
print(ticks)
""",
        tmp_path,
    )
    assert int(output.splitlines()[0]) < 8 * 1024, "KiB"
    assert int(re.findall(r"Data Points: +(\d+)", output)[0]) > 100_000, output


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
    run_program(
        f"""{IMPORT}
import time
profiler = QEffMemoryProfiler()
for name in ("one", "two"):
    profiler.start_monitoring(); profiler.mark_operation(name); time.sleep(0.2); profiler.stop_monitoring()
assert [name for _, name in profiler.operations] == ["one", "Completion", "two", "Completion"]
assert len(profiler.samples) >= 3 and "two" in profiler.get_memory_report()
""",
        tmp_path,
    )


def test_any_run_can_be_reported_and_drawn_so(tmp_path: Path) -> None:
    (tmp_path / "job.py").write_text(
        "from otel_memwatch import operation\n"
        "import time\n"
        "with operation('Model Loading'): a = bytearray(80 << 20); time.sleep(0.3)\n"
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

    with pytest.raises(NotImplementedError, match="samples"):
        qefficient.MetricsCollector(qefficient.ProfilerConfig())
    with pytest.raises(NotImplementedError, match="generate_memory_graph"):
        qefficient.QEffMemoryVisualizer(None)
    assert qefficient.ProfilerConfig() == qefficient.ProfilerConfig(0.2, None, False, True, True, True, 1.0)


def test_the_sample_at_the_stop_belongs_to_the_last_phase() -> None:
    """A page more at the last tick does not make "Completion" the operation of the peak."""
    profiler = QEffMemoryProfiler()
    marked = datetime(2026, 1, 1)
    profiler.operations = [(marked, "Export"), (marked + timedelta(seconds=2), "Completion")]
    assert profiler._operation_at(marked - timedelta(seconds=1)) == "Initialization"
    assert profiler._operation_at(marked + timedelta(seconds=1)) == "Export"
    assert profiler._operation_at(marked + timedelta(seconds=3)) == "Export"
