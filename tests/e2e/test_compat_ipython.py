"""Memory of every cell, in a real IPython and in a real Jupyter kernel."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.programs import environment, need, need_program, run, run_program

need("IPython")

LINE = re.compile(
    r"^In \[(\d+)\] used (-?[\d.]+) MiB RAM in (\d+\.\d\d)s \(system mean cpu (\d+)%, single max cpu (\d+)%\), "
    r"peaked (\d+\.\d) MiB above final usage, current RAM usage now (\d+\.\d) MiB$",
    re.MULTILINE,
)

SESSION = """
import sys
from IPython.core.interactiveshell import InteractiveShell
shell = InteractiveShell.instance(colors="nocolor")
def cell(source):
    result = shell.run_cell(source, store_history=True)
    if result.result is not None: print("value:", repr(result.result))
    return result
"""


def session(cells: str, tmp_path: Path) -> str:
    """Runs lines of Python with `cell(source)` in a process that has a shell."""
    return run_program(SESSION + cells, tmp_path, env=environment(IPYTHONDIR=str(tmp_path / "ipython")))


def lines(output: str) -> list[tuple[int, float, float, float, float]]:
    """Number, used, seconds, peaked, now of each reported cell."""
    return [
        (int(n), float(u), float(s), float(p), float(now)) for n, u, s, _, _, p, now in LINE.findall(output)
    ]


def test_the_session_of_the_document(tmp_path: Path) -> None:
    need("numpy")
    output = session(
        """
cell("%load_ext otel_memwatch")
cell("%imu_start")
cell("import numpy as np")
cell("np.ones(int(1e7));")
cell("a = np.random.random((int(3e3),int(1e3)))")
cell("b = a*2")
cell("a *= 2")
cell("a = np.sqrt(a, out=a)")
cell("a = np.ones(int(1e6)); b = np.ones(int(1e6)); c = np.ones(int(1e6))")
cell("d = a * b + c")
cell("%imu_stop")
cell("pass")
""",
        tmp_path,
    )
    assert output.startswith("Enabling IPython Memory Usage, use %imu_start to begin, %imu_stop to end\n")
    assert "Out[2]: 'IPython Memory Usage started'" in output
    assert "Out[11]: 'IPython Memory Usage stopped'" in output
    cells = {line[0]: line for line in lines(output)}
    assert list(cells) == [2, 3, 4, 5, 6, 7, 8, 9, 10]
    ones, random, times = cells[4], cells[5], cells[6]
    assert ones[3] == pytest.approx(76.3, abs=1.5)
    assert abs(ones[1]) < 2
    assert random[1] == pytest.approx(22.9, abs=4)  # numpy loads more of itself
    assert times[1] == pytest.approx(22.9, abs=1.5)
    assert cells[7][1] == pytest.approx(0, abs=0.5)
    assert cells[7][3] == pytest.approx(0, abs=0.5)
    assert cells[10][1] == pytest.approx(7.6, abs=1)


def test_a2_every_blip_is_seen(tmp_path: Path) -> None:
    output = session(
        """
cell("%load_ext otel_memwatch")
cell("%imu_start")
for _ in range(20): cell("x = bytearray(64 << 20); del x")
""",
        tmp_path,
    )
    peaks = [line[3] for line in lines(output)[1:]]
    assert len(peaks) == 20
    assert all(60.8 <= peak <= 67.2 for peak in peaks), peaks


def test_a14_and_a15_quick_cells_leave_no_threads_and_take_no_time(tmp_path: Path) -> None:
    output = session(
        """
import threading
cell("%load_ext otel_memwatch")
cell("%imu_start")
before = threading.active_count()
for _ in range(15): cell("pass")
print("threads:", threading.active_count() - before)
""",
        tmp_path,
    )
    assert "threads: 0" in output
    assert min(line[2] for line in lines(output)[1:]) < 0.02
    assert [line[1] for line in lines(output)[2:]] == [0.0] * 14


def test_a5_a_child_s_memory_counts(tmp_path: Path) -> None:
    output = session(
        """
cell("%load_ext otel_memwatch")
cell("%imu_start")
cell("import subprocess, sys; other = subprocess.Popen(['sleep', '60'])")
cell("subprocess.run([sys.executable, '-c', 'import time; a = bytearray(400 << 20); time.sleep(1)']);")
cell("other.kill(); other.wait();")
""",
        tmp_path,
    )
    peak = lines(output)[2][3]
    assert peak == pytest.approx(410, rel=0.05)


def test_freeing_failing_and_the_values_as_objects(tmp_path: Path) -> None:
    output = session(
        """
