"""Memory of every cell, in a real IPython and in a real Jupyter kernel."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.programs import PROGRAMS, environment, need, need_program, run, run_file, run_program

need("IPython")

LINE = re.compile(
    r"^In \[(\d+)\] used (-?[\d.]+) MiB RAM in (\d+\.\d\d)s \(system mean cpu (\d+)%, single max cpu (\d+)%\), "
    r"peaked (\d+\.\d) MiB above final usage, current RAM usage now (\d+\.\d) MiB$",
    re.MULTILINE,
)


def session(name: str, tmp_path: Path) -> str:
    """Runs a program with a shell, whose cells are its `cell(source)`."""
    env = environment(IPYTHONDIR=str(tmp_path / "ipython"))
    return run_file(PROGRAMS / "compat" / f"{name}.py", tmp_path, env=env)


def lines(output: str) -> list[tuple[int, float, float, float, float]]:
    """Number, used, seconds, peaked, now of each reported cell."""
    return [
        (int(n), float(u), float(s), float(p), float(now)) for n, u, s, _, _, p, now in LINE.findall(output)
    ]


def test_the_session_of_the_document(tmp_path: Path) -> None:
    need("numpy")
    output = session("ipython_document", tmp_path)
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
    output = session("ipython_blips", tmp_path)
    peaks = [line[3] for line in lines(output)[1:]]
    assert len(peaks) == 20
    assert all(60.8 <= peak <= 67.2 for peak in peaks), peaks


def test_a14_and_a15_quick_cells_leave_no_threads_and_take_no_time(tmp_path: Path) -> None:
    output = session("ipython_quick_cells", tmp_path)
    assert "threads: 0" in output
    assert min(line[2] for line in lines(output)[1:]) < 0.02
    assert [line[1] for line in lines(output)[2:]] == [0.0] * 14


def test_a5_a_child_s_memory_counts(tmp_path: Path) -> None:
    output = session("ipython_child", tmp_path)
    peak = lines(output)[2][3]
    assert peak == pytest.approx(410, rel=0.05)


def test_the_peak_of_a_child_that_no_sample_saw_counts(tmp_path: Path) -> None:
    session("ipython_short_child", tmp_path)


def test_freeing_failing_and_the_values_as_objects(tmp_path: Path) -> None:
    output = session("ipython_values", tmp_path)
    numbers = [line[0] for line in lines(output)]
    assert numbers == [2, 3, 4, 5, 6, 7]


def test_memwatch_measures_a_statement_or_a_cell_and_gives_its_figures(tmp_path: Path) -> None:
    output = session("ipython_memwatch", tmp_path)
    assert "ZeroDivisionError" in output


def test_it_can_be_started_twice_stopped_unloaded_and_loaded_again(tmp_path: Path) -> None:
    output = session("ipython_started_twice", tmp_path)
    numbers = [line[0] for line in lines(output)]
    assert numbers == [2, 3, 4, 7, 9, 14, 15], "one line for each cell"


def test_perf_counts_events_of_a_cell(tmp_path: Path) -> None:
    need_program("perf", "apt install linux-perf")
    output = session("ipython_perf", tmp_path)
    assert (
        len(re.findall(r"^perf value for page-faults averages to [\d,]+/second$", output, re.MULTILINE)) == 2
    )


def test_perf_that_is_absent_is_reported_in_one_sentence(tmp_path: Path) -> None:
    program = str(PROGRAMS / "compat" / "ipython_perf_absent.py")
    absent = environment(PATH=str(tmp_path), IPYTHONDIR=str(tmp_path))
    done = run([sys.executable, program], tmp_path, env=absent)
    assert "perf is not installed" in done.stdout + done.stderr
    assert "Traceback" not in done.stdout + done.stderr
    assert lines(done.stdout) == []


def test_a_cell_is_a_span_where_opentelemetry_is_configured(tmp_path: Path) -> None:
    output = session("ipython_spans", tmp_path)
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

    assert "use %imu_start to begin" in execute("%load_ext otel_memwatch.compat.ipython")[0]
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
