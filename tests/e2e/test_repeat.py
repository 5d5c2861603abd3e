"""`wrap --repeat`: runs in one directory, until enough is known, and how it ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest


def wrap(tmp_path, *arguments, **more):
    command = [
        sys.executable,
        "-m",
        "otel_memwatch",
        "wrap",
        "--quiet",
        "--no-plot",
        "--no-report",
        *arguments,
    ]
    return subprocess.Popen(
        command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **more
    )


def run(tmp_path, *arguments):
    done = wrap(tmp_path, *arguments)
    out, err = done.communicate(timeout=120)
    return done.returncode, out, err


def test_each_is_a_separate_run_and_what_warms_up_is_not_kept(tmp_path):
    program = "import os; print(len(os.listdir('r'))); assert os.environ.get('OTEL_MEMWATCH_REPEAT') is None"
    code, out, err = run(
        tmp_path,
        "--repeat=2",
        "--warmup=1",
        "--out=r",
        "--budget=process=10GiB",
        "--",
        sys.executable,
        "-c",
        program,
    )
    assert (code, err) == (0, "")
    assert out.split() == ["1", "1", "2"]
    assert sorted(os.listdir(tmp_path / "r")) == ["1", "2"]
    assert (tmp_path / "r" / "2" / "budgets.json").exists()


def test_a_run_that_fails_is_the_last_and_its_code_is_ours(tmp_path):
    program = "import os, sys; sys.exit(4 if len(os.listdir('r')) == 2 else 0)"
    code, _, _ = run(tmp_path, "--repeat=5", "--out=r", "--", sys.executable, "-c", program)
    assert code == 4
    assert sorted(os.listdir(tmp_path / "r")) == ["1", "2"]


def test_a_signal_ends_it_all(tmp_path):
    running = wrap(
        tmp_path,
        "--repeat=5",
        "--out=r",
        "--",
        sys.executable,
        "-c",
        "print(flush=True); import time; time.sleep(60)",
    )
    running.stdout.readline()
    running.send_signal(signal.SIGTERM)
    assert running.wait(30) == -signal.SIGTERM
    assert os.listdir(tmp_path / "r") == ["1"]
    running.communicate()


def test_it_stops_where_more_runs_would_tell_little_more(tmp_path):
    program = "x = bytearray(b'x') * (60 << 20); import time; time.sleep(0.4)"
    code, _, err = run(
        tmp_path, "--repeat=auto", "--cgroup=off", "--out=r", "--", sys.executable, "-c", program
    )
    assert (code, err) == (0, "")
    assert 3 <= len(os.listdir(tmp_path / "r")) <= 20


@pytest.mark.parametrize("option", ["--repeat=0", "--repeat=-1", "--repeat=soon", "--warmup=-1"])
def test_what_is_no_number_is_refused(tmp_path, option):
    code, _, err = run(tmp_path, option, "--", "touch", "started")
    assert (code, os.listdir(tmp_path)) == (2, [])
    assert option.split("=")[0] in err
