"""A real Airflow with the plugin that it finds by its entry point: each task is a run, its log says what it needed."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest

from otel_memwatch.model import Certainty
from otel_memwatch.run import load
from tests.support.wrapped import MIB, environment

pytestmark = [
    pytest.mark.skipif(
        importlib.util.find_spec("airflow") is None, reason="airflow is not installed: sh tests/run.sh all"
    ),
    pytest.mark.timeout(600),
]

DAG = """
import datetime
from airflow.providers.standard.operators.bash import BashOperator
from airflow.sdk import DAG, task

with DAG("memory", schedule=None, start_date=datetime.datetime(2026, 1, 1)):
    shell = BashOperator(
        task_id="shell",
        bash_command="PYTHON -S -c 'x = bytearray(200 << 20); import time; time.sleep(1)'; echo value",
    )

    @task
    def held(text):
        block = bytearray(150 << 20)
        assert text == "value", text
        return len(block)

    @task
    def fails(_):
        raise ValueError("on purpose")

    fails(held(shell.output))
"""


def airflow(place: Path, *arguments: str, **variables: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "airflow", *arguments],
        cwd=place,
        env=environment(
            AIRFLOW_HOME=str(place),
            AIRFLOW__CORE__LOAD_EXAMPLES="False",
            AIRFLOW__CORE__DAGS_FOLDER=str(place / "dags"),
            **variables,
        ),
        capture_output=True,
        text=True,
        timeout=500,
    )
    return done.stdout + done.stderr


def test_each_task_is_a_run_and_its_log_says_what_it_needed(tmp_path: Path) -> None:
    (tmp_path / "dags").mkdir()
    (tmp_path / "dags" / "memory.py").write_text(DAG.replace("PYTHON", sys.executable))
    airflow(tmp_path, "db", "migrate")
    plain = airflow(tmp_path, "dags", "test", "memory")
    assert "otel-memwatch" not in plain, "nobody has asked for it"

    told = airflow(tmp_path, "dags", "test", "memory", OTEL_MEMWATCH_RUNS=str(tmp_path / "runs"))
    assert told.count("otel-memwatch: memory ") == 3
    assert "ValueError: on purpose" in told
    found, own, errors = {}, {}, {}
    for path in (tmp_path / "runs").glob("*/run.json"):
        info = json.loads(path.read_text())
        rule, operations = info["tags"]["rule"], load(path.parent).operations
        found[rule] = info
        own[rule] = [figures.operation.peak for figures in operations]
        errors[rule] = operations[0].operation.error
        assert info["state"] == "finished"
        assert info["tags"]["airflow.dag"] == "memory"
    assert set(found) == {"shell", "held", "fails"}
    (held,), (fails,) = own["held"], own["fails"]
    assert held.certainty is fails.certainty is Certainty.EXACT
    assert errors == {"shell": None, "held": None, "fails": "ValueError"}
    assert held.bytes - fails.bytes == pytest.approx(150 * MIB, abs=15 * MIB)
    # What the operator starts belongs to the task: it was seen at a tick, if no more is known of it.
    assert found["shell"]["peaks"]["tree"]["bytes"] - fails.bytes > 150 * MIB
