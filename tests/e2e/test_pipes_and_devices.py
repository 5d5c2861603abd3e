"""Pipes, devices and broken files named as input or output: one sentence and the documented exit code, never a wait without end."""

from __future__ import annotations

import os
import subprocess
import threading

import pytest

from tests.support.wrapped import PROGRAM, environment

TIMEOUT = 40


def run(*argv, **variables):
    done = subprocess.run(
        [*PROGRAM, *map(str, argv)], env=environment(**variables), capture_output=True, text=True, timeout=TIMEOUT
    )  # fmt: skip
    assert "Traceback" not in done.stderr
    return done


@pytest.fixture
def fifo(tmp_path):
    os.mkfifo(tmp_path / "fifo")
    return tmp_path / "fifo"


def wrap(tmp_path, *options, **variables):
    return run(
        "wrap",
        "--quiet",
        "--no-report",
        "--out",
        tmp_path / "run",
        *options,
        "--",
        "sh",
        "-c",
        "exit 7",
        **variables,
    )


@pytest.mark.parametrize("option", ["--summary-file", "--termination-log"])
def test_an_output_pipe_that_no_process_reads_is_one_line(tmp_path, fifo, option):
    done = wrap(tmp_path, option, fifo)
    assert done.returncode == 7
    (line,) = done.stderr.splitlines()
    assert "it is a pipe that no process reads" in line


def test_the_step_s_summary_in_a_pipe_that_no_process_reads_is_one_line(tmp_path, fifo):
    done = wrap(tmp_path, GITHUB_STEP_SUMMARY=str(fifo))
    assert done.returncode == 7
    (line,) = done.stderr.splitlines()
    assert "it is a pipe that no process reads" in line


@pytest.mark.parametrize("option", ["--summary-file", "--termination-log"])
def test_the_reader_of_an_output_pipe_gets_the_summary(tmp_path, fifo, option):
    read = []
    reader = threading.Thread(target=lambda: read.append(fifo.read_text()), daemon=True)
    reader.start()
    done = wrap(tmp_path, option, fifo)
    reader.join(5)
    assert (done.returncode, done.stderr) == (7, "")
    assert "otel-memwatch" in read[0]


def test_a_pipe_as_certificate_is_one_sentence(tmp_path, fifo):
    done = wrap(tmp_path, "--prometheus", "0", "--prometheus-cert", fifo)
    assert done.returncode == 7
    assert "it is not a regular file" in done.stderr


@pytest.mark.parametrize("text", ["[" * 200_000, '{"schema": 1, "conditions": [[]], "runs": []}'])
def test_a_broken_baseline_is_a_mistake_before_the_command_starts(tmp_path, text):
    baseline = tmp_path / "baseline.json"
    baseline.write_text(text)
    marker = tmp_path / "started"
    done = run("wrap", "--baseline", baseline, "--budget", "memory=+5%", "--", "touch", marker)
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1
    assert not marker.exists()
    assert run("wrap", "--quiet", "--no-report", "--out", tmp_path / "run", "--", "true").returncode == 0
    for argv in (("compare",), ("check", "--budget", "memory=+5%")):
        done = run(*argv, "--baseline", baseline, tmp_path / "run")
        assert done.returncode == 2
        (line,) = done.stderr.splitlines()
        assert str(baseline) in line


def test_a_baseline_in_a_pipe_is_read_by_check_and_refused_by_wrap(tmp_path, fifo):
    assert run("wrap", "--quiet", "--out", tmp_path / "run", "--", "sleep", ".3").returncode == 0
    baseline = tmp_path / "baseline.json"
    assert run("check", tmp_path / "run", "--save-baseline", baseline).returncode == 0
    writer = threading.Thread(target=lambda: fifo.write_text(baseline.read_text()), daemon=True)
    writer.start()
    done = run("check", tmp_path / "run", "--baseline", fifo, "--budget", "memory=+5%")
    writer.join(5)
    assert done.returncode == 0, done.stderr
    done = run("wrap", "--baseline", fifo, "--budget", "memory=+5%", "--", "true")
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1)
    assert "it is a pipe, not a regular file" in done.stderr


@pytest.mark.parametrize(
    "argv",
    [("tradeoff",), ("runs", "import"), ("metrics", "--check"),
     ("check", "--budget", "memory=+5%", "--baseline")],
)  # fmt: skip
@pytest.mark.parametrize("name", ["/dev/zero", "fifo"])
def test_input_that_never_ends_is_one_sentence(tmp_path, fifo, argv, name):
    done = run(*argv, fifo if name == "fifo" else name)
    assert done.returncode in (1, 2)
    (line,) = done.stderr.splitlines()
    assert "cannot be read: " in line