cell("%load_ext otel_memwatch")
from otel_memwatch.compat import ipython as imu
assert imu.last is None and imu.history == []
cell("%imu_start")
cell("x = bytearray(100 << 20)")
cell("del x")
cell("1/0")
cell("this is no python")
last, *_ = imu.history[::-1]
assert imu.last is last and len(imu.history) == 5
grow, free, failed = imu.history[1:4]
assert 99 < grow.memory_delta < 101 and grow.certainty == "exact" and grow.source == "x = bytearray(100 << 20)"
assert -101 < free.memory_delta < -99 and 99 < free.memory_peak < 101
assert failed.failed and last.failed and not free.failed
assert failed.time_delta == failed.seconds and failed.memory_usage * 2**20 == failed.current
text = str(imu.summary())
assert text.splitlines()[1].split()[0] in ("3", "4") and "1/0 (failed)" in text, text
html = imu.summary()._repr_html_()
assert html.count("<tr>") == 6 and "x = bytearray(100 &lt;&lt; 20)" in html, html
cell("%imu_summary")
""",
        tmp_path,
    )
    numbers = [line[0] for line in lines(output)]
    assert numbers == [2, 3, 4, 5, 6, 7]


def test_memwatch_measures_a_statement_or_a_cell_and_gives_its_figures(tmp_path: Path) -> None:
    output = session(
        """
cell("%load_ext otel_memwatch")
result = cell("%memwatch y = bytearray(50 << 20)").result
assert 49 < result.memory_delta < 51 and shell.user_ns["y"], result
result = cell("%%memwatch\\nz = bytearray(80 << 20)\\ndel z\\n").result
assert 79 < result.memory_peak < 81 and abs(result.memory_delta) < 1, result
assert not cell("%memwatch 1/0").success
from otel_memwatch.compat import ipython as imu
assert [c.failed for c in imu.history] == [False, False, True]
assert "memwatch-runs" not in __import__("os").listdir(".")
""",
        tmp_path,
    )
    assert "ZeroDivisionError" in output


def test_it_can_be_started_twice_stopped_unloaded_and_loaded_again(tmp_path: Path) -> None:
    output = session(
        """
cell("%load_ext otel_memwatch")
cell("%imu_start")
cell("%imu_start")
cell("pass")
cell("%imu_stop")
cell("%imu_stop")
cell("%ipython_memory_usage_start")
cell("%ipython_memory_usage_stop")
cell("%imu_start")
cell("%unload_ext otel_memwatch")
cell("pass")
assert not cell("%imu_start").success
assert not [f for fs in shell.events.callbacks.values() for f in fs if "memwatch" in str(getattr(f, "__module__", ""))]
cell("%load_ext otel_memwatch")
cell("%imu_start")
assert not cell("%imu_start nonsense").success
""",
        tmp_path,
    )
    numbers = [line[0] for line in lines(output)]
    assert numbers == [2, 3, 4, 7, 9, 14, 15], "one line for each cell"


def test_perf_counts_events_of_a_cell(tmp_path: Path) -> None:
    need_program("perf", "apt install linux-perf")
    output = session(
        """
