"""Galaxy's own package of job metrics with our plugin: a job whose shell is ours has what it needed among its metrics."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.wrapped import MIB, PROGRAM, environment

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("galaxy") is None,
    reason="galaxy-job-metrics is not installed: sh tests/run.sh all",
)

TOOL = f"{sys.executable} -S -c 'x = bytearray(200 << 20); import time; time.sleep(0.3)'"


@pytest.fixture
def metrics(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """Galaxy's metrics as a server has them whose folder of plugins has the file that the manual names."""
    import galaxy.job_metrics.instrumenters as folder

    (tmp_path / "memwatch.py").write_text(
        'from otel_memwatch.plugins.galaxy import *\n__all__ = ("MemwatchPlugin",)\n'
    )
    monkeypatch.setattr(folder, "__path__", [*folder.__path__, str(tmp_path)])
    monkeypatch.delitem(sys.modules, f"{folder.__name__}.memwatch", raising=False)
    from galaxy.job_metrics import JobMetrics

    return JobMetrics(conf_dict=[{"type": "hostname"}, {"type": "memwatch"}])


def run_job(metrics: Any, place: Path, shell: str, tool: str) -> tuple[int, dict[str, dict[str, Any]]]:
    """A job as Galaxy runs it: a script with the plugins' commands around the tool's, by the shell of its first line."""
    job = place / "job"
    job.mkdir()
    instrumenter = metrics.default_job_instrumenter
    script = job / "galaxy_1.sh"
    script.write_text(
        f"#!{shell}\ncd {job}\n{instrumenter.pre_execute_commands(str(job))}\n{tool}; code=$?\n"
        f"{instrumenter.post_execute_commands(str(job))}\nexit $code\n"
    )
    script.chmod(0o755)
    done = subprocess.run([script], cwd=job, env=environment(), timeout=60)
    return done.returncode, metrics.collect_properties("local", 1, str(job))


def test_a_job_has_what_it_needed_among_its_metrics(metrics: Any, tmp_path: Path) -> None:
    subprocess.run(
        [*PROGRAM, "shell", "--install", "shells", "--runs", "runs"],
        cwd=tmp_path, env=environment(), check=True, timeout=60,
    )  # fmt: skip
    code, found = run_job(metrics, tmp_path, f"{tmp_path}/shells/bash", f"{TOOL}; (exit 3)")
    assert code == 3
    told = found["memwatch"]
    (run,) = (tmp_path / "runs").iterdir()
    tree = json.loads((run / "run.json").read_text())["peaks"]["tree"]
    assert told["run"] == str(run)
    assert told["memory_bytes"] == tree["bytes"] > 200 * MIB
    assert (told["memory_low_bytes"], told["memory_high_bytes"]) == (tree["low"], tree["high"])
    assert "hostname" in found
    shown = {metric: metrics.format("memwatch", metric, told[metric]) for metric in told}
    assert shown["memory"].title == "Memory needed"
    assert "MiB" in shown["memory"].value
    assert shown["memory_high_bytes"].value.endswith("MiB")


def test_a_job_that_no_process_records_has_none(metrics: Any, tmp_path: Path) -> None:
    code, found = run_job(metrics, tmp_path, shutil.which("bash") or "bash", "true")
    assert code == 0
    assert "memwatch" not in found
    assert "hostname" in found


def test_a_record_that_is_gone_fails_nothing(metrics: Any, tmp_path: Path) -> None:
    job = tmp_path / "job"
    job.mkdir()
    for noted in ("/nowhere/run", "\x00", str(tmp_path)):
        (job / "__instrument_memwatch_run").write_text(noted)
        (tmp_path / "run.json").write_text('{"state": "finished", "peaks"')
        assert "memwatch" not in metrics.collect_properties("local", 1, str(job)), noted
    assert os.listdir(job) == ["__instrument_memwatch_run"]