cell("%load_ext otel_memwatch")
assert not cell("%imu_start --perf no-such-event").success
cell("%imu_start --perf page-faults")
cell("x = bytearray(40 << 20)")
from otel_memwatch.compat import ipython as imu
(count,) = imu.last.counts
assert count.event == "page-faults" and 10000 < count.value < 30000, count
""",
        tmp_path,
    )
    assert (
        len(re.findall(r"^perf value for page-faults averages to [\d,]+/second$", output, re.MULTILINE)) == 2
    )


def test_perf_that_is_absent_is_told_in_one_sentence(tmp_path: Path) -> None:
    done = run(
        [
            sys.executable,
            "-c",
            SESSION + "cell('%load_ext otel_memwatch'); cell('%imu_start --perf'); cell('pass')",
        ],
        tmp_path,
        env=environment(PATH=str(tmp_path), IPYTHONDIR=str(tmp_path)),
    )
    assert "perf is not installed" in done.stdout + done.stderr
    assert "Traceback" not in done.stdout + done.stderr
    assert lines(done.stdout) == []


def test_a_cell_is_a_span_where_opentelemetry_is_configured(tmp_path: Path) -> None:
    output = session(
        """
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
spans = InMemorySpanExporter()
provider = TracerProvider(); provider.add_span_processor(SimpleSpanProcessor(spans)); trace.set_tracer_provider(provider)
cell("%load_ext otel_memwatch")
cell("%imu_start")
cell("x = bytearray(30 << 20)")
names = [span.name for span in spans.get_finished_spans()]
print(names)
span = spans.get_finished_spans()[-1]
assert span.attributes["memwatch.memory.peak"] > 30 << 20, dict(span.attributes)
""",
        tmp_path,
    )
    assert "In [3]" in output.splitlines()[-1]


def test_outside_ipython_it_is_silent_and_says_what_is_missing(tmp_path: Path) -> None:
    output = run_program(
        """
        import sys
        from otel_memwatch.compat import ipython
        assert "IPython" not in sys.modules
        try: ipython.start_watching_memory()
        except Exception as error: print(error)
        import otel_memwatch
        assert callable(otel_memwatch.load_ipython_extension)
        """,
        tmp_path,
    )
    assert output.startswith("This is no IPython session")
    assert len(output.splitlines()) == 1


def test_the_terminal_ipython(tmp_path: Path) -> None:
    """The program that people type, fed with what they type."""
    script = "%load_ext otel_memwatch\n%imu_start\nx = bytearray(20 << 20)\nexit\n"
    done = subprocess.run(
        [sys.executable, "-m", "IPython", "--no-banner", "--simple-prompt", "--colors=nocolor"],
        input=script,
        cwd=tmp_path,
        env=environment(IPYTHONDIR=str(tmp_path / "ipython")),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    used = [float(u) for u in re.findall(r"In \[3\] used (-?[\d.]+) MiB", done.stdout)]
    assert used[0] == pytest.approx(20, abs=1), done.stdout + done.stderr
    assert not (tmp_path / "memwatch-runs").exists()


@pytest.fixture
def kernel(tmp_path: Path) -> Any:
    manager = need("jupyter_client.manager")
    need("ipykernel")
    made, client = manager.start_new_kernel(
        kernel_name="python3",
        cwd=str(tmp_path),
        env=environment(IPYTHONDIR=str(tmp_path / "ipython"), JUPYTER_PLATFORM_DIRS="1"),
    )
    yield client
    client.stop_channels()
    made.shutdown_kernel(now=False)


@pytest.mark.filterwarnings("ignore")
def test_a_jupyter_kernel(kernel: Any, tmp_path: Path) -> None:
    def execute(source: str) -> tuple[str, dict[str, Any]]:
        """What the cell printed, and its value by media type."""
        printed, value = [], {}

        def hook(message: dict[str, Any]) -> None:
            content = message["content"]
            if message["header"]["msg_type"] == "stream":
                printed.append(content["text"])
            elif message["header"]["msg_type"] in ("execute_result", "display_data"):
                value.update(content["data"])

        reply = kernel.execute_interactive(source, output_hook=hook, timeout=120)
        assert reply["content"]["status"] == "ok", reply["content"]
        return "".join(printed), value

    assert "use %imu_start to begin" in execute("%load_ext otel_memwatch")[0]
    assert execute("%imu_start")[1]["text/plain"] == "'IPython Memory Usage started'"
    printed, _ = execute("x = bytearray(90 << 20); y = 5")
    ((number, used, _, _, _),) = lines(printed)
    assert (number, used) == (3, pytest.approx(90, abs=1))
    printed, _ = execute("import threading; z = bytearray(64 << 20); del z; threading.active_count()")
    assert lines(printed)[0][3] == pytest.approx(64, abs=1)
    _, value = execute("%memwatch bytearray(10 << 20)")
    assert "<table>" in value["text/html"]
    _, value = execute("%imu_summary")
    assert value["text/html"].count("<tr>") == 5
    assert "bytearray(90" in value["text/plain"]
    record, _ = execute("import os, glob, json; print(json.dumps(glob.glob('memwatch-runs/*/run.json')))")
    assert len(json.loads(record.splitlines()[0])) == 1, (
        "while it goes on there is a record that survives the kernel"
    )
    execute("%imu_stop")
